"""Sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.ops import return_types
from asyncgrad.ops.api.reduction import selected
from asyncgrad.ops.arguments import check_bool, one_dim, one_int
from asyncgrad.ops.batching import by_parts, mapped
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.ops.tensors.new_tensors import leaf
from asyncgrad.ops.tensors.out import writes

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

__all__ = ["argsort", "sort", "topk"]
#: Functions that are also methods of tensors, and functions with an in-place form (`add_`).
METHODS = ("argsort", "sort", "topk")
IN_PLACE = ()

#: Lines longer than this are parted before the first `k` elements are sorted.
_PARTED = 64


@writes
def sort(
    input: Any, dim: int = -1, descending: bool = False, stable: bool = False
) -> return_types.sort:
    """The elements in order along an axis, and where they came from.

    NaN counts as greater than everything. Equal elements keep their order, stable or not.

    Args:
        input: a real tensor.
        dim: the axis.
        descending: the greatest first.
        stable: promise that equal elements keep their order.

    Returns:
        A named tuple of `values`, which have a gradient, and int64 `indices`.

    Raises:
        IndexError: if there is no such axis.
        RuntimeError: for complex numbers.
    """
    if getattr(input, "_batched", False):
        return _mapped_along(sort, input, dim, descending)
    check_bool("sort", "stable", stable)
    x, order, axis = _ordered("sort", input, dim, descending)
    return return_types.sort(*selected(x, "sort", order, axis, True))


@writes
def argsort(input: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Tensor:
    """Where the elements in order along an axis come from: the indices of `sort`."""
    if getattr(input, "_batched", False):
        return _mapped_along(argsort, input, dim, descending)
    x, order, _ = _ordered("argsort", input, dim, descending)
    return leaf("argsort", order, x._metadata.device)


def _mapped_along(function: Any, x: Any, dim: Any, descending: bool) -> Any:
    """`sort` or `argsort` of one example of a batch."""
    if not x.shape:
        return by_parts(function, x, dim, descending)
    axis = one_dim(function.__name__, dim, len(x.shape))
    return mapped(lambda batch: function(batch, axis + 1, descending), x)


def _ordered(name: str, input: Any, dim: Any, descending: bool) -> tuple[Any, Any, int]:
    """The tensor, the indices that sort it, and the axis from the front."""
    x = as_tensor_operand(input, name, 1)
    check_bool(name, "descending", descending)
    metadata = x._metadata
    if metadata.is_complex:
        raise RuntimeError("Sort does not support complex dtypes. Sort the absolute values.")
    axis = one_dim(name, dim, len(metadata.shape))
    return x, _order(metadata.F, x._array, axis, descending), axis


def _order(F: Any, array: Any, axis: int, descending: bool) -> Any:
    """The indices that sort an array, equal elements in their order."""
    xp = F.xp
    if not array.ndim:
        return xp.zeros((), dtype=xp.int64)
    if not descending:
        return xp.argsort(array, axis=axis, kind="stable")
    # Sorted from behind, so that equal elements keep their order when the result is turned round.
    back = (slice(None),) * axis + (slice(None, None, -1),)
    order = xp.argsort(array[back], axis=axis, kind="stable")
    return xp.subtract(array.shape[axis] - 1, order[back])


@writes
def topk(
    input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> return_types.topk:
    """The `k` greatest or smallest elements along an axis, and where they are.

    Args:
        input: a real tensor. NaN counts as greater than everything.
        k: how many.
        dim: the axis.
        largest: the greatest; otherwise the smallest.
        sorted: in order; they are in any case.

    Returns:
        A named tuple of `values`, which have a gradient, and int64 `indices`.

    Raises:
        IndexError: if there is no such axis.
        RuntimeError: if there are not `k` elements, or for booleans and complex numbers.
    """
    x = as_tensor_operand(input, "topk", 1)
    check_bool("topk", "largest", largest)
    check_bool("topk", "sorted", sorted)
    metadata = x._metadata
    if metadata.dtype.kind in "bc":
        raise RuntimeError(f"topk does not support {metadata.dtype}. Convert it with .to().")
    shape = metadata.shape
    axis = one_dim("topk", dim, len(shape))
    length = shape[axis] if shape else 1
    count = one_int("topk", "k", k)
    if not 0 <= count <= length:
        raise RuntimeError(
            f"selected index k out of range: topk of {count} elements along axis {axis} of shape "
            f"{shape}"
        )
    if x._batched:
        if not shape:
            return by_parts(topk, x, k, dim, largest)
        return mapped(lambda batch: topk(batch, k, axis + 1, largest), x)
    indices = (
        _first(metadata.F, x._array, count, axis, largest)
        if shape
        else _order(metadata.F, x._array, axis, largest)
    )
    return return_types.topk(*selected(x, "topk", indices, axis, True))


def _first(F: Any, array: Any, count: int, axis: int, largest: bool) -> Any:
    """The indices of the first `count` elements in order."""
    length = array.shape[axis]
    front = (slice(None),) * axis
    if length <= _PARTED or not 0 < count < length:
        # A copy, so that what is not wanted is not kept.
        # A function of the library: methods of arrays know nothing of the current stream.
        return F.xp.array(_order(F, array, axis, largest)[(*front, slice(count))], order="C")
    cut = length - count if largest else count - 1
    parted = F.xp.argpartition(array, cut, axis=axis)
    near = parted[(*front, slice(cut, None) if largest else slice(count))]
    order = _order(F, F.along(array, near, axis, True), axis, largest)
    return F.along(near, order, axis, True)
