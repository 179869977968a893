"""What row-sparse gradients can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.variable import wrap
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.ops.tensors.sparse_rows import Rows

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

__all__: list[str] = []
#: Functions that are also methods of tensors, and functions with an in-place form (`add_`).
METHODS = (
    "_indices",
    "_nnz",
    "_values",
    "coalesce",
    "dense_dim",
    "indices",
    "is_coalesced",
    "sparse_dim",
    "to_dense",
    "values",
)
IN_PLACE = ()


def _rows(name: str, input: Any) -> Rows:
    """The rows of a sparse tensor.

    Raises:
        RuntimeError: if it is not sparse.
    """
    array = as_tensor_operand(input, name, 1)._array
    if not isinstance(array, Rows):
        raise RuntimeError(
            f"{name} expected sparse coordinate tensor layout but got Strided: the tensor is dense"
        )
    return array


def _coalesced(name: str, input: Any) -> Rows:
    rows = _rows(name, input)
    if not rows.coalesced:
        raise RuntimeError(
            f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first"
        )
    return rows


def _tensor(input: Any, array: Any) -> Any:
    return wrap(array, input._metadata.F.metadata_of(array))


def coalesce(input: Any) -> Tensor:
    """Each row once, in order; what was there several times is summed."""
    rows = _rows("coalesce", input)
    return input if rows.coalesced else _tensor(input, rows.coalesce())


def is_coalesced(input: Any) -> bool:
    """Whether each row is there once, and they are in order."""
    return _rows("is_coalesced", input).coalesced


def indices(input: Any) -> Tensor:
    """The rows that are there, of shape (1, rows).

    Raises:
        RuntimeError: if the tensor is dense, or a row may be there several times.
    """
    return _tensor(input, _coalesced("indices", input).indices[None])


def values(input: Any) -> Any:
    """The values of the rows that are there, of shape (rows, ...).

    Raises:
        RuntimeError: if the tensor is dense, or a row may be there several times.
    """
    return _tensor(input, _coalesced("values", input).values)


def _indices(input: Any) -> Any:
    """The rows that are there, perhaps several times."""
    return _tensor(input, _rows("_indices", input).indices[None])


def _values(input: Any) -> Any:
    """The values of the rows that are there, perhaps several times."""
    return _tensor(input, _rows("_values", input).values)


def _nnz(input: Any) -> int:
    """How many rows are there."""
    return len(_rows("_nnz", input).indices)


def sparse_dim(input: Any) -> int:
    """How many axes the indices are for: one, or none of a dense tensor."""
    return int(isinstance(as_tensor_operand(input, "sparse_dim", 1)._array, Rows))


def dense_dim(input: Any) -> int:
    """How many axes the values of a row have."""
    x = as_tensor_operand(input, "dense_dim", 1)
    return len(x._metadata.shape) - sparse_dim(x)


def to_dense(input: Any) -> Tensor:
    """All elements, zeros included; a dense tensor itself."""
    x = as_tensor_operand(input, "to_dense", 1)
    return R.to_dense(x) if isinstance(x._array, Rows) else x
