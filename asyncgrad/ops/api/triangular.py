"""LU decompositions, solutions with them, and matrix exponentials: `asyncgrad.linalg`."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.recording import again
from asyncgrad.errors import LinAlgError
from asyncgrad.ops import return_types
from asyncgrad.ops.api.matrices import broadcast_batches
from asyncgrad.ops.api.shape import narrow, tril, triu
from asyncgrad.ops.arguments import matrices, of_one_dtype
from asyncgrad.ops.batching import mapped
from asyncgrad.ops.converted import one_node, writes, writes_exactly
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.namespace import Raw
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.table.matrices import eliminate
from asyncgrad.ops.tensors.new_tensors import leaf, new_beside
from asyncgrad.ops.tensors.transfer import computed_on_host
from asyncgrad.types import Array, ByExample, Inexact, Library, Matrices, SquareMatrices, Tensor

__all__ = ["lu", "lu_factor", "lu_factor_ex", "lu_solve", "matrix_exp"]

#: What errors say before the names of these functions.
SPACE = "linalg."
_INT32 = np.dtype("int32")


def _reordered(x: Tensor, order: Array) -> Any:
    """The rows of each matrix in its own order."""
    *lead, m, n = x._metadata.shape
    count = prod(lead)
    stack = R.reshape(x, (count, m, n))
    picked = R.index(stack, again(_places, order, count, m))
    return R.reshape(picked, (*lead, m, n))


def _places(order: Array, count: int, m: int) -> tuple[Array, Array]:
    return np.arange(count)[:, None], order.reshape(count, m)


def _eliminated(name: str, A: Tensor, pivot: bool) -> tuple[Any, Any, Any]:
    """The packed LU decomposition, and the arrays of pivots and of the rows' order."""
    matrices(name, A)
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented. Pass pivot=True.")
    F = A._metadata.F
    eliminated = partial(A._metadata.device.launching(eliminate), F.xp)
    pivots, order = again(eliminated, A._array)
    return R.lu_packed(_reordered(A, order)), pivots, order


def _ones(x: Tensor, n: int) -> Any:
    return new_beside("linalg.lu", x, "eye", n)


def _triangles(packed: Tensor) -> tuple[Any, Any]:
    """L, with ones on its diagonal, and U from a packed decomposition."""
    *lead, m, n = packed._metadata.shape
    k = min(m, n)
    lower = tril(narrow(packed, -1, 0, k), -1)
    one = R.expand(_ones(packed, m), (*lead, m, m))
    return R.add(lower, narrow(one, -1, 0, k)), triu(narrow(packed, -2, 0, k))


def _permutation(x: Tensor, order: Array) -> Any:
    """The matrices P with `P @ L @ U = x`."""
    m = x._metadata.shape[-2]
    place = x._metadata.device
    return leaf("linalg.lu", again(place.launching(_permuted), _ones(x, m)._array, order), place)


def _permuted(rows: Array, order: Array) -> Any:
    return rows[order].swapaxes(-1, -2).copy()


@writes
def lu(A: Inexact, *, pivot: bool = True) -> return_types.linalg_lu:
    """The decomposition `A = P @ L @ U`: a permutation, L with ones on the diagonal, and U.

    Args:
        A: of shape (..., m, n), floating or complex.
        pivot: must be True: rows are always exchanged.
    """
    if getattr(A, "_batched", False):
        return mapped(lu, A, pivot=pivot)
    packed, _, order = _eliminated("linalg.lu", A, pivot)
    lower, upper = [renamed(part, "LinalgLuBackward0", saves=True) for part in _triangles(packed)]
    return return_types.linalg_lu(_permutation(A, order), lower, upper)


@writes
def lu_factor_ex(
    A: Inexact, *, pivot: bool = True, check_errors: bool = False
) -> return_types.linalg_lu_factor_ex:
    """`lu_factor`, and for each matrix 0 or the position of the first 0 on the diagonal of U.

    Raises:
        LinAlgError: if there is such a 0 and errors are checked.
    """
    name = "linalg.lu_factor_ex"
    if getattr(A, "_batched", False):
        return mapped(lu_factor_ex, A, pivot=pivot, check_errors=check_errors)
    packed, pivots, _ = _eliminated(name, A, pivot)
    place = packed._metadata.device
    F = packed._metadata.F
    info = leaf(name, again(partial(place.launching(_zeros_in), F), packed._array), place)
    if check_errors:
        computed_on_host(_check_info, info)
    return return_types.linalg_lu_factor_ex(packed, leaf(name, pivots, place), info)


def _zeros_in(F: Raw, packed: Array) -> Any:
    """For each matrix the position of the first 0 on its diagonal, from 1, or 0."""
    diagonal = F.xp.diagonal(packed, 0, -2, -1) == 0
    info = F.xp.zeros(diagonal.shape[:-1], _INT32)
    if diagonal.shape[-1]:
        info = (diagonal.argmax(-1) + 1) * diagonal.any(-1)
    return F.as_array(info).astype(_INT32)


def _check_info(found: Array) -> None:
    """Raise if there is a 0 on a diagonal of U."""
    for place in np.flatnonzero(found)[:1]:
        at = f"{found.flat[place]},{found.flat[place]}"
        raise LinAlgError(
            f"linalg.lu_factor: {f'(Batch element {place}): ' if found.ndim else ''}U[{at}] is "
            f"zero and using it on lu_solve would result in a division by zero. If you still want "
            f"to perform the factorization, consider calling linalg.lu(A, pivot) or "
            f"linalg.lu_factor_ex(A, pivot)"
        )


@writes
def lu_factor(A: Tensor, *, pivot: bool = True) -> return_types.linalg_lu_factor:
    """The LU decomposition, packed in one matrix without the ones of L, and the pivots.

    Args:
        A, pivot: as in `lu`.

    Returns:
        `LU` and `pivots`: int32, row `i` was exchanged with row `pivots[i] - 1`.

    Raises:
        LinAlgError: if there is a 0 on the diagonal of U. It is a RuntimeError.
    """
    packed, pivots, _ = lu_factor_ex(A, pivot=pivot, check_errors=True)
    return return_types.linalg_lu_factor(packed, pivots)


def _order_by(name: str, x: Tensor, pivots: Tensor) -> Any:
    """The array of the order that pivots give the rows of matrices."""
    metadata = x._metadata
    ordered = partial(metadata.device.launching(_order_of), name, metadata.F.xp)
    return again(ordered, pivots._array, metadata.shape[-2])


def _order_of(name: str, xp: Library, pivots: Array, m: int) -> Any:
    """The order of `m` rows after the exchanges of the pivots, which are numbered from 1."""
    *lead, count = pivots.shape
    if not bool(((pivots >= 1) & (pivots <= m)).all()):
        raise unmet(name, f"pivots must all be greater or equal to 1, and at most {m}. Did you "
                    "properly pass the result of lu_factor?", pivots=pivots)  # fmt: skip
    pivots = pivots.reshape(prod(lead), count)
    each = xp.arange(len(pivots))
    order = xp.zeros((len(pivots), m), np.int64) + xp.arange(m)
    for i in range(count):
        other = pivots[:, i] - 1
        row = order[each, other]
        order[each, other] = order[:, i]
        order[:, i] = row
    return order.reshape(*lead, m)


@one_node("LinalgLuSolveBackward0", writes_exactly)
@requires(
    "pivots.dtype == int32  # pivots should be a Tensor of scalar type int32",
    "pivots.shape == LU.shape[:-1]  # Number of pivots per batch should be same as the dimension "
    "of the matrix",
    "B.shape[-2 if left else -1] == LU.shape[-1]  # Incompatible shapes of A and B for the "
    "equation {'AX = B' if left else 'XA = B'}",
)
def lu_solve(
    LU: SquareMatrices, pivots: ByExample, B: Matrices, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The solutions X of `A @ X = B`, or of `X @ A = B`, from the result of `lu_factor`.

    Args:
        LU: of shape (..., n, n).
        pivots: int32, of shape (..., n).
        B, left: as in `solve_triangular`.
        adjoint: use `A.mH` instead of A.

    A 0 on the diagonal of U gives numbers that are infinite or undefined.
    """
    name = "linalg.lu_solve"
    of_one_dtype(name, LU, B)
    if not left:
        return R.adjoint(lu_solve(LU, pivots, R.adjoint(B), adjoint=not adjoint))
    F = LU._metadata.F
    order = _order_by(name, LU, pivots)
    x, y = broadcast_batches(name, LU, B)
    order = again(F.xp.broadcast_to, order, y._metadata.shape[:-1])
    lower, upper = _triangles(x)
    if not adjoint:
        return R.solve(upper, R.solve(lower, _reordered(y, order), False), True)
    y = R.solve(R.adjoint(lower), R.solve(R.adjoint(upper), y, False), True)
    return _reordered(y, again(F.xp.argsort, order))


def unpacked(LU: Tensor, pivots: Tensor, data: bool, permutation: bool) -> tuple[Any, Any, Any]:
    """P, L and U from the result of `lu_factor`; those not requested are empty."""
    name = "lu_unpack"
    x, at = matrices(name, LU), pivots
    if at._metadata.dtype != _INT32:
        raise RuntimeError(f"{name}: LU_pivots is expected to be a contiguous tensor of int32")
    rows = lower = upper = new_beside(name, x, "empty", 0)
    if permutation:
        rows = _permutation(x, _order_by(name, x, at))
    if data:
        lower, upper = [renamed(part, "LuUnpackBackward0") for part in _triangles(x)]
    return rows, lower, upper


@writes
def matrix_exp(A: SquareMatrices) -> Tensor:
    """The exponentials of square matrices.

    Args:
        A: of shape (..., n, n), floating or complex.
    """
    return R.matrix_exp(A)
