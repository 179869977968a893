"""Pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.conv import for_each
from asyncgrad.nn.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable


class _MaxPool(Module):
    """The base of max-pooling: the greatest element of each window."""

    _function: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Any) -> Any:
        """The peaks of an input of shape (n, channels, *image), or without n."""
        return type(self)._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The greatest element of each window of a line.

    Args:
        kernel_size: the size of the window, a number or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows may reach beyond the sides.
        dilation: the distance between the window's elements.
        return_indices: also return the elements' indices.
        ceil_mode: let the last windows reach beyond the end.
    """

    _function = F.max_pool1d


class MaxPool2d(_MaxPool):
    """The greatest element of each window of an image. The arguments are those of `MaxPool1d`."""

    _function = F.max_pool2d


class MaxPool3d(_MaxPool):
    """The greatest element of each window of a volume. The arguments are those of `MaxPool1d`."""

    _function = F.max_pool3d


class _MaxUnpool(Module):
    """The base of unpooling: zeros, with each maximum at the index it was pooled from.

    Args:
        kernel_size: the size of the window, a number or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows reached beyond the sides.
    """

    _function: Callable[..., Any]
    _ndim: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = for_each(kernel_size, self._ndim)
        self.stride = for_each(kernel_size if stride is None else stride, self._ndim)
        self.padding = for_each(padding, self._ndim)

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
        """The peaks of an input of shape (n, channels, *image), or without n, in larger images.

        Args:
            input: the peaks.
            indices: the indices of the peaks, as pooling returns them.
            output_size: the size of the images; if None, the least size that fits.
        """
        return type(self)._function(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Undoes `MaxPool1d`: zeros, with each maximum at its former index."""

    _function = F.max_unpool1d
    _ndim = 1


class MaxUnpool2d(_MaxUnpool):
    """Undoes `MaxPool2d`: zeros, with each maximum at its former index."""

    _function = F.max_unpool2d
    _ndim = 2


class MaxUnpool3d(_MaxUnpool):
    """Undoes `MaxPool3d`: zeros, with each maximum at its former index."""

    _function = F.max_unpool3d
    _ndim = 3


class AvgPool1d(Module):
    """The mean of each window of a line.

    Args:
        kernel_size: the length of the window.
        stride: the step of the window; its length if None.
        padding: zeros on both sides.
        ceil_mode: let the last windows reach beyond the end.
        count_include_pad: include those zeros in the mean.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = for_each(kernel_size, 1)
        self.stride = for_each(kernel_size if stride is None else stride, 1)
        self.padding = for_each(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Any) -> Any:
        """The means of an input of shape (n, channels, length), or without n."""
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    """The mean of each window of an image or a volume."""

    _function: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Any) -> Any:
        """The means of an input of shape (n, channels, *image), or without n."""
        return type(self)._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The mean of each window of an image.

    Args:
        kernel_size: the size of the window, a number or one for each axis.
        stride: the step of the window; its size if None.
        padding: zeros on both sides.
        ceil_mode: let the last windows reach beyond the end.
        count_include_pad: include those zeros in the mean.
        divisor_override: divide the sums by this number.
    """

    _function = F.avg_pool2d


class AvgPool3d(_AvgPool):
    """The mean of each window of a volume. The arguments are those of `AvgPool2d`."""

    _function = F.avg_pool3d


class _AdaptiveAvgPool(Module):
    """The means of windows that divide the input nearly evenly, for lines or images."""

    _function: Callable[..., Any]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Any) -> Any:
        """The means of an input of shape (n, channels, *image), or without n."""
        return type(self)._function(input, self.output_size)

    def extra_repr(self) -> str:
        """The number of windows, as `repr` shows it."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of `output_size` windows that divide a line nearly evenly."""

    _function = F.adaptive_avg_pool1d


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of windows that divide an image nearly evenly.

    Args:
        output_size: the number of windows, or one for rows and one for columns; None for as many
            as there are elements.
    """

    _function = F.adaptive_avg_pool2d


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of windows that divide a volume nearly evenly.

    Args:
        output_size: the number of windows, or one for each axis; None for as many as there are
            elements.
    """

    _function = F.adaptive_avg_pool3d


class _AdaptiveMaxPool(Module):
    """The greatest elements of windows that divide the input nearly evenly."""

    _function: Callable[..., Any]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Any) -> Any:
        """The peaks of an input of shape (n, channels, *image), or without n."""
        return type(self)._function(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        """The number of windows, as `repr` shows it."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest elements of `output_size` windows that divide a line nearly evenly.

    Args:
        output_size: the number of windows.
        return_indices: also return the elements' indices.
    """

    _function = F.adaptive_max_pool1d


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest elements of windows that divide an image nearly evenly.

    Args:
        output_size: the number of windows, or one for rows and one for columns; None for as many
            as there are elements.
        return_indices: also return the elements' indices in their planes.
    """

    _function = F.adaptive_max_pool2d


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest elements of windows that divide a volume nearly evenly.

    Args:
        output_size: the number of windows, or one for each axis; None for as many as there are
            elements.
        return_indices: also return the elements' indices in their volumes.
    """

    _function = F.adaptive_max_pool3d


class _FractionalMaxPool(Module):
    """The base of fractional max-pooling, whose windows move by random steps."""

    _function: Callable[..., Any]
    _ndim: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        ndim = self._ndim
        self.kernel_size = for_each(kernel_size, ndim)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else for_each(output_size, ndim)
        self.output_ratio = None if output_ratio is None else for_each(output_ratio, ndim)
        if ndim == 3 and min(self.kernel_size) <= 0:
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                f"ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Any) -> Any:
        """The peaks of an input of shape (n, channels, *image), or without n."""
        return type(self)._function(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The greatest elements of windows that are moved over an image by random steps.

    Args:
        kernel_size: the size of the window, a number or one for each axis.
        output_size: the number of windows, or one for rows and one for columns; or else
        output_ratio: the ratio of the output's size to the input's.
        return_indices: also return the elements' indices in their planes.

    Raises:
        ValueError: unless exactly one of size and ratio is given, and ratios are in (0, 1).
    """

    _function = F.fractional_max_pool2d
    _ndim = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max-pooling of a volume. The arguments are those of `FractionalMaxPool2d`."""

    _function = F.fractional_max_pool3d
    _ndim = 3
