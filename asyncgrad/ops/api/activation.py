"""Activation functions with ops of their own, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.choices import GeluFormula, words
from asyncgrad.ops.arguments import one_dim
from asyncgrad.ops.converted import converted
from asyncgrad.ops.dtype import FLOATING, INEXACT, check_dtype
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import cast, number_argument, operand_of
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.out import put
from asyncgrad.types import DTypeLike, Tensor

#: The functions at PyTorch's top level; the others are in `nn.functional`.
__all__ = ["log_softmax", "softmax"]
METHODS = ("log_softmax", "softmax")


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """The elements, the negative ones times a slope; the derivative at 0 is the slope."""
    return R.leaky_relu(operand_of(FLOATING, input, "leaky_relu"), negative_slope)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """The positive elements, and `alpha * (exp(x) - 1)` of the others."""
    return R.elu(operand_of(FLOATING, input, "elu"), alpha)


def gelu(input: Tensor, *, approximate: GeluFormula = "none", out: Tensor | None = None) -> Tensor:
    """The elements times the standard normal distribution function of them.

    Args:
        input: a tensor of a floating dtype.
        approximate: "none", or "tanh" for a formula without the error function.
    """
    if out is not None:
        return put(out, "gelu", gelu(input, approximate=approximate), exact=True)
    x = operand_of(FLOATING, input, "gelu")
    if approximate not in words(GeluFormula):
        raise (RuntimeError if isinstance(approximate, str) else TypeError)(
            f"gelu: approximate argument must be either none or tanh, got {approximate!r}."
        )
    return R.gelu(x) if approximate == "none" else R.gelu_tanh(x)


def silu(input: Tensor) -> Any:
    """The elements times their logistic function."""
    return R.silu(operand_of(INEXACT, input, "silu"))


def softplus(
    input: Tensor, beta: float = 1, threshold: float = 20, *, out: Tensor | None = None
) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, and x itself where `beta * x` is above the threshold."""
    if out is not None:
        return put(out, "softplus", softplus(input, beta, threshold), exact=True)
    beta = number_argument("softplus", "beta", beta)
    threshold = number_argument("softplus", "threshold", threshold)
    return R.softplus(operand_of(FLOATING, input, "softplus"), beta, threshold)


def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the logistic function."""
    if out is not None:
        return put(out, "logsigmoid", logsigmoid(input), exact=True)
    return R.logsigmoid(operand_of(FLOATING, input, "logsigmoid"))


def _normalised(name: str, doc: str) -> Callable[..., Tensor]:
    dispatch = getattr(R, name)
    node = "".join(word.capitalize() for word in name.split("_")) + "Backward0"

    def function(
        input: Tensor, dim: int, dtype: DTypeLike | None = None, *, out: Tensor | None = None
    ) -> Tensor:
        if out is not None:
            return put(out, name, function(input, dim, dtype), exact=True)
        if dtype is not None:
            input = cast(input, as_dtype(name, dtype))
        shape = input._metadata.shape
        axis = one_dim(name, dim, len(shape))
        check_dtype(name, input._metadata.dtype, FLOATING)
        if not shape:
            return renamed(R.reshape(dispatch(R.reshape(input, (1,)), 0), ()), node)
        if input._metadata.size:
            return dispatch(input, axis)
        return renamed(R.clone(input), node, saves=True)

    doc = f"""{doc}

    Args:
        input: a tensor of a floating dtype, or of any if `dtype` is given.
        dtype: the floating dtype to compute in.

    Raises:
        NotImplementedError: for a dtype that is not floating.
    """
    return converted(named(function, name, doc))


softmax = _normalised("softmax", "The exponentials, divided by their sum along `dim`.")
log_softmax = _normalised("log_softmax", "The logarithm of the softmax along `dim`.")
