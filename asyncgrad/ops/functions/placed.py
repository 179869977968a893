"""Values put into places of a tensor, and taken from them, beyond `index`."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops import in_place
from asyncgrad.ops.arguments import one_dim
from asyncgrad.ops.fitted import fitted
from asyncgrad.ops.functions.data import tensor
from asyncgrad.ops.functions.elementwise import clamp, where
from asyncgrad.ops.functions.index import index_put, index_select
from asyncgrad.ops.functions.reduction import cumsum
from asyncgrad.ops.functions.shape import broadcast_to, expand, movedim, reshape
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.out import writes
from asyncgrad.ops.promotion import (
    as_number,
    as_tensor_operand,
    category,
    check_device,
    constant,
    refusal,
)

__all__ = [
    "index_copy",
    "index_fill",
    "masked_scatter",
    "select_scatter",
    "slice_scatter",
    "take",
]
#: Those that are methods of tensors, and those that have a form in place (`add_`).
METHODS = (*__all__, "fill_diagonal_")
IN_PLACE = ("index_copy", "index_fill", "masked_scatter")


def _at(axis: int, place: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, place)


def _index(name: str, index: Any, length: int) -> Any:
    """Integers in one axis, none out of range."""
    index = as_tensor_operand(index, name, 3)
    if index.ndim > 1 or category(index._metadata.dtype) != 1:
        raise IndexError(f"{name}(): Expected a vector of int64 for index, got {index!r}")
    numbers = index._array
    if _is_outside(numbers, length):
        raise IndexError(f"{name}(): index out of range in self: the axis has length {length}")
    return reshape(index, (index.numel(),))


def _is_outside(numbers: Any, length: int) -> bool:
    """Whether some of the host's numbers are out of range; others nobody can see."""
    if numbers.__class__ is not np.ndarray or not numbers.size:
        return False
    return not (-length <= numbers.min() and numbers.max() < length)


@writes
def index_copy(input: Any, dim: int, index: Any, source: Any) -> Any:
    """A copy of `input` with the slices of `source` at `index` along `dim`.

    Raises:
        IndexError: if a number is out of range, or the shapes do not fit.
        RuntimeError: if the dtypes differ.
    """
    x, y = as_tensor_operand(input, "index_copy", 1), as_tensor_operand(source, "index_copy", 4)
    if x._metadata.dtype != y._metadata.dtype:
        raise RuntimeError(
            f"index_copy: self and source expected to have the same dtype, but got (self) "
            f"{x._metadata.dtype} and (source) {y._metadata.dtype}"
        )
    check_device("index_copy", x, index, y)
    axis = one_dim("index_copy", dim, x.ndim)
    at = _index("index_copy", index, x.shape[axis] if x.ndim else 1)
    if not x.ndim:
        return R.overwrite(x, reshape(y, ()))
    wanted = (*x.shape[:axis], len(at), *x.shape[axis + 1 :])
    if y.shape != wanted:
        raise IndexError(
            f"index_copy: source of shape {list(wanted)} expected, got {list(y.shape)}"
        )
    out = R.clone(x)
    out[_at(axis, at)] = y
    return out


@writes
def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """A copy of `input` with one value in all slices at `index` along `dim`.

    Raises:
        IndexError: if a number is out of range.
        RuntimeError: if the value has dimensions.
    """
    x = as_tensor_operand(input, "index_fill", 1)
    check_device("index_fill", x, index)
    axis = one_dim("index_fill", dim, x.ndim)
    at = _index("index_fill", index, x.shape[axis] if x.ndim else 1)
    if isinstance(value, Variable):
        if value._metadata.shape:
            raise RuntimeError(
                f"index_fill only supports a 0-dimensional value tensor, but got tensor with "
                f"{len(value._metadata.shape)} dimension(s)."
            )
    else:
        number = as_number(value)
        if number is None:
            raise refusal(value, "index_fill", 3)
        value = constant(fitted("index_fill", number, x._metadata.dtype), x)
    value = value.to(x._metadata.dtype)
    if not x.ndim:
        return R.overwrite(x, value) if len(at) else R.clone(x)
    first = movedim(x, axis, 0)
    values = expand(value, (len(at), *first.shape[1:]))
    return movedim(index_put(first, (at,), values), 0, axis)


def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    """A copy of `input` with the first elements of `source` where the mask holds, in order.

    Raises:
        RuntimeError: if the mask is no bool tensor, the dtypes differ, or there are too few
            elements.
    """
    x, y = (as_tensor_operand(z, "masked_scatter", n) for z, n in ((input, 1), (source, 3)))
    mask = as_tensor_operand(mask, "masked_scatter", 2)
    if mask._metadata.dtype.kind != "b":
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{mask._metadata.dtype}"
        )
    if x._metadata.dtype != y._metadata.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got "
            f"{x._metadata.dtype} and {y._metadata.dtype}"
        )
    check_device("masked_scatter", x, mask, y)
    shape = np.broadcast_shapes(x.shape, mask.shape)
    x, mask = broadcast_to(x, shape), broadcast_to(mask, shape)
    if x._metadata.device.streamed:
        return _scattered(x, mask, reshape(y, (-1,)))
    count = int(mask.sum())
    if count > y.numel():
        raise RuntimeError(
            f"masked_scatter: expected at least {count} elements in source, got {y.numel()}"
        )
    return index_put(x, (mask,), reshape(y, (-1,))[:count])


def _scattered(x: Any, mask: Any, values: Any) -> Any:
    """`masked_scatter` without asking how often the mask holds."""
    if not values.numel():
        return R.clone(x)
    places = clamp(cumsum(reshape(mask, (-1,)), 0) - 1, 0, values.numel() - 1)
    return where(mask, reshape(index_select(values, 0, places), x.shape), x)


@writes
def take(input: Any, index: Any) -> Any:
    """The elements at places of the flattened tensor, in the shape of `index`.

    Raises:
        IndexError: if a number is out of range.
        RuntimeError: if the index is not made of int64.
    """
    x, at = as_tensor_operand(input, "take", 1), as_tensor_operand(index, "take", 2)
    if at._metadata.dtype != np.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {at.dtype}")
    check_device("take", x, at)
    length = x.numel()
    if _is_outside(at._array, length):
        raise IndexError(f"take(): out of range: tried to access index of {length} elements")
    places = R.remainder(reshape(at, (-1,)), length) if length else reshape(at, (-1,))
    return reshape(index_select(reshape(x, (-1,)), 0, places), at.shape)


def select_scatter(input: Any, src: Any, dim: int, index: int) -> Any:
    """A copy of `input` with `src` as the part at `index` along `dim`.

    Raises:
        RuntimeError: if the shape does not fit.
        IndexError: if there is no such place.
    """
    x = as_tensor_operand(input, "select_scatter", 1)
    return _replaced("select_scatter", x, src, _at(one_dim("select_scatter", dim, x.ndim), index))


def slice_scatter(
    input: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Any:  # fmt: skip
    """A copy of `input` with `src` as the slice along `dim`.

    Raises:
        RuntimeError: if the shape does not fit.
    """
    x = as_tensor_operand(input, "slice_scatter", 1)
    axis = one_dim("slice_scatter", dim, x.ndim)
    return _replaced("slice_scatter", x, src, _at(axis, slice(start, end, step)))


def _replaced(name: str, x: Any, src: Any, at: Any) -> Any:
    out = R.clone(x)
    part = out[at]
    if part.shape != src.shape:
        raise RuntimeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}"
        )
    out[at] = src
    return out


def fill_diagonal_(input: Any, fill_value: Any, wrap: bool = False) -> Any:
    """Put one number on the main diagonal, in place.

    Args:
        input: a tensor of two axes or more, which are alike if there are more.
        fill_value: the number.
        wrap: the diagonal of a tall matrix starts again behind the last one's end.

    Raises:
        RuntimeError: for other shapes.
    """
    x = as_tensor_operand(input, "fill_diagonal_", 1)
    if x.ndim < 2:
        raise RuntimeError("fill_diagonal_: dimensions must larger than 1")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise RuntimeError("fill_diagonal_: all dimensions of input must be of equal length")
    mask = np.zeros(x.shape, dtype=bool)
    np.fill_diagonal(mask, True, wrap=wrap)
    value = expand(constant(fill_value, x, x._metadata.dtype), x.shape)
    return in_place.change(x, "fill_diagonal_", lambda held: where(tensor(mask), value, held))
