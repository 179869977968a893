"""Inverse hyperbolic, error and gamma functions, and functions of two operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.public import publish
from asyncgrad.ops.converted import one_node, writes, writes_exactly
from asyncgrad.ops.dtype import FLOATING, REAL, check_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import cast, category, default_dtype, result_dtype
from asyncgrad.ops.requirements import requires
from asyncgrad.ops.signatures import named
from asyncgrad.ops.table import transcendental as table
from asyncgrad.types import Alike, Tensor

__all__ = [
    "deg2rad", "fmax", "fmin", "heaviside", "logaddexp2", "logit", "mvlgamma", "polygamma",
    "rad2deg",
]  # fmt: skip
METHODS = tuple([name for name in __all__ if name != "polygamma"])
IN_PLACE = tuple([name for name in METHODS if name not in {"fmax", "fmin", "logaddexp2"}])

publish(globals(), table.OPS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The functions that are made from rows."""


@one_node("MvlgammaBackward0", writes)
@requires(
    "p >= 1  # p has to be greater than or equal to 1",
    "input.dtype != bool  # The input tensor may not be a boolean tensor",
)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`.

    Args:
        input: any real tensor, above `(p - 1) / 2`.
    """
    x = _floating(input)
    out = R.lgamma(x)
    for i in range(1, p):
        out = R.add(out, R.lgamma(R.sub_scalar(x, i / 2)))
    return R.add_scalar(out, p * (p - 1) / 4 * math.log(math.pi))


@writes
@requires("n >= 0  # polygamma(n, x) does not support negative n")
def polygamma(n: int, input: Tensor) -> Tensor:
    """The derivative of `digamma` of order `n`."""
    x = _floating(input)
    return R.digamma(x) if n == 0 else R.polygamma(x, n)


def _floating(input: Tensor) -> Any:
    return cast(input, default_dtype()) if category(input._metadata.dtype) < 2 else input


def _angles(name: str, node: str, doc: str, factor: float) -> Callable[..., Tensor]:
    @requires(f"not input.is_complex()  # {name} is not supported for complex tensors")
    def function(input: Tensor) -> Tensor:
        return renamed(R.mul_scalar(_floating(input), factor), node, saves=False)

    return writes(named(function, name, doc))


deg2rad = _angles("deg2rad", "Deg2RadBackward0", "Convert degrees to radians.", math.pi / 180)
rad2deg = _angles("rad2deg", "Rad2DegBackward0", "Convert radians to degrees.", 180 / math.pi)


@writes
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """The logarithm of the odds, `log(x / (1 - x))`.

    Args:
        input: probabilities.
        eps: probabilities are clamped to [eps, 1 - eps]; outside there is no gradient.
    """
    x = _floating(input)
    check_dtype("logit", x._metadata.dtype, FLOATING)
    if eps is not None:
        x = R.clamp(x, eps, 1 - eps)
    return R.logit(x)


def _with_numbers(name: str, doc: str, first_wins: Callable[[Any, Any], Any]) -> Any:
    """The greater or less of two elements; NaN is only chosen if both are NaN."""

    def function(input: Tensor, other: Tensor) -> Tensor:
        for operand in (input, other):
            check_dtype(name, operand._metadata.dtype, f"{REAL}b")
        return where(first_wins(input, other) | R.isnan(other), input, other)

    return one_node(f"{name.capitalize()}Backward0", writes)(named(function, name, doc))


fmax = _with_numbers(
    "fmax", "The greater of two elements, broadcast; a number is greater than NaN.",
    lambda x, y: x >= y,
)  # fmt: skip
fmin = _with_numbers(
    "fmin", "The less of two elements, broadcast; a number is less than NaN.",
    lambda x, y: x <= y,
)  # fmt: skip


@one_node("Logaddexp2Backward0", writes)
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """The logarithm to base 2 of the sum of powers of 2, broadcast."""
    dtype = result_dtype(input, other)
    check_dtype("logaddexp2", dtype, FLOATING)
    return R.logaddexp2(cast(input, dtype), cast(other, dtype))


@writes_exactly
@requires("not input.is_complex()  # heaviside is not yet implemented for complex tensors")
def heaviside(input: Tensor, values: Alike) -> Tensor:
    """1 for positive elements, 0 for negative ones, and `values` at 0, broadcast.

    Raises:
        RuntimeError: for complex numbers, or if the dtypes differ.
        NotImplementedError: in the backward pass: there is no derivative.
    """
    return R.heaviside(input, values)
