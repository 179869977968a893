"""Elementwise ops, each with its local derivative.

Functions that are piecewise constant have zero gradients, as in PyTorch. Functions of booleans and
comparisons have no derivative and are listed at the end.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices.fp_errors import fp_errors_ignored, restore_fp_errors, without_fp_errors
from asyncgrad.ops import batch_rules, fused, written
from asyncgrad.ops.dtype import FLOATING, check_dtype, is_half, refuse
from asyncgrad.ops.namespace import IgnoringFpErrors
from asyncgrad.ops.op import (
    Op,
    Reciprocal,
    Refused,
    binary,
    factor,
    linear,
    operation,
    tangent,
    unary,
)
from asyncgrad.ops.promotion import as_number
from asyncgrad.ops.quotients import exact
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.special import erf
from asyncgrad.ops.table.activation import sigmoid
from asyncgrad.ops.table.linalg import real
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.widening import widening
from asyncgrad.types import Array, Library, Namespace, Number, Value

_LN2 = math.log(2)
_LN10 = math.log(10)
_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
#: Elements up to which NumPy's sign is faster than two comparisons.
_FEW = 2048


def _only(kinds: str, name: str, function: str = "") -> Callable[..., Any]:
    """Call a library's function that gives no warnings, and refuse dtypes of other kinds.

    The library's name is `name` of what is returned, as it is of `IgnoringFpErrors`.
    """
    function = function or name
    # The kind "V" is bfloat16's, which is floating, too.
    kinds = f"{kinds}V" if "f" in kinds else kinds

    def call(xp: Library, x: Array, *others: object) -> Any:
        if x.dtype.kind not in kinds:
            refuse(name, x.dtype)
        return getattr(xp, function)(x, *others)

    call.name = function  # type: ignore[attr-defined]
    return call


def _has_zero(y: Array | Number) -> bool:
    """Whether a divisor has a zero; False on a device, which would have to be waited for."""
    if isinstance(y, (np.ndarray, np.generic)):
        return bool(np.any(np.equal(y, 0)))
    return not hasattr(y, "dtype") and bool(y == 0)


def _integer_division(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a division to raise when integers are divided by zero, as in PyTorch."""

    def call(xp: Library, x: Array, y: Array | Number) -> Any:
        kind = x.dtype.kind
        if kind in "bc":
            refuse(name, x.dtype)
        if kind in "iu" and x.size and _has_zero(y):
            raise RuntimeError(
                f"ZeroDivisionError: {name} of integers by zero. Convert them to a floating dtype "
                f"for infinities."
            )
        for token in fp_errors_ignored:
            try:
                out = function(xp, x, y)
            finally:
                restore_fp_errors(token)
            break
        return out

    return call


def _refusing_bool(words: str) -> Callable[[Any], None]:
    def check(x: Any) -> None:
        if x._metadata.dtype.kind == "b":
            raise RuntimeError(words)

    return check


@fused.elementwise()
def _rectified(xp: Library, out: Array | None, x: Array) -> Any:
    return fused.bounded(xp.maximum, x, 0, out)


def _relu(xp: Library, x: Array) -> Any:
    zero = fused.ZEROS.get(x.dtype)
    if zero is None or x.__class__ is not np.ndarray:
        return xp.maximum(x, 0)
    return xp.maximum(x, zero) if x.size <= fused.FEW else _rectified(xp, x)


def refuse_bool_difference(x: Any, y: Any) -> None:
    """Raise for a difference with booleans, as PyTorch does."""
    found = [
        operand._metadata.dtype.kind == "b"
        if isinstance(operand, Variable)
        else isinstance(operand, bool)
        for operand in (x, y)
    ]
    if all(found):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` "
            "or `logical_xor()` operator instead."
        )
    if any(found):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
            "trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )


def _truncated(xp: Library, x: Array, y: Array) -> Any:
    """The quotient rounded towards zero, exact for integers."""
    if x.dtype.kind not in "iu":
        return xp.trunc(xp.divide(x, y))
    floored = xp.floor_divide(x, y)
    return floored + ((floored < 0) & (xp.remainder(x, y) != 0)).astype(x.dtype)


def signs_of(xp: Library, out: Array | None, x: Array) -> Any:
    """NumPy's sign, but 0 for real NaN."""
    if x.__class__ is np.ndarray and x.dtype in fused.ZEROS:
        if x.size < _FEW:
            signs = np.sign(x, out)
            # The product is NaN if any sign is NaN. For few elements it is the fastest sum.
            if np.vdot(signs, signs) >= 0:
                return signs
        # This has no branches: for random signs it takes a third of the time of NumPy's `sign`.
        zero = fused.ZEROS[x.dtype]
        out = np.empty_like(x) if out is None else out
        return np.subtract((x > zero).view(np.int8), (x < zero).view(np.int8), out)
    if x.dtype.kind == "c":
        # NumPy gives 1 or i where one part is infinite and the other NaN.
        unknown = xp.isnan(x)
        signs = xp.asarray(xp.sign(x, out=out))
        xp.copyto(signs, complex(math.nan, math.nan), where=unknown)
        return signs
    signs = xp.asarray(xp.sign(x, out=out))
    # A device's values are not read, because that would wait for the device.
    if signs.__class__ is not np.ndarray or np.isnan(np.add.reduce(signs, None)):
        xp.copyto(signs, 0, where=xp.isnan(signs))
    return signs


sgn = fused.elementwise()(signs_of)


def _sgn(xp: Library, x: Array) -> Any:
    return x.copy() if x.dtype.kind == "b" else sgn(xp, x)


@without_fp_errors
def _log1p(xp: Library, x: Array) -> Any:
    if x.dtype.kind != "c":
        return xp.log1p(x)
    a, b = x.real, x.imag
    # NumPy's loses small real parts: it takes the logarithm of a number close to 1.
    more = a * (a + 2) + b * b
    out = xp.empty_like(x)
    out.real = xp.where(abs(more) < 0.5, xp.log1p(more) / 2, xp.log(xp.hypot(a + 1, b)))
    out.imag = xp.arctan2(b, a + 1)
    return out


def _rsqrt(xp: Library, x: Array) -> Any:
    for token in fp_errors_ignored:
        try:
            out = fused.inverted(xp, xp.sqrt(x))
        finally:
            restore_fp_errors(token)
        break
    return out


def _round(xp: Library, x: Array, decimals: int) -> Any:
    check_dtype("round", x.dtype, FLOATING)
    return xp.round(x, decimals)


def _tanh_gradient(xp: Library, g: Array, out: Array) -> Any:
    if xp.compiled:
        made = fused.compiled(xp, "tanh_gradient", g, out)
        if made is not NotImplemented:
            return made
    if out.dtype.itemsize == 2:
        return _wide_tanh_gradient(xp, g, out)
    if not out.ndim or out.__class__ is not np.ndarray:
        return g * (1 - out * out)
    d = xp.square(out)
    xp.subtract(fused.ONES.get(d.dtype, 1), d, d)
    return xp.multiply(g, d, d)


_wide_tanh_gradient = widening(_tanh_gradient)


def _sgn_pull(F: Namespace, g: Value, x: Value, out: Value) -> Any:
    """Drop the gradient's part along x / |x|: only changes at a right angle turn it."""
    if x.dtype.kind != "c":
        return F.zero(g)
    along = F.real(g * F.conj(out))
    return F.mask(F.div(g - out * along, F.abs(x)), x != 0)


def _signed(F: Namespace, t: Value, x: Value) -> Any:
    return real(F, F.chain(t, F.sgn(x)))


# -- powers ---------------------------------------------------------------------------------------


def _pow(xp: Library, x: Array, y: Array) -> Any:
    kind = x.dtype.kind
    if kind in "biu":
        if kind == "b":
            refuse("pow", x.dtype)
        return _integer_power(xp, x, y)
    for token in fp_errors_ignored:
        try:
            out = xp.power(x, y)
        finally:
            restore_fp_errors(token)
        break
    return out


def _integer_power(xp: Library, x: Array, y: Array) -> Any:
    """Integer powers; with a negative exponent the truncated reciprocal: 0 unless x is 1 or -1."""
    if xp.any(xp.less(y, 0)):
        parity = xp.where(xp.remainder(y, 2) == 0, xp.ones_like(x), x)
        inverse = xp.where(xp.abs(x) == 1, parity, 0).astype(x.dtype)
        return xp.where(xp.less(y, 0), inverse, xp.power(x, xp.maximum(y, 0)))
    return xp.power(x, y)


def _pow_scalar(xp: Library, x: Array, scalar: Number) -> Any:
    if scalar == 2:
        return xp.square(x)
    if scalar == 1:
        return x.copy()
    if x.dtype.kind == "b":
        return xp.ones_like(x)
    for token in fp_errors_ignored:
        try:
            # In half precision two steps would round twice; PyTorch's cube of bfloat16 does so.
            if scalar == 3 and x.dtype.char != "e":
                return xp.square(x) * x
            if scalar == 0.5:
                return xp.sqrt(x)
            if scalar == -1:
                return xp.reciprocal(x)
            if scalar == -0.5 and not is_half(x.dtype):
                return fused.inverted(xp, xp.sqrt(x))
            out = xp.power(x, scalar)
        finally:
            restore_fp_errors(token)
        break
    return out


def _check_exponent(x: Any, y: Any) -> None:
    """Raise for an exponent, a number, that is negative or does not fit an integer tensor."""
    if not isinstance(x, Variable) or x._metadata.dtype.kind not in "biu":
        return
    number = as_number(y)
    if number.__class__ is int:
        if number < 0:
            raise RuntimeError(
                "Integers to negative integer powers are not allowed. Convert the tensor to a "
                "floating dtype."
            )
        if x._metadata.dtype.kind != "b":
            fitted("pow", number, x._metadata.dtype)


def _power_derivative(F: Namespace, x: Value, scalar: Number) -> Any:
    return 2 * x if scalar == 2 else scalar * F.pow_scalar(x, scalar - 1)


def _power_pull(F: Namespace, g: Value, x: Value, scalar: Number) -> Any:
    """The gradient by the base; 0 if the exponent is 0, even for an infinite gradient."""
    return F.chain(g, _power_derivative(F, x, scalar)) if scalar else F.zero(x)


def _power_push(F: Namespace, t: Value, x: Value, scalar: Number) -> Any:
    return t * _power_derivative(F, x, scalar) if scalar else F.zero(x)


def _by_base(F: Namespace, g: Value, x: Value, y: Value) -> Any:
    return F.mask(F.chain(g, y * F.pow(x, y - 1)), y != 0)


def _base_push(F: Namespace, t: Value, x: Value, y: Value) -> Any:
    return F.mask(t * (y * F.pow(x, y - 1)), y != 0)


def _exponent_derivative(F: Namespace, x: Value, y: Value, out: Value) -> Any:
    """The derivative by the exponent: the limit 0 at x = 0 with y >= 0."""
    return F.mask(out * F.log(x), ~((x == 0) & (real(F, y) >= 0)))


def _number_power_derivative(F: Namespace, x: Value, out: Value, scalar: Number) -> Any:
    if scalar == 0:
        return F.mask(out * -math.inf, ~(real(F, x) >= 0))
    if x.dtype.kind == "c" or isinstance(scalar, complex):
        return out * cmath.log(scalar)
    return out * (math.log(scalar) if scalar > 0 else math.nan)


def _number_power(xp: Library, x: Array, scalar: Number) -> Any:
    dtype = x.dtype
    return _pow(xp, dtype.type(scalar) if dtype.kind in "fc" else xp.asarray(scalar, dtype), x)


# -- choices --------------------------------------------------------------------------------------


def _clamp(xp: Library, x: Array, low: Array | float | None, high: Array | float | None) -> Any:
    if x.dtype.kind == "c":
        refuse("clamp", x.dtype)
    if low is not None:
        x = xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)


def _clamp_pull(F: Namespace, g: Value, x: Value, low: float | None, high: float | None) -> Any:
    """The gradient by `x`, which also flows where `x` equals a bound."""
    if low is None:
        return F.mask(g, x <= high)
    inside = x >= low
    return F.mask(g, inside if high is None else inside & (x <= high))


def _shared(xp: Library, g: Array, worse: Array, tie: Array) -> Any:
    """The gradient by one of two compared operands; a tie gets half of it."""
    # Not `copy()`, which returns a NumPy scalar for a 0-d array.
    out = xp.array(g)
    # CuPy's multiply has no `where`.
    xp.copyto(out, xp.multiply(out, 0.5), where=tie)
    xp.copyto(out, 0, where=worse)
    return out


def _inverse_square(F: Namespace, x: Value, y: Value) -> Any:
    """1 / (x*x + y*y), and 0 at the origin."""
    square = x * x + y * y
    return F.mask(F.reciprocal(square), square != 0)


def ufunc(
    name: str, d: Callable[..., Any] | Reciprocal, doc: str, function: str = "", **more: Any
) -> Op:
    """A library's function as an op; PyTorch has it by the library's name, too, if they differ."""
    if function:
        more["public"] = f"{name} {function}"
    return unary(name, d, IgnoringFpErrors(function or name), doc=doc, **more)


def _property(name: str, what: str) -> Op:
    doc = f"Where elements are {what}: bool, without a gradient."
    return unary(name, forward=name, doc=doc, in_place=False, out=False)


def _infinite(name: str, sign: str, beyond: Callable[[Any, Any], Any]) -> Op:
    def forward(xp: Library, x: Array) -> Any:
        return xp.isinf(x) & beyond(x, 0)

    doc = f"Where elements are {sign} infinity."
    return unary(name, forward=forward, of_real=True, doc=doc, in_place=False, exact_out=True)


def _comparison(name: str, forward: Any, relation: str, **more: Any) -> Op:
    doc = f"Where `input` {relation} `other`, broadcast: bool, without a gradient."
    return binary(name, forward=forward, exact=True, doc=doc, **more)


def _ordering(name: str, function: str, relation: str) -> Op:
    """A comparison of real numbers, which PyTorch has by the library's name, too."""
    forward = IgnoringFpErrors(function)
    return _comparison(name, forward, relation, of_real=True, public=f"{name} {function}")


def _logical(name: str) -> Callable[..., Any]:
    """A library's logical function. NumPy's tests numbers one by one; comparisons take a fifth."""

    def call(xp: Library, *arrays: Array) -> Any:
        if arrays[0].size >= fused.FEW and xp.ndarray is np.ndarray:
            arrays = tuple(x != 0 if x.dtype.kind in "iufc" else x for x in arrays)
        return getattr(xp, name)(*arrays)

    return call


def _logical_of_two(name: str, relation: str) -> Op:
    doc = f"Where {relation}, broadcast: bool, without a gradient."
    return binary(name, forward=_logical(name), numbers="none", doc=doc)


def _of_integers(
    name: str, what: str, kinds: str = "iu", function: str = "", numbers: str = "either"
) -> Op:
    forward = _only(kinds, name, function)
    return binary(name, forward=forward, numbers=numbers, doc=f"{what}, broadcast.")


def _extremum(name: str, which: str, worse: Callable[[Any, Any], Any]) -> Op:
    """The greater or smaller of two elements; `worse` says which one gets no gradient."""
    return binary(
        name,
        forward=IgnoringFpErrors(name),
        of_real=True,
        pulls={
            "x": lambda F, g, x, y: F.shared(g, worse(x, y), x == y),
            "y": lambda F, g, x, y: F.shared(g, worse(y, x), x == y),
        },
        linear=True,
        cost=10,
        promotes="any",
        numbers="none",
        doc=f"The {which} of two elements, broadcast; the gradient of a tie is split in halves.",
        in_place=False,
    )


def _clamp_to(
    name: str, function: str, kept: Callable[[Any, Any], Any], beyond: Callable[[Any, Any], Any],
    node: str,
) -> Op:  # fmt: skip
    """Replace the elements beyond a bound by the bound; those of NaN have no gradient."""
    return binary(
        name,
        forward=_only("biuf", "clamp", function),
        pulls={
            "x": lambda F, g, x, y: F.mask(g, kept(x, y)),
            "y": lambda F, g, x, y: F.mask(g, beyond(x, y)),
        },
        linear=True,
        cost=2,
        node=node,
        promotes="any",
        numbers="none",
    )


def _constant(name: str, forward: Callable[..., Any], what: str = "", **more: Any) -> Op:
    """A piecewise constant function, with derivative 0; public if `what` says what it gives."""
    if what:
        more.update(doc=f"{what}; the gradient is 0.", exact_out=True)
    pulls = {"x": lambda F, g: F.zero(g)}
    return unary(name, forward=forward, pulls=pulls, linear=True, promotes="any", **more)


def _constant_quotient(name: str, function: Callable[..., Any]) -> Op:
    zero = {key: lambda F, g: F.zero(g) for key in ("x", "y")}
    return binary(
        name,
        forward=_integer_division(name, function),
        pulls=zero,
        linear=True,
        node="DivBackward2",
        frees=("x", "y"),
        promotes="any",
        numbers="both",
    )


def _shift(name: str, forward: Any, node: str, **more: Any) -> Op:
    """An op with a number whose derivative by the tensor is 1."""
    return unary(
        name,
        forward=forward,
        attributes="scalar",
        pulls={"x": lambda F, g: g},
        linear=True,
        passes=True,
        node=node,
        **more,
    )


def _remainder(
    name: str, function: Callable[..., Any], quotient: str, **more: Any
) -> tuple[Op, Op]:
    """The remainder of a division by a number, and by a tensor; `quotient` names its op."""
    forward = _integer_division(name, function)
    node = f"{name.capitalize()}Backward"
    by_number = _shift(f"{name}_scalar", forward, f"{node}0")
    pulls = {"x": lambda F, g: g, "y": lambda F, g, x, y: F.neg(g * getattr(F, quotient)(x, y))}
    more.update(linear=True, fresh=False, node=f"{node}1", promotes="any", cost=6)
    return by_number, binary(name, forward=forward, pulls=pulls, **more)


def _of_parts(xp: Library, x: Array, y: Array) -> Any:
    dtype = xp.result_type(x.dtype, xp.complex64)
    shape = x.shape if x.shape == y.shape else xp.broadcast_shapes(x.shape, y.shape)
    out = xp.empty(shape, dtype)
    out.real = x
    out.imag = y
    return out


OPS = (
    # Ops with a number.
    linear(
        "mul_scalar",
        "multiply",
        lambda F, g, scalar: F.mul_scalar(g, scalar.conjugate()),
        attributes="scalar",
        node="MulBackward0",
        arity=2,
        keepable=("x",),
        frees=("scalar",),
        batch=batch_rules.same,
    ),
    linear(
        "div_scalar",
        IgnoringFpErrors("divide"),
        lambda F, g, scalar: F.div_scalar(g, scalar.conjugate()),
        attributes="scalar",
        node="DivBackward0",
        arity=2,
        keepable=("x",),
        frees=("scalar",),
        batch=batch_rules.same,
    ),
    _shift("add_scalar", "add", "AddBackward0", arity=2),
    _shift("sub_scalar", "subtract", "SubBackward0", arity=2),
    unary(
        "rsub_scalar",
        forward=lambda xp, x, scalar: xp.subtract(scalar, x),
        pulls={"x": lambda F, g: F.neg(g)},
        linear=True,
        node="RsubBackward1",
    ),
    unary(
        "pow_scalar",
        forward=_pow_scalar,
        pulls={"x": _power_pull},
        pushes={"x": _power_push},
        node="PowBackward0",
        cost=(1, 30),
    ),
    unary(
        "rpow_scalar",
        _number_power_derivative,
        _number_power,
        node="PowBackward2",
        cost=(1, 30),
    ),
    *_remainder(
        "fmod",
        exact("fmod", np.trunc, signed_as=0),
        "div_trunc",
        doc="The remainder of a division rounded towards 0, broadcast: it has `input`'s sign.",
    ),
    *_remainder(
        "remainder",
        exact("remainder", np.floor, signed_as=1),
        "div_floor",
        numbers="either",
        doc="The remainder of a division rounded down, broadcast: it has `other`'s sign.",
    ),
    # Ops on one tensor.
    linear("conj", "conj", lambda F, g: F.conj(g), batch=batch_rules.same, promotes="any"),
    linear(
        "real",
        lambda xp, x: x.real.copy(),
        lambda F, g, x_dtype: F.to(g, x_dtype),
        batch=batch_rules.same,
        promotes="any",
        changes_dtype=True,
    ),
    linear(
        "imag",
        lambda xp, x: x.imag.copy(),
        lambda F, g, x_dtype: F.mul_scalar(F.to(g, x_dtype), 1j),
        batch=batch_rules.same,
        promotes="any",
        changes_dtype=True,
    ),
    binary(
        "complex",
        forward=_of_parts,
        pulls={"x": lambda F, g: F.real(g), "y": lambda F, g: F.real(F.mul_scalar(g, -1j))},
        pushes={
            "x": lambda F, t: F.complex(t, F.zero(t)),
            "y": lambda F, t: F.complex(F.zero(t), t),
        },
        frees=("x", "y"),
        changes_dtype=True,
    ),
    linear(
        "neg",
        "negative",
        lambda F, g: F.neg(g),
        batch=batch_rules.same,
        promotes="any",
        check=_refusing_bool(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use the `~` or `logical_not()` operator instead."
        ),
        doc="Each element with its sign changed.",
        public="neg negative",
        exact_out=True,
    ),
    unary(
        "abs",
        forward=_only("iufc", "abs"),
        pulls={"x": lambda F, g, x: g * F.sgn(x)},
        pushes={"x": _signed},
        promotes="any",
        changes_dtype=True,
        doc="The absolute values, real for complex numbers; the gradient at 0 is 0.",
        public="abs absolute",
        in_place=False,
        exact_out=True,
    ),
    unary(
        "sgn",
        forward=_sgn,
        pulls={"x": _sgn_pull},
        linear=True,
        cost=(1, 4),
        promotes="any",
        doc="Each element divided by its absolute value, and 0 at 0.",
        exact_out=True,
    ),
    ufunc("reciprocal", lambda F, out: -(out * out), "1 / x of each element."),
    ufunc(
        "square",
        lambda F, x: 2 * x,
        "Each element times itself.",
        node="PowBackward0",
        promotes="integer",
    ),
    ufunc("sqrt", lambda F, out: F.div(0.5, out), "The square root of each element."),
    unary(
        "rsqrt",
        lambda F, out: -0.5 * (out * out * out),
        _rsqrt,
        wide=True,
        doc="1 / sqrt(x) of each element.",
    ),
    ufunc("exp", lambda F, out: out, "e to the power of each element."),
    ufunc(
        "exp2",
        lambda F, out: out * _LN2,
        "2 to the power of each element.",
        public="exp2 special.exp2",
    ),
    ufunc(
        "expm1",
        lambda F, out: out + 1,
        "exp(x) - 1 of each element, exact near 0.",
        public="expm1 special.expm1",
    ),
    ufunc("log", Reciprocal(lambda F, x: x), "The natural logarithm of each element."),
    ufunc("log2", Reciprocal(lambda F, x: x * _LN2), "The logarithm to base 2 of each element."),
    ufunc("log10", Reciprocal(lambda F, x: x * _LN10), "The logarithm to base 10 of each element."),
    unary(
        "log1p",
        Reciprocal(lambda F, x: x + 1),
        _log1p,
        node="Log1PBackward0",
        doc="log(1 + x) of each element, exact near 0.",
        public="log1p special.log1p",
    ),
    ufunc("sin", lambda F, x: F.cos(x), "The sine of each element.", cost=(4, 25)),
    ufunc("cos", lambda F, x: -F.sin(x), "The cosine of each element.", cost=(4, 25)),
    ufunc("tan", lambda F, out: out * out + 1, "The tangent of each element."),
    ufunc(
        "asin",
        lambda F, x: F.rsqrt(1 - x * x),
        "The inverse sine of each element.",
        "arcsin",
        cost=(2, 15),
    ),
    ufunc(
        "acos",
        lambda F, x: -F.rsqrt(1 - x * x),
        "The inverse cosine of each element.",
        "arccos",
        cost=(2, 15),
    ),
    ufunc(
        "atan",
        lambda F, x: F.reciprocal(x * x + 1),
        "The inverse tangent of each element.",
        "arctan",
    ),
    ufunc("sinh", lambda F, x: F.cosh(x), "The hyperbolic sine of each element.", cost=(1, 25)),
    ufunc("cosh", lambda F, x: F.sinh(x), "The hyperbolic cosine of each element.", cost=(1, 25)),
    unary(
        "tanh",
        lambda F, out: 1 - out * out,
        kernel=_tanh_gradient,
        doc="The hyperbolic tangent of each element.",
        public="tanh nn.functional.tanh",
    ),
    unary(
        "sigmoid",
        lambda F, out: out * (1 - out),
        written.kernel("sigmoid", sigmoid),
        kernel=written.slope_kernel("sigmoid_gradient", lambda F, out: out - out * out),
        doc="1 / (1 + exp(-x)) of each element.",
        public="sigmoid special.expit nn.functional.sigmoid",
    ),
    unary(
        "erf",
        lambda F, x: F.exp(-(x * x)) * _TWO_OVER_ROOT_PI,
        erf,
        cost=3,
        doc="The error function of each element.",
        public="erf special.erf",
    ),
    unary(
        "relu",
        forward=_relu,
        pulls={"x": lambda F, g, out: F.rectified(g, out)},
        linear=True,
        # The result is not 0 where the input is positive or NaN.
        kernel=fused.masked,
        promotes="any",
        of_real=True,
        check=_refusing_bool("Boolean inputs not supported for relu. Convert them with .to()."),
        doc="Each element, or 0 where it is negative; the gradient at 0 is 0.",
        out=False,
    ),
    _constant("sign", _sgn, "-1, 0 or 1 for each element", of_real=True),
    _constant("floor", _only("iuf", "floor"), "Each element rounded down"),
    _constant("ceil", _only("iuf", "ceil"), "Each element rounded up"),
    _constant("trunc", _only("iuf", "trunc"), "Each element rounded towards 0", public="trunc fix"),
    _constant("round", _only("iuf", "round")),
    _constant("round_decimals", _round, wide=True, node="RoundBackward1"),
    unary(
        "clamp",
        forward=_clamp,
        pulls={"x": _clamp_pull},
        linear=True,
        node="ClampBackward1",
        cost=2,
    ),
    # Ops on two tensors.
    binary(
        "add",
        pulls={"x": lambda F, g: g, "y": lambda F, g: g},
        linear=True,
        fresh=False,
        promotes="any",
        numbers="both",
        commutes=True,
    ),
    binary(
        "sub",
        forward="subtract",
        pulls={"x": lambda F, g: g, "y": lambda F, g: F.neg(g)},
        linear=True,
        fresh=False,
        promotes="any",
        numbers="both",
        check=refuse_bool_difference,
    ),
    binary(
        "mul",
        lambda F, y: y,
        lambda F, x: x,
        "multiply",
        promotes="any",
        numbers="both",
        commutes=True,
        doc="`input * other`, broadcast.",
        public="mul multiply",
    ),
    # The derivatives do not use `out`, which may change in place in PyTorch.
    binary(
        "div",
        Reciprocal(lambda F, y: y),
        lambda F, x, y: F.div(F.div(-x, y), y),
        IgnoringFpErrors("divide"),
        cost=(1, 3),
        numbers="both",
    ),
    binary(
        "pow",
        forward=_pow,
        pulls={"x": _by_base, "y": factor(_exponent_derivative)},
        pushes={"x": _base_push, "y": tangent(_exponent_derivative)},
        node="PowBackward1",
        promotes="any",
        numbers="either",
        check=_check_exponent,
        cost=(5, 30),
    ),
    _constant_quotient("div_floor", exact("floor_divide", np.floor)),
    _constant_quotient("div_trunc", _truncated),
    binary(
        "floor_divide",
        forward=_integer_division("floor_divide", exact("floor_divide", np.floor)),
        pulls=dict.fromkeys(("x", "y"), Refused("floor_divide")),
        pushes={},
        node="NotImplemented",
        promotes="any",
        numbers="both",
        doc="`input / other` rounded down, broadcast; as in PyTorch it has no gradient, see `div`.",
    ),
    binary(
        "atan2",
        lambda F, x, y: y * _inverse_square(F, x, y),
        lambda F, x, y: -x * _inverse_square(F, x, y),
        _only("f", "atan2", "arctan2"),
        cost=4,
        numbers="none",
        doc="The angle of the point (`other`, `input`), broadcast.",
        public="atan2 arctan2",
    ),
    _extremum("maximum", "greater", operator.lt),
    _extremum("minimum", "smaller", operator.gt),
    _clamp_to("clamp_low", "maximum", operator.ge, operator.lt, "ClampMinBackward1"),
    _clamp_to("clamp_high", "minimum", operator.le, operator.gt, "ClampMaxBackward1"),
    # Ops on three tensors.
    operation(
        "clamp_between",
        _clamp,
        "x low high",
        pulls={
            "x": lambda F, g, x, low, high: F.mask(g, (x >= low) & (x <= high)),
            "low": lambda F, g, x, low, high: F.mask(g, (x < low) & (low < high)),
            "high": lambda F, g, x, low, high: F.mask(g, (x > high) | (high < low)),
        },
        linear=True,
        cost=2,
        broadcasts=True,
        node="ClampBackward0",
        batch=batch_rules.broadcast,
    ),
    operation(
        "where",
        lambda xp, condition, x, y: xp.where(condition, x, y),
        "condition x y",
        pulls={
            "x": lambda F, g, condition: F.mask(g, condition),
            "y": lambda F, g, condition: F.mask(g, ~condition),
        },
        linear=True,
        broadcasts=True,
        batch=batch_rules.broadcast,
    ),
    operation(
        "masked_fill",
        lambda xp, x, mask, value: in_order(xp.where(mask, value, x)),
        "x mask",
        pulls={"x": lambda F, g, mask: F.mask(g, ~mask)},
        linear=True,
        broadcasts=True,
        batch=batch_rules.broadcast,
    ),
    # Further functions that rules need.
    operation(
        "mask",
        fused.masked,
        "x condition",
        pulls={"x": lambda F, g, condition: F.mask(g, condition)},
        linear=True,
        batch=batch_rules.alike,
    ),
    operation(
        "shared",
        _shared,
        "x worse tie",
        pulls={"x": lambda F, g, worse, tie: F.shared(g, worse, tie)},
        linear=True,
        batch=batch_rules.alike,
    ),
    operation(
        "rectified",
        fused.masked,
        "x out",
        pulls={"x": lambda F, g, out: F.rectified(g, out), "out": lambda F, g: F.zero(g)},
        linear=True,
        node="ThresholdBackwardBackward0",
        batch=batch_rules.alike,
    ),
    # Ops without a derivative.
    unary("zero", forward=lambda xp, x: xp.zeros_like(x)),
    _property("isnan", "NaN"),
    _property("isinf", "infinite"),
    _property("isfinite", "neither infinite nor NaN"),
    _infinite("isposinf", "positive", operator.gt),
    _infinite("isneginf", "negative", operator.lt),
    unary(
        "signbit",
        forward=lambda xp, x: xp.signbit(x) if x.dtype.kind in FLOATING else xp.less(x, 0),
        of_real=True,
        doc="Where elements are negative or -0.",
        in_place=False,
        exact_out=True,
    ),
    unary(
        "logical_not",
        forward=_logical("logical_not"),
        doc="Where elements are 0: bool, without a gradient.",
    ),
    unary(
        "bitwise_not",
        forward=_only("biu", "bitwise_not", "invert"),
        doc="Booleans or the bits of integers inverted.",
        exact_out=True,
    ),
    _comparison("eq", "equal", "equals"),
    _comparison("ne", "not_equal", "differs from", public="ne not_equal"),
    _ordering("lt", "less", "is less than"),
    _ordering("le", "less_equal", "is at most"),
    _ordering("gt", "greater", "is greater than"),
    _ordering("ge", "greater_equal", "is at least"),
    _logical_of_two("logical_and", "both are not 0"),
    _logical_of_two("logical_or", "one of the two is not 0"),
    _logical_of_two("logical_xor", "exactly one of the two is not 0"),
    _of_integers("bitwise_and", "Bitwise and of booleans or integers", "biu"),
    _of_integers("bitwise_or", "Bitwise or of booleans or integers", "biu"),
    _of_integers("bitwise_xor", "Bitwise exclusive or of booleans or integers", "biu"),
    _of_integers(
        "bitwise_left_shift", "Integers shifted left by `other` bits", function="left_shift"
    ),
    _of_integers(
        "bitwise_right_shift", "Integers shifted right by `other` bits", function="right_shift"
    ),
    _of_integers("gcd", "The greatest common divisor of integers", numbers="none"),
    _of_integers("lcm", "The least common multiple of integers", numbers="none"),
)
