"""Elementwise functions and comparisons.

Most are made from the rows of the table. Functions with further arguments are written out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from asyncgrad.choices import Rounding, words
from asyncgrad.core.recording import again, note_look
from asyncgrad.core.variable import Variable, requires_grad
from asyncgrad.ops import promotion
from asyncgrad.ops.api.public import publish
from asyncgrad.ops.arguments import number_argument
from asyncgrad.ops.converted import one_node, writes_exactly
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.table import elementwise as table
from asyncgrad.ops.tensors.in_place import filling
from asyncgrad.ops.tensors.out import put
from asyncgrad.types import Array, Mask, Number, Tensor

__all__ = [
    "add", "clamp", "clamp_max", "clamp_min", "clip", "div", "divide", "fill", "masked_fill",
    "positive", "pow", "round", "rsub", "sub", "subtract", "true_divide", "where",
]  # fmt: skip
METHODS = tuple([name for name in __all__ if name not in {"fill", "rsub", "where"}])
IN_PLACE = tuple([name for name in METHODS if name != "positive"])

publish(globals(), table.OPS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The functions that are made from rows."""


@requires(
    "input.dtype != bool  # The `+` operator, on a bool tensor is not supported. Convert it to an "
    "integer dtype"
)
def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        RuntimeError: for booleans.
    """
    return input


@writes_exactly
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Each element rounded to the nearest, halves to even; the gradient is 0.

    Args:
        input: any real tensor.
        decimals: how many decimal places are kept; if negative, places before the point.

    Raises:
        NotImplementedError: for dtypes that are not rounded, or integers with `decimals`.
    """
    return R.round_decimals(input, decimals) if decimals else R.round(input)


#: The default of `alpha`, compared by identity, since True and 1.0 are equal to it.
_ONE = 1


def add(
    input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """`input + alpha * other`, broadcast.

    Raises:
        RuntimeError: if the shapes can't be broadcast, or `alpha` has a higher kind of dtype.
    """
    if out is not None:
        return put(out, "add", add(input, other, alpha=alpha))
    if alpha is not _ONE:
        other = _scaled("add", input, other, alpha)
    return R.add(input, other)


def sub(
    input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """`input - alpha * other`, broadcast.

    Raises:
        RuntimeError: if the shapes can't be broadcast, for booleans, or if `alpha` has a dtype
            above theirs.
    """
    if out is not None:
        return put(out, "sub", sub(input, other, alpha=alpha))
    if alpha is not _ONE:
        other = _scaled("sub", input, other, alpha)
    return R.sub(input, other)


@one_node("RsubBackward0")
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """`other - alpha * input`, broadcast."""
    return sub(other, input, alpha=alpha)


def check_factor(name: str, value: Number, kind: str) -> None:
    """Raise unless a factor leaves results of a kind what they are."""
    if isinstance(value, bool) and kind != "b":
        raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
    if isinstance(value, complex) and kind != "c":
        raise RuntimeError(
            f"For non-complex input tensors, argument {name} must not be a complex number."
        )
    if isinstance(value, float) and kind in "biu":
        raise RuntimeError(
            f"For integral input tensors, argument {name} must not be a floating point number."
        )


def _scaled(name: str, input: Tensor | Number, other: Tensor | Number, alpha: Number) -> Any:
    """Multiply the second operand by `alpha`, which must not raise the dtype."""
    alpha = number_argument(name, "alpha", alpha)
    dtype = promotion.result_dtype(input, other)
    check_factor("alpha", alpha, dtype.kind)
    if dtype.kind in "biu":
        alpha = fitted(name, alpha, dtype)
    if alpha == 1:
        return other
    if other.__class__ is int or other.__class__ is float:
        return other * alpha
    if isinstance(other, Variable) and other._metadata.dtype != dtype:
        if name == "sub" and other._metadata.dtype.kind == "b":
            table.refuse_bool_difference(input, other)
        # The product is not rounded to a narrower dtype, and an integer not raised to the default.
        other = promotion.cast(other, dtype)
    # As in PyTorch, where `add` multiplies, no tensor is saved for the backward pass.
    return renamed(R.mul(other, alpha), "MulBackward0", saves=False)


def div(
    input: Tensor | Number, other: Tensor | Number, *, rounding_mode: Rounding | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`input / other`, broadcast.

    Args:
        rounding_mode: None for the true quotient, "trunc" to round it towards 0, "floor" to
            round it down; rounded quotients keep integers and have a gradient of 0.

    Raises:
        RuntimeError: if the shapes can't be broadcast, for another rounding mode, or where
            integers are divided by zero and rounded.
    """
    if out is not None:
        return put(out, "div", div(input, other, rounding_mode=rounding_mode))
    if rounding_mode is None:
        return R.div(input, other)
    if rounding_mode not in words(Rounding):
        raise (RuntimeError if isinstance(rounding_mode, str) else TypeError)(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"{rounding_mode!r}"
        )
    return (R.div_trunc if rounding_mode == "trunc" else R.div_floor)(input, other)


def pow(input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input` to the power of `exponent`, broadcast.

    Raises:
        RuntimeError: if the shapes can't be broadcast, or for integers to a negative number.
        NotImplementedError: for booleans.
    """
    if out is not None:
        return put(out, "pow", pow(input, exponent))
    if not isinstance(input, Variable) and not isinstance(exponent, Variable):
        raise promotion.refusal(input, "pow", 1)
    return R.pow(input, exponent)


def clamp(
    input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None, *,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Clamp each element to [min, max]; at the bounds the gradient passes.

    Args:
        input: any real tensor.
        min: the lower bound: a number, a tensor (broadcast) or None.
        max: the upper bound; it takes precedence where it is below `min`.

    Raises:
        RuntimeError: without a bound, if an integer dtype can't hold a bound, or if the shapes
            can't be broadcast.
        TypeError: if one bound is a number and the other a tensor with axes.
    """
    if out is not None:
        exact = not (isinstance(min, Variable) or isinstance(max, Variable))
        return put(out, "clamp", clamp(input, min, max), exact=exact)
    x = promotion.as_tensor_operand(input, "clamp", 1)
    if isinstance(min, Variable) or isinstance(max, Variable):
        numbers = [bound for bound in (min, max) if promotion.as_number(bound) is not None]
        if not numbers or any(requires_grad(b) for b in (min, max) if isinstance(b, Variable)):
            return _clamp_by_tensors(x, min, max)
        # A number beside another may stand in a tensor.
        min, max = number_argument("clamp", "min", min), number_argument("clamp", "max", max)
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    dtype = x._metadata.dtype
    if dtype.kind == "f" and min.__class__ in _PLAIN and max.__class__ in _PLAIN:
        return R.clamp(x, min, max)
    wanted = dtype
    bounds = [None, None]
    for place, bound in enumerate((min, max)):
        if bound is not None:
            number = bounds[place] = promotion.as_number(bound)
            if number is None:
                raise promotion.refusal(bound, "clamp", place + 2)
            wanted = promotion.number_result(wanted, number)
    if wanted.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    if wanted is not dtype:
        x = promotion.cast(x, wanted)
    try:
        return R.clamp(x, *bounds)
    except OverflowError:
        return R.clamp(x, *[b if b is None else fitted("clamp", b, wanted) for b in bounds])


#: Types of bounds that do not change a floating dtype.
_PLAIN = frozenset({type(None), int, float})


def _clamp_by_tensors(x: Tensor, low: Any, high: Any) -> Any:
    for place, bound in enumerate((low, high)):
        if bound is not None and not isinstance(bound, Variable):
            raise promotion.refusal(bound, "clamp", place + 2)
    if high is None:
        return renamed(R.clamp_low(x, low), "ClampBackward0")
    if low is None:
        return renamed(R.clamp_high(x, high), "ClampBackward0")
    dtype = promotion.result_dtype(x, low, high)
    operands = [promotion.cast(operand, dtype) for operand in (x, low, high)]
    try:
        return R.clamp_between(*operands)
    except ValueError:
        for bound in operands[1:]:
            promotion.check_broadcast("clamp", x, bound)
        promotion.check_broadcast("clamp", *operands[1:])
        raise


def clamp_min(input: Tensor, min: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """The elements, or `min` where they are less."""
    if out is not None:
        return put(out, "clamp_min", clamp_min(input, min), exact=not isinstance(min, Variable))
    return renamed(clamp(input, min), _one_bound("Min", min))


def clamp_max(input: Tensor, max: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """The elements, or `max` where they are greater."""
    if out is not None:
        return put(out, "clamp_max", clamp_max(input, max), exact=not isinstance(max, Variable))
    return renamed(clamp(input, None, max), _one_bound("Max", max))


def _one_bound(which: str, bound: Any) -> str:
    return f"Clamp{which}Backward{int(isinstance(bound, Variable))}"


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(
    condition: Tensor, input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
def where(
    condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None = None,
    *, out: Tensor | None = None,
) -> Any:  # fmt: skip
    """`input` where the condition holds, `other` elsewhere, broadcast.

    Args:
        condition: a bool tensor.
        input: a tensor or a number; without `input` and `other`, the indices where the condition
            holds are returned, one tensor for each axis.
        other: a tensor or a number; two numbers are promoted as if they were tensors.
    """
    if out is not None:
        result = where(condition, input, other)  # type: ignore[arg-type]
        return put(out, "where", result, exact=True)
    condition = promotion.as_tensor_operand(condition, "where", 1)
    if input is None and other is None:
        note_look("where() with one argument")
        return condition.nonzero(as_tuple=True)
    kind = condition._metadata.dtype
    if kind == np.uint8:
        condition = promotion.cast(condition, np.dtype(bool))
    elif kind.kind != "b":
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{kind}. Compare it with something."
        )
    x: Any = input
    y: Any = other
    same = x.__class__ is y.__class__ and isinstance(x, Variable)
    if not same or x._metadata is not y._metadata:
        x, y = _alike(x, y, condition)
    try:
        return R.where(condition, x, y)
    except ValueError:
        promotion.check_broadcast("where", condition, x)
        promotion.check_broadcast("where", condition, y)
        promotion.check_broadcast("where", x, y)
        raise


def _alike(x: Any, y: Any, like: Any) -> tuple[Any, Any]:
    """Convert two operands to tensors of one dtype."""
    if isinstance(x, Variable):
        dtype = x._metadata.dtype
        if isinstance(y, Variable):
            if x._metadata.device is not y._metadata.device:
                x, y = promotion.on_common_device("where", x, y)
            dtype = promotion.common_dtype(x, y)
            return promotion.cast(x, dtype), promotion.cast(y, dtype)
        if y.__class__ is float and dtype.kind == "f":
            return x, promotion.constant(y, like, dtype)
    values = []
    for place, operand in enumerate((x, y)):
        value = operand if isinstance(operand, Variable) else promotion.as_number(operand)
        if value is None:
            raise promotion.refusal(operand, "where", place + 2)
        values.append(value)
    dtype = promotion.result_dtype(*values)

    def converted(value: Any) -> Any:
        if isinstance(value, Variable):
            return promotion.cast(value, dtype)
        return promotion.constant(
            fitted("where", value, dtype) if dtype.kind in "iu" else value, like, dtype
        )

    return converted(values[0]), converted(values[1])


def fill(input: Tensor, value: Tensor | Number) -> Tensor:
    """A tensor like this one, filled with one value.

    Args:
        value: a number, or a tensor without dimensions, which gets the gradient.
    """
    node = "FillBackward1" if isinstance(value, Variable) else "FillBackward0"
    value = promotion.cast(filling("fill", value, input), input._metadata.dtype)
    whole = R.clone(R.expand(value, input._metadata.shape), "C")
    return renamed(R.overwrite(input, whole), node)


def masked_fill(input: Tensor, mask: Mask, value: Tensor | Number) -> Tensor:
    """`input` with `value` where the mask holds, broadcast.

    Args:
        input: any tensor; the result has its dtype.
        mask: a bool tensor.
        value: a number, or a tensor without dimensions.
    """
    dtype = input._metadata.dtype
    try:
        if not isinstance(value, Variable):
            number = promotion.as_number(value)
            if number is None:
                raise promotion.refusal(value, "masked_fill", 3)
            return R.masked_fill(input, mask, fitted("masked_fill", number, dtype))
        if value._metadata.shape:
            raise unmet("masked_fill", "masked_fill_ only supports a 0-dimensional value tensor. "
                        "Reduce it or use where()", value=value)  # fmt: skip
        input, value = promotion.on_common_device("masked_fill", input, value)
        return renamed(
            R.where(mask, held("masked_fill", value, dtype), input), "MaskedFillBackward1"
        )
    except ValueError:
        promotion.check_broadcast("masked_fill", input, mask)
        raise


def held(name: str, value: Any, dtype: Any) -> Tensor:
    """A number in a tensor, in a dtype that must hold it; not read in batches and on devices."""
    found = value._metadata.dtype
    if not value._batched and isinstance(value._array, np.ndarray):
        if found != dtype:
            again(_check_held, name, value._array, dtype)
    elif promotion.category(found) == 3 and promotion.category(dtype) < 3:
        raise unmet(name, f"value cannot be converted to type {dtype} without overflow",
                    value=value.dtype)  # fmt: skip
    return promotion.cast(value, dtype)


def _check_held(name: str, array: Array, dtype: Any) -> None:
    fitted(name, array.item(), dtype)


# PyTorch's other names.
clip = clamp
divide = div
subtract = sub
true_divide = div
