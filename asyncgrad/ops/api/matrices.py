"""Inverses, solutions, determinants and decompositions of matrices: `asyncgrad.linalg`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from asyncgrad.aliases import Array
from asyncgrad.choices import QrMode, Triangle
from asyncgrad.core.modes import current
from asyncgrad.core.recording import again, unrepeatable
from asyncgrad.errors import LinAlgError
from asyncgrad.ops import return_types
from asyncgrad.ops.api.elementwise import add
from asyncgrad.ops.api.shape import cat, permute, reshape, tril, triu
from asyncgrad.ops.arguments import of_one_dtype, one_dim
from asyncgrad.ops.batching import mapped
from asyncgrad.ops.converted import converted, one_node, writes, writes_exactly
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.table.matrices import bad_minor, zero_pivot
from asyncgrad.ops.tensors.new_tensors import leaf, new_beside
from asyncgrad.types import Alike, Matrices, SquareMatrices, Tensor

__all__ = [
    "cholesky", "cholesky_ex", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "inv_ex", "qr",
    "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv",
    "tensorsolve",
]  # fmt: skip

#: What errors say before the names of these functions.
SPACE = "linalg."
_INT32 = np.dtype("int32")


def turned(x: Tensor) -> Any:
    """Transpose the last two axes."""
    ndim = len(x._metadata.shape)
    return R.permute(x, (*range(ndim - 2), ndim - 1, ndim - 2))


def broadcast_batches(name: str, x: Tensor, y: Tensor) -> tuple[Any, Any]:
    """Broadcast the leading axes of two tensors of matrices."""
    a, b = x._metadata.shape, y._metadata.shape
    if a[:-2] == b[:-2]:
        return x, y
    try:
        lead = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise RuntimeError(
            f"{name}: the batch axes {a[:-2]} and {b[:-2]} of shapes {a} and {b} can't be "
            f"broadcast. Reshape or unsqueeze one of them."
        ) from None
    x = x if a[:-2] == lead else R.expand(x, (*lead, *a[-2:]))
    y = y if b[:-2] == lead else R.expand(y, (*lead, *b[-2:]))
    return x, y


# -- inverses and solutions -----------------------------------------------------------------------


@writes_exactly
def inv(A: SquareMatrices) -> Tensor:
    """The inverses of square matrices.

    Args:
        A: of shape (..., n, n), floating or complex.

    Raises:
        LinAlgError: if a matrix is singular. It is a RuntimeError.
    """
    return R.inv(A)


@writes
def inv_ex(A: SquareMatrices, *, check_errors: bool = False) -> return_types.linalg_inv_ex:
    """`inv`, and for each matrix 0 if it has an inverse.

    Args:
        check_errors: raise for singular matrices; otherwise their inverses are NaN.

    Raises:
        LinAlgError: if a matrix is singular and errors are checked.
    """
    return return_types.linalg_inv_ex(*_with_info(R.inv, zero_pivot, A, check_errors))


@one_node("LinalgSolveExBackward0", writes_exactly)
def solve(A: SquareMatrices, B: Alike, *, left: bool = True) -> Tensor:
    """The solutions X of `A @ X = B`, or of `X @ A = B`.

    Args:
        A: of shape (..., n, n).
        B: of shape (..., n, k), or vectors of shape (..., n) or (n,).
        left: solve `A @ X = B` instead of `X @ A = B`.

    Raises:
        LinAlgError: if a matrix is singular. It is a RuntimeError.
    """
    return _solved("linalg.solve", A, B, left, R.solve)


def _solved(name: str, A: Tensor, B: Tensor, left: bool, function: Callable[..., Any]) -> Any:
    a, b = A._metadata.shape, B._metadata.shape
    vector = len(b) == 1 or (len(b) == len(a) - 1 and b == a[:-1])
    if not b or (vector and not left):
        raise unmet(name, "Vector broadcasting of the left hand side is not supported for "
                    "left=False, and B needs an axis", A=A, B=B)  # fmt: skip
    if vector:
        B = R.unsqueeze(B, len(b))
    if B._metadata.shape[-2 if left else -1] != a[-1]:
        raise unmet(name, "Incompatible shapes of A and B for the equation "
                    f"{'AX = B' if left else 'XA = B'}", A=A, B=B)  # fmt: skip
    A, B = broadcast_batches(name, A, B)
    if not left:
        return no_view(turned(function(turned(A), turned(B))))
    out = function(A, B)
    return no_view(R.squeeze(out, (len(out._metadata.shape) - 1,))) if vector else out


@writes
def solve_ex(
    A: SquareMatrices, B: Alike, *, left: bool = True, check_errors: bool = False
) -> return_types.linalg_solve_ex:
    """`solve`, and for each matrix 0 if there is a solution.

    Args:
        check_errors: raise for singular matrices; otherwise their solutions are NaN.

    Raises:
        LinAlgError: if a matrix is singular and errors are checked.
    """
    name = "linalg.solve_ex"
    try:
        info = _no_info(A, zero_pivot)
        return return_types.linalg_solve_ex(_solved(name, A, B, left, R.solve), info)
    except LinAlgError:
        if check_errors:
            raise
    inverse, info = _with_info(R.inv, zero_pivot, A, False)
    return return_types.linalg_solve_ex(_solved(name, inverse, B, left, R.bmm), info)


def _no_info(x: Tensor, order: Callable[..., int]) -> Any:
    """Zeros for matrices of which none fails; a replay goes on only if none does then."""
    if current().recorder is not None:
        metadata = x._metadata
        fails = partial(_fails, metadata.F.xp, order)
        if metadata.device.streamed or again(fails, x._array):
            unrepeatable("it goes on where a matrix has no result")
    return new_beside("linalg", x, "zeros", x._metadata.shape[:-2], dtype=_INT32)


def _fails(xp: Any, order: Callable[..., int], array: Array) -> bool:
    """Whether one of several matrices fails."""
    parts = array.reshape((-1, *array.shape[-2:])) if array.size else ()
    return any(order(xp, part) for part in parts)


def _with_info(
    function: Callable[..., Any], order: Callable[..., int], x: Tensor, check_errors: bool
) -> tuple[Any, Any]:
    """Apply a function; return also where it fails on each matrix, or 0."""
    if x._batched:
        return mapped(lambda held: _with_info(function, order, held, check_errors), x)
    info = _no_info(x, order)
    try:
        return function(x), info
    except LinAlgError:
        if check_errors:
            raise
    *lead, n, _ = x._metadata.shape
    parts = list(R.reshape(x, (prod(lead), n, n)))
    orders = [order(x._metadata.F.xp, part._array) for part in parts]
    results = [
        R.mul_scalar(part, math.nan) if failed else function(part)
        for part, failed in zip(parts, orders, strict=True)
    ]
    out = R.reshape(cat([R.unsqueeze(r, 0) for r in results]), x._metadata.shape)
    return out, leaf("linalg", np.array(orders, _INT32).reshape(lead), x._metadata.device)


@one_node("LinalgSolveTriangularBackward0", writes_exactly)
def solve_triangular(
    A: SquareMatrices, B: Matrices, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solutions X of `A @ X = B`, or of `X @ A = B`, with triangular matrices.

    Args:
        A: of shape (..., n, n); elements outside of the triangle are not read.
        B: of shape (..., n, k), or (..., k, n) if not `left`.
        upper: the matrices are upper triangular.
        left: solve `A @ X = B` instead of `X @ A = B`.
        unitriangular: treat the diagonal as ones.

    A 0 on a diagonal gives numbers that are infinite or undefined.
    """
    name = "linalg.solve_triangular"
    of_one_dtype(name, A, B)
    triangle = triu if upper else tril
    if unitriangular:
        ones = new_beside(name, A, "eye", A._metadata.shape[-1])
        A = add(triangle(A, 1 if upper else -1), ones)
    else:
        A = triangle(A)
    return _solved(name, A, B, left, lambda a, b: R.solve(a, b, upper == left))


@writes
@requires(
    "ind > 0  # Expected a strictly positive integer for 'ind'",
    "prod(A.shape[:ind]) == prod(A.shape[ind:])  # Expected self to satisfy the requirement "
    "prod(self.shape[ind:]) == prod(self.shape[:ind])",
)
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a map from its last axes to its first `ind`.

    Raises:
        LinAlgError: if the map is singular.
    """
    shape = A._metadata.shape
    first, last = shape[:ind], shape[ind:]
    return reshape(inv(R.reshape(A, (prod(first), prod(last)))), (*last, *first))


@partial(converted, out="cast", others={"input": "A", "other": "B"})
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The X with `tensordot(A, X, X.ndim) = B`.

    Args:
        A: a tensor whose first axes are those of `B`.
        dims: axes of `A` to move to its end first.

    Raises:
        LinAlgError: if the map is singular.
    """
    if dims is not None:
        ndim = len(A._metadata.shape)
        last = [one_dim("linalg.tensorsolve", dim, ndim) for dim in dims]
        A = permute(A, (*[i for i in range(ndim) if i not in last], *last))
    rest = A._metadata.shape[len(B._metadata.shape) :]
    size = prod(rest)
    if size != B._metadata.size or A._metadata.size != size * size:
        raise unmet("linalg.tensorsolve", "Expected self to satisfy the requirement "
                    "prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])",
                    A=A, B=B)  # fmt: skip
    return R.reshape(solve(R.reshape(A, (size, size)), R.reshape(B, (size,))), rest)


# -- determinants ---------------------------------------------------------------------------------


@writes_exactly
def det(A: SquareMatrices) -> Tensor:
    """The determinants of square matrices; the gradient is exact at singular ones, too.

    Args:
        A: of shape (..., n, n), floating or complex.
    """
    return R.det(A)


@writes
def slogdet(A: SquareMatrices) -> return_types.linalg_slogdet:
    """The signs of determinants and the logarithms of their absolute values; see `det`."""
    return return_types.linalg_slogdet(R.det_sign(A), R.log_abs_det(A))


# -- decompositions -------------------------------------------------------------------------------


@writes_exactly
def cholesky(A: SquareMatrices, *, upper: bool = False) -> Tensor:
    """The Cholesky factors L of positive definite matrices: `L @ L.mH = A`.

    Args:
        A: of shape (..., n, n), floating or complex.
        upper: return `L.mH`, and read the upper triangle instead of the lower one.

    Raises:
        LinAlgError: if a matrix is not positive definite. It is a RuntimeError.
    """
    return _triangle(R.cholesky(A, upper), upper)


def _triangle(lower: Tensor, upper: bool) -> Any:
    return no_view(R.adjoint(lower)) if upper else lower


@writes
def cholesky_ex(
    A: SquareMatrices, *, upper: bool = False, check_errors: bool = False
) -> return_types.linalg_cholesky_ex:
    """`cholesky`, and for each matrix 0 or the order of the minor that is not positive.

    Raises:
        LinAlgError: if a matrix is not positive definite and errors are checked.
    """
    lower, info = _with_info(
        lambda part: R.cholesky(part, upper), partial(bad_minor, upper=upper), A, check_errors
    )
    return return_types.linalg_cholesky_ex(_triangle(lower, upper), info)


@writes
def qr(A: Matrices, mode: QrMode = "reduced") -> return_types.linalg_qr:
    """The QR decomposition: Q with orthonormal columns, and upper triangular R.

    Args:
        A: of shape (..., m, n).
        mode: "reduced" for min(m, n) columns, "complete" for m, "r" for R alone. The further
            columns of a complete Q have no gradient.
    """
    *lead, m, n = A._metadata.shape
    whole = mode == "complete" and m > n
    kept: list[Any] = []
    if m >= n:
        q, r = R.qr_q(A, kept), R.qr_r(A, kept)
    else:
        square = R.narrow(A, len(lead) + 1, 0, m)
        q = R.qr_q(square, kept)
        others = R.bmm(R.adjoint(q), R.narrow(A, len(lead) + 1, m, n - m))
        r = cat((R.qr_r(square, kept), others), -1)
    if whole:
        q = cat((q, R.qr_rest(A)), -1)
        r = cat((r, new_beside("linalg.qr", A, "zeros", (*lead, m - n, n))), -2)
    if mode == "r":
        q = new_beside("linalg.qr", A, "zeros", 0)
    return return_types.linalg_qr(q, r)


@writes
def eigh(A: SquareMatrices, UPLO: Triangle = "L") -> return_types.linalg_eigh:
    """The eigenvalues, in ascending order, and eigenvectors of Hermitian matrices.

    Args:
        A: of shape (..., n, n), floating or complex.
        UPLO: the triangle that is read, "L" or "U".
    """
    given: Any = (A, UPLO.upper(), [])
    return return_types.linalg_eigh(R.eigh_values(*given), R.eigh_vectors(*given))


@writes_exactly
def eigvalsh(A: SquareMatrices, UPLO: Triangle = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices, in ascending order; see `eigh`."""
    return R.eigh_values(A, UPLO.upper(), [])


@writes
def eig(A: SquareMatrices) -> return_types.linalg_eig:
    """The complex eigenvalues and eigenvectors of square matrices.

    Args:
        A: of shape (..., n, n), floating or complex.
    """
    kept: list[Any] = []
    return return_types.linalg_eig(R.eig_values(A, kept), R.eig_vectors(A, kept))


@writes
def eigvals(A: SquareMatrices) -> Tensor:
    """The complex eigenvalues of square matrices; see `eig`."""
    return R.eig_values(A, [])


_CUDA_ALONE = "driver is None  # keyword argument `driver=` is only supported on CUDA inputs"


@writes
@requires(_CUDA_ALONE)
def svd(
    A: Matrices, full_matrices: bool = True, *, driver: str | None = None
) -> return_types.linalg_svd:
    """The singular values in descending order, and the singular vectors: `U @ diag(S) @ Vh = A`.

    Args:
        A: of shape (..., m, n), floating or complex.
        full_matrices: return complete orthonormal bases, with more than min(m, n) vectors.
        driver: as in PyTorch, for CUDA alone; here None.
    """
    kept: list[Any] = []
    u, s, vh = R.svd_left(A, kept), R.svd_values(A, kept), R.svd_right(A, kept)
    m, n = A._metadata.shape[-2:]
    if full_matrices and m > n:
        u = cat((u, R.svd_rest(A, True)), -1)
    if full_matrices and n > m:
        vh = cat((vh, R.svd_rest(A, False)), -2)
    return return_types.linalg_svd(u, s, vh)


@writes_exactly
@requires(_CUDA_ALONE)
def svdvals(A: Matrices, *, driver: str | None = None) -> Tensor:
    """The singular values of matrices, in descending order; see `svd`."""
    return R.svd_values(A, [])
