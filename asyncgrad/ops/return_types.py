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

aminmax = NamedTuple("aminmax", [("min", Tensor), ("max", Tensor)])
cummax = NamedTuple("cummax", [("values", Tensor), ("indices", Tensor)])
cummin = NamedTuple("cummin", [("values", Tensor), ("indices", Tensor)])
frexp = NamedTuple("frexp", [("mantissa", Tensor), ("exponent", Tensor)])
histogram = NamedTuple("histogram", [("hist", Tensor), ("bin_edges", Tensor)])
kthvalue = NamedTuple("kthvalue", [("values", Tensor), ("indices", Tensor)])
linalg_cholesky_ex = NamedTuple("linalg_cholesky_ex", [("L", Tensor), ("info", Tensor)])
linalg_eig = NamedTuple("linalg_eig", [("eigenvalues", Tensor), ("eigenvectors", Tensor)])
linalg_eigh = NamedTuple("linalg_eigh", [("eigenvalues", Tensor), ("eigenvectors", Tensor)])
linalg_inv_ex = NamedTuple("linalg_inv_ex", [("inverse", Tensor), ("info", Tensor)])
linalg_lstsq = NamedTuple(
    "linalg_lstsq",
    [("solution", Tensor), ("residuals", Tensor), ("rank", Tensor), ("singular_values", Tensor)],
)
linalg_lu = NamedTuple("linalg_lu", [("P", Tensor), ("L", Tensor), ("U", Tensor)])
linalg_lu_factor = NamedTuple("linalg_lu_factor", [("LU", Tensor), ("pivots", Tensor)])
linalg_lu_factor_ex = NamedTuple(
    "linalg_lu_factor_ex", [("LU", Tensor), ("pivots", Tensor), ("info", Tensor)]
)
linalg_qr = NamedTuple("linalg_qr", [("Q", Tensor), ("R", Tensor)])
linalg_slogdet = NamedTuple("linalg_slogdet", [("sign", Tensor), ("logabsdet", Tensor)])
linalg_solve_ex = NamedTuple("linalg_solve_ex", [("result", Tensor), ("info", Tensor)])
linalg_svd = NamedTuple("linalg_svd", [("U", Tensor), ("S", Tensor), ("Vh", Tensor)])
lu_unpack = NamedTuple("lu_unpack", [("P", Tensor), ("L", Tensor), ("U", Tensor)])
max = NamedTuple("max", [("values", Tensor), ("indices", Tensor)])
median = NamedTuple("median", [("values", Tensor), ("indices", Tensor)])
min = NamedTuple("min", [("values", Tensor), ("indices", Tensor)])
mode = NamedTuple("mode", [("values", Tensor), ("indices", Tensor)])
nanmedian = NamedTuple("nanmedian", [("values", Tensor), ("indices", Tensor)])
qr = NamedTuple("qr", [("Q", Tensor), ("R", Tensor)])
slogdet = NamedTuple("slogdet", [("sign", Tensor), ("logabsdet", Tensor)])
sort = NamedTuple("sort", [("values", Tensor), ("indices", Tensor)])
svd = NamedTuple("svd", [("U", Tensor), ("S", Tensor), ("V", Tensor)])
topk = NamedTuple("topk", [("values", Tensor), ("indices", Tensor)])


def _lines(self: tuple[Tensor, ...]) -> str:
    """Each field on its line, as PyTorch shows it."""
    fields = ",\n".join(map("{}={!r}".format, self._fields, self))  # type: ignore[attr-defined]
    return f"asyncgrad.return_types.{type(self).__name__}(\n{fields})"


for _name in __all__:
    _path = _name.replace("linalg_", "linalg.")
    _how = " along an axis" if "indices" in globals()[_name]._fields else ""
    globals()[_name].__doc__ = f"What `{_path}`{_how} returns."
    globals()[_name].__repr__ = _lines
