"""Pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from asyncgrad.nn import functional as F
from asyncgrad.nn.conv import for_each
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.types import Ints, OutputSize, Tensor

_WINDOWS = ("kernel_size", "stride", "padding")


class _MaxPool(FunctionModule, shown=(*_WINDOWS, "dilation", "ceil_mode")):
    """The base of max-pooling: the greatest element of each window."""

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        stride = kernel_size if stride is None else stride
        self._keep(locals())


class MaxPool1d(_MaxPool, function=F.max_pool1d):
    """The greatest element of each window of a line.

    Args:
        kernel_size: the size of the window, a number or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows may reach beyond the sides.
        dilation: the distance between the window's elements.
        return_indices: also return the elements' indices.
        ceil_mode: let the last windows reach beyond the end.
    """


class MaxPool2d(_MaxPool, function=F.max_pool2d):
    """The greatest element of each window of an image. The arguments are those of `MaxPool1d`."""


class MaxPool3d(_MaxPool, function=F.max_pool3d):
    """The greatest element of each window of a volume. The arguments are those of `MaxPool1d`."""


class _MaxUnpool(FunctionModule, shown=_WINDOWS):
    """The base of unpooling: zeros, with each maximum at the index it was pooled from.

    Calling it takes the peaks of an input of shape (n, channels, *image), or without n, their
    indices as pooling returns them, and the size of the larger images; if None, the least that
    fits.
    """

    def forward(  # type: ignore[override,empty-body]
        self, input: Tensor, indices: Tensor, output_size: Ints | None = None
    ) -> Tensor:
        """Call the function with the options."""

    _ndim: int

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        stride = for_each(kernel_size if stride is None else stride, self._ndim)
        kernel_size, padding = for_each(kernel_size, self._ndim), for_each(padding, self._ndim)
        self._keep(locals())


class MaxUnpool1d(_MaxUnpool, function=F.max_unpool1d, ndim=1):
    """Undoes `MaxPool1d`, with its arguments: zeros, with each maximum at its former index."""


class MaxUnpool2d(_MaxUnpool, function=F.max_unpool2d, ndim=2):
    """Undoes `MaxPool2d`: zeros, with each maximum at its former index."""


class MaxUnpool3d(_MaxUnpool, function=F.max_unpool3d, ndim=3):
    """Undoes `MaxPool3d`: zeros, with each maximum at its former index."""


class AvgPool1d(FunctionModule, function=F.avg_pool1d, shown=_WINDOWS):
    """The mean of each window of a line. The arguments are those of `nn.functional.avg_pool1d`."""

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        stride = for_each(kernel_size if stride is None else stride, 1)
        kernel_size, padding = for_each(kernel_size, 1), for_each(padding, 1)
        self._keep(locals())


class _AvgPool(FunctionModule, shown=_WINDOWS):
    """The mean of each window of an image or a volume."""

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        stride = kernel_size if stride is None else stride
        self._keep(locals())


class AvgPool2d(_AvgPool, function=F.avg_pool2d):
    """The mean of each window of an image.

    Args:
        kernel_size: the size of the window, a number or one for each axis.
        stride: the step of the window; its size if None.
        padding: zeros on both sides.
        ceil_mode: let the last windows reach beyond the end.
        count_include_pad: include those zeros in the mean.
        divisor_override: divide the sums by this number.
    """


class AvgPool3d(_AvgPool, function=F.avg_pool3d):
    """The mean of each window of a volume. The arguments are those of `AvgPool2d`."""


class _AdaptiveAvgPool(FunctionModule):
    """The base of means of windows that divide the input nearly evenly."""

    def __init__(self, output_size: OutputSize) -> None:
        self._keep(locals())


class AdaptiveAvgPool1d(_AdaptiveAvgPool, function=F.adaptive_avg_pool1d):
    """The means of windows that divide a line nearly evenly.

    Args:
        output_size: the number of windows, or one for each axis; None for as many as there are
            elements.
    """


class AdaptiveAvgPool2d(_AdaptiveAvgPool, function=F.adaptive_avg_pool2d):
    """The means of windows that divide an image nearly evenly; see `AdaptiveAvgPool1d`."""


class AdaptiveAvgPool3d(_AdaptiveAvgPool, function=F.adaptive_avg_pool3d):
    """The means of windows that divide a volume nearly evenly; see `AdaptiveAvgPool1d`."""


class _AdaptiveMaxPool(FunctionModule, shown=("output_size",)):
    """The base of the greatest elements of windows that divide the input nearly evenly."""

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        self._keep(locals())


class AdaptiveMaxPool1d(_AdaptiveMaxPool, function=F.adaptive_max_pool1d):
    """The greatest elements of windows that divide a line nearly evenly.

    Args:
        output_size: as for `AdaptiveAvgPool1d`.
        return_indices: also return the elements' indices in their line, image or volume.
    """


class AdaptiveMaxPool2d(_AdaptiveMaxPool, function=F.adaptive_max_pool2d):
    """The maxima of windows that divide an image nearly evenly; see `AdaptiveMaxPool1d`."""


class AdaptiveMaxPool3d(_AdaptiveMaxPool, function=F.adaptive_max_pool3d):
    """The maxima of windows that divide a volume nearly evenly; see `AdaptiveMaxPool1d`."""


class _FractionalMaxPool(FunctionModule, shown=(), buffer_options=("_random_samples",)):
    """The base of fractional max-pooling, whose windows move by random steps."""

    _ndim: int

    def __init__(
        self, kernel_size: Ints, output_size: Ints | None = None,
        output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:  # fmt: skip
        if self._ndim == 3 and min(for_each(kernel_size, 3)) <= 0:
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                f"ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        kernel_size = for_each(kernel_size, self._ndim)
        if output_size is not None:
            output_size = for_each(output_size, self._ndim)
        if output_ratio is not None:
            ratios = for_each(output_ratio, self._ndim)
            if not all(0 < ratio < 1 for ratio in ratios):
                raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
            output_ratio = ratios
        self._keep(locals())


class FractionalMaxPool2d(_FractionalMaxPool, function=F.fractional_max_pool2d, ndim=2):
    """The greatest elements of windows that are moved over an image by random steps.

    The arguments are those of `nn.functional.fractional_max_pool2d`. Exactly one of the output's
    size and ratio has to be given.
    """


class FractionalMaxPool3d(_FractionalMaxPool, function=F.fractional_max_pool3d, ndim=3):
    """Fractional max-pooling of a volume. The arguments are those of `FractionalMaxPool2d`."""


class _LPPool(FunctionModule, shown=("norm_type", "kernel_size", "stride", "ceil_mode")):
    """The p-norm of each window, of which `norm_type` is the p."""

    _pool: Callable[..., Tensor]

    def __init__(
        self, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def forward(self, input: Tensor) -> Tensor:
        """The norms of an input of shape (n, channels, *image), or without n."""
        # As in PyTorch the power is floating, so that powers of integers are floating, too.
        return type(self)._pool(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_LPPool, pool=F.lp_pool1d):
    """The p-norm of each window of a line; the other arguments are those of `MaxPool1d`."""


class LPPool2d(_LPPool, pool=F.lp_pool2d):
    """The p-norm of each window of an image."""


class LPPool3d(_LPPool, pool=F.lp_pool3d):
    """The p-norm of each window of a volume."""
