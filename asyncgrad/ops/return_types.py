"""The named tuples that functions of several results return, as `torch.return_types`."""

from __future__ import annotations

from typing import Any, NamedTuple


class max(NamedTuple):
    """What `max` along an axis returns."""

    values: Any
    indices: Any


class min(NamedTuple):
    """What `min` along an axis returns."""

    values: Any
    indices: Any


class sort(NamedTuple):
    """What `sort` returns."""

    values: Any
    indices: Any


class topk(NamedTuple):
    """What `topk` returns."""

    values: Any
    indices: Any


class median(NamedTuple):
    """What `median` along an axis returns."""

    values: Any
    indices: Any


class nanmedian(NamedTuple):
    """What `nanmedian` along an axis returns."""

    values: Any
    indices: Any


class kthvalue(NamedTuple):
    """What `kthvalue` returns."""

    values: Any
    indices: Any


class mode(NamedTuple):
    """What `mode` returns."""

    values: Any
    indices: Any


class aminmax(NamedTuple):
    """What `aminmax` returns."""

    min: Any
    max: Any


class slogdet(NamedTuple):
    """What `slogdet` returns."""

    sign: Any
    logabsdet: Any


class qr(NamedTuple):
    """What `qr` returns."""

    Q: Any
    R: Any


class svd(NamedTuple):
    """What `svd` returns."""

    U: Any
    S: Any
    V: Any


class linalg_slogdet(NamedTuple):
    """What `linalg.slogdet` returns."""

    sign: Any
    logabsdet: Any


class linalg_qr(NamedTuple):
    """What `linalg.qr` returns."""

    Q: Any
    R: Any


class linalg_eigh(NamedTuple):
    """What `linalg.eigh` returns."""

    eigenvalues: Any
    eigenvectors: Any


class linalg_eig(NamedTuple):
    """What `linalg.eig` returns."""

    eigenvalues: Any
    eigenvectors: Any


class linalg_svd(NamedTuple):
    """What `linalg.svd` returns."""

    U: Any
    S: Any
    Vh: Any


class linalg_inv_ex(NamedTuple):
    """What `linalg.inv_ex` returns."""

    inverse: Any
    info: Any


class linalg_cholesky_ex(NamedTuple):
    """What `linalg.cholesky_ex` returns."""

    L: Any
    info: Any


class linalg_solve_ex(NamedTuple):
    """What `linalg.solve_ex` returns."""

    result: Any
    info: Any


class linalg_lstsq(NamedTuple):
    """What `linalg.lstsq` returns."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


class cummax(NamedTuple):
    """What `cummax` along an axis returns."""

    values: Any
    indices: Any


class cummin(NamedTuple):
    """What `cummin` along an axis returns."""

    values: Any
    indices: Any
