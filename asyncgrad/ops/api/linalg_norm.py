"""Norms, ranks, powers and products of matrices: `asyncgrad.linalg`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from asyncgrad.choices import LstsqDriver, MatrixNorm, words
from asyncgrad.core.recording import again
from asyncgrad.core.variable import Variable
from asyncgrad.errors import class_of
from asyncgrad.ops import promotion, return_types
from asyncgrad.ops.api import reduction, shape
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.linalg import dot, matmul, mm
from asyncgrad.ops.api.matrices import broadcast_batches, inv, inv_ex
from asyncgrad.ops.api.reduction import vector_norm
from asyncgrad.ops.arguments import many_dims, matrices, number_argument, of_one_dtype, one_dim
from asyncgrad.ops.batching import bottom
from asyncgrad.ops.converted import converted, writes, writes_exactly
from asyncgrad.ops.dtype import REAL, check_dtype, check_inexact
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.namespace import Raw
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.tensors.new_tensors import leaf, new_beside
from asyncgrad.ops.tensors.transfer import seen
from asyncgrad.types import Alike, Array, Axis, ByExample, DTypeLike, Inexact, Ints, Tensor

__all__ = [
    "cond", "cross", "diagonal", "lstsq", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot",
    "norm", "pinv", "vander", "vecdot",
]  # fmt: skip

#: What errors say before the names of these functions.
SPACE = "linalg."
_INT64 = np.dtype("int64")


# -- norms ----------------------------------------------------------------------------------------


@writes_exactly
def norm(
    A: Tensor, ord: float | MatrixNorm | None = None, dim: Ints | None = None,
    keepdim: bool = False, *, dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """The norm of vectors or matrices.

    Args:
        A: a floating or complex tensor; the result is real.
        ord: the order, a number, "fro" or "nuc"; None for the Euclidean norm of all.
        dim: the axis of vectors, or the two axes of matrices. If None, an order asks for a tensor
            of one or two axes.
        dtype: the dtype that the elements are converted to first.
    """
    ndim = len(A._metadata.shape)
    count = None
    if dim is not None:
        count = len(dim) if isinstance(dim, (tuple, list)) else 1
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if count not in {None, 1, 2} or (count is None and ndim not in {1, 2}):
        raise unmet("linalg.norm", "If dim is specified, it must be of length 1 or 2. If dim is "
                    "not specified but ord is, the input must be 1D or 2D",
                    dim=dim, A=A)  # fmt: skip
    if (ndim if count is None else count) == 2:
        return matrix_norm(A, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise unmet(
            "linalg.norm", f"the order {ord!r} is for matrices: dim must be a 2-tuple", dim=dim
        )
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


@writes_exactly
@requires(
    "A.ndim >= 2  # The input tensor A must have at least 2 dimensions",
    "isinstance(dim, (tuple, list)) and len(dim) == 2  # dim must be a 2-tuple",
)
def matrix_norm(
    A: Tensor, ord: float | MatrixNorm = "fro", dim: Ints = (-2, -1), keepdim: bool = False, *,
    dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """The norm of matrices.

    Args:
        A: a floating or complex tensor of two axes or more; the result is real.
        ord: "fro" for the norm of all elements, "nuc" for the sum of the singular values, 2 and -2
            for the greatest and the smallest of them, 1 and -1 for sums over columns, infinity and
            its negative for sums over rows.
        dim: the axes of rows and columns.
        dtype: the dtype that the elements are converted to first.
    """
    name = "linalg.matrix_norm"
    ndim = len(A._metadata.shape)
    axes: Any = dim
    first, second = (one_dim(name, axis, ndim) for axis in axes)
    if first == second:
        raise unmet(name, "dims must be different", dim=dim)
    order: Any = ord if isinstance(ord, str) else promotion.as_number(ord)
    if not _is_order(order):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    if order == "fro":
        return vector_norm(A, 2, (first, second), keepdim, dtype=dtype)
    check_inexact(name, A._metadata.dtype)
    if order == "nuc" or abs(order) == 2:
        values = _singular_values(A, first, second, dtype)
        last = len(values._metadata.shape) - 1
        if order == "nuc":
            out = R.sum(values, (last,), False)
        else:
            out = _extreme(values, order > 0, (last,), False)
        if not keepdim:
            return out
        for axis in sorted((first, second)):
            out = R.unsqueeze(out, axis)
        return out
    summed, kept = (first, second) if abs(order) == 1 else (second, first)
    sums = vector_norm(A, 1, summed, True, dtype=dtype)
    out = _extreme(sums, order > 0, (kept,), True)
    return out if keepdim else no_view(R.squeeze(out, tuple(sorted((first, second)))))


def _is_order(order: Any) -> bool:
    """Whether there is a norm of matrices of an order: a word, or a number."""
    if isinstance(order, str):
        return order in words(MatrixNorm)
    return order in {1, -1, 2, -2, math.inf, -math.inf}


def _singular_values(x: Tensor, first: int, second: int, dtype: DTypeLike | None) -> Any:
    ndim = len(x._metadata.shape)
    if dtype is not None:
        x = promotion.cast(x, dtype)
    if (first, second) != (ndim - 2, ndim - 1):
        rest = [axis for axis in range(ndim) if axis not in {first, second}]
        x = R.permute(x, (*rest, first, second))
    return R.svd_values(matrices("linalg.matrix_norm", x), [])


def _extreme(x: Tensor, greatest: bool, dims: tuple[int, ...], keepdim: bool) -> Any:
    if greatest and not x._metadata.size and all(x._metadata.shape[axis] == 0 for axis in dims):
        # The greatest of no sums is 0.
        return R.sum(x, dims, keepdim)
    return (reduction.amax if greatest else reduction.amin)(x, dims, keepdim)


@writes
def cond(A: Tensor, p: float | MatrixNorm | None = None) -> Tensor:
    """The condition numbers of matrices: infinite for singular ones, 0 without elements.

    Args:
        A: of shape (..., m, n); (..., n, n) for a `p` that is neither None, 2 nor -2.
        p: the order of the norm, as `matrix_norm` takes it; None for 2.
    """
    x = matrices("linalg.cond", A, square=isinstance(p, str))
    if p is not None and not _is_order(p):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if not x._metadata.size:
        return _constant(x, x._metadata.shape[:-2], 0)
    if p in {None, 2, -2}:
        values = R.svd_values(x, [])
        *lead, count = values._metadata.shape
        greatest, smallest = (
            R.squeeze(R.narrow(values, len(lead), at, 1), (len(lead),)) for at in (0, count - 1)
        )
        return R.div(smallest, greatest) if p == -2 else R.div(greatest, smallest)
    matrices("linalg.cond", x, square=True)
    inverse, info = inv_ex(x)
    regular = info == 0
    inverse = where(regular[..., None, None], inverse, 0)
    return where(regular, R.mul(matrix_norm(x, p), matrix_norm(inverse, p)), math.inf)


def _constant(x: Tensor, shape: tuple[int, ...], value: float) -> Any:
    """A constant real tensor on another tensor's device."""
    dtype = np.empty(0, x._metadata.dtype).real.dtype
    return new_beside("linalg", x, "full", shape, value, dtype=dtype)


# -- ranks and pseudo-inverses --------------------------------------------------------------------


def _tolerances(
    name: str, x: Tensor, atol: Tensor | float | None, rtol: Tensor | float | None
) -> tuple[Any, Any]:
    """The absolute tolerance of singular values, and that relative to the greatest."""
    if rtol is None:
        unset = atol is None or (not isinstance(atol, Variable) and atol == 0)
        metadata = x._metadata
        rtol = np.finfo(metadata.dtype).eps * max(metadata.shape[-2:]) if unset else 0.0
    atol = 0.0 if atol is None else atol
    return _tolerance(name, "atol", atol), _tolerance(name, "rtol", rtol)


def _tolerance(name: str, argument: str, value: Tensor | float) -> Any:
    """A tolerance: a number, or one for each matrix."""
    if isinstance(value, Variable) and value._metadata.is_complex:
        raise RuntimeError(
            f"{name}: {argument} tensor of complex type is not supported. Got {value.dtype}"
        )
    if not isinstance(value, Variable):
        return float(number_argument(name, argument, value))
    return again(value._metadata.F.xp.expand_dims, value._array, -1)


@writes
def matrix_rank(
    A: ByExample, tol: ByExample | float | None = None, hermitian: bool = False, *,
    atol: ByExample | float | None = None, rtol: ByExample | float | None = None,
) -> Tensor:  # fmt: skip
    """The ranks of matrices: the numbers of nonzero singular values; no gradient.

    Args:
        A: of shape (..., m, n), floating or complex.
        tol: the old name of `atol`.
        hermitian: the matrices are Hermitian, which is faster.
        atol: singular values up to this one are treated as 0; 0 if None.
        rtol: the same, relative to the greatest; max(m, n) times the machine epsilon of the
            dtype if both are None.
    """
    name = "linalg.matrix_rank"
    x = matrices(name, A, square=hermitian).detach()
    absolute, relative = _tolerances(name, x, atol if tol is None else tol, rtol)
    if tol is not None:
        relative = 0.0
    values = R.abs(R.eigh_values(x, "L", [])) if hermitian else R.svd_values(x, [])
    place = x._metadata.device
    rank = partial(place.launching(_rank), x._metadata.F)
    return leaf(name, again(rank, values._array, absolute, relative), place)


def _rank(F: Raw, values: Array, absolute: Array | float, relative: Array | float) -> Any:
    """How many singular values are greater than both tolerances."""
    greatest = values.max(axis=-1, keepdims=True) if values.shape[-1] else 0
    return F.as_array((values > F.xp.maximum(greatest * relative, absolute)).sum(axis=-1))


@writes
def pinv(
    A: Tensor, rcond: ByExample | float | None = None, hermitian: bool = False, *,
    atol: ByExample | float | None = None, rtol: ByExample | float | None = None,
) -> Tensor:  # fmt: skip
    """The pseudo-inverses of matrices.

    Args:
        A: of shape (..., m, n), floating or complex.
        rcond: the old name of `rtol`.
        hermitian, atol, rtol: as in `matrix_rank`.
    """
    name = "linalg.pinv"
    x = matrices(name, A, square=hermitian)
    return R.pinv(x, *_tolerances(name, x, atol, rtol if rcond is None else rcond), hermitian)


@partial(converted, out="cast", others={"input": "A", "b": "B"})
def lstsq(
    A: Tensor, B: Alike, rcond: Tensor | float | None = None, *, driver: LstsqDriver | None = None
) -> return_types.linalg_lstsq:
    """The least-squares solution X of `A @ X = B`.

    Args:
        A: of shape (..., m, n).
        B: of shape (..., m, k), or (..., m).
        rcond: singular values up to this one, relative to the greatest, are treated as 0; not by
            the driver "gels".
        driver: PyTorch's name of an algorithm. All are equal here, but "gels" returns no rank,
            only "gelsd" and "gelss" return singular values, and "gelsy", which is meant if there
            is no name, returns no residuals.

    Returns:
        The solution; the squared residuals if a driver is named that gives them, where A has more
        rows than columns and full rank; the ranks and the singular values.
    """
    name = "linalg.lstsq"
    x = matrices(name, A)
    a, b = x._metadata.shape, B._metadata.shape
    vector = len(b) == len(a) - 1 and b == a[:-1]
    if not vector and (len(b) < 2 or b[-2] != a[-2]):
        raise unmet(name, "input.size(-2) should match other.size(-2) or, for vectors, "
                    "other.size(-1)", A=A, B=B)  # fmt: skip
    if vector:
        B = R.unsqueeze(B, len(b))
    x, B = broadcast_batches(name, x, B)
    m, n = a[-2:]
    if rcond is None or driver == "gels":
        rcond = np.finfo(x._metadata.dtype).eps * max(m, n)
    relative = float(rcond)
    solution = R.bmm(R.pinv(x, 0.0, relative, False), B)
    ranks = matrix_rank(x, rtol=relative)
    measured = m > n and driver not in {None, "gelsy"}
    if measured and (driver == "gels" or seen(bottom(ranks), lambda held: bool((held == n).all()))):
        error = R.abs(R.sub(R.bmm(x, solution), B))
        residuals = R.sum(R.square(error), (len(error._metadata.shape) - 2,), False)
    else:
        residuals = no_view(R.narrow(R.reshape(R.abs(x), (x._metadata.size,)), 0, 0, 0))
    if vector:
        solution = R.squeeze(solution, (len(solution._metadata.shape) - 1,))
    valued = driver in {"gelsd", "gelss"}
    return return_types.linalg_lstsq(
        solution,
        residuals,
        new_beside(name, x, "zeros", 0, dtype=_INT64) if driver == "gels" else ranks,
        R.svd_values(x.detach(), []) if valued else _constant(x, (0,), 0),
    )


# -- powers and products --------------------------------------------------------------------------


@writes_exactly
@requires(
    "A.ndim >= 2 and A.shape[-1] == A.shape[-2]"
    "  # A must be batches of square matrices of at least 2 dimensions"
)
def matrix_power(A: Tensor, n: int) -> Tensor:
    """Integer powers of square matrices.

    Args:
        A: of shape (..., n, n), of any numbers; of floating or complex ones for a negative power.
        n: the power; negative powers are those of the inverses.

    Raises:
        LinAlgError: if a matrix has no inverse.
    """
    a = A._metadata.shape
    power = abs(n)
    if n < 0:
        A = inv(A)
    if power == 0:
        one = new_beside("linalg.matrix_power", A, "eye", a[-1])
        return R.overwrite(A, one if len(a) == 2 else R.clone(R.expand(one, a), "C"))
    out: Any = None
    while power:
        if power & 1:
            out = A if out is None else matmul(out, A)
        power >>= 1
        if power:
            A = matmul(A, A)
    return R.clone(out) if n == 1 else out


@writes_exactly
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order of the fewest multiplications.

    Args:
        tensors: two matrices or more; the first and the last may be vectors.
    """
    name = "linalg.multi_dot"
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'tensors' must be tuple of Tensors, not {class_of(tensors)}"
        )
    given = [promotion.as_tensor_operand(x, name, 1) for x in tensors]
    if len(given) < 2:
        raise RuntimeError(f"{name}(): expected at least 2 tensors but got {len(given)}")
    for place, x in enumerate(given):
        ndim = len(x._metadata.shape)
        ends = place in {0, len(given) - 1}
        if ndim != 2 and not (ends and ndim == 1):
            which = f"the {'last' if place else 'first'} tensor" if ends else f"tensor {place}"
            raise RuntimeError(
                f"{name}(): {which} must be {'1D or 2D' if ends else '2D'} but got {ndim}D"
            )
    of_one_dtype(name, *given)
    if len(given) == 2:
        return matmul(*given)
    first, last = (len(given[place]._metadata.shape) == 1 for place in (0, -1))
    if first:
        given[0] = R.unsqueeze(given[0], 0)
    if last:
        given[-1] = R.unsqueeze(given[-1], 1)
    for place, (x, y) in enumerate(pairwise(given)):
        if x._metadata.shape[1] != y._metadata.shape[0]:
            raise unmet(name, f"tensors {place} and {place + 1} with shapes {list(x.shape)} and "
                        f"{list(y.shape)} cannot be multiplied")  # fmt: skip
    out = _multiplied(
        given,
        _splits([*(x._metadata.shape[0] for x in given), given[-1]._metadata.shape[1]]),
        0,
        len(given) - 1,
    )
    dropped = tuple(axis for axis, drop in enumerate((first, last)) if drop)
    return R.squeeze(out, dropped) if dropped else out


def _splits(lengths: list[int]) -> dict[tuple[int, int], int]:
    """The best split of each run of matrices, by dynamic programming."""
    count = len(lengths) - 1
    costs = {(i, i): 0 for i in range(count)}
    splits = {}
    for span in range(1, count):
        for i in range(count - span):
            j = i + span
            costs[i, j], splits[i, j] = min(
                (costs[i, k] + costs[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1], k)
                for k in range(i, j)
            )
    return splits


def _multiplied(given: list[Any], splits: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return given[i]
    k = splits[i, j]
    return mm(_multiplied(given, splits, i, k), _multiplied(given, splits, k + 1, j))


@writes_exactly
def vecdot(x: Inexact, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot products of vectors along an axis, with the first conjugated.

    Args:
        y: a tensor of its dtype, broadcast against it.
    """
    name = "linalg.vecdot"
    promotion.check_broadcast(name, x, y)
    dtype = promotion.result_dtype(x, y)
    x, y = promotion.cast(x, dtype), promotion.cast(y, dtype)
    if dtype.kind == "c":
        x = R.conj(x)
    if len(x._metadata.shape) == len(y._metadata.shape) == 1 and x.shape == y.shape:
        one_dim(name, dim, 1)
        return dot(x, y)
    product = R.mul(x, y)
    summed = reduction.sum(product, many_dims(name, dim, len(product._metadata.shape)))
    return promotion.cast(summed, dtype)


@writes_exactly
def cross(input: Tensor, other: Alike, *, dim: Axis = -1) -> Tensor:
    """The cross products of vectors of length 3 along an axis.

    Args:
        other: a tensor of as many axes, broadcast against it.
    """
    return crossed("linalg.cross", input, other, dim)


def crossed(name: str, input: Tensor, other: Tensor, axis: int) -> Any:
    """The cross products along an axis."""
    a, b = input._metadata.shape, other._metadata.shape
    if len(a) != len(b):
        raise unmet(
            name, "inputs must have the same number of dimensions", input=input, other=other
        )
    if not a:
        raise IndexError(f"{name}: Dimension specified as {axis} but tensor has no dimensions")
    if a[axis] != 3 or b[axis] != 3:
        raise unmet(name, f"inputs dimension {axis} must have length 3", input=input, other=other)
    check_dtype(name, input._metadata.dtype, f"{REAL}c")
    promotion.check_broadcast(name, input, other)
    (u, v, w), (r, s, t) = (shape.unbind(z, axis) for z in (input, other))
    parts = (
        R.sub(R.mul(v, t), R.mul(w, s)),
        R.sub(R.mul(w, r), R.mul(u, t)),
        R.sub(R.mul(u, s), R.mul(v, r)),
    )
    return shape.stack(parts, axis)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of matrices; as `asyncgrad.diagonal`, of the last two axes."""
    return shape.diagonal(A, offset, dim1, dim2)


@writes
@requires("([1, *x.shape][-1] if N is None else N) > 1  # N must be greater than 1")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Vandermonde matrices: the powers of vectors, from 0 on.

    Args:
        x: of shape (..., n).
        N: how many powers; n if None.
    """
    name = "linalg.vander"
    if not x._metadata.shape:
        x = R.unsqueeze(x, 0)
    lengths = x._metadata.shape
    count = lengths[-1] if N is None else N
    if promotion.category(x._metadata.dtype) < 2:
        x = promotion.cast(x, _INT64)
    column = R.unsqueeze(x, len(lengths))
    columns = [new_beside(name, x, "ones", (*lengths, 1))]
    for _ in range(count - 1):
        columns.append(R.mul(columns[-1], column))
    return shape.cat(columns[:count], -1)
