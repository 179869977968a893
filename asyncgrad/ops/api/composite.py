"""Functions composed of elementwise functions, reductions and products."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable, wrap
from asyncgrad.ops import return_types
from asyncgrad.ops.api.complex_parts import real
from asyncgrad.ops.api.elementwise import add, check_factor, where
from asyncgrad.ops.api.linalg import addmm, bmm, dot, mv, outer
from asyncgrad.ops.api.reduction import amax, amin, mean, norm, std, sum, var, vector_norm
from asyncgrad.ops.api.shape import cat, expand, narrow
from asyncgrad.ops.arguments import of_one_dtype, one_dim
from asyncgrad.ops.batching import mapped
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.converted import accumulates, one_node, writes, writes_exactly
from asyncgrad.ops.dtype import INEXACT, REAL, check_dtype, is_half
from asyncgrad.ops.float32_compute import computing_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import joined, renamed
from asyncgrad.ops.promotion import cast, category, promote_dtypes, result_dtype
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.signatures import named
from asyncgrad.ops.table.reduction import max_beside, mean_beside
from asyncgrad.types import AtLeast1D, AtLeast2D, Axis, DTypeLike, Inexact, Ints, Number, Tensor

__all__ = [
    "addbmm", "addcdiv", "addcmul", "addmv", "addr", "aminmax", "angle", "baddbmm", "conj",
    "conj_physical", "cumprod", "diff", "dist", "float_power", "frac", "frexp", "is_conj", "is_neg",
    "ldexp", "lerp", "logaddexp", "nan_to_num", "nanmean", "nansum", "renorm", "resolve_conj",
    "resolve_neg", "std_mean", "var_mean", "vdot",
]  # fmt: skip
METHODS = tuple([name for name in __all__ if name not in {"std_mean", "var_mean"}])
IN_PLACE = (
    "addbmm", "addcdiv", "addcmul", "addmv", "addr", "baddbmm", "conj_physical", "cumprod",
    "float_power", "frac", "ldexp", "lerp", "nan_to_num", "renorm",
)  # fmt: skip
_FLOAT64, _COMPLEX128 = np.dtype("float64"), np.dtype("complex128")


# -- sums of products -----------------------------------------------------------------------------


def _scaled(x: Tensor, factor: Number) -> Any:
    return x if factor.__class__ is not bool and factor == 1 else R.mul(x, factor)


def _with(
    name: str, input: Tensor, product: Tensor, beta: Number, alpha: Number, terms: Tensor
) -> Any:
    """`beta * input + alpha * product`; for `beta=0`, NaN and infinity in `input` are ignored.

    A product without `terms` is 0, whatever `alpha` is.
    """
    x, product = of_one_dtype(name, input, product)
    dtype = x._metadata.dtype
    beta, alpha = fitted(name, beta, dtype), fitted(name, alpha, dtype)
    product = _scaled(product, alpha if terms._metadata.size else 1)
    wide = expand(x, product._metadata.shape)
    if beta == 0 and category(dtype) >= 2:
        # NaN and infinity are replaced by 0, as 0 times them is NaN; the gradient is 0.
        wide = where(wide == wide, wide, wide.new_zeros(()))
        wide = where(wide.abs() < math.inf, wide, wide.new_zeros(()))
    # The cast restores bool, which the multiplications have promoted.
    return cast(add(_scaled(wide, beta), product), dtype)


def _held(name: str, factor: Number, dtype: Any) -> Any:
    """A factor of half-precision sums, which PyTorch rounds first."""
    number = fitted(name, factor, dtype)
    return float(dtype.type(number)) if is_half(dtype) else number


def _beside_product(
    name: str, product: Callable[..., Any], input: Tensor, factors: tuple[Tensor, Tensor],
    beta: Number, alpha: Number,
) -> Any:  # fmt: skip
    """`_with` a product of matrices; half precision is rounded once, at the end."""
    dtype = input._metadata.dtype
    of_one_dtype(name, input, *factors)
    x, *parts = (cast(part, computing_dtype(dtype)) for part in (input, *factors))
    return cast(_with(name, x, product(*parts), beta, alpha, parts[0]), dtype)


def _in_one_dtype(*tensors: Tensor) -> list[Any]:
    """The result's dtype, and the operands in it, or in float32 if it is of half precision."""
    dtype = result_dtype(*tensors)
    computing = computing_dtype(dtype)
    return [dtype, *[cast(x, computing) for x in tensors]]


@one_node("AddcmulBackward0", writes)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """`input + value * tensor1 * tensor2`, broadcast."""
    dtype, x, y, z = _in_one_dtype(input, tensor1, tensor2)
    product = R.mul(y, z)
    check_dtype("addcmul", dtype, f"{REAL}c")
    return cast(add(x, _scaled(product, fitted("addcmul", value, dtype))), dtype)


@one_node("AddcdivBackward0", writes)
@requires(
    "tensor1.dtype.kind not in 'biu' or tensor2.dtype.kind not in 'biu'  # Integer division with "
    "addcdiv is no longer supported. Convert the tensors to a floating dtype first"
)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """`input + value * tensor1 / tensor2`, broadcast."""
    dtype, x, y, z = _in_one_dtype(input, tensor1, tensor2)
    return cast(add(x, _scaled(R.div(y, z), fitted("addcdiv", value, dtype))), dtype)


@one_node("AddmvBackward0", writes_exactly)
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * mat @ vec`."""
    dtype = input._metadata.dtype
    beta, alpha = _held("addmv", beta, dtype), _held("addmv", alpha, dtype)
    if is_half(dtype) and beta != 0:
        # As in PyTorch, this product is rounded, and then the sum.
        input, beta = _scaled(input, beta), 1
    return _beside_product("addmv", mv, input, (mat, vec), beta, alpha)


@one_node("AddrBackward0", writes)
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)`."""
    tensors = (input, vec1, vec2)
    # The input counts as the matrix to which it is expanded, even if it has no axes.
    dtype = functools.reduce(promote_dtypes, [one._metadata.dtype for one in tensors])
    for key, value in (("beta", beta), ("alpha", alpha)):
        check_factor(key, value, dtype.kind)
    x, first, second = (cast(one, dtype) for one in tensors)
    # In half precision PyTorch, too, rounds after each step, and multiplies by `alpha` first.
    product = outer(_scaled(first, _held("addr", alpha, dtype)), second)
    return _with("addr", x, product, _held("addr", beta, dtype), 1, product)


@one_node("BaddbmmBackward0", writes_exactly)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * batch1 @ batch2`, matrix by matrix."""
    return _beside_product("baddbmm", bmm, input, (batch1, batch2), beta, alpha)


@one_node("AddbmmBackward0", writes_exactly)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha *` the sum of all `batch1 @ batch2`."""
    products = bmm(batch1, batch2)
    if is_half(products._metadata.dtype) and len(products):
        # As in PyTorch, the sum is rounded after each product.
        out = expand(input, products._metadata.shape[1:])
        for x, y in zip(batch1, batch2, strict=True):
            out, beta = addmm(out, x, y, beta=beta, alpha=alpha), 1
        return out
    return _with("addbmm", input, sum(products, 0, dtype=products.dtype), beta, alpha, batch1)


@one_node("VdotBackward0", writes_exactly)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of two vectors, the first conjugated."""
    return dot(R.conj(input) if input._metadata.is_complex else input, other)


@writes
def lerp(input: Inexact, end: Tensor, weight: Tensor | float) -> Tensor:
    """`input + weight * (end - input)`, broadcast, computed from the nearer end."""
    dtype = input._metadata.dtype
    if isinstance(weight, Variable) and not weight._metadata.shape:
        weight = cast(weight, result_dtype(input, weight))
    for what, z in (("end", end), ("weight", weight)):
        if isinstance(z, Variable) and z._metadata.dtype != dtype:
            raise unmet("lerp", f"expected dtype {dtype} for `{what}`", **{what: z._metadata.dtype})
    # PyTorch has separate nodes for tensor and number weights; the latter saves nothing.
    node = "LerpBackward1" if isinstance(weight, Variable) else "LerpBackward0"
    computing = computing_dtype(dtype)
    input, end = cast(input, computing), cast(end, computing)
    step = R.sub(end, input)
    share: Tensor | float
    if isinstance(weight, Variable):
        wide = cast(weight, computing)
        first = R.lt(R.abs(wide.detach()), 0.5)
        nearer, share = where(first, input, end), where(first, wide, R.sub(wide, 1))
    else:
        known: Any = fitted("lerp", weight, dtype)
        nearer, share = (input, known) if abs(known) < 0.5 else (end, known - 1)
    return renamed(cast(add(nearer, R.mul(share, step)), dtype), node)


# -- of complex numbers ---------------------------------------------------------------------------


def conj(input: Tensor) -> Tensor:
    """The complex conjugates; a real tensor is returned unchanged."""
    return R.conj(input) if input._metadata.is_complex else input


conj_physical = writes_exactly(conj)


@one_node("AngleBackward0", writes)
def angle(input: Tensor) -> Tensor:
    """The angles of complex numbers in radians; of real ones, 0 or pi."""
    if input._metadata.is_complex:
        return R.atan2(R.imag(input), R.real(input))
    if category(input._metadata.dtype) < 2:
        input = cast(input, np.dtype("float32"))
    # sign(x) * 0 is 0 with a recorded gradient of 0; only NaN is passed on.
    known = where(input < 0, math.pi, R.mul_scalar(R.sign(input), 0.0))
    return where(R.isnan(input), input.detach(), known)


def resolve_conj(input: Tensor) -> Tensor:
    """Return the tensor itself: there are no lazy conjugates here."""
    return input


resolve_neg = resolve_conj


def is_conj(input: Tensor) -> bool:
    """Return False: there are no lazy conjugates here."""
    return False


is_neg = is_conj


# -- elementwise ----------------------------------------------------------------------------------


@one_node("FracBackward0", writes_exactly)
def frac(input: Inexact) -> Tensor:
    """The fractional parts, with the numbers' signs."""
    return R.sub(input, R.trunc(input))


@writes_exactly
def float_power(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """`input` to the power of `exponent`, computed in double precision."""
    operands = [z for z in (input, exponent) if isinstance(z, Variable)]
    numbers = isinstance(input, complex) or isinstance(exponent, complex)
    dtype = _COMPLEX128 if numbers or any(z._metadata.is_complex for z in operands) else _FLOAT64
    base, power = (cast(z, dtype) if isinstance(z, Variable) else z for z in (input, exponent))
    return R.pow(base, power)


@writes
@requires("input.is_floating_point()  # frexp() only supports floating-point dtypes")
def frexp(input: Tensor) -> return_types.frexp:
    """Split numbers into a mantissa in [0.5, 1), with their sign, and an exponent of 2.

    Args:
        input: a real floating tensor.

    Returns:
        A named tuple of the mantissas and, int32 and without a gradient, of the exponents.
    """
    F = input._metadata.F

    def exponents(x: Tensor) -> Any:
        if x._batched:
            return mapped(exponents, x)
        array = F.as_array(F.xp.frexp(x._array)[1])
        return wrap(array, F.metadata_of(array))

    exponent = exponents(input)
    mantissa = renamed(_by_power_of_two(input, R.neg(exponent)), "FrexpBackward0")
    return return_types.frexp(mantissa, exponent)


def _by_power_of_two(x: Tensor, exponent: Tensor) -> Any:
    """`x * 2**exponent` for integers, in two steps, as `2**exponent` alone may overflow."""
    half = R.div_floor(exponent, 2)
    for power in (half, R.sub(exponent, half)):
        x = R.mul(x, R.pow(2.0, cast(power, x._metadata.dtype)))
    return x


@one_node("LdexpBackward0", writes)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """`input * 2**other`, broadcast; integers in `other` leave the dtype of floating `input`."""
    if category(input._metadata.dtype) == 2 and category(other._metadata.dtype) == 1:
        return _by_power_of_two(input, other)
    return R.mul(input, R.pow(2.0, other))


@one_node("LogaddexpBackward0", writes)
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """`log(exp(input) + exp(other))`, broadcast, without overflow.

    Raises:
        NotImplementedError: if both are integers.
    """
    dtype = result_dtype(input, other)
    check_dtype("logaddexp", dtype, INEXACT)
    input, other = cast(input, dtype), cast(other, dtype)
    if not input._metadata.is_complex:
        return R.logaddexp(input, other)
    first, second = input.detach(), other.detach()
    greater = where(real(first) >= real(second), first, second)
    shift = where(R.abs(greater) < math.inf, greater, greater.new_zeros(()))
    return R.add(R.log(R.add(R.exp(R.sub(input, shift)), R.exp(R.sub(other, shift)))), shift)


@one_node("NanToNumBackward0", writes_exactly)
def nan_to_num(
    input: Tensor, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:  # fmt: skip
    """Replace NaN by 0 and infinities by the dtype's limits, unless other numbers are given."""
    if input._metadata.dtype.kind in "biu":
        return R.clone(input)
    if input._metadata.is_complex:
        parts = [nan_to_num(part, nan, posinf, neginf) for part in (R.real(input), R.imag(input))]
        return R.complex(*parts)
    limits = floating_info(input._metadata.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    input = where(R.isnan(input), 0.0 if nan is None else nan, input)
    return where(input == -math.inf, low, where(input == math.inf, high, input))


@one_node("RenormBackward0", writes_exactly)
@requires("p > 0  # non-positive-norm not supported")
@requires("maxnorm >= 0  # expected maxnorm to be >= 0")
def renorm(input: AtLeast2D, p: float, dim: Axis, maxnorm: float) -> Tensor:
    """Scale slices along an axis down to a norm of at most `maxnorm`.

    Args:
        input: a floating tensor of two axes at least.
        p: the order of the norm, above 0.
    """
    others = [i for i in range(input.ndim) if i != dim]
    length = vector_norm(input, p, others, True)
    # PyTorch also adds 1e-7 to keep the quotient finite.
    return R.mul(input, where(length > maxnorm, R.div(maxnorm, R.add(length, 1e-7)), 1.0))


# -- along axes -----------------------------------------------------------------------------------


@accumulates
def cumprod(input: Tensor, dim: Axis, *, dtype: DTypeLike | None = None) -> Tensor:
    """The cumulative products along an axis; gradients are exact even at zeros; see `cumsum`."""
    if dtype is not None or category(input._metadata.dtype) < 2:
        input = cast(input, np.dtype("int64" if dtype is None else dtype))
    check_dtype("cumprod", input._metadata.dtype, f"{REAL}c")
    return R.cumprod(input, dim)


@writes
@requires("n >= 0  # order must be non-negative")
def diff(
    input: AtLeast1D, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The n-th differences of neighbours along an axis.

    Args:
        prepend: a tensor that is prepended before taking differences.
        append: a tensor that is appended.
    """
    if n == 0:
        return R.clone(input)
    dim = one_dim("diff", dim, len(input._metadata.shape))
    parts = [part for part in (prepend, input, append) if part is not None]
    x: Any = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, x.shape[dim])):
        length = max(x.shape[dim] - 1, 0)
        low, high = narrow(x, dim, 0, length), narrow(x, dim, x.shape[dim] - length, length)
        boolean = x._metadata.dtype.kind == "b"
        x = R.logical_xor(high, low) if boolean else R.sub(high, low)
    return x


@one_node("DistBackward0")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of `input - other`, broadcast."""
    return norm(R.sub(input, other), p)


@one_node("NansumBackward0", writes)
@requires("not input.is_complex()  # nansum does not support complex inputs. Sum its real and imag")
def nansum(
    input: Tensor, dim: Ints | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The sum over some axes, without NaN."""
    if category(input._metadata.dtype) == 2:
        input = where(R.isnan(input), input.new_zeros(()), input)
    return sum(input, dim, keepdim, dtype=dtype)


@writes
@requires("input.is_floating_point()  # expected input to have floating point or complex dtype")
def nanmean(
    input: Tensor, dim: Ints | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The mean over some axes, without NaN."""
    return R.div(nansum(input, dim, keepdim, dtype=dtype), sum(~R.isnan(input), dim, keepdim))


@writes
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> return_types.aminmax:
    """The least and the greatest element, of all or along an axis, as a named tuple."""
    dims = () if dim is None else dim
    low, high = amin(input, dims, keepdim), amax(input, dims, keepdim)
    joined(low, high, "AminmaxBackward0", "min", max_beside)
    return return_types.aminmax(low, high)


def _and_mean(name: str, spread: Callable[..., Any]) -> Callable[..., Any]:
    def function(
        input: Tensor, dim: Ints | None = None, unbiased: bool | None = None, keepdim: bool = False,
        *, correction: float | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        if dim.__class__ is bool:
            dim, unbiased = None, dim
        spreads = spread(input, dim, unbiased, keepdim, correction=correction)
        means = mean(input, dim, keepdim)
        joined(spreads, means, f"{name[:3].capitalize()}MeanBackward0", "result0", mean_beside)
        return spreads, means

    doc = f"What `{name[:3]}` and `mean` return; the arguments are those of `var`."
    return writes(named(function, name, doc))


std_mean = _and_mean("std_mean", std)
var_mean = _and_mean("var_mean", var)
