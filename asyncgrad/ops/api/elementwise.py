"""Elementwise functions and comparisons.

Most are the table's functions themselves. Functions with further arguments are written out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import Variable, wrap
from asyncgrad.ops.arguments import one_int
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import one_node, renamed
from asyncgrad.ops.promotion import (
    as_number,
    as_tensor_operand,
    beside,
    cast,
    category,
    check_broadcast,
    common_dtype,
    constant,
    number_argument,
    number_result,
    refusal,
    result_dtype,
)
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.out import put, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.tensor import Tensor
    from asyncgrad.types import Number

__all__ = [
    "abs", "absolute", "acos", "add", "arccos", "arcsin", "arctan", "arctan2", "asin", "atan",
    "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "ceil", "clamp", "clamp_max", "clamp_min", "clip", "cos",
    "cosh", "div", "divide", "eq", "erf", "exp", "exp2", "expm1", "fill", "fix", "floor",
    "floor_divide", "fmod", "gcd", "ge", "greater", "greater_equal", "gt", "isfinite", "isinf",
    "isnan", "lcm", "le", "less", "less_equal", "log", "log1p", "log2", "log10", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "masked_fill", "maximum", "minimum", "mul",
    "multiply", "ne", "neg", "negative", "not_equal", "positive", "pow", "reciprocal", "relu",
    "remainder", "round", "rsqrt", "rsub", "sgn", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "square", "sub", "subtract", "tan", "tanh", "true_divide", "trunc", "where",
]  # fmt: skip
#: Functions that are also methods of tensors, and functions with an in-place form (`add_`).
METHODS = tuple([name for name in __all__ if name not in {"fill", "rsub", "where"}])
_NEVER_IN_PLACE = frozenset({
    "abs", "absolute", "isfinite", "isinf", "isnan", "maximum", "minimum", "positive",
})  # fmt: skip
IN_PLACE = tuple([name for name in METHODS if name not in _NEVER_IN_PLACE])


def _of_table(name: str, doc: str) -> Callable[..., Tensor]:
    """The table's function `name` with a docstring."""
    function: Callable[..., Any] = getattr(R, name)
    function.__doc__ = doc
    return function


def of_one(name: str, doc: str) -> Callable[..., Tensor]:
    """The table's function of one tensor, with an argument `out` that methods do not have."""
    inner = _of_table(name, doc)

    def function(input: Tensor, *, out: Tensor | None = None) -> Tensor:
        return inner(input) if out is None else put(out, name, inner(input))

    return _public(function, inner)


def of_two(name: str, doc: str) -> Callable[..., Tensor]:
    """The table's function of two operands, with an argument `out` that methods do not have."""
    inner = _of_table(name, doc)

    def function(
        input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
    ) -> Tensor:
        return inner(input, other) if out is None else put(out, name, inner(input, other))

    return _public(function, inner)


def _public(function: Any, inner: Any) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = inner.__name__
    function.__doc__ = inner.__doc__
    function.dispatch = inner
    return function


def _test(name: str, doc: str) -> Callable[[Any], Any]:
    """A boolean function of one tensor, without a gradient."""
    inner = getattr(R, name)

    def function(input: Tensor) -> Tensor:
        return inner(as_tensor_operand(input, name, 1))

    return named(function, name, doc)


# Of one tensor.
abs = of_one("abs", "The absolute values, real for complex numbers; the gradient at 0 is 0.")
acos = of_one("acos", "The inverse cosine of each element.")
asin = of_one("asin", "The inverse sine of each element.")
atan = of_one("atan", "The inverse tangent of each element.")
ceil = of_one("ceil", "Each element rounded up; the gradient is 0.")
cos = of_one("cos", "The cosine of each element.")
cosh = of_one("cosh", "The hyperbolic cosine of each element.")
erf = of_one("erf", "The error function of each element.")
exp = of_one("exp", "e to the power of each element.")
exp2 = of_one("exp2", "2 to the power of each element.")
expm1 = of_one("expm1", "exp(x) - 1 of each element, exact near 0.")
floor = of_one("floor", "Each element rounded down; the gradient is 0.")
log = of_one("log", "The natural logarithm of each element.")
log10 = of_one("log10", "The logarithm to base 10 of each element.")
log1p = of_one("log1p", "log(1 + x) of each element, exact near 0.")
log2 = of_one("log2", "The logarithm to base 2 of each element.")
neg = of_one("neg", "Each element with its sign changed.")
reciprocal = of_one("reciprocal", "1 / x of each element.")
relu = _of_table("relu", "Each element, or 0 where it is negative; the gradient at 0 is 0.")
rsqrt = of_one("rsqrt", "1 / sqrt(x) of each element.")
sgn = of_one("sgn", "Each element divided by its absolute value, and 0 at 0.")
sigmoid = of_one("sigmoid", "1 / (1 + exp(-x)) of each element.")
sign = of_one("sign", "-1, 0 or 1 for each element; the gradient is 0.")
sin = of_one("sin", "The sine of each element.")
sinh = of_one("sinh", "The hyperbolic sine of each element.")
sqrt = of_one("sqrt", "The square root of each element.")
square = of_one("square", "Each element times itself.")
tan = of_one("tan", "The tangent of each element.")
tanh = of_one("tanh", "The hyperbolic tangent of each element.")
trunc = of_one("trunc", "Each element rounded towards 0; the gradient is 0.")
fix = trunc
isfinite = _test(
    "isfinite", "Where elements are neither infinite nor NaN: bool, without a gradient."
)
isinf = _test("isinf", "Where elements are infinite: bool, without a gradient.")
isnan = _test("isnan", "Where elements are NaN: bool, without a gradient.")
logical_not = writes(_test("logical_not", "Where elements are 0: bool, without a gradient."))

# Of two.
atan2 = of_two("atan2", "The angle of the point (`other`, `input`), broadcast.")
bitwise_and = of_two("bitwise_and", "Bitwise and of booleans or integers, broadcast.")
bitwise_left_shift = of_two(
    "bitwise_left_shift", "Integers shifted left by `other` bits, broadcast."
)
bitwise_or = of_two("bitwise_or", "Bitwise or of booleans or integers, broadcast.")
bitwise_right_shift = of_two(
    "bitwise_right_shift", "Integers shifted right by `other` bits, broadcast."
)
bitwise_xor = of_two("bitwise_xor", "Bitwise exclusive or of booleans or integers, broadcast.")
eq = of_two("eq", "Where `input` equals `other`, broadcast: bool, without a gradient.")
fmod = of_two(
    "fmod", "The remainder of a division rounded towards 0, broadcast: it has `input`'s sign."
)
gcd = of_two("gcd", "The greatest common divisor of integers, broadcast.")
ge = of_two("ge", "Where `input` is at least `other`, broadcast: bool, without a gradient.")
gt = of_two("gt", "Where `input` is greater than `other`, broadcast: bool, without a gradient.")
lcm = of_two("lcm", "The least common multiple of integers, broadcast.")
le = of_two("le", "Where `input` is at most `other`, broadcast: bool, without a gradient.")
logical_and = of_two("logical_and", "Where both are not 0, broadcast: bool, without a gradient.")
logical_or = of_two(
    "logical_or", "Where one of the two is not 0, broadcast: bool, without a gradient."
)
logical_xor = of_two(
    "logical_xor", "Where exactly one of the two is not 0, broadcast: bool, without a gradient."
)
lt = of_two("lt", "Where `input` is less than `other`, broadcast: bool, without a gradient.")
maximum = of_two(
    "maximum", "The greater of two elements, broadcast; the gradient of a tie is split in halves."
)
minimum = of_two(
    "minimum", "The smaller of two elements, broadcast; the gradient of a tie is split in halves."
)
mul = of_two("mul", "`input * other`, broadcast.")
ne = of_two("ne", "Where `input` differs from `other`, broadcast: bool, without a gradient.")
remainder = of_two(
    "remainder", "The remainder of a division rounded down, broadcast: it has `other`'s sign."
)


def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        RuntimeError: for booleans.
    """
    x = as_tensor_operand(input, "positive", 1)
    if x._metadata.dtype.kind == "b":
        raise RuntimeError(
            "The `+` operator, on a bool tensor is not supported. Convert it to an integer dtype."
        )
    return x


@writes
def bitwise_not(input: Tensor) -> Tensor:
    """Booleans or the bits of integers inverted.

    Raises:
        NotImplementedError: for floating and complex dtypes.
    """
    return R.bitwise_not(as_tensor_operand(input, "bitwise_not", 1))


def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Each element rounded to the nearest, halves to even; the gradient is 0.

    Args:
        input: any real tensor.
        decimals: how many decimal places are kept; if negative, places before the point.

    Raises:
        NotImplementedError: for dtypes that are not rounded, or integers with `decimals`.
    """
    if out is not None:
        return put(out, "round", round(input, decimals=decimals))
    if one_int("round", "decimals", decimals) == 0:
        return R.round(input)
    return R.round_decimals(as_tensor_operand(input, "round", 1), decimals)


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


def _scaled(name: str, input: Tensor | Number, other: Tensor | Number, alpha: Number) -> Any:
    """Multiply the second operand by `alpha`, which must not raise the dtype."""
    alpha = number_argument(name, "alpha", alpha)
    dtype = result_dtype(input, other)
    kind = dtype.kind
    if isinstance(alpha, bool) and kind != "b":
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, complex) and kind != "c":
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )
    if isinstance(alpha, float) and kind in "biu":
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if alpha == 1:
        return other
    if other.__class__ is int or other.__class__ is float:
        return other * alpha
    if isinstance(other, Variable) and other._metadata.dtype.kind in "biu":
        # Without the cast, an integer times a float would have the default dtype and raise others.
        other = cast(other, dtype)
    # As in PyTorch, where `add` multiplies, no tensor is saved for the backward pass.
    return renamed(R.mul(other, alpha), "MulBackward0", saves=False)


def div(
    input: Tensor | Number,
    other: Tensor | Number,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`input / other`, broadcast.

    Args:
        input: a tensor, or a number.
        other: a tensor, or a number.
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
    if rounding_mode == "trunc":
        return R.div_trunc(input, other)
    if rounding_mode == "floor":
        return R.div_floor(input, other)
    raise RuntimeError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"{rounding_mode!r}"
    )


@writes
def floor_divide(input: Tensor, other: Tensor | Number) -> Tensor:
    """`input / other` rounded down, broadcast; as in PyTorch it has no gradient, see `div`."""
    return R.floor_divide(input, other)


def pow(input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input` to the power of `exponent`, broadcast.

    Raises:
        RuntimeError: if the shapes can't be broadcast, or for integers to a negative number.
        NotImplementedError: for booleans.
    """
    if out is not None:
        return put(out, "pow", pow(input, exponent))
    if not isinstance(input, Variable) and not isinstance(exponent, Variable):
        raise refusal(input, "pow", 1)
    return R.pow(input, exponent)


def clamp(
    input: Tensor,
    min: Tensor | Number | None = None,
    max: Tensor | Number | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Clamp each element to [min, max]; at the bounds the gradient passes.

    Args:
        input: any real tensor.
        min: the lower bound: a number, a tensor (broadcast) or None.
        max: the upper bound; it takes precedence where it is below `min`.

    Raises:
        RuntimeError: without a bound, or if the shapes can't be broadcast.
        TypeError: if one bound is a number and the other a tensor.
    """
    if out is not None:
        return put(out, "clamp", clamp(input, min, max))
    x = as_tensor_operand(input, "clamp", 1)
    if isinstance(min, Variable) or isinstance(max, Variable):
        return _clamp_by_tensors(x, min, max)
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    dtype = x._metadata.dtype
    if dtype.kind == "f" and min.__class__ in _PLAIN and max.__class__ in _PLAIN:
        return R.clamp(x, min, max)
    wanted = dtype
    bounds = [None, None]
    for place, bound in enumerate((min, max)):
        if bound is not None:
            number = bounds[place] = as_number(bound)
            if number is None:
                raise refusal(bound, "clamp", place + 2)
            wanted = number_result(wanted, number)
    if wanted.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    return R.clamp(x if wanted is dtype else cast(x, wanted), *bounds)


#: Types of bounds that do not change a floating dtype.
_PLAIN = frozenset({type(None), int, float})


def _clamp_by_tensors(x: Tensor, low: Any, high: Any) -> Any:
    for place, bound in enumerate((low, high)):
        if bound is not None and not isinstance(bound, Variable):
            raise refusal(bound, "clamp", place + 2)
    if high is None:
        return renamed(R.clamp_low(x, low), "ClampBackward0")
    if low is None:
        return renamed(R.clamp_high(x, high), "ClampBackward0")
    dtype = result_dtype(x, low, high)
    operands = [cast(operand, dtype) for operand in (x, low, high)]
    try:
        return R.clamp_between(*operands)
    except ValueError:
        for bound in operands[1:]:
            check_broadcast("clamp", x, bound)
        check_broadcast("clamp", *operands[1:])
        raise


@writes
def clamp_min(input: Tensor, min: Tensor | Number) -> Tensor:
    """The elements, or `min` where they are less."""
    return renamed(clamp(input, min), _one_bound("Min", min))


@writes
def clamp_max(input: Tensor, max: Tensor | Number) -> Tensor:
    """The elements, or `max` where they are greater."""
    return renamed(clamp(input, None, max), _one_bound("Max", max))


def _one_bound(which: str, bound: Any) -> str:
    return f"Clamp{which}Backward{int(isinstance(bound, Variable))}"


def where(
    condition: Tensor,
    input: Tensor | Number | None = None,
    other: Tensor | Number | None = None,
    *,
    out: Tensor | None = None,
) -> Any:
    """`input` where the condition holds, `other` elsewhere, broadcast.

    Args:
        condition: a bool tensor.
        input: a tensor or a number; without `input` and `other`, the indices where the condition
            holds are returned, one tensor for each axis.
        other: a tensor or a number; two numbers are promoted as if they were tensors.

    Raises:
        RuntimeError: if the condition is not a bool tensor, or the shapes can't be broadcast.
    """
    if out is not None:
        return put(out, "where", where(condition, input, other))
    condition = as_tensor_operand(condition, "where", 1)
    if input is None and other is None:
        F = condition._metadata.F
        return tuple(wrap(array, F.metadata_of(array)) for array in F.xp.nonzero(condition._array))
    kind = condition._metadata.dtype
    if kind == np.uint8:
        condition = cast(condition, np.dtype(bool))
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
        check_broadcast("where", condition, x)
        check_broadcast("where", condition, y)
        check_broadcast("where", x, y)
        raise


def _alike(x: Any, y: Any, like: Any) -> tuple[Any, Any]:
    """Convert two operands to tensors of one dtype."""
    tensors = isinstance(x, Variable), isinstance(y, Variable)
    if tensors[0]:
        dtype = x._metadata.dtype
        if tensors[1]:
            if x._metadata.device is not y._metadata.device:
                x, y = beside("where", x, y)
            dtype = common_dtype(x, y)
            return cast(x, dtype), cast(y, dtype)
        if y.__class__ is float and dtype.kind == "f":
            return x, constant(y, like, dtype)
    for place, operand in enumerate((x, y)):
        if not tensors[place] and as_number(operand) is None:
            raise refusal(operand, "where", place + 2)
    dtype = result_dtype(*[v if t else as_number(v) for v, t in zip((x, y), tensors, strict=True)])
    return (
        cast(x, dtype) if tensors[0] else constant(x, like, dtype),
        cast(y, dtype) if tensors[1] else constant(y, like, dtype),
    )


def fill(input: Tensor, value: Tensor | Number) -> Tensor:
    """A tensor like this one, filled with one value.

    Args:
        value: a number, or a tensor without dimensions, which gets the gradient.

    Raises:
        RuntimeError: if the value has dimensions.
        TypeError: if it is not a number.
    """
    x = as_tensor_operand(input, "fill", 1)
    if not isinstance(value, Variable):
        number = as_number(value)
        if number is None:
            raise TypeError(f"fill(): argument 'value' must be Number, not {type(value).__name__}")
        value = constant(fitted("fill", number, x._metadata.dtype), x)
    elif value._metadata.shape:
        raise RuntimeError(
            f"fill only supports 0-dimension value tensor but got tensor with "
            f"{len(value._metadata.shape)} dimensions."
        )
    return R.overwrite(x, R.expand(cast(value, x._metadata.dtype), x._metadata.shape))


def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """`input` with `value` where the mask holds, broadcast.

    Args:
        input: any tensor; the result has its dtype.
        mask: a bool tensor.
        value: a number, or a tensor without dimensions.

    Raises:
        RuntimeError: if the mask is not a bool tensor, the value has dimensions or does not fit the
            dtype, or the shapes can't be broadcast.
    """
    x = as_tensor_operand(input, "masked_fill", 1)
    mask = as_tensor_operand(mask, "masked_fill", 2)
    dtype = x._metadata.dtype
    if mask._metadata.dtype.kind != "b":
        raise RuntimeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{mask._metadata.dtype}. Compare it with something."
        )
    try:
        if not isinstance(value, Variable):
            number = as_number(value)
            if number is None:
                raise refusal(value, "masked_fill", 3)
            return R.masked_fill(x, mask, fitted("masked_fill", number, dtype))
        if value._metadata.shape:
            raise RuntimeError(
                f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{len(value._metadata.shape)} dimension(s). Reduce it or use where()."
            )
        if category(value._metadata.dtype) == 3 and category(dtype) < 3:
            raise RuntimeError(
                f"value cannot be converted to type {dtype} without overflow: it is complex"
            )
        x, value = beside("masked_fill", x, value)
        return renamed(R.where(mask, cast(value, dtype), x), "MaskedFillBackward1")
    except ValueError:
        check_broadcast("masked_fill", x, mask)
        raise


# PyTorch's other names.
absolute = abs
arccos = acos
arcsin = asin
arctan = atan
arctan2 = atan2
clip = clamp
divide = div
greater = gt
greater_equal = ge
less = lt
less_equal = le
multiply = mul
negative = neg
not_equal = ne
subtract = sub
true_divide = div
