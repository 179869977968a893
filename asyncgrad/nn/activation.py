"""Activations as modules."""

from __future__ import annotations

from asyncgrad.choices import GeluFormula
from asyncgrad.core.frames import warn
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class Tanh(FunctionModule, function=F.tanh):
    """The hyperbolic tangent."""


class Sigmoid(FunctionModule, function=F.sigmoid):
    """The logistic function, `1 / (1 + exp(-x))`."""


class LogSigmoid(FunctionModule, function=F.logsigmoid):
    """The logarithm of the logistic function."""


class _InPlace(FunctionModule):
    """The base of activations with no other option than `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        self._keep(locals())


class ReLU(_InPlace, function=F.relu):
    """The positive part, `max(x, 0)`."""


class SiLU(_InPlace, function=F.silu):
    """The input times its logistic function. The argument is that of `ReLU`."""


class LeakyReLU(FunctionModule, function=F.leaky_relu):
    """The input, times a slope where it is negative."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self._keep(locals())


class ELU(FunctionModule, function=F.elu):
    """The input, or `alpha * (exp(x) - 1)` where it is negative.

    Args:
        alpha: the function tends to `-alpha` for negative inputs.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self._keep(locals())


class GELU(FunctionModule, function=F.gelu):
    """The input times the standard normal distribution function of it.

    Args:
        approximate: "none" or "tanh".
    """

    def __init__(self, approximate: GeluFormula = "none") -> None:
        self._keep(locals())


class Softplus(FunctionModule, function=F.softplus):
    """The smooth positive part, `log(1 + exp(beta * x)) / beta`.

    Args:
        beta: the sharpness of the bend.
        threshold: where `beta * x` exceeds it, the result is `x`.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self._keep(locals())


class _AlongAxis(FunctionModule):
    """The base of functions of the elements along an axis."""

    def __init__(self, dim: int | None = None) -> None:
        self._keep(locals())


class Softmax(_AlongAxis, function=F.softmax):
    """Positive numbers that sum to 1 along an axis.

    Args:
        dim: the axis; None for PyTorch's deprecated choice, which is warned of.
    """


class LogSoftmax(_AlongAxis, function=F.log_softmax):
    """The logarithm of the softmax. The argument is that of `Softmax`."""


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

    #: The bounds, as those of `Hardtanh`.
    min_val, max_val = 0.0, 6.0


class Softsign(FunctionModule, function=F.softsign):
    """`x / (1 + |x|)`."""


class Tanhshrink(FunctionModule, function=F.tanhshrink):
    """`x - tanh(x)`."""


class PReLU(FunctionModule, function=F.prelu, members=("weight",), shown=("num_parameters",)):
    """The input, the negative elements times a learnt slope.

    Args:
        num_parameters: one slope, or one for each channel.
        init: their initial value.
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
