"""More activations, and pixel shuffles, as modules."""

from __future__ import annotations

from asyncgrad.core.frames import warn
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.activation import _AlongAxis, _InPlace
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class Hardsigmoid(_InPlace, function=F.hardsigmoid, shown=()):
    """Piecewise linear: 0 below -3, 1 above 3, and `x / 6 + 0.5` between."""


class Hardswish(_InPlace, function=F.hardswish, shown=()):
    """The input times its `Hardsigmoid`."""


class Mish(_InPlace, function=F.mish):
    """The input times the hyperbolic tangent of its softplus."""


class SELU(_InPlace, function=F.selu):
    """A scaled `ELU` whose constants keep mean 0 and variance 1 in self-normalising networks."""


class CELU(FunctionModule, function=F.celu):
    """The positive elements, and `alpha * (exp(x / alpha) - 1)` of the others."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self._keep(locals())


class Hardtanh(FunctionModule, function=F.hardtanh):
    """The input clamped between two bounds.

    Args:
        min_value: the old name of `min_val`.
        max_value: the old name of `max_val`.
    """

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
        min_value: float | None = None, max_value: float | None = None,
    ) -> None:  # fmt: skip
        if min_value is not None or max_value is not None:
            warn(
                "keyword arguments `min_value` and `max_value` are deprecated; use `min_val` and "
                "`max_val`.",
                FutureWarning,
            )
            min_val = min_val if min_value is None else min_value
            max_val = max_val if max_value is None else max_value
        if max_val <= min_val:
            raise AssertionError(f"Hardtanh: max_val has to be above min_val, got {max_val}")
        self._keep(locals())


class ReLU6(_InPlace, function=F.relu6):
    """The input clamped between 0 and 6."""


class Softsign(FunctionModule, function=F.softsign):
    """`x / (1 + |x|)`."""


class Tanhshrink(FunctionModule, function=F.tanhshrink):
    """`x - tanh(x)`."""


class PReLU(FunctionModule, function=F.prelu, members=("weight",), shown=("num_parameters",)):
    """The input, the negative elements times a learnt slope.

    Args:
        num_parameters: one slope, or one for each channel.
        init: their initial value.
        device, dtype: those of the slopes.
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._keep(locals())
        self._add_parameters({"weight": (num_parameters,)}, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to their initial value."""
        init.constant_(self.weight, self.init)


class GLU(FunctionModule, function=F.glu):
    """The first half of an axis times the logistic function of the second."""

    def __init__(self, dim: int = -1) -> None:
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
    """The inverse of `PixelShuffle`.

    Args:
        downscale_factor: the length of the squares.
    """

    def __init__(self, downscale_factor: int) -> None:
        self._keep(locals())


class Softmin(_AlongAxis, function=F.softmin):
    """The softmax of the negated elements. The argument is that of `Softmax`."""


class Softmax2d(FunctionModule):
    """The softmax over the channels at each place of an image."""

    def forward(self, input: Tensor) -> Tensor:
        """An input of shape (n, channels, rows, columns) or (channels, rows, columns)."""
        if input.ndim not in {3, 4}:
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)


class Threshold(FunctionModule, function=F.threshold):
    """Replaces elements that are not above a threshold by a number."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self._keep(locals())


class _Shrink(FunctionModule, shown=(), unnamed=("lambd",)):
    """The base of functions that are zero where `|x| <= lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        self._keep(locals())


class Hardshrink(_Shrink, function=F.hardshrink):
    """Zero where `|x| <= lambd`, and the elements themselves elsewhere."""


class Softshrink(_Shrink, function=F.softshrink):
    """Zero where `|x| <= lambd`, and the elements moved towards zero by `lambd` elsewhere."""


class RReLU(FunctionModule, function=F.rrelu):
    """The elements, with negative ones times slopes that are random in training.

    Args:
        lower: the least slope.
        upper: the greatest; in evaluation all slopes are the mean of both.
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self._keep(locals())
