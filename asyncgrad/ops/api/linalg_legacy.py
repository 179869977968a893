"""Determinants, inverses and decompositions by their older names, and products of matrices."""

from __future__ import annotations

import math
from typing import Any

from asyncgrad.ops import return_types
from asyncgrad.ops.api import linalg_norm, matrices, triangular
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.reduction import mean
from asyncgrad.ops.api.shape import narrow
from asyncgrad.ops.arguments import of_one_dtype
from asyncgrad.ops.converted import one_node, writes, writes_exactly
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.promotion import as_tensor_operand, cast, promote_dtypes
from asyncgrad.ops.requirements import requires
from asyncgrad.ops.tensors import in_place
from asyncgrad.ops.tensors.new_tensors import new_beside
from asyncgrad.types import Alike, Axis, ByExample, Matrices, SquareMatrices, Tensor, Truth

__all__ = [
    "chain_matmul", "cholesky", "cholesky_inverse", "cholesky_solve", "cross", "det", "inverse",
    "kron", "logdet", "lu", "lu_solve", "lu_unpack", "matrix_exp", "matrix_power", "pca_lowrank",
    "pinverse", "qr", "slogdet", "svd", "svd_lowrank",
]  # fmt: skip
_NO_METHODS = frozenset({"chain_matmul", "lu_unpack", "pca_lowrank", "svd_lowrank"})
METHODS = tuple([n for n in __all__ if n not in _NO_METHODS])


def det(input: Tensor) -> Tensor:
    """The determinants of square matrices; see `linalg.det`."""
    return matrices.det(input)


@writes_exactly
def inverse(input: Tensor) -> Tensor:
    """The inverses of square matrices; see `linalg.inv`."""
    return matrices.inv(input)


@writes
def slogdet(input: Tensor) -> return_types.slogdet:
    """The signs and logarithms of absolute values of determinants; see `linalg.slogdet`."""
    return return_types.slogdet(*matrices.slogdet(input))


def logdet(input: SquareMatrices) -> Tensor:
    """The logarithms of determinants, NaN for negative ones.

    Args:
        input: of shape (..., n, n), floating or complex.
    """
    sign, size = R.det_sign(input), R.log_abs_det(input)
    if input._metadata.is_complex:
        return R.add(R.log(sign), R.to(size, sign.dtype))
    return where(sign < 0, math.nan, size)


def pinverse(input: Tensor, rcond: Tensor | float = 1e-15) -> Tensor:
    """The pseudo-inverses of matrices; see `linalg.pinv`."""
    return linalg_norm.pinv(input, rcond)


@requires("A.ndim >= 2", error=ValueError)
@requires("q is None or q >= 0  # Trying to create tensor with negative dimension")
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """A low-rank approximation `U @ diag(S) @ V.mH` of `A - M`.

    It is the exact truncated decomposition, while PyTorch's is a randomised one.

    Args:
        A: of shape (..., m, n).
        q: the greatest rank; 6 if None.
        niter: for PyTorch compatibility, without effect.
        M: subtracted from `A` first.
    """
    u, s, vh = matrices.svd(A if M is None else R.sub(A, M), full_matrices=False)
    count = min(6 if q is None else q, s._metadata.shape[-1])
    first, values, second = (narrow(part, -1, 0, count) for part in (u, s, R.adjoint(vh)))
    return first, values, second


@requires(
    "A.ndim >= 2",
    "q is None or 0 <= q <= min(A.shape[-2:])  # q(={q}) must be non-negative integer and not "
    "greater than min(m, n)={min(A.shape[-2:])}", error=ValueError,
)  # fmt: skip
def pca_lowrank(
    A: Tensor, q: int | None = None, center: Truth = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """The principal components of rows: `svd_lowrank` after subtracting their means.

    Args:
        A: of shape (..., observations, variables).
        q: the number of components; if None, 6 or all if there are fewer.
        center: subtract the means.
        niter: for PyTorch compatibility, without effect.

    Returns:
        The scores before they are scaled, the singular values, and the components as columns.
    """
    return svd_lowrank(A, q, niter, mean(A, -2, True) if center else None)


@writes_exactly
def matrix_power(input: Tensor, n: int) -> Tensor:
    """Integer powers of square matrices; see `linalg.matrix_power`."""
    return linalg_norm.matrix_power(input, n)


@writes
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factors L with `L @ L.mH = input`; see `linalg.cholesky`."""
    return matrices.cholesky(input, upper=upper)


@one_node("CholeskySolveBackward0", writes)
@requires("input2.shape[-1] == input.shape[-2]  # Incompatible matrix sizes for cholesky_solve")
def cholesky_solve(input: Matrices, input2: SquareMatrices, upper: bool = False) -> Tensor:
    """The solutions of linear systems from the Cholesky factors of their matrices.

    Args:
        input: the right sides, of shape (..., n, k).
        input2: the Cholesky factors L, of shape (..., n, n).
        upper: they are `L.mH`.
    """
    of_one_dtype("cholesky_solve", input, input2)
    return _by_factors("cholesky_solve", input2, input, upper, triangles=True)


@one_node("CholeskyInverseBackward0", writes)
def cholesky_inverse(input: SquareMatrices, upper: bool = False) -> Tensor:
    """The inverses of matrices from their Cholesky factors L.

    Args:
        input, upper: the factors, as `cholesky_solve` takes them.

    Raises:
        LinAlgError: if there is a 0 on a diagonal. It is a RuntimeError.
    """
    name = "cholesky_inverse"
    one = new_beside(name, input, "eye", input._metadata.shape[-1])
    return _by_factors(name, input, one, upper, triangles=False)


def _by_factors(name: str, factors: Tensor, y: Tensor, upper: bool, *, triangles: bool) -> Any:
    """The solutions for right sides `y`; only the factors' triangle is read.

    A 0 on its diagonal is an error unless they are solved as `triangles`.
    """
    x = R.clone(R.adjoint(factors) if upper else factors)
    # Not recorded: as in PyTorch, the gradient is that of all elements.
    in_place.change(x.detach(), "tril_", R.tril, 0)
    x, y = matrices.broadcast_batches(name, x, y)
    lower, above = (False, True) if triangles else (None, None)
    return R.solve(R.adjoint(x), R.solve(x, y, lower), above)


def lu(input: Tensor, pivot: bool = True, get_infos: Truth = False) -> tuple[Tensor, ...]:
    """The LU decomposition, packed in one matrix, and the pivots; see `linalg.lu_factor`.

    Args:
        get_infos: also return the position of the first 0 on the diagonal of U, or 0.
    """
    out = triangular.lu_factor_ex(input, pivot=pivot)
    return out if get_infos else tuple(out[:2])


@writes_exactly
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The solutions of linear systems from LU decompositions; see `linalg.lu_solve`."""
    return triangular.lu_solve(LU_data, LU_pivots, input)


@writes
@requires(
    "LU_data.ndim >= 2  # Expected tensor with 2 or more dimensions",
    "LU_pivots.shape == (*LU_data.shape[:-2], min(LU_data.shape[-2:]))  # Number of pivots per "
    "batch should be same as the dimension of the matrix",
)
def lu_unpack(
    LU_data: ByExample, LU_pivots: ByExample, unpack_data: bool = True, unpack_pivots: bool = True
) -> return_types.lu_unpack:
    """Unpack the result of `lu` into permutations P, lower triangular L and upper triangular U.

    Args:
        LU_data: of shape (..., m, n).
        LU_pivots: int32, of shape (..., min(m, n)).
        unpack_data: compute L and U, which are otherwise empty.
        unpack_pivots: compute P, which is otherwise empty.
    """
    return return_types.lu_unpack(
        *triangular.unpacked(LU_data, LU_pivots, unpack_data, unpack_pivots)
    )


def matrix_exp(input: Tensor) -> Tensor:
    """The exponentials of square matrices; see `linalg.matrix_exp`."""
    return triangular.matrix_exp(input)


@writes
def qr(input: Tensor, some: bool = True) -> return_types.qr:
    """The QR decomposition; see `linalg.qr`.

    Args:
        some: the reduced form.
    """
    return return_types.qr(*matrices.qr(input, "reduced" if some else "complete"))


@writes
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> return_types.svd:
    """The singular values and vectors, with `U @ diag(S) @ V.mH = input`; see `linalg.svd`.

    Args:
        some: the reduced form.
        compute_uv: compute the vectors, which are otherwise zeros.
    """
    if compute_uv:
        u, s, vh = matrices.svd(input, not some)
        return return_types.svd(u, s, R.adjoint(vh))
    values = matrices.svdvals(input)
    *lead, m, n = input._metadata.shape
    u, v = (new_beside("svd", input, "zeros", (*lead, k, k)) for k in (m, n))
    return return_types.svd(u, values, v)


@writes_exactly
@requires("dim is not None or 3 in input.shape  # no dimension of size 3 in input")
def cross(input: Tensor, other: Alike, dim: Axis | None = None) -> Tensor:
    """The cross products of vectors of length 3 along an axis; see `linalg.cross`.

    Args:
        dim: the axis of the vectors; the first of length 3 if None.
    """
    return linalg_norm.crossed("cross", input, other, input.shape.index(3) if dim is None else dim)


@writes
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: a block of the second tensor for each element of the first."""
    # In type promotion, a tensor without dimensions has full weight here.
    dtype = promote_dtypes(input._metadata.dtype, other._metadata.dtype)
    input, other = cast(input, dtype), cast(other, dtype)
    a, b = input._metadata.shape, other._metadata.shape
    ndim = max(len(a), len(b))
    a, b = (1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b
    blocks = R.mul(
        R.reshape(input, tuple(n for pair in a for n in (pair, 1))),
        R.reshape(other, tuple(n for pair in b for n in (1, pair))),
    )
    return no_view(R.reshape(blocks, tuple(map(math.prod, zip(a, b, strict=True)))))


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the order of the fewest multiplications."""
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for place, x in enumerate(matrices, 1):
        ndim = as_tensor_operand(x, "chain_matmul", place).ndim
        if ndim != 2:
            raise RuntimeError(f"chain_matmul(): Tensor dimension is {ndim}, expected 2 instead.")
    return matrices[0] if len(matrices) == 1 else linalg_norm.multi_dot(matrices)
