"""Upsampling, patches (unfold and fold), channel shuffle and power-average pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable


class Upsample(Module):
    """Resizes images; see `nn.functional.interpolate`.

    Args:
        size: the new size, a number or one for each axis; otherwise
        scale_factor: the factor of the size.
        mode: "nearest", "linear", "bilinear", "bicubic" or "trilinear".
        align_corners: align the centres of the corner elements of input and output.
        recompute_scale_factor: compute the scale from the sizes instead of `scale_factor`.
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            scale_factor = tuple(float(factor) for factor in scale_factor)
        elif scale_factor:
            scale_factor = float(scale_factor)
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Any) -> Any:
        """An input of shape (n, channels, *image)."""
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        """The size or factor, and the mode."""
        given = (
            f"size={self.size}"
            if self.scale_factor is None
            else f"scale_factor={self.scale_factor}"
        )
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes images by taking the nearest elements.

    Args:
        size: the new size; or else
        scale_factor: the factor of the size.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images by bilinear interpolation with aligned corners.

    Args:
        size: the new size; or else
        scale_factor: the factor of the size.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class Unfold(Module):
    """Extracts the patches of images as columns.

    Args:
        kernel_size: the size of the patches, a number or one for each axis.
        dilation: the distance between the patch's elements.
        padding: zeros on both sides.
        stride: how far patches are apart.
    """

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Any) -> Any:
        """(n, channels, rows, columns) as (n, channels * elements of a patch, patches)."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Assembles images from patches, which are added where they overlap.

    Args:
        output_size: the size of the images.
        kernel_size: the size of the patches, a number or one for each axis.
        dilation: the distance between the patch's elements.
        padding: the width that is cut off on each side.
        stride: how far patches are apart.
    """

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Any) -> Any:
        """(n, channels * elements of a patch, patches) as (n, channels, rows, columns)."""
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class ChannelShuffle(Module):
    """Reorders channels: the first of each group, then the second, and so on.

    Args:
        groups: the number of groups.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Any) -> Any:
        """The reordered channels, of the input's shape."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The number of groups, as `repr` shows it."""
        return f"groups={self.groups}"


class _LPPool(Module):
    """The p-norm of each window.

    Args:
        norm_type: p.
        kernel_size: the size of the window.
        stride: the step of the window; its size if None.
        ceil_mode: let the last windows reach beyond the end.
    """

    _function: Callable[..., Any]

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Any) -> Any:
        """The norms of an input of shape (n, channels, *image), or without n."""
        return type(self)._function(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of a line."""

    _function = F.lp_pool1d


class LPPool2d(_LPPool):
    """The p-norm of each window of an image."""

    _function = F.lp_pool2d


class LPPool3d(_LPPool):
    """The p-norm of each window of a volume."""

    _function = F.lp_pool3d
