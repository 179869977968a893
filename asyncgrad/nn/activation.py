"""Activations as modules."""

from __future__ import annotations

from asyncgrad.choices import GeluFormula
from asyncgrad.nn import functional as F
from asyncgrad.nn.function_module import FunctionModule


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
