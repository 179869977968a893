"""Activation functions with ops of their own, and softmax."""

from __future__ import annotations

from collections.abc import Callable

from asyncgrad.choices import GeluFormula
from asyncgrad.ops.converted import writes_exactly
from asyncgrad.ops.dtype import FLOATING, check_dtype
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import cast
from asyncgrad.ops.signatures import named
from asyncgrad.types import Axis, DTypeLike, Floating, Inexact, InPlace, Tensor

#: The functions at PyTorch's top level; the others are in `nn.functional`.
__all__ = ["log_softmax", "softmax"]
METHODS = ("log_softmax", "softmax")


def leaky_relu(input: Floating, negative_slope: float = 0.01, inplace: InPlace = False) -> Tensor:
    """The elements, the negative ones times a slope; the derivative at 0 is the slope."""
    return R.leaky_relu(input, negative_slope)


def elu(input: Floating, alpha: float = 1.0, inplace: InPlace = False) -> Tensor:
    """The positive elements, and `alpha * (exp(x) - 1)` of the others."""
    return R.elu(input, alpha)


@writes_exactly
def gelu(input: Floating, *, approximate: GeluFormula = "none") -> Tensor:
    """The elements times the standard normal distribution function of them.

    Args:
        input: a tensor of a floating dtype.
        approximate: "none", or "tanh" for a formula without the error function.
    """
    return R.gelu(input) if approximate == "none" else R.gelu_tanh(input)


def silu(input: Inexact, inplace: InPlace = False) -> Tensor:
    """The elements times their logistic function."""
    return R.silu(input)


@writes_exactly
def softplus(input: Floating, beta: float = 1, threshold: float = 20) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, and x itself where `beta * x` is above the threshold."""
    return R.softplus(input, beta, threshold)


@writes_exactly
def logsigmoid(input: Floating) -> Tensor:
    """The logarithm of the logistic function."""
    return R.logsigmoid(input)


def _normalised(name: str, doc: str) -> Callable[..., Tensor]:
    dispatch = getattr(R, name)
    node = "".join(word.capitalize() for word in name.split("_")) + "Backward0"

    def function(input: Tensor, dim: Axis, dtype: DTypeLike | None = None) -> Tensor:
        if dtype is not None:
            input = cast(input, as_dtype(name, dtype))
        shape = input._metadata.shape
        check_dtype(name, input._metadata.dtype, FLOATING)
        if not shape:
            return renamed(R.reshape(dispatch(R.reshape(input, (1,)), 0), ()), node)
        if input._metadata.size:
            return dispatch(input, dim)
        return renamed(R.clone(input), node, saves=True)

    doc = f"""{doc}

    Args:
        input: a tensor of a floating dtype, or of any if `dtype` is given.
        dtype: the floating dtype to compute in.

    Raises:
        NotImplementedError: for a dtype that is not floating.
    """
    return writes_exactly(named(function, name, doc))


softmax = _normalised("softmax", "The exponentials, divided by their sum along `dim`.")
log_softmax = _normalised("log_softmax", "The logarithm of the softmax along `dim`.")
