"""Activations as modules."""

from __future__ import annotations

from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.module import Module


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Any) -> Any:
        """`tanh(x)` of each element."""
        return F.tanh(input)


class Sigmoid(Module):
    """The logistic function."""

    def forward(self, input: Any) -> Any:
        """`1 / (1 + exp(-x))` of each element."""
        return F.sigmoid(input)


class LogSigmoid(Module):
    """The logarithm of the logistic function."""

    def forward(self, input: Any) -> Any:
        """`log(sigmoid(x))` of each element."""
        return F.logsigmoid(input)


class ReLU(Module):
    """The positive part.

    Args:
        inplace: overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """`max(x, 0)` of each element."""
        return F.relu(input, self.inplace)

    def extra_repr(self) -> str:
        """Whether the input is overwritten."""
        return "inplace=True" if self.inplace else ""


class SiLU(Module):
    """The input times its logistic function.

    Args:
        inplace: overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """`x * sigmoid(x)` of each element."""
        return F.silu(input, self.inplace)

    def extra_repr(self) -> str:
        """Whether the input is overwritten."""
        return "inplace=True" if self.inplace else ""


class LeakyReLU(Module):
    """The input, times a slope where it is negative.

    Args:
        negative_slope: the slope.
        inplace: overwrite the input.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The elements, the negative ones times the slope."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The slope, and whether the input is overwritten."""
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """The input, or `alpha * (exp(x) - 1)` where it is negative.

    Args:
        alpha: the function tends to `-alpha` for negative inputs.
        inplace: overwrite the input.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The positive elements, and `alpha * (exp(x) - 1)` of the others."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The factor, and whether the input is overwritten."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """The input times the standard normal distribution function of it.

    Args:
        approximate: "none" or "tanh".
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        """`x * Phi(x)` of each element."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The approximation, as `repr` shows it."""
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """The smooth positive part, `log(1 + exp(beta * x)) / beta`.

    Args:
        beta: the sharpness of the bend.
        threshold: where `beta * x` exceeds it, the result is `x`.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Any) -> Any:
        """`log(1 + exp(beta * x)) / beta` of each element."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softmax(Module):
    """Positive numbers that sum to 1 along an axis.

    Args:
        dim: the axis.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The softmax along `dim`."""
        return F.softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The axis, as `repr` shows it."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """The logarithm of the softmax along an axis.

    Args:
        dim: the axis.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The logarithm of the softmax along `dim`."""
        return F.log_softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The axis, as `repr` shows it."""
        return f"dim={self.dim}"
