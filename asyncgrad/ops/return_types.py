"""The named tuples that functions with several results return, like `torch.return_types`."""

from __future__ import annotations

from asyncgrad.records import NamedTuple
from asyncgrad.types import Tensor

__all__ = [
    "aminmax", "cummax", "cummin", "frexp", "histogram", "kthvalue", "linalg_cholesky_ex",
    "linalg_eig", "linalg_eigh", "linalg_inv_ex", "linalg_lstsq", "linalg_lu", "linalg_lu_factor",
    "linalg_lu_factor_ex", "linalg_qr", "linalg_slogdet", "linalg_solve_ex", "linalg_svd",
    "lu_unpack", "max", "median", "min", "mode", "nanmedian", "qr", "slogdet", "sort", "svd",
    "topk",
]  # fmt: skip


class _Picked(NamedTuple):
    values: Tensor
    indices: Tensor


class _Determinant(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class _Orthogonal(NamedTuple):
    Q: Tensor
    R: Tensor


class _Eigen(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class max(_Picked):
    """What `max` along an axis returns."""

    __slots__ = ()


class min(_Picked):
    """What `min` along an axis returns."""

    __slots__ = ()


class sort(_Picked):
    """What `sort` returns."""

    __slots__ = ()


class topk(_Picked):
    """What `topk` returns."""

    __slots__ = ()


class median(_Picked):
    """What `median` along an axis returns."""

    __slots__ = ()


class nanmedian(_Picked):
    """What `nanmedian` along an axis returns."""

    __slots__ = ()


class kthvalue(_Picked):
    """What `kthvalue` returns."""

    __slots__ = ()


class mode(_Picked):
    """What `mode` returns."""

    __slots__ = ()


class aminmax(NamedTuple):
    """What `aminmax` returns."""

    min: Tensor
    max: Tensor


class histogram(NamedTuple):
    """What `histogram` returns."""

    hist: Tensor
    bin_edges: Tensor


class frexp(NamedTuple):
    """What `frexp` returns."""

    mantissa: Tensor
    exponent: Tensor


class slogdet(_Determinant):
    """What `slogdet` returns."""

    __slots__ = ()


class qr(_Orthogonal):
    """What `qr` returns."""

    __slots__ = ()


class svd(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    V: Tensor


class linalg_slogdet(_Determinant):
    """What `linalg.slogdet` returns."""

    __slots__ = ()


class linalg_qr(_Orthogonal):
    """What `linalg.qr` returns."""

    __slots__ = ()


class linalg_eigh(_Eigen):
    """What `linalg.eigh` returns."""

    __slots__ = ()


class linalg_eig(_Eigen):
    """What `linalg.eig` returns."""

    __slots__ = ()


class linalg_svd(NamedTuple):
    """What `linalg.svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class _Triangles(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class linalg_lu(_Triangles):
    """What `linalg.lu` returns."""

    __slots__ = ()


class lu_unpack(_Triangles):
    """What `lu_unpack` returns."""

    __slots__ = ()


class linalg_lu_factor(NamedTuple):
    """What `linalg.lu_factor` returns."""

    LU: Tensor
    pivots: Tensor


class linalg_lu_factor_ex(NamedTuple):
    """What `linalg.lu_factor_ex` returns."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class linalg_inv_ex(NamedTuple):
    """What `linalg.inv_ex` returns."""

    inverse: Tensor
    info: Tensor


class linalg_cholesky_ex(NamedTuple):
    """What `linalg.cholesky_ex` returns."""

    L: Tensor
    info: Tensor


class linalg_solve_ex(NamedTuple):
    """What `linalg.solve_ex` returns."""

    result: Tensor
    info: Tensor


class linalg_lstsq(NamedTuple):
    """What `linalg.lstsq` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class cummax(_Picked):
    """What `cummax` along an axis returns."""

    __slots__ = ()


class cummin(_Picked):
    """What `cummin` along an axis returns."""

    __slots__ = ()
