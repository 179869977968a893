"""Upsampling, patches (unfold and fold), and shuffles of channels and pixels."""

from __future__ import annotations

from collections.abc import Sequence

from asyncgrad.choices import ResizeMode
from asyncgrad.nn import functional as F
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.types import Ints


class Upsample(FunctionModule, function=F.interpolate):
    """Resizes images; see `nn.functional.interpolate`.

    Args:
        size: the new size, a number or one for each axis; otherwise
        scale_factor: the factor of the size.
        mode: "nearest", "linear", "bilinear", "bicubic" or "trilinear".
        align_corners: align the centres of the corner elements of input and output.
        recompute_scale_factor: compute the scale from the sizes instead of `scale_factor`.
    """

    def __init__(
        self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None,
        mode: ResizeMode = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:  # fmt: skip
        if isinstance(scale_factor, tuple):
            scale_factor = tuple(float(factor) for factor in scale_factor)
        elif scale_factor:
            scale_factor = float(scale_factor)  # type: ignore[arg-type]
        self._keep(locals())
        self.name = type(self).__name__

    def extra_repr(self) -> str:
        """The size or factor, and the mode."""
        given = "size" if self.scale_factor is None else "scale_factor"
        return f"{given}={getattr(self, given)}, mode={self.mode!r}"


class _Upsampling2d(Upsample):
    """The base of upsampling in one way."""

    _way: tuple[ResizeMode, bool | None]

    def __init__(
        self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, *self._way)


class UpsamplingNearest2d(_Upsampling2d, way=("nearest", None)):
    """Resizes images by taking the nearest elements, to a size or by a factor; see `Upsample`."""


class UpsamplingBilinear2d(_Upsampling2d, way=("bilinear", True)):
    """Resizes images by bilinear interpolation with aligned corners; see `Upsample`."""


class Unfold(FunctionModule, function=F.unfold):
    """Extracts the patches of images as columns.

    The arguments are those of `nn.functional.unfold`.

    Shapes:
        (n, channels, rows, columns) becomes (n, channels * elements of a patch, patches).
    """

    def __init__(
        self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        self._keep(locals())


class Fold(FunctionModule, function=F.fold):
    """Assembles images from patches, which are added in overlaps; see `nn.functional.fold`."""

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
        stride: Ints = 1,
    ) -> None:  # fmt: skip
        self._keep(locals())


class ChannelShuffle(FunctionModule, function=F.channel_shuffle):
    """Reorders channels: the first of each group, then the second, and so on."""

    def __init__(self, groups: int) -> None:
        self._keep(locals())


class PixelShuffle(FunctionModule, function=F.pixel_shuffle):
    """Channels laid out as squares of pixels.

    Args:
        upscale_factor: the length of the squares.

    Shapes:
        (..., channels * factor**2, h, w) becomes (..., channels, h * factor, w * factor).
    """

    def __init__(self, upscale_factor: int) -> None:
        self._keep(locals())


class PixelUnshuffle(FunctionModule, function=F.pixel_unshuffle):
    """The inverse of `PixelShuffle`."""

    def __init__(self, downscale_factor: int) -> None:
        self._keep(locals())
