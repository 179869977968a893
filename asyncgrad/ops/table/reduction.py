"""Reductions.

`dims` are axes counted from the front; `keepdim` keeps them with length 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices import fp_errors
from asyncgrad.ops import batch_rules
from asyncgrad.ops.bfloat16 import sortable
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.fused import masked
from asyncgrad.ops.op import Op, Part, fused, linear, operation, part
from asyncgrad.ops.table.elementwise import sgn
from asyncgrad.ops.table.linalg import adjoint, conjugate, quotient, real
from asyncgrad.ops.table.matrices import NOT_FINITE, decomposition_cost, solved, svd
from asyncgrad.ops.table.shape import in_order, kept_shape
from asyncgrad.ops.widening import widening
from asyncgrad.types import Array, Library, Namespace, Shape, Value

#: How many pairs of shapes are cached, with the axes along which one is broadcast.
_CACHE_LIMIT = 1024
_broadcast: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
#: The elements of a block that BLAS adds up: 256 KB of float32.
_BLOCK = 1 << 16
#: Smaller gradients are copied, because making a broadcast view takes longer.
_SMALL = 4096
#: Sums of so many elements are left to NumPy: they fit into its buffers, of whatever size.
_FEW = 2048
#: The fewest rows of a block whose sum BLAS computes. Fewer than two blocks are not divided.
_ROWS = 512
#: Times this, the square of a mean is far more than the square of its rounding in float32.
_COARSE = 2.0**-23


def _added(xp: Library, x: Array, dims: tuple[int, ...], dtype: Any, keepdim: bool) -> Any:
    """The sum of a large array in a dtype.

    NumPy adds rows one after the other, so that sums of many rows lose digits. Sums of blocks lose
    fewer, and BLAS computes those sooner.
    """
    lead = len(dims)
    if (
        x.__class__ is np.ndarray
        and x.dtype.char in "fd"
        and 0 < lead < x.ndim
        and dims[-1] == lead - 1
        and x.flags.c_contiguous
    ):
        count = _count(x.shape, dims)
        if count >= 2 * _ROWS:
            rows = x.reshape(count, -1)
            length = max(_ROWS, math.isqrt(count))
            ones = np.ones(length, x.dtype)
            rest = count % length
            blocks = rows[: count - rest].reshape(-1, length, rows.shape[1])
            out = np.add.reduce(np.matmul(ones, blocks), 0) + ones[:rest] @ rows[count - rest :]
            return out.reshape(kept_shape(x.shape, dims) if keepdim else x.shape[lead:])
    if dtype is x.dtype and x.flags.c_contiguous:
        return xp.add.reduce(x, dims, dtype, None, keepdim)
    # The bits depend on the size of NumPy's buffers, which is another in passes and replays.
    return fp_errors.call_without_fp_errors(xp.add.reduce, x, dims, dtype, None, keepdim)


def _total(xp: Library, x: Array, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The sum; half precision is added up in float32."""
    dtype = x.dtype
    half = is_half(dtype)
    wide = xp.float32 if half else dtype
    if x.size <= _FEW:
        out = xp.add.reduce(x, dims, wide, None, keepdim)
    else:
        out = _added(xp, x, dims, wide, keepdim)
    if half:
        return in_order(out).astype(dtype)
    return out if out.ndim < 2 else in_order(out)


def _sum_to(xp: Library, x: Array, shape: tuple[int, ...]) -> Any:
    """Sum over the axes along which `shape` was broadcast to the shape of `x`."""
    if x.shape == shape:
        return x
    key = (x.shape, shape)
    dims = _broadcast.get(key)
    if dims is None:
        if len(_broadcast) >= _CACHE_LIMIT:
            _broadcast.clear()
        lead = x.ndim - len(shape)
        dims = _broadcast[key] = tuple(range(lead)) + tuple(
            [lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1]
        )
    out = _total(xp, x, dims, False)
    return out if out.shape == shape else out.reshape(shape)


def _spread(
    xp: Library, g: Array, shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool
) -> Any:
    """Broadcast the elements of a reduction over the axes that were reduced."""
    if not keepdim and g.ndim:
        g = g.reshape(kept_shape(shape, dims))
    if math.prod(shape) > _SMALL:
        return xp.broadcast_to(g, shape)
    out = xp.empty(shape, g.dtype)
    out[...] = g
    return out


def _count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    return math.prod([shape[dim] for dim in dims])


def _mean(xp: Library, x: Array, dims: tuple[int, ...], keepdim: bool) -> Any:
    count = _count(x.shape, dims)
    half = x.dtype.itemsize == 2
    dtype = xp.float32 if half else x.dtype
    if x.size <= _FEW:
        total = xp.add.reduce(x, dims, dtype, None, keepdim)
    else:
        total = _added(xp, x, dims, dtype, keepdim)
    if total.ndim > 1:
        total = in_order(total)
    mean = total / count if count else total * math.nan
    return mean.astype(x.dtype) if half else mean


def _mean_pull(F: Namespace, g: Value, x_shape: Any, dims: Shape, keepdim: bool) -> Any:
    count = _count(x_shape, dims)
    return F.spread(F.div_scalar(g, count) if count else g, x_shape, dims, keepdim)


def mean_beside(F: Namespace, g: Value, x: Value, dims: Shape, keepdim: bool) -> Any:
    """The gradient of a mean whose operand another result of the same call saves."""
    return _mean_pull(F, g, x.shape, dims, keepdim)


def _lines_cost(x: Variable, *rest: object) -> int:
    metadata = x._metadata
    # For products, and logarithms of sums, of complex numbers their powers are computed.
    return metadata.line_cost + (80 * metadata.size if metadata.is_complex else 0)


def push_of(pull: Callable[..., Any]) -> Part:
    """The push of a reduction: the sum of the tangent times the derivative that its pull gives.

    It goes over the axes `dims`, or `dim`, or else those after the axes of the result.
    """
    names = part(pull).names

    def push(F: Namespace, t: Value, out: Value, *values: Any) -> Any:
        known = dict(zip(names, values, strict=True))
        x = known["x"]
        local = pull(F, F.zero(out) + 1, *values)
        if local is None:
            return F.zero(out)
        inner = F.mul(conjugate(F, local), t)
        if out.dtype.kind != "c":
            inner = real(F, inner)
        dims = tuple(range(len(out.shape), len(x.shape)))
        if "dim" in known and out.shape:
            dims = (known["dim"],)
        return F.sum(inner, known.get("dims", dims), known.get("keepdim", False))

    return Part(("out", *names), push)


# -- spread of values -----------------------------------------------------------------------------


def _square_sum(x: Array) -> Any:
    """The sum of the squared absolute values of a contiguous array.

    BLAS adds up blocks, which stay in the cache and lose no precision; Python adds up the blocks.
    On a device the host would have to wait for each of them.
    """
    flat = x.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    if flat.__class__ is not np.ndarray:
        return (flat * flat).sum()
    if flat.size <= _BLOCK:
        return flat.dot(flat)
    blocks = [flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK)]
    return flat.dtype.type(math.fsum([float(block.dot(block)) for block in blocks]))


def _kept(g: Array, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    """Reshape the result of a reduction to keep the reduced axes with length 1."""
    if len(dims) == 1 and dims[0] == len(shape) - 1:
        return g[..., None]
    return g.reshape(kept_shape(shape, dims))


def _in_one_piece(x: Array, dims: tuple[int, ...]) -> bool:
    """Whether a whole contiguous array is reduced, in a dtype that BLAS supports."""
    return len(dims) == x.ndim and bool(x.flags.c_contiguous) and x.dtype.itemsize > 2


def _square_totals(xp: Library, x: Array, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The sums of the squared absolute values over some axes."""
    if (
        xp.ndarray is np.ndarray
        and len(dims) == 1
        and dims[0] == x.ndim - 1
        and x.dtype.itemsize > 2
    ):
        out = in_order(np.vecdot(x, x).real)
        return out[..., None] if keepdim else out
    squares = xp.square(x.real) + xp.square(x.imag) if x.dtype.kind == "c" else xp.square(x)
    return _total(xp, squares, dims, keepdim)


def _var(xp: Library, x: Array, dims: tuple[int, ...], correction: float, keepdim: bool) -> Any:
    count = _count(x.shape, dims)
    free = max(0, count - correction) if count else math.nan
    whole = _in_one_piece(x, dims)
    for token in fp_errors.fp_errors_ignored:
        try:
            mean = _total(xp, x, dims, not whole) / count
            off = xp.asarray(xp.subtract(x, mean))
            out = _square_sum(off) if whole else _square_totals(xp, off, dims, keepdim)
            # The mean's rounding adds its square to each square. Where this may show, the mean of
            # what is left is subtracted, too; on a device always, as the host does not look.
            kept = out if whole else out.reshape(mean.shape)
            if xp.ndarray is not np.ndarray or np.count_nonzero(
                abs(mean) ** 2 * (_COARSE * count) > kept
            ):
                off = xp.asarray(xp.subtract(off, _total(xp, off, dims, not whole) / count))
                out = _square_sum(off) if whole else _square_totals(xp, off, dims, keepdim)
            out = out / free
        finally:
            fp_errors.restore_fp_errors(token)
        break
    return out.reshape((1,) * x.ndim) if whole and keepdim else out


def _var_pull(
    F: Namespace, g: Value, x: Value, dims: Shape, correction: float, keepdim: bool
) -> Any:
    shape = x.shape
    off = F.sub(x, F.mean(x, dims, True))
    g = F.reshape(g, kept_shape(shape, dims))
    factor = _steepness(shape, dims, correction)
    if factor is None:
        zero = F.zero(off)
        return F.mul(g, F.where(off == 0, zero + math.nan, zero + math.inf))
    return F.mul(F.mul_scalar(g, factor), off)


def _steepness(shape: tuple[int, ...], dims: tuple[int, ...], correction: float) -> float | None:
    """Two over the degrees of freedom, which may be negative here, as in PyTorch.

    None without degrees of freedom and without named axes: then the gradient is undefined at the
    mean and infinite elsewhere.
    """
    free = _count(shape, dims) - correction
    if free <= 0 and (dims.__class__ is AllAxes or not shape):
        return None
    return 2 / free if free else math.inf


@widening
def _var_gradient(
    xp: Library, g: Array, x: Array, dims: tuple[int, ...], correction: float, keepdim: bool
) -> Any:
    count = _count(x.shape, dims)
    whole = len(dims) == x.ndim
    mean = _total(xp, x, dims, not whole) / count if count else math.nan
    if not whole and not keepdim:
        g = _kept(g, x.shape, dims)
    off = xp.asarray(xp.subtract(x, mean))
    factor = _steepness(x.shape, dims, correction)
    if factor is None:
        return g * xp.where(off == 0, math.nan, math.inf).astype(x.dtype)
    return xp.multiply(off, g * factor, off)


def _std_pull(
    F: Namespace, g: Value, x: Value, out: Value, dims: Shape, correction: float, keepdim: bool
) -> Any:
    scaled = F.mask(F.div(g, F.mul_scalar(out, 2)), out != 0)
    return _var_pull(F, scaled, x, dims, correction, keepdim)


_var_push = push_of(_var_pull)


def _std_push(
    F: Namespace, t: Value, x: Value, out: Value, dims: Shape, correction: float, keepdim: bool
) -> Any:
    """The tangent of a root, so that it is NaN where there are no elements, as in PyTorch."""
    pushed = _var_push.function(F, t, out, x, dims, correction, keepdim)
    return F.mask(F.div(pushed, F.mul_scalar(out, 2)), out != 0)


@widening
def _std_gradient(
    xp: Library, g: Array, x: Array, out: Array, dims: tuple[int, ...], correction: float,
    keepdim: bool,
) -> Any:  # fmt: skip
    return _var_gradient(xp, _over(xp, g, out + out), x, dims, correction, keepdim)


def _over(xp: Library, g: Array, out: Array) -> Any:
    """A quotient, and 0 where the divisor is 0."""
    made = xp.divide(g, out)
    if xp.ndarray is np.ndarray and xp.count_nonzero(out) == out.size:
        return made
    return xp.where(out == 0, out.dtype.type(0), made)


# -- products -------------------------------------------------------------------------------------


def _others(F: Namespace, x: Value, dims: tuple[int, ...]) -> Any:
    """For each element the product of all others along `dims`, without a division.

    The products of the elements before, and of those after it, are computed in doubling steps.
    Therefore derivatives of any order are exact, even if elements are 0.
    """
    shape = x.shape
    rest = tuple(i for i in range(len(shape)) if i not in dims)
    order = rest + dims
    lines = F.reshape(F.permute(x, order), (*[shape[i] for i in rest], -1))
    last = len(rest)
    length = lines.shape[last]
    before = _shifted(F, lines, last, 1, length)
    after = _shifted(F, lines, last, -1, length)
    step = 1
    while step < length - 1:
        before = F.mul(before, _shifted(F, before, last, step, length))
        after = F.mul(after, _shifted(F, after, last, -step, length))
        step *= 2
    out = F.reshape(F.mul(before, after), tuple(shape[i] for i in order))
    return F.permute(out, tuple(order.index(i) for i in range(len(shape))))


def _shifted(F: Namespace, x: Value, dim: int, by: int, length: int) -> Any:
    """Shift along `dim` and fill up with ones; a negative shift moves to the front."""
    size = min(abs(by), length)
    ones = F.zero(F.narrow(x, dim, 0, size)) + 1
    kept = F.narrow(x, dim, 0 if by > 0 else size, length - size)
    return F.cat((ones, kept) if by > 0 else (kept, ones), dim)


def _prod_pull(F: Namespace, g: Value, x: Value, out: Value, dims: Shape, keepdim: bool) -> Any:
    """The gradient of a product, by division on the host if no element is 0."""
    kept = kept_shape(x.shape, dims)
    if F.fused and x.__class__ is np.ndarray and np.count_nonzero(x) == x.size:
        return F.div(F.reshape(g, kept) * F.reshape(out, kept), x)
    if not x.shape or 0 in x.shape:
        others = F.zero(x) + 1
    elif F.fused and x.__class__ is not np.ndarray:
        others = _others_by_division(F.xp, x, dims)
    else:
        others = _others(F, x, dims)
    return F.chain(F.reshape(g, kept), others)


def _others_by_division(xp: Library, x: Any, dims: Shape) -> Any:
    """`_others` in a few launches, without a look at the zeros."""
    zero, number = x == 0, x.dtype.type
    divisors = xp.where(zero, number(1), x)
    product = divisors.prod(axis=dims, keepdims=True)
    zeros = zero.sum(axis=dims, keepdims=True)
    of_zeros = xp.where(zeros == 1, product, number(0))
    return xp.where(zero, of_zeros, xp.where(zeros == 0, product / divisors, number(0)))


# -- extremes -------------------------------------------------------------------------------------


def _extreme_pull(F: Namespace, g: Value, x: Value, out: Value, dims: Shape, keepdim: bool) -> Any:
    """The gradient of an extremum, shared evenly among the elements that attain it."""
    kept = kept_shape(x.shape, dims)
    hits = F.hits(x, F.reshape(out, kept))
    return F.mul(F.div(F.reshape(g, kept), F.sum(hits, dims, True)), hits)


def max_beside(F: Namespace, g: Value, x: Value, dims: Shape, keepdim: bool) -> Any:
    """The gradient of a maximum that is found again in what another result of the call saves."""
    return _extreme_pull(F, g, x, F.amax(x, dims, True), dims, keepdim)


@widening
def _extreme_gradient(
    xp: Library, g: Array, x: Array, out: Array, dims: tuple[int, ...], keepdim: bool
) -> Any:
    if len(dims) < x.ndim and not keepdim:
        g, out = _kept(g, x.shape, dims), _kept(out, x.shape, dims)
    hits = xp.equal(x, out)
    if len(dims) == x.ndim and x.__class__ is np.ndarray:
        count = int(xp.count_nonzero(hits)) or math.nan
    else:
        count = xp.add.reduce(hits, dims, x.dtype, None, True)
    return xp.multiply(hits, g / count)


def _extreme(name: str, method: str) -> Op:
    return operation(
        name,
        lambda xp, x, dims, keepdim: in_order(getattr(x, method)(dims, None, keepdim)),
        of_real=True,
        pulls={"x": fused(_extreme_gradient, _extreme_pull)},
        pushes={"x": push_of(_extreme_pull)},
        cost=_lines_cost,
    )


def _whole_pull(F: Namespace, g: Value, x: Value, out: Value) -> Any:
    """The pull of the extremum of a whole tensor, where NaN counts as one."""
    hits = F.hits_or_nan(x, out)
    share = F.div(g, F.sum(hits, tuple(range(len(x.shape))), False))
    return F.mask(F.expand(share, x.shape), hits != 0)


def _whole_gradient(xp: Library, g: Array, x: Array, out: Array) -> Any:
    if x.__class__ is not np.ndarray:
        # A device's values are not read, so NaN is always taken into account.
        hits = xp.logical_or(xp.equal(x, out), xp.logical_and(xp.isnan(x), xp.isnan(out)))
        return masked(xp, xp.divide(g, xp.count_nonzero(hits)).astype(g.dtype), hits)
    hits = xp.isnan(x) if out != out else xp.equal(x, out)
    share = g / int(xp.count_nonzero(hits))
    return xp.multiply(share, hits) if math.isfinite(share) else masked(xp, share, hits)


def _middle_of_none(dtype: np.dtype[Any]) -> Any:
    """NaN; for other dtypes, what PyTorch returns for an empty tensor."""
    return dtype.type(np.iinfo(dtype).min if dtype.kind in "iu" else "nan")


def _median(xp: Library, x: Array) -> Any:
    """The middle element of all, the lower one of two; NaN if there is any."""
    if not x.size:
        return _middle_of_none(x.dtype)
    flat = _sorted(xp, x)
    middle = flat[(flat.size - 1) // 2]
    return xp.where(xp.isnan(flat[-1]), flat[-1], middle).astype(x.dtype)


def _nanmedian(xp: Library, x: Array) -> Any:
    """The median of the elements that are not NaN."""
    if not x.size:
        return _middle_of_none(x.dtype)
    flat = _sorted(xp, x)
    count = flat.size - xp.count_nonzero(xp.isnan(flat))
    return flat[xp.maximum(count - 1, 0) // 2].astype(x.dtype)


def _sorted(xp: Library, x: Array) -> Any:
    return xp.sort(sortable(x.reshape(-1)))


def _whole(
    name: str, forward: Callable[..., Any], overload: int, batch: Callable[..., Any] | None = None
) -> Op:
    """A function that picks one element of a whole tensor."""
    return operation(
        name,
        forward,
        of_real=True,
        pulls={"x": fused(_whole_gradient, _whole_pull)},
        pushes={"x": push_of(_whole_pull)},
        node=f"{name.capitalize()}Backward{overload}",
        cost=lambda x: 2 * x._metadata.cost,
        batch=batch,
    )


# -- elements at indices --------------------------------------------------------------------------


def _places(xp: Library, indices: Array, dim: int) -> tuple[Any, ...]:
    """The index of the elements at `indices` along `dim`."""
    ndim = indices.ndim
    if ndim == 1:
        return (indices,)
    if ndim == 2:
        if dim == 1:
            return (xp.arange(len(indices))[:, None], indices)
        return (indices, xp.arange(indices.shape[1]))
    return tuple(
        indices
        if axis == dim
        else xp.arange(n).reshape((1,) * axis + (-1,) + (1,) * (ndim - axis - 1))
        for axis, n in enumerate(indices.shape)
    )


def _along(xp: Library, x: Array, indices: Array, dim: int, keepdim: bool) -> Any:
    """The elements at `indices` along `dim`; `indices` still has that axis."""
    if not x.ndim:
        return x.copy()
    out = x[_places(xp, indices, dim)]
    return out if keepdim else out.squeeze(dim)


def _put_along(xp: Library, g: Array, indices: Array, dim: int, shape: tuple[int, ...]) -> Any:
    if not shape:
        return xp.array(g)
    out = xp.zeros(shape, dtype=g.dtype)
    out[_places(xp, indices, dim)] = g
    return out


def _along_pull(
    F: Namespace, g: Value, x_shape: Shape, indices: Value, dim: int, keepdim: bool
) -> Any:
    if not keepdim and x_shape:
        g = F.reshape(g, indices.shape)
    return F.put_along(g, indices, dim, x_shape)


def selection(name: str, node: str) -> Op:
    """An op that returns the given `values`, found at `indices` along `dim`, with a gradient."""
    return operation(
        name,
        lambda xp, x, values, indices, dim, keepdim: values,
        pulls={"x": _along_pull},
        pushes={"x": lambda F, t, indices, dim, keepdim: F.along(t, indices, dim, keepdim)},
        node=node,
        cost=6,
        frees=("indices",),
    )


# -- logarithm of a sum of exponentials -----------------------------------------------------------


def _logsumexp(xp: Library, x: Array, dims: tuple[int, ...], keepdim: bool) -> Any:
    if not _count(x.shape, dims):
        out = xp.full(kept_shape(x.shape, dims), -math.inf, x.dtype)
        return out if keepdim else out.reshape(_left_shape(x.shape, dims))
    # For one line it is cheaper not to keep the axes.
    keep = len(dims) < x.ndim
    real: Any = x.real if x.dtype.kind == "c" else x
    for token in fp_errors.fp_errors_ignored:
        try:
            peak = in_order(real.max(dims, None, keep))
            finite = xp.isfinite(peak)
            # An infinite peak is not subtracted: inf - inf would be NaN.
            if x.__class__ is not np.ndarray or xp.count_nonzero(finite) < peak.size:
                peak = xp.where(finite, peak, real.dtype.type(0))
            out = xp.log(_total(xp, xp.exp(xp.subtract(x, peak)), dims, keep)) + peak
        finally:
            fp_errors.restore_fp_errors(token)
        break
    if keepdim == keep:
        return out
    return out.reshape(kept_shape(x.shape, dims) if keepdim else _left_shape(x.shape, dims))


def _left_shape(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def _logsumexp_pull(
    F: Namespace, g: Value, x: Value, out: Value, dims: Shape, keepdim: bool
) -> Any:
    kept = kept_shape(x.shape, dims)
    return F.chain(F.reshape(g, kept), F.exp(F.sub(x, F.reshape(out, kept))))


def _logsumexp_push(
    F: Namespace, t: Value, x: Value, out: Value, dims: Shape, keepdim: bool
) -> Any:
    """The weighted mean of the tangent: the rounding of `out`, in all weights, cancels."""
    weights = F.exp(F.sub(x, F.reshape(out, kept_shape(x.shape, dims))))
    return F.div(F.sum(F.mul(t, weights), dims, keepdim), F.sum(weights, dims, keepdim))


def _logsumexp_gradient(
    xp: Library, g: Array, x: Array, out: Array, dims: tuple[int, ...], keepdim: bool
) -> Any:
    if len(dims) < x.ndim and not keepdim:
        g, out = _kept(g, x.shape, dims), _kept(out, x.shape, dims)
    e = xp.asarray(xp.subtract(x, out))
    xp.exp(e, e)
    return xp.multiply(e, g, e)


# -- norms ----------------------------------------------------------------------------------------


def _vector_norm(xp: Library, x: Array, ord: float, dims: tuple[int, ...], keepdim: bool) -> Any:
    for token in fp_errors.fp_errors_ignored:
        try:
            if ord == 2:
                if _in_one_piece(x, dims):
                    out = xp.sqrt(_square_sum(x))
                    return out.reshape((1,) * x.ndim) if keepdim else out
                return xp.sqrt(_square_totals(xp, x, dims, keepdim))
            size = xp.abs(x)
            if ord == math.inf:
                return in_order(size.max(dims, None, keepdim))
            if ord == -math.inf:
                return in_order(size.min(dims, None, keepdim))
            if ord == 1:
                return _total(xp, size, dims, keepdim)
            if ord == 0:
                return in_order(xp.add.reduce(size != 0, dims, size.dtype, None, keepdim))
            result = xp.power(_total(xp, xp.power(size, ord), dims, keepdim), 1 / ord)
        finally:
            fp_errors.restore_fp_errors(token)
        break
    return result


def _vector_norm_pull(
    F: Namespace, g: Value, x: Value, out: Value, ord: float, dims: Shape, keepdim: bool
) -> Any:
    """PyTorch's subgradient: 0 where the norm is 0, shared evenly among extrema."""
    if ord == 0:
        return None
    kept = kept_shape(x.shape, dims)
    g = F.reshape(g, kept)
    if ord == 1:
        return F.mul(F.sgn(x), g)
    norm = F.reshape(out, kept)
    if ord == 2:
        return F.mul(x, quotient(F, g, norm))
    size = F.abs(x)
    if math.isinf(ord):
        hits = F.hits_or_nan(size, norm)
        return F.mul(F.sgn(x), F.mul(F.div(g, F.sum(hits, dims, True)), hits))
    if ord < 1:
        steep = F.mask(F.pow_scalar(size, ord - 1), x != 0)
        return F.mul(F.mul(F.sgn(x), steep), F.mul(g, F.pow_scalar(norm, 1 - ord)))
    scale = quotient(F, g, F.pow_scalar(norm, ord - 1))
    if ord < 2:
        return F.mul(F.mul(F.sgn(x), F.pow_scalar(size, ord - 1)), scale)
    return F.mul(F.mul(x, F.pow_scalar(size, ord - 2)), scale)


@widening
def _shared(xp: Library, g: Array, x: Array, out: Array, dims: tuple[int, ...]) -> Any:
    """The gradient of a norm of greatest or least elements, which share it evenly."""
    size = xp.abs(x)
    hits = xp.equal(size, out) | xp.isnan(size)
    return xp.multiply(sgn(xp, x), g / xp.add.reduce(hits, dims, size.dtype, None, True) * hits)


def _vector_norm_gradient(
    xp: Library, g: Array, x: Array, out: Array, ord: float, dims: tuple[int, ...], keepdim: bool
) -> Any:
    if ord == 0:
        return None
    if len(dims) < x.ndim and not keepdim:
        g, out = _kept(g, x.shape, dims), _kept(out, x.shape, dims)
    if ord == 2:
        return xp.multiply(x, _over(xp, g, out))
    if ord == 1:
        return xp.multiply(sgn(xp, x), g)
    if math.isinf(ord):
        return _shared(xp, g, x, out, dims)
    size = xp.abs(x)
    if ord < 1:
        steep = xp.where(size == 0, size.dtype.type(0), xp.power(size, ord - 1))
        return sgn(xp, x) * steep * (g * xp.power(out, 1 - ord))
    if ord == 3:
        steep = xp.multiply(x, size)
    elif ord < 2:
        steep = sgn(xp, x) * xp.power(size, ord - 1)
    else:
        steep = xp.multiply(x, xp.power(size, ord - 2))
    return xp.multiply(steep, _over(xp, g, xp.power(out, ord - 1)))


# -- nuclear norm ---------------------------------------------------------------------------------


def _sum_of_singular_values(xp: Library, x: Array) -> Any:
    return svd(xp, x, compute_uv=False).sum(-1).copy()


def _polar(xp: Library, x: Array) -> Any:
    """The unitary polar factor of matrices: the gradient of the sum of their singular values."""
    u, _, vh = xp.linalg.svd(x, full_matrices=False)
    return xp.matmul(u, vh)


@fp_errors.without_fp_errors
def _polar_tangent(xp: Library, t: Array, x: Array) -> Any:
    """The change of the unitary factor of `x` along `t`; this linear map is self-adjoint."""
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    uh, v = adjoint(xp, u), adjoint(xp, vh)
    inner = xp.matmul(xp.matmul(uh, t), v)
    turned = (inner - adjoint(xp, inner)) / (s[..., :, None] + s[..., None, :])
    left = (t - xp.matmul(u, xp.matmul(uh, t))) @ (v / s[..., None, :])
    right = adjoint(xp, u / s[..., None, :])
    right = right @ (t - xp.matmul(xp.matmul(t, v), vh))
    return xp.matmul(xp.matmul(u, turned), vh) + xp.matmul(left, vh) + xp.matmul(u, right)


def _nuclear_pull(F: Namespace, g: Value, x: Value) -> Any:
    return F.mul(F.reshape(g, (*x.shape[:-2], 1, 1)), F.polar(x))


class AllAxes(tuple[int, ...]):
    """All axes of a reduction called without axes, for which PyTorch has other node names."""

    __slots__ = ()


OPS = (
    linear(
        "sum",
        _total,
        lambda F, g, x_shape, dims, keepdim: F.spread(g, x_shape, dims, keepdim),
        fresh=False,
        kernel=lambda xp, g, saved: _spread(xp, g, *saved),
        variant=("dims", lambda dims: f"SumBackward{dims.__class__ is not AllAxes:d}"),
    ),
    linear(
        "sum_to",
        _sum_to,
        lambda F, g, x_shape: F.expand(g, x_shape),
        fresh=False,
        node="SumBackward1",
        batch=batch_rules.sum_to,
    ),
    linear(
        "spread",
        _spread,
        lambda F, g, dims, keepdim: F.sum(g, dims, keepdim),
        attributes="shape dims keepdim",
        node="ExpandBackward0",
    ),
    linear(
        "mean",
        _mean,
        _mean_pull,
        fresh=False,
        variant=("dims", lambda dims: f"MeanBackward{dims.__class__ is not AllAxes:d}"),
    ),
    operation(
        "var",
        _var,
        pulls={"x": fused(_var_gradient, _var_pull)},
        pushes={"x": _var_push},
        cost=_lines_cost,
        wide=True,
    ),
    operation(
        "std",
        # No warnings are to be ignored, because a variance is not negative.
        lambda xp, x, dims, correction, keepdim: xp.sqrt(_var(xp, x, dims, correction, keepdim)),
        pulls={"x": fused(_std_gradient, _std_pull)},
        pushes={"x": _std_push},
        cost=_lines_cost,
        wide=True,
    ),
    operation(
        "prod",
        lambda xp, x, dims, keepdim: in_order(xp.multiply.reduce(x, dims, x.dtype, None, keepdim)),
        pulls={"x": _prod_pull},
        pushes={"x": push_of(_prod_pull)},
        cost=_lines_cost,
        variant=("dims", lambda dims: f"ProdBackward{dims.__class__ is not AllAxes:d}"),
    ),
    _extreme("amax", "max"),
    _extreme("amin", "min"),
    _whole("max", lambda xp, x: x.max(), 1, batch_rules.extremum),
    _whole("min", lambda xp, x: x.min(), 1, batch_rules.extremum),
    _whole("median", _median, 0),
    _whole("nanmedian", _nanmedian, 0),
    selection("max_along", "MaxBackward0"),
    selection("min_along", "MinBackward0"),
    selection("median_along", "MedianBackward1"),
    selection("nanmedian_along", "NanmedianBackward1"),
    selection("kthvalue", "KthvalueBackward0"),
    selection("mode", "ModeBackward0"),
    linear("along", _along, _along_pull, node="GatherBackward0", cost=6),
    linear(
        "put_along",
        _put_along,
        lambda F, g, indices, dim: F.along(g, indices, dim, True),
        attributes="indices dim shape",
    ),
    operation(
        "logsumexp",
        _logsumexp,
        cost=_lines_cost,
        pulls={"x": fused(_logsumexp_gradient, _logsumexp_pull)},
        pushes={"x": _logsumexp_push},
    ),
    operation(
        "vector_norm",
        _vector_norm,
        pulls={"x": fused(_vector_norm_gradient, _vector_norm_pull)},
        pushes={"x": push_of(_vector_norm_pull)},
        wide=True,
        node="LinalgVectorNormBackward0",
    ),
    operation(
        "nuclear_norm",
        solved(_sum_of_singular_values, "svd", NOT_FINITE),
        pulls={"x": _nuclear_pull},
        pushes={"x": push_of(_nuclear_pull)},
        cost=decomposition_cost,
    ),
    operation(
        "polar",
        _polar,
        pulls={"x": lambda F, g, x: F.polar_tangent(g, x)},
        linear=True,
        cost=decomposition_cost,
    ),
    operation("polar_tangent", _polar_tangent, "t x", batch=batch_rules.alike),
    # Ops without a derivative.
    operation(
        "hits", lambda xp, x, out: (x == out).astype(x.dtype), "x out", batch=batch_rules.broadcast
    ),
    operation(
        "hits_or_nan",
        lambda xp, x, out: ((x == out) | (xp.isnan(out) & xp.isnan(x))).astype(x.dtype),
        "x out",
    ),
)
