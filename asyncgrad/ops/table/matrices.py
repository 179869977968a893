"""Inverses, determinants and decompositions of matrices, batched over leading axes.

Each result of a decomposition is an op of its own; they share one computation through the list
`kept`. Their rules get the other results by calling these ops, so derivatives of any order follow
from the same rules.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable
from math import factorial, prod
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices.fp_errors import call_without_fp_errors, without_fp_errors
from asyncgrad.errors import LinAlgError
from asyncgrad.ops import batch_rules
from asyncgrad.ops.fused import silent
from asyncgrad.ops.op import Op, Refused, fused, operation
from asyncgrad.ops.table.linalg import adjoint, conjugate, real
from asyncgrad.ops.table.shape import in_order
from asyncgrad.types import Array, Library, Namespace, Value


def _part_of(
    kept: list[Any], decompose: Callable[..., Any], xp: Library, x: Array, place: int, *options: str
) -> Any:
    """A copy of one result of a decomposition, because users may change theirs in place.

    Args:
        kept: takes all results with the matrices that they belong to, for the ops of the others.
    """
    held = kept[:1]
    if not held or held[0][0] is not x:
        # Another thread may be here, too, so all is stored by one assignment.
        kept[:] = held = [(x, tuple(decompose(xp, x, *options)))]
    return held[0][1][place].copy()


def _not_finite(xp: Library, matrix: Array, *more: object) -> int:
    """1 if a matrix has elements that are not finite, which no decomposition takes, else 0."""
    return int(not xp.isfinite(matrix).all())


def zero_pivot(xp: Library, matrix: Array, *more: object) -> int:
    """The position of the zero that the elimination of a matrix would divide by, or 0."""
    try:
        xp.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        rows = matrix[eliminate(xp, matrix)[1]]
        return int(abs(xp.diagonal(_lu_packed(xp, rows))).argmin()) + 1
    return 0


def bad_minor(xp: Library, matrix: Array, upper: bool) -> int:
    """The order of the first leading minor of a matrix that is not positive, or 0."""

    def fails(order: int) -> bool:
        try:
            _cholesky(xp, matrix[:order, :order], upper)
        except np.linalg.LinAlgError:
            return True
        return False

    n = len(matrix)
    return bisect_left(range(1, n + 1), True, key=fails) + 1 if fails(n) else 0


def solved(
    function: Callable[..., Any], name: str, words: str, order: Callable[..., int] = _not_finite
) -> Callable[..., Any]:
    """Wrap a function to raise asyncgrad's error when it fails.

    Args:
        words: of the error; "{}" stands for the order of the matrix that it fails on.
        order: how that is found; 0 of matrices on which the function does not fail.
    """

    def call(xp: Library, x: Array, *more: object) -> Any:
        try:
            return function(xp, x, *more)
        except np.linalg.LinAlgError:
            orders = [order(xp, matrix, *more) for matrix in x.reshape(-1, *x.shape[-2:])]
            place = next((place for place, found in enumerate(orders) if found), 0)
            batch = f"(Batch element {place}): " if x.ndim > 2 else ""
            raise LinAlgError(f"linalg.{name}: {batch}{words.format(orders[place])}") from None

    return call


def svd(xp: Library, x: Array, **options: bool) -> Any:
    """The library's singular values; LAPACK may never return from what is not finite."""
    if xp.ndarray is np.ndarray and not np.isfinite(x).all():
        raise np.linalg.LinAlgError
    return xp.linalg.svd(x, **options)


_REMEDY = "Check its rank, or add a multiple of the identity."
_STUCK = "The algorithm failed to converge because the input matrix"
NOT_FINITE = f"{_STUCK} contained non-finite values."
_REPEATED = f"{_STUCK} is ill-conditioned or has too many repeated eigenvalues, or is not finite."


def decomposition_cost(x: Variable, *more: object) -> int:
    """The cost for matrices of n elements, k in the shorter side: about n k products, at one a ns.

    NumPy takes a microsecond to begin each matrix.
    """
    metadata = x._metadata
    *batch, m, n = metadata.shape
    return 40_000 + 1_000 * prod(batch) + metadata.size * min(m, n)


# -- words of the rules ---------------------------------------------------------------------------


def _product(F: Namespace, *factors: Value) -> Any:
    out = factors[0]
    for factor in factors[1:]:
        out = F.bmm(out, factor)
    return out


def _adjoint(F: Namespace, x: Value) -> Any:
    """The conjugate transposes; `F` may be the real namespace although `x` is complex."""
    out = F.adjoint(x)
    return F.conj(out) if F.fused and x.dtype.kind == "c" else out


def _columns(F: Namespace, x: Value, s: Value) -> Any:
    """Multiply each column by its number."""
    return F.mul(x, F.unsqueeze(s, len(s.shape) - 1))


def _rows(F: Namespace, x: Value, s: Value) -> Any:
    """Multiply each row by its number."""
    return F.mul(x, F.unsqueeze(s, len(s.shape)))


def _diagonal(F: Namespace, x: Value) -> Any:
    ndim = len(x.shape)
    return F.diagonal(x, 0, ndim - 2, ndim - 1)


def _on_diagonal(F: Namespace, x: Value) -> Any:
    shape = (*x.shape, x.shape[-1])
    return F.put_diagonal(x, shape, 0, len(shape) - 2, len(shape) - 1)


def _scalar_times(F: Namespace, g: Value, x: Value) -> Any:
    """Multiply each matrix by its number."""
    return F.mul(F.reshape(g, (*g.shape, 1, 1)), x)


def _symmetric(F: Namespace, x: Value) -> Any:
    return F.add(x, _adjoint(F, x))


def _skew(F: Namespace, x: Value) -> Any:
    return F.sub(x, _adjoint(F, x))


def _half_diagonal(F: Namespace, x: Value) -> Any:
    """The matrices with halved diagonals."""
    return F.sub(x, F.mul_scalar(_on_diagonal(F, _diagonal(F, x)), 0.5))


def _trace(F: Namespace, x: Value) -> Any:
    diagonal = _diagonal(F, x)
    return F.sum(diagonal, (len(diagonal.shape) - 1,), False)


def _solve_right(F: Namespace, x: Value, triangle: Value, upper: bool) -> Any:
    """`x @ triangle^-H`."""
    return _adjoint(F, F.solve(triangle, _adjoint(F, x), upper))


def _divided(F: Namespace, x: Value, s: Value) -> Any:
    """Divide each column by its number."""
    return F.div(x, F.unsqueeze(s, len(s.shape) - 1))


# -- solutions and determinants -------------------------------------------------------------------


def _solve(xp: Library, x: Array, y: Array, upper: bool | None = None) -> Any:
    """The solutions with any matrices, or with upper or lower triangles.

    The library eliminates first, which leaves an upper triangle as it is if that is finite and has
    no 0 on its diagonal. The solutions with others are computed by substitution.
    Devices are not asked what is finite, because the host would wait for the answer.
    """
    if upper is None:
        return _solve_any(xp, x, y)
    if not upper:
        return in_order(_solve(xp, x[..., ::-1, ::-1], y[..., ::-1, :], True)[..., ::-1, :])
    if xp.ndarray is not np.ndarray or np.isfinite(x).all():
        with contextlib.suppress(np.linalg.LinAlgError):
            return xp.linalg.solve(x, y)
    out = y.copy()
    for i in reversed(range(x.shape[-1])):
        out[..., i, :] /= x[..., i, i, None]
        out[..., :i, :] -= x[..., :i, i, None] * out[..., i, None, :]
    return out


_solve_any = solved(
    lambda xp, x, y: xp.linalg.solve(x, y),
    "solve",
    f"The solver failed because the input matrix is singular. {_REMEDY}",
    zero_pivot,
)


def _solve_back(
    F: Namespace, g: Value, wanted: tuple[str, ...], x: Value, out: Value, upper: bool | None
) -> tuple[Any, ...]:
    by_y = F.solve(_adjoint(F, x), g, None if upper is None else not upper)
    pulled = {"y": by_y}
    if "x" in wanted:
        pulled["x"] = F.neg(F.bmm(by_y, _adjoint(F, out)))
    return tuple([pulled[key] for key in wanted])


def _inverse_push(F: Namespace, t: Value, out: Value) -> Any:
    return F.neg(_product(F, out, t, out))


def _inverse_back(F: Namespace, g: Value, out: Value) -> Any:
    return _inverse_push(F, g, _adjoint(F, out))


def _inverse(F: Namespace, x: Value) -> Any:
    """The inverses, with infinite elements if a matrix is singular."""
    try:
        return F.inv(x)
    except RuntimeError:
        axes = len(x.shape)
        turned = F.permute(F.cofactors(x), (*range(axes - 2), axes - 1, axes - 2))
        return F.div(turned, F.reshape(F.det(x), (*x.shape[:-2], 1, 1)))


def _factors(xp: Library, x: Array) -> tuple[Any, Any, Any]:
    """Singular vectors and values; the values are NaN if elements of a matrix are not finite."""
    finite = xp.isfinite(x).all(axis=(-2, -1), keepdims=True)
    u, s, vh = xp.linalg.svd(xp.where(finite, x, 0))
    return u, xp.where(finite[..., 0], s, xp.nan), vh


def _cofactors(xp: Library, x: Array) -> Any:
    """The derivative of the determinant, also for singular matrices."""
    u, s, vh = _factors(xp, x)
    others = xp.ones_like(s)
    for place in range(s.shape[-1]):
        others[..., place] = xp.prod(xp.delete(s, place, axis=-1), axis=-1)
    sign = xp.linalg.det(u) * xp.linalg.det(vh)
    out = (u.conj() * others[..., None, :]) @ vh.conj()
    return (out * sign[..., None, None]).astype(x.dtype, copy=False)


def _cofactors_tangent(F: Namespace, t: Value, x: Value, out: Value) -> Any:
    """The push of `det * inv^T`; as in PyTorch second derivatives need an invertible matrix."""
    inverse = F.inv(x)
    along = _scalar_times(F, _trace(F, F.bmm(inverse, t)), out)
    turned = conjugate(F, _adjoint(F, _product(F, inverse, t, conjugate(F, _adjoint(F, out)))))
    return F.sub(along, turned)


def _cofactors_back(F: Namespace, g: Value, x: Value, out: Value) -> Any:
    turned = _adjoint(F, _inverse(F, x))
    along = _trace(F, F.bmm(_adjoint(F, out), g))
    product = _product(F, turned, conjugate(F, _adjoint(F, g)), conjugate(F, out))
    return F.sub(_scalar_times(F, along, turned), product)


def _cofactors_gradient(xp: Library, g: Array, x: Array, out: Array) -> Any:
    """`_cofactors_back` for real matrices, by their singular values, which may be 0.

    The determinant's second derivative is symmetric: it is the tangent along `g`.
    """
    u, s, vh = _factors(xp, x)
    own = xp.eye(s.shape[-1], dtype=bool)
    # For each pair the product of all others: of what comes before the second, and after it.
    rows = xp.where(own, 1, s[..., None, :])
    ones = xp.ones_like(rows[..., :1])
    before = xp.cumprod(xp.concatenate((ones, rows[..., :-1]), -1), -1)
    after = xp.cumprod(xp.concatenate((ones, rows[..., :0:-1]), -1), -1)[..., ::-1]
    pairs = xp.where(own, 0, before * after)
    turned = vh @ g.swapaxes(-1, -2) @ u
    diagonal = pairs @ xp.diagonal(turned, axis1=-2, axis2=-1)[..., None]
    sign = (xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]
    moved = u @ (own * diagonal - pairs * turned) @ vh
    return (sign * moved).astype(x.dtype, copy=False)


@silent
def _det_sign(xp: Library, x: Array) -> Any:
    """The sign, or phase, of the determinant; 0 if a real one is NaN."""
    sign, size = xp.linalg.slogdet(x)
    return sign * (size == size)


def _sign_back(F: Namespace, g: Value, x: Value, out: Value) -> Any:
    if x.dtype.kind != "c":
        return F.zero(x)
    turn = F.neg(F.imag(F.mul(F.conj(g), out)))
    return F.mul_scalar(_scalar_times(F, turn, _adjoint(F, _inverse(F, x))), 1j)


def _sign_push(F: Namespace, t: Value, x: Value, out: Value) -> Any:
    if x.dtype.kind != "c":
        return F.zero(out)
    angle = F.imag(_trace(F, F.bmm(_inverse(F, x), t)))
    return F.mul_scalar(F.mul(out, angle), 1j)


def _pseudo_inverse(xp: Library, x: Array, atol: float, rtol: float, hermitian: bool) -> Any:
    if not x.size:
        return xp.empty((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    if hermitian:
        w, v = xp.linalg.eigh(x)
        size = xp.abs(w)
        kept = size > xp.maximum(xp.max(size, axis=-1, keepdims=True) * rtol, atol)
        inverted = xp.where(kept, 1 / xp.where(kept, w, 1), 0)
        return (v * inverted[..., None, :]) @ adjoint(xp, v)
    u, s, vh = svd(xp, x, full_matrices=False)
    kept = s > xp.maximum(s[..., :1] * rtol, atol)
    inverted = xp.where(kept, 1 / xp.where(kept, s, 1), 0)
    return (adjoint(xp, vh) * inverted[..., None, :]) @ adjoint(xp, u)


def _beside(F: Namespace, x: Value, inverse: Value, t: Value) -> tuple[Any, Any]:
    """The parts of `t` outside the column space of `x`, and outside its row space."""
    return F.sub(t, _product(F, t, x, inverse)), F.sub(t, _product(F, inverse, x, t))


def _pseudo_inverse_push(F: Namespace, t: Value, x: Value, out: Value) -> Any:
    turned = _adjoint(F, out)
    outside, inside = _beside(F, x, out, _adjoint(F, t))
    moved = F.add(_inverse_push(F, t, out), _product(F, out, turned, outside))
    return F.add(moved, _product(F, inside, turned, out))


def _pseudo_inverse_back(F: Namespace, g: Value, x: Value, out: Value) -> Any:
    turned = _adjoint(F, out)
    inside, outside = _beside(F, out, x, _adjoint(F, g))
    pulled = F.add(_inverse_back(F, g, out), _product(F, outside, out, turned))
    return F.add(pulled, _product(F, turned, out, inside))


# -- decompositions -------------------------------------------------------------------------------


def _gaps(xp: Library, x: Array) -> Any:
    """The reciprocals of all differences of two numbers, 0 on the diagonal."""
    out = x[..., None, :] - x[..., :, None]
    diagonal = xp.arange(x.shape[-1])
    out[..., diagonal, diagonal] = xp.inf
    out = call_without_fp_errors(xp.divide, 1, out)
    # NumPy's reciprocal of a complex infinity is not 0.
    out[..., diagonal, diagonal] = 0
    return out


def _gaps_back(F: Namespace, g: Value, out: Value) -> Any:
    ndim = len(out.shape)
    moved = F.chain(g, F.mul(out, out))
    return F.sub(F.sum(moved, (ndim - 1,), False), F.sum(moved, (ndim - 2,), False))


def _gaps_push(F: Namespace, t: Value, out: Value) -> Any:
    ndim = len(t.shape)
    return F.mul(F.mul(out, out), F.sub(F.unsqueeze(t, ndim), F.unsqueeze(t, ndim - 1)))


def _cholesky(xp: Library, x: Array, upper: bool) -> Any:
    """The lower factor, read from the chosen triangle."""
    out = xp.linalg.cholesky(adjoint(xp, x) if upper else x)
    if xp.isnan(xp.diagonal(out, axis1=-2, axis2=-1)).any():
        raise np.linalg.LinAlgError
    return out


def _cholesky_back(F: Namespace, g: Value, out: Value) -> Any:
    """Hermitian, except for imaginary parts on the diagonal of `g`, as in PyTorch."""
    turned = _adjoint(F, out)
    product = F.bmm(turned, g)
    inner = F.add(F.tril(product, 0), _adjoint(F, F.tril(product, -1)))
    return F.mul_scalar(_solve_right(F, F.solve(turned, inner, True), turned, True), 0.5)


def _cholesky_push(F: Namespace, t: Value, out: Value) -> Any:
    inner = _solve_right(F, F.solve(out, t, False), out, False)
    return F.bmm(out, _half_diagonal(F, F.tril(inner, 0)))


def _reduced(xp: Library, x: Array) -> Any:
    return xp.linalg.qr(x, "reduced")


def _upper(F: Namespace, x: Value) -> Any:
    """The adjoint of taking an upper triangle with a real diagonal: returns a Hermitian matrix."""
    return _half_diagonal(F, _symmetric(F, F.triu(x, 0)))


def _q_back(F: Namespace, g: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    r = F.qr_r(x, kept)
    inner = _upper(F, F.neg(F.bmm(_adjoint(F, out), g)))
    return _solve_right(F, F.add(g, F.bmm(out, inner)), r, True)


def _r_back(F: Namespace, g: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    inner = _upper(F, F.bmm(g, _adjoint(F, out)))
    return _solve_right(F, F.bmm(F.qr_q(x, kept), inner), out, True)


def _qr_tangent(F: Namespace, t: Value, q: Value, r: Value) -> tuple[Any, Any]:
    """The tangent times R^-1, and the change of R that it causes, times R^-1."""
    along = _solve_right(F, t, _adjoint(F, r), False)
    return along, _half_diagonal(F, F.triu(_symmetric(F, F.bmm(_adjoint(F, q), along)), 0))


def _q_push(F: Namespace, t: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    along, change = _qr_tangent(F, t, out, F.qr_r(x, kept))
    return F.sub(along, F.bmm(out, change))


def _r_push(F: Namespace, t: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    return F.bmm(_qr_tangent(F, t, F.qr_q(x, kept), out)[1], out)


def _eigh_values_back(F: Namespace, g: Value, x: Value, triangle: str, kept: list[Any]) -> Any:
    v = F.eigh_vectors(x, triangle, kept)
    return F.bmm(_columns(F, v, g), _adjoint(F, v))


def _eigh_values_push(F: Namespace, t: Value, x: Value, triangle: str, kept: list[Any]) -> Any:
    v = F.eigh_vectors(x, triangle, kept)
    return real(F, _diagonal(F, _product(F, _adjoint(F, v), t, v)))


def _of_no_phase(F: Namespace, name: str, inner: Value) -> None:
    """Raise if a loss depends on eigenvectors' phases; `inner` is its gradient in their basis."""
    if inner.dtype.kind != "c":
        return
    turns = _diagonal(F, inner)
    if not bool((abs(getattr(turns, "_array", turns).imag) <= 1e-2).all()):
        raise RuntimeError(
            f"linalg_{name}_backward: The eigenvectors in the complex case are specified up to "
            f"multiplication by e^{{i phi}}. The specified loss function depends on this quantity, "
            f"so it is ill-defined. Use absolute values, or products such as v * v.conj()."
        )


def _eigh_vectors_back(
    F: Namespace, g: Value, x: Value, out: Value, triangle: str, kept: list[Any]
) -> Any:
    turned = _adjoint(F, out)
    inner = F.bmm(turned, g)
    _of_no_phase(F, "eigh", inner)
    inner = F.mul(inner, F.gaps(F.eigh_values(x, triangle, kept)))
    return F.mul_scalar(_product(F, out, _symmetric(F, inner), turned), 0.5)


def _eigh_vectors_push(
    F: Namespace, t: Value, x: Value, out: Value, triangle: str, kept: list[Any]
) -> Any:
    inner = _product(F, _adjoint(F, out), t, out)
    return F.bmm(out, F.mul(inner, F.gaps(F.eigh_values(x, triangle, kept))))


def _rest_of_svd(xp: Library, x: Array, left: bool) -> Any:
    """The singular vectors of one side without a singular value."""
    u, s, vh = svd(xp, x, full_matrices=True)
    count = s.shape[-1]
    return u[..., count:].copy() if left else vh[..., count:, :].copy()


def _rest_of_qr(xp: Library, x: Array) -> Any:
    """The columns of the complete Q that are not in the reduced Q."""
    return xp.linalg.qr(x, "complete")[0][..., x.shape[-1] :].copy()


def _svd_values_back(F: Namespace, g: Value, x: Value, kept: list[Any]) -> Any:
    return F.bmm(_columns(F, F.svd_left(x, kept), g), F.svd_right(x, kept))


def _svd_values_push(F: Namespace, t: Value, x: Value, kept: list[Any]) -> Any:
    u, vh = F.svd_left(x, kept), F.svd_right(x, kept)
    return real(F, _diagonal(F, _product(F, _adjoint(F, u), t, _adjoint(F, vh))))


def _phases(F: Namespace, skew: Value, s: Value) -> Any:
    """The phase changes of complex singular vectors: PyTorch attributes half to either side.

    `skew` is twice the skew-Hermitian part, so a quarter of it is half of that part.
    """
    return _on_diagonal(F, F.div(F.mul_scalar(_diagonal(F, skew), 0.25), s))


def _left_back(F: Namespace, g: Value, x: Value, u: Value, turned: Value, s: Value) -> Any:
    """The gradient by the left singular vectors u, to be multiplied by the right ones.

    `turned` is the adjoint of u.
    """
    skew = _skew(F, F.bmm(turned, g))
    inner = _columns(F, F.mul(skew, F.gaps(F.mul(s, s))), s)
    if x.dtype.kind == "c":
        inner = F.add(inner, _phases(F, skew, s))
    pulled = F.bmm(u, inner)
    if u.shape[-2] > u.shape[-1]:
        outside = _divided(F, g, s)
        outside = F.sub(outside, _product(F, u, turned, outside))
        pulled = F.add(pulled, outside)
    return pulled


def _svd_left_back(F: Namespace, g: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    s, vh = F.svd_values(x, kept), F.svd_right(x, kept)
    return F.bmm(_left_back(F, g, x, out, _adjoint(F, out), s), vh)


def _svd_right_back(F: Namespace, g: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    # The right singular vectors are the left ones of the adjoint matrix.
    s, u = F.svd_values(x, kept), F.svd_left(x, kept)
    pulled = _left_back(F, _adjoint(F, g), x, _adjoint(F, out), out, s)
    return F.bmm(u, _adjoint(F, pulled))


def _left_push(
    F: Namespace, t: Value, x: Value, u: Value, turned: Value, s: Value, v: Value
) -> Any:
    """The tangent of the left singular vectors u, whose adjoint is `turned`."""
    inner = _product(F, turned, t, v)
    change = F.mul(_symmetric(F, _columns(F, inner, s)), F.gaps(F.mul(s, s)))
    if x.dtype.kind == "c":
        change = F.add(change, _phases(F, _skew(F, inner), s))
    pushed = F.bmm(u, change)
    if u.shape[-2] > u.shape[-1]:
        outside = _divided(F, F.bmm(t, v), s)
        pushed = F.add(pushed, F.sub(outside, _product(F, u, turned, outside)))
    return pushed


def _svd_left_push(F: Namespace, t: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    s, vh = F.svd_values(x, kept), F.svd_right(x, kept)
    return _left_push(F, t, x, out, _adjoint(F, out), s, _adjoint(F, vh))


def _svd_right_push(F: Namespace, t: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    s, u = F.svd_values(x, kept), F.svd_left(x, kept)
    return _adjoint(F, _left_push(F, _adjoint(F, t), x, _adjoint(F, out), out, s, u))


def _eig(xp: Library, x: Array) -> Any:
    w, v = xp.linalg.eig(x)
    kind = xp.result_type(x.dtype, xp.complex64)
    return w.astype(kind, copy=False), v.astype(kind, copy=False)


def _like(F: Namespace, pulled: Value, x: Value) -> Any:
    """Take the real part of a gradient if the input is real."""
    return pulled if x.dtype.kind == "c" else F.real(pulled)


def _eig_values_back(F: Namespace, g: Value, x: Value, kept: list[Any]) -> Any:
    turned = _adjoint(F, F.eig_vectors(x, kept))
    return _like(F, F.solve(turned, _rows(F, turned, g)), x)


def _between(F: Namespace, t: Value, v: Value) -> Any:
    """A tangent in the basis of the eigenvectors."""
    return F.solve(v, F.bmm(F.to(t, v.dtype), v))


def _eig_values_push(F: Namespace, t: Value, x: Value, kept: list[Any]) -> Any:
    return _diagonal(F, _between(F, t, F.eig_vectors(x, kept)))


def _eig_vectors_back(F: Namespace, g: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    """The gradient of eigenvectors of length one."""
    turned = _adjoint(F, out)
    inner = F.bmm(turned, g)
    _of_no_phase(F, "eig", inner)
    lengths = F.real(_diagonal(F, inner))
    inner = F.sub(inner, F.bmm(turned, _columns(F, out, lengths)))
    inner = F.chain(inner, F.gaps(F.eig_values(x, kept)))
    return _like(F, F.solve(turned, F.bmm(inner, turned)), x)


def _eig_vectors_push(F: Namespace, t: Value, x: Value, out: Value, kept: list[Any]) -> Any:
    change = F.mul(_between(F, t, out), F.gaps(F.eig_values(x, kept)))
    pushed = F.bmm(out, change)
    lengths = F.real(_diagonal(F, F.bmm(_adjoint(F, out), pushed)))
    return F.sub(pushed, _columns(F, out, lengths))


def _results(
    decompose: Callable[..., Any], node: str, names: tuple[str, ...], words: str = NOT_FINITE,
    attributes: str = "kept",
    **rules: Any,
) -> Any:  # fmt: skip
    def one(place: int, name: str) -> Any:
        def forward(xp: Library, x: Array, *given: Any) -> Any:
            return _part_of(given[-1], decompose, xp, x, place, *given[:-1])

        pull, push = rules[name.partition("_")[2]]
        return operation(
            name,
            solved(forward, name.partition("_")[0], words),
            "x",
            attributes,
            pulls={"x": pull},
            pushes={"x": push},
            node=node,
        )

    return [one(place, name) for place, name in enumerate(names)]


# -- elimination ----------------------------------------------------------------------------------


def eliminate(xp: Library, x: Array) -> tuple[Any, Any]:
    """The rows in which pivots were found, from 1 as in LAPACK, and the new order of the rows.

    For matrices of shape (..., m, n), shapes are (..., min(m, n)) and (..., m).
    """
    *lead, m, n = x.shape
    left = x.reshape(prod(lead), m, n).copy()
    each = xp.arange(len(left))
    pivots = xp.zeros((len(left), min(m, n)), np.int32)
    order = xp.zeros((len(left), m), np.int64) + xp.arange(m)
    for i in range(min(m, n)):
        column = left[:, i:, i]
        size = xp.abs(column.real) + xp.abs(column.imag) if x.dtype.kind == "c" else abs(column)
        found = size.argmax(1) + i
        pivots[:, i] = found + 1
        for part in (left, order):
            row = part[each, found]
            part[each, found] = part[:, i]
            part[:, i] = row
        _clear_below(xp, left, i)
    return pivots.reshape(*lead, min(m, n)), order.reshape(*lead, m)


def _clear_below(xp: Library, left: Array, i: int) -> None:
    """One elimination step: store the factors below a pivot, and update the remaining rows."""
    pivot = left[..., i, i, None]
    left[..., i + 1 :, i] /= xp.where(pivot == 0, xp.ones_like(pivot), pivot)
    left[..., i + 1 :, i + 1 :] -= left[..., i + 1 :, i, None] * left[..., i, None, i + 1 :]


@without_fp_errors
def _lu_packed(xp: Library, x: Array) -> Any:
    """Both triangles in one matrix, without the lower one's unit diagonal; no row swaps."""
    left = xp.array(x)
    for i in range(min(x.shape[-2:])):
        _clear_below(xp, left, i)
    return left


def _split(F: Namespace, x: Value) -> tuple[Any, Any, Any]:
    """The square part of matrices, and the parts to the right and below; None if there is none."""
    *lead, m, n = x.shape
    last, side = len(lead) + 1, min(m, n)
    square = F.narrow(F.narrow(x, last, 0, side), last - 1, 0, side)
    beside = F.narrow(x, last, side, n - side) if n > side else None
    below = F.narrow(x, last - 1, side, m - side) if m > side else None
    return square, beside, below


def _triangles(F: Namespace, square: Value) -> tuple[Any, Any]:
    one = F.add_scalar(F.zero(_diagonal(F, square)), 1)
    return F.add(F.tril(square, -1), _on_diagonal(F, one)), F.triu(square, 0)


def _joined(F: Namespace, square: Value, beside: Value | None, below: Value | None) -> Any:
    last = len(square.shape) - 1
    if beside is not None:
        return F.cat([square, beside], last)
    return square if below is None else F.cat([square, below], last - 1)


def _lu_back(F: Namespace, g: Value, out: Value) -> Any:
    square, beside, below = _split(F, out)
    by_square, by_beside, by_below = _split(F, g)
    lower, upper = _triangles(F, square)
    by_lower = F.bmm(_adjoint(F, lower), F.tril(by_square, -1))
    by_upper = F.bmm(F.triu(by_square, 0), _adjoint(F, upper))
    if beside is not None:
        by_lower = F.sub(by_lower, F.bmm(by_beside, _adjoint(F, beside)))
        by_beside = F.solve(_adjoint(F, lower), by_beside, True)
    if below is not None:
        by_upper = F.sub(by_upper, F.bmm(_adjoint(F, below), by_below))
        by_below = _solve_right(F, by_below, upper, True)
    inner = F.add(F.tril(by_lower, -1), F.triu(by_upper, 0))
    inner = _solve_right(F, F.solve(_adjoint(F, lower), inner, True), upper, True)
    return _joined(F, inner, by_beside, by_below)


def _lu_push(F: Namespace, t: Value, out: Value) -> Any:
    square, beside, below = _split(F, out)
    of_square, of_beside, of_below = _split(F, t)
    lower, upper = _triangles(F, square)
    turned = _adjoint(F, upper)
    inner = _solve_right(F, F.solve(lower, of_square, False), turned, False)
    of_lower, of_upper = F.bmm(lower, F.tril(inner, -1)), F.bmm(F.triu(inner, 0), upper)
    if beside is not None:
        of_beside = F.solve(lower, F.sub(of_beside, F.bmm(of_lower, beside)), False)
    if below is not None:
        of_below = _solve_right(F, F.sub(of_below, F.bmm(below, of_upper)), turned, False)
    return _joined(F, F.add(of_lower, of_upper), of_beside, of_below)


# -- exponentials ---------------------------------------------------------------------------------

#: The coefficients of the Pade approximant of order 13, and the norm up to which it is exact.
#: Source: Higham, "The Scaling and Squaring Method for the Matrix Exponential Revisited" (2005).
_PADE = tuple(
    [factorial(26 - i) * factorial(13) / (factorial(26) * factorial(13 - i) * factorial(i))
     for i in range(14)]
)  # fmt: skip
_PADE_REACH = 5.37


@without_fp_errors
def _matrix_exp(xp: Library, x: Array) -> Any:
    if not x.size:
        return x.copy()
    norms = abs(x).sum(-2).max(-1)
    known = xp.isfinite(norms) & (norms > 0)
    halvings = xp.ceil(xp.log2(xp.where(known, norms, 1) / _PADE_REACH)).clip(0, None)[
        ..., None, None
    ]
    x = (x * xp.exp2(-halvings)).astype(x.dtype, copy=False)
    one = xp.eye(x.shape[-1], dtype=x.dtype)
    square, power = x @ x, one
    odd, even = one * _PADE[1], one * _PADE[0]
    for i in range(2, 14, 2):
        power = power @ square
        even = even + power * _PADE[i]
        odd = odd + power * _PADE[i + 1]
    odd = x @ odd
    out = xp.linalg.solve(even - odd, even + odd)
    for i in range(int(halvings.max())):
        out = xp.where(halvings > i, out @ out, out)
    return out.astype(x.dtype, copy=False)


def _exponential_moved(F: Namespace, t: Value, x: Value) -> Any:
    """The derivative of the exponential along `t`: a block of a twice as large exponential.

    Source: Mathias, "A Chain Rule for Matrix Functions" (1996).
    """
    last, n = len(x.shape) - 1, x.shape[-1]
    first = F.cat([x, t], last)
    second = F.cat([F.zero(x), x], last)
    out = F.matrix_exp(F.cat([first, second], last - 1))
    return F.narrow(F.narrow(out, last, n, n), last - 1, 0, n)


def _decompositions(*rows: Op) -> tuple[Op, ...]:
    """Rows that may raise, and take as long as a decomposition unless they say another cost."""
    made = []
    for row in rows:
        cost = row.cost if callable(row.cost) else decomposition_cost
        made.append(row._replace(raises=True, cost=cost))
    return tuple(made)


OPS = _decompositions(
    operation(
        "solve",
        _solve,
        "x y",
        "upper",
        together=_solve_back,
        pushes={
            "x": lambda F, t, x, out, upper: F.neg(F.solve(x, F.bmm(t, out), upper)),
            "y": lambda F, t, x, upper: F.solve(x, t, upper),
        },
        node="LinalgSolveExBackward0",
    ),
    operation(
        "inv",
        solved(
            lambda xp, x: xp.linalg.inv(x),
            "inv",
            "The diagonal element {} is zero, the inversion could not be completed because the "
            f"input matrix is singular. {_REMEDY}",
            zero_pivot,
        ),
        pulls={"x": _inverse_back},
        pushes={"x": _inverse_push},
        node="LinalgInvExBackward0",
    ),
    operation(
        "pinv",
        solved(_pseudo_inverse, "pinv", NOT_FINITE),
        "x",
        "atol rtol hermitian",
        pulls={"x": _pseudo_inverse_back},
        pushes={"x": _pseudo_inverse_push},
        node="LinalgPinvBackward0",
        cost=lambda x, *options: 3 * decomposition_cost(x),
    ),
    operation(
        "det",
        silent(lambda xp, x: xp.linalg.det(x)),
        pulls={"x": lambda F, g, x: _scalar_times(F, g, conjugate(F, F.cofactors(x)))},
        pushes={
            "x": lambda F, t, x: F.sum(
                F.mul(F.cofactors(x), t), (len(x.shape) - 2, len(x.shape) - 1), False
            )
        },
        node="LinalgDetBackward0",
        cost=lambda x: 3 * decomposition_cost(x),
    ),
    operation(
        "cofactors",
        _cofactors,
        pulls={"x": fused(_cofactors_gradient, _cofactors_back)},
        pushes={"x": _cofactors_tangent},
    ),
    operation(
        "log_abs_det",
        silent(lambda xp, x: xp.linalg.slogdet(x)[1]),
        pulls={"x": lambda F, g, x: _scalar_times(F, g, _adjoint(F, _inverse(F, x)))},
        pushes={"x": lambda F, t, x: real(F, _trace(F, F.bmm(_inverse(F, x), t)))},
        node="LinalgSlogdetBackward0",
    ),
    operation(
        "det_sign",
        _det_sign,
        pulls={"x": _sign_back},
        pushes={"x": _sign_push},
        node="LinalgSlogdetBackward0",
    ),
    operation(
        "gaps",
        _gaps,
        pulls={"x": _gaps_back},
        pushes={"x": _gaps_push},
        cost=lambda x: 5_000 + 4 * int(x._metadata.size * x._metadata.shape[-1]),
    ),
    operation(
        "cholesky",
        solved(
            _cholesky,
            "cholesky",
            "The factorization could not be completed because the input is not positive-definite "
            f"(the leading minor of order {{}} is not positive-definite). {_REMEDY}",
            bad_minor,
        ),
        "x",
        "upper",
        pulls={"x": _cholesky_back},
        pushes={"x": _cholesky_push},
        node="LinalgCholeskyExBackward0",
    ),
    # The completing vectors are not unique, so they have no derivative.
    operation("svd_rest", solved(_rest_of_svd, "svd", NOT_FINITE), "x", "left"),
    operation("qr_rest", _rest_of_qr, pulls={"x": Refused("qr_rest")}),
    *_results(
        _reduced, "LinalgQrBackward0", ("qr_q", "qr_r"), q=(_q_back, _q_push), r=(_r_back, _r_push)
    ),
    *_results(
        lambda xp, x, triangle: xp.linalg.eigh(x, triangle),
        "LinalgEighBackward0",
        ("eigh_values", "eigh_vectors"),
        _REPEATED,
        "triangle kept",
        values=(_eigh_values_back, _eigh_values_push),
        vectors=(_eigh_vectors_back, _eigh_vectors_push),
    ),
    *_results(
        lambda xp, x: svd(xp, x, full_matrices=False),
        "LinalgSvdBackward0",
        ("svd_left", "svd_values", "svd_right"),
        left=(_svd_left_back, _svd_left_push),
        values=(_svd_values_back, _svd_values_push),
        right=(_svd_right_back, _svd_right_push),
    ),
    *_results(
        _eig,
        "LinalgEigBackward0",
        ("eig_values", "eig_vectors"),
        "input tensor should not contain infs or NaNs.",
        values=(_eig_values_back, _eig_values_push),
        vectors=(_eig_vectors_back, _eig_vectors_push),
    ),
    operation(
        "lu_packed",
        _lu_packed,
        pulls={"x": _lu_back},
        pushes={"x": _lu_push},
        node="LinalgLuFactorExBackward0",
        batch=batch_rules.same,
    ),
    operation(
        "matrix_exp",
        _matrix_exp,
        pulls={"x": lambda F, g, x: _exponential_moved(F, g, _adjoint(F, x))},
        pushes={"x": _exponential_moved},
        node="LinalgMatrixExpBackward0",
        wide=True,
        cost=lambda x: 10 * decomposition_cost(x),
        batch=batch_rules.same,
    ),
)
