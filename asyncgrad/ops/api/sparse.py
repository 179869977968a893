"""The methods of row-sparse gradients."""

from __future__ import annotations

from typing import Any

from asyncgrad.core.variable import wrap
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand, cast
from asyncgrad.ops.requirements import unmet
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.types import Array, DTypeLike, Tensor

__all__: list[str] = []
METHODS = (
    "_indices", "_nnz", "_values", "coalesce", "dense_dim", "indices", "is_coalesced", "sparse_dim",
    "to_dense", "values",
)  # fmt: skip


def _rows(name: str, input: Tensor) -> Rows:
    """Check that a tensor is row-sparse, and return its rows."""
    array = as_tensor_operand(input, name, 1)._array
    if not isinstance(array, Rows):
        raise unmet(name, f"{name} expected sparse coordinate tensor layout but got Strided: the "
                    "tensor is dense")  # fmt: skip
    return array


def _coalesced(name: str, input: Tensor) -> Rows:
    rows = _rows(name, input)
    if not rows.coalesced:
        raise unmet(
            name, f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first"
        )
    return rows


def _tensor(input: Tensor, array: Array | Rows) -> Any:
    return wrap(array, input._metadata.F.metadata_of(array))


def coalesce(input: Tensor) -> Tensor:
    """Sort the rows and sum duplicates."""
    rows = _rows("coalesce", input)
    return input if rows.coalesced else _tensor(input, rows.coalesce())


def is_coalesced(input: Tensor) -> bool:
    """Whether the rows are sorted and without duplicates."""
    return _rows("is_coalesced", input).coalesced


def indices(input: Tensor) -> Tensor:
    """The indices of the stored rows, of shape (1, rows).

    Raises:
        RuntimeError: if the tensor is dense, or may have duplicate rows.
    """
    return _tensor(input, _coalesced("indices", input).indices[None])


def values(input: Tensor) -> Tensor:
    """The values of the stored rows, of shape (rows, ...).

    Raises:
        RuntimeError: if the tensor is dense, or may have duplicate rows.
    """
    return _tensor(input, _coalesced("values", input).values)


def _indices(input: Tensor) -> Any:
    """The indices of the stored rows, perhaps with duplicates."""
    return _tensor(input, _rows("_indices", input).indices[None])


def _values(input: Tensor) -> Any:
    """The values of the stored rows, perhaps with duplicates."""
    return _tensor(input, _rows("_values", input).values)


def _nnz(input: Tensor) -> int:
    """The number of stored rows, duplicates included."""
    return len(_rows("_nnz", input).indices)


def sparse_dim(input: Tensor) -> int:
    """The number of sparse axes: 1, or 0 for a dense tensor."""
    return int(isinstance(input._array, Rows))


def dense_dim(input: Tensor) -> int:
    """The number of axes of a row's values."""
    return len(input._metadata.shape) - sparse_dim(input)


def to_dense(input: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """The dense tensor with all elements; a dense tensor of that dtype is returned unchanged.

    Args:
        dtype: of the result; that of `input` if None.
    """
    dense = R.to_dense(input) if isinstance(input._array, Rows) else input
    return dense if dtype is None else cast(dense, dtype)
