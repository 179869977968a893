"""Linear algebra: PyTorch's `torch.linalg`."""

# Written by tools/make_stubs.py from the running package.

from asyncgrad.choices import LstsqDriver, MatrixNorm, QrMode, Triangle
from asyncgrad.errors import LinAlgError as LinAlgError
from asyncgrad.ops import return_types
from asyncgrad.ops.api.linalg import matmul as matmul
from asyncgrad.ops.api.linalg_norm import diagonal as diagonal
from asyncgrad.tensor import Tensor
from asyncgrad.types import DTypeLike, Ints, Number
from collections.abc import Sequence

__all__ = ['LinAlgError', 'cholesky', 'cholesky_ex', 'cond', 'cross', 'det', 'diagonal', 'eig', 'eigh', 'eigvals', 'eigvalsh', 'inv', 'inv_ex', 'lstsq', 'lu', 'lu_factor', 'lu_factor_ex', 'lu_solve', 'matmul', 'matrix_exp', 'matrix_norm', 'matrix_power', 'matrix_rank', 'multi_dot', 'norm', 'pinv', 'qr', 'slogdet', 'solve', 'solve_ex', 'solve_triangular', 'svd', 'svdvals', 'tensorinv', 'tensorsolve', 'vander', 'vecdot', 'vector_norm']

def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """The Cholesky factors L of positive definite matrices: `L @ L.mH = A`.

    Args:
        A: of shape (..., n, n), floating or complex.
        upper: return `L.mH`, and read the upper triangle instead of the lower one.

    Raises:
        LinAlgError: if a matrix is not positive definite. It is a RuntimeError.
    """
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_cholesky_ex:
    """`cholesky`, and for each matrix 0 or the order of the minor that is not positive.

    Raises:
        LinAlgError: if a matrix is not positive definite and errors are checked.
    """
def cond(A: Tensor, p: float | MatrixNorm | None = None, *, out: Tensor | None = None) -> Tensor:
    """The condition numbers of matrices: infinite for singular ones, 0 without elements.

    Args:
        A: of shape (..., m, n); (..., n, n) for a `p` that is neither None, 2 nor -2.
        p: the order of the norm, as `matrix_norm` takes it; None for 2.
    """
def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The cross products of vectors of length 3 along an axis.

    Args:
        other: a tensor of as many axes, broadcast against it.
    """
def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The determinants of square matrices; the gradient is exact at singular ones, too.

    Args:
        A: of shape (..., n, n), floating or complex.
    """
def eig(A: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_eig:
    """The complex eigenvalues and eigenvectors of square matrices.

    Args:
        A: of shape (..., n, n), floating or complex.
    """
def eigh(A: Tensor, UPLO: Triangle = 'L', *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_eigh:
    """The eigenvalues, in ascending order, and eigenvectors of Hermitian matrices.

    Args:
        A: of shape (..., n, n), floating or complex.
        UPLO: the triangle that is read, "L" or "U".
    """
def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex eigenvalues of square matrices; see `eig`."""
def eigvalsh(A: Tensor, UPLO: Triangle = 'L', *, out: Tensor | None = None) -> Tensor:
    """The eigenvalues of Hermitian matrices, in ascending order; see `eigh`."""
def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverses of square matrices.

    Args:
        A: of shape (..., n, n), floating or complex.

    Raises:
        LinAlgError: if a matrix is singular. It is a RuntimeError.
    """
def inv_ex(A: Tensor, *, check_errors: bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_inv_ex:
    """`inv`, and for each matrix 0 if it has an inverse.

    Args:
        check_errors: raise for singular matrices; otherwise their inverses are NaN.

    Raises:
        LinAlgError: if a matrix is singular and errors are checked.
    """
def lstsq(A: Tensor, B: Tensor, rcond: Tensor | float | None = None, *, driver: LstsqDriver | None = None, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_lstsq:
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
def lu(A: Tensor, *, pivot: bool = True, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_lu:
    """The decomposition `A = P @ L @ U`: a permutation, L with ones on the diagonal, and U.

    Args:
        A: of shape (..., m, n), floating or complex.
        pivot: must be True: rows are always exchanged.
    """
def lu_factor(A: Tensor, *, pivot: bool = True, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_lu_factor:
    """The LU decomposition, packed in one matrix without the ones of L, and the pivots.

    Args:
        A, pivot: as in `lu`.

    Returns:
        `LU` and `pivots`: int32, row `i` was exchanged with row `pivots[i] - 1`.

    Raises:
        LinAlgError: if there is a 0 on the diagonal of U. It is a RuntimeError.
    """
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_lu_factor_ex:
    """`lu_factor`, and for each matrix 0 or the position of the first 0 on the diagonal of U.

    Raises:
        LinAlgError: if there is such a 0 and errors are checked.
    """
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Tensor | None = None) -> Tensor:
    """The solutions X of `A @ X = B`, or of `X @ A = B`, from the result of `lu_factor`.

    Args:
        LU: of shape (..., n, n).
        pivots: int32, of shape (..., n).
        B, left: as in `solve_triangular`.
        adjoint: use `A.mH` instead of A.

    A 0 on the diagonal of U gives numbers that are infinite or undefined.
    """
def matrix_exp(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The exponentials of square matrices.

    Args:
        A: of shape (..., n, n), floating or complex.
    """
def matrix_norm(A: Tensor, ord: float | MatrixNorm = 'fro', dim: Ints = (-2, -1), keepdim: bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The norm of matrices.

    Args:
        A: a floating or complex tensor of two axes or more; the result is real.
        ord: "fro" for the norm of all elements, "nuc" for the sum of the singular values, 2 and -2
            for the greatest and the smallest of them, 1 and -1 for sums over columns, infinity and
            its negative for sums over rows.
        dim: the axes of rows and columns.
        dtype: the dtype that the elements are converted to first.
    """
def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Integer powers of square matrices.

    Args:
        A: of shape (..., n, n), of any numbers; of floating or complex ones for a negative power.
        n: the power; negative powers are those of the inverses.

    Raises:
        LinAlgError: if a matrix has no inverse.
    """
def matrix_rank(A: Tensor, tol: Tensor | float | None = None, hermitian: bool = False, *, atol: Tensor | float | None = None, rtol: Tensor | float | None = None, out: Tensor | None = None) -> Tensor:
    """The ranks of matrices: the numbers of nonzero singular values; no gradient.

    Args:
        A: of shape (..., m, n), floating or complex.
        tol: the old name of `atol`.
        hermitian: the matrices are Hermitian, which is faster.
        atol: singular values up to this one are treated as 0; 0 if None.
        rtol: the same, relative to the greatest; max(m, n) times the machine epsilon of the
            dtype if both are None.
    """
def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of several matrices, in the order of the fewest multiplications.

    Args:
        tensors: two matrices or more; the first and the last may be vectors.
    """
def norm(A: Tensor, ord: float | MatrixNorm | None = None, dim: Ints | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The norm of vectors or matrices.

    Args:
        A: a floating or complex tensor; the result is real.
        ord: the order, a number, "fro" or "nuc"; None for the Euclidean norm of all.
        dim: the axis of vectors, or the two axes of matrices. If None, an order asks for a tensor
            of one or two axes.
        dtype: the dtype that the elements are converted to first.
    """
def pinv(A: Tensor, rcond: Tensor | float | None = None, hermitian: bool = False, *, atol: Tensor | float | None = None, rtol: Tensor | float | None = None, out: Tensor | None = None) -> Tensor:
    """The pseudo-inverses of matrices.

    Args:
        A: of shape (..., m, n), floating or complex.
        rcond: the old name of `rtol`.
        hermitian, atol, rtol: as in `matrix_rank`.
    """
def qr(A: Tensor, mode: QrMode = 'reduced', *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_qr:
    """The QR decomposition: Q with orthonormal columns, and upper triangular R.

    Args:
        A: of shape (..., m, n).
        mode: "reduced" for min(m, n) columns, "complete" for m, "r" for R alone. The further
            columns of a complete Q have no gradient.
    """
def slogdet(A: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_slogdet:
    """The signs of determinants and the logarithms of their absolute values; see `det`."""
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """The solutions X of `A @ X = B`, or of `X @ A = B`.

    Args:
        A: of shape (..., n, n).
        B: of shape (..., n, k), or vectors of shape (..., n) or (n,).
        left: solve `A @ X = B` instead of `X @ A = B`.

    Raises:
        LinAlgError: if a matrix is singular. It is a RuntimeError.
    """
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_solve_ex:
    """`solve`, and for each matrix 0 if there is a solution.

    Args:
        check_errors: raise for singular matrices; otherwise their solutions are NaN.

    Raises:
        LinAlgError: if a matrix is singular and errors are checked.
    """
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Tensor | None = None) -> Tensor:
    """The solutions X of `A @ X = B`, or of `X @ A = B`, with triangular matrices.

    Args:
        A: of shape (..., n, n); elements outside of the triangle are not read.
        B: of shape (..., n, k), or (..., k, n) if not `left`.
        upper: the matrices are upper triangular.
        left: solve `A @ X = B` instead of `X @ A = B`.
        unitriangular: treat the diagonal as ones.

    A 0 on a diagonal gives numbers that are infinite or undefined.
    """
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Tensor | Sequence[Tensor] | None = None) -> return_types.linalg_svd:
    """The singular values in descending order, and the singular vectors: `U @ diag(S) @ Vh = A`.

    Args:
        A: of shape (..., m, n), floating or complex.
        full_matrices: return complete orthonormal bases, with more than min(m, n) vectors.
        driver: as in PyTorch, for CUDA alone; here None.
    """
def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """The singular values of matrices, in descending order; see `svd`."""
def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """The inverse of a tensor as a map from its last axes to its first `ind`.

    Raises:
        LinAlgError: if the map is singular.
    """
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None) -> Tensor:
    """The X with `tensordot(A, X, X.ndim) = B`.

    Args:
        A: a tensor whose first axes are those of `B`.
        dims: axes of `A` to move to its end first.

    Raises:
        LinAlgError: if the map is singular.
    """
def vander(x: Tensor, *, N: int | None = None, out: Tensor | None = None) -> Tensor:
    """Vandermonde matrices: the powers of vectors, from 0 on.

    Args:
        x: of shape (..., n).
        N: how many powers; n if None.
    """
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The dot products of vectors along an axis, with the first conjugated.

    Args:
        y: a tensor of its dtype, broadcast against it.
    """
def vector_norm(x: Tensor, ord: Number = 2, dim: Ints | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The norm of a tensor as a vector, over some axes.

    Args:
        x: a floating or complex tensor; the result is real.
        ord: the order: any real number, or an infinity; 0 counts nonzero elements.
        dim: an axis, or a sequence of them; all if None.
        dtype: the dtype that the elements are converted to first.

    Raises:
        RuntimeError: for integers, a complex order, a dtype of less precision or another kind, or
            where the norm of no elements is not defined.
    """
