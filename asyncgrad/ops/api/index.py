"""Indexing: reading elements at an index, and writing them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncgrad.choices import ScatterKind
from asyncgrad.core import recording
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import current
from asyncgrad.core.variable import (
    Variable,
    bump_version,
    counter_of,
    gradient_edge,
    is_inference,
    requires_grad,
    wrap,
)
from asyncgrad.core.versions import VersionCounter
from asyncgrad.devices import CPU
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.errors import class_of
from asyncgrad.ops import promotion
from asyncgrad.ops.api.elementwise import held
from asyncgrad.ops.api.shape import broadcast_tensors, expand
from asyncgrad.ops.arguments import greatest
from asyncgrad.ops.batching import by_parts, for_each, level_of, lift_batch, mapped, mapped_along
from asyncgrad.ops.converted import writes_exactly
from asyncgrad.ops.dtype import check_inexact, is_half
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import rename, renamed
from asyncgrad.ops.overlap import refuse_overlap
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.table.index import refused_index
from asyncgrad.ops.tensors import in_place
from asyncgrad.ops.tensors.new_tensors import leaf
from asyncgrad.ops.tensors.transfer import on_host
from asyncgrad.types import (
    Alike,
    Array,
    Axis,
    ByExample,
    Index,
    Library,
    Mask,
    Matrix,
    Number,
    Tensor,
)

__all__ = [
    "gather", "index_add", "index_put", "index_select", "masked_select", "nonzero",
    "nonzero_static", "scatter", "scatter_add", "take_along_dim",
]  # fmt: skip
METHODS = (*__all__, "index_add_", "index_put_", "scatter_", "scatter_add_")

_ALL = slice(None)
#: From this many elements on nonzero ones are found, and ones put, at their flat numbers.
_MANY = 2048


# -- brackets -------------------------------------------------------------------------------------


def getitem(input: Tensor, index: Index) -> Tensor:
    """The elements at an index, with PyTorch's rules.

    Numbers, slices, None and Ellipsis are applied first and select a view. Lists, masks and integer
    tensors then select a copy from that view.

    Raises:
        ValueError: if a slice has a step that is not positive.
    """
    kind = index.__class__
    try:
        if kind is int:
            return R.getitem(input, (index, Ellipsis))
        if kind is slice and input._metadata.shape:
            return R.getitem(input, (_plain(index), Ellipsis))
        basic, arrays, watched = _parsed(input._metadata.shape, index)
        out = R.getitem(input, basic) if basic else input
    except _BatchedIndexError:
        return _at_batched(input, index)
    except IndexError as error:
        raise refused_index(input._metadata.shape, error) from None
    return out if arrays is None else _picked(out, arrays, watched)


class _BatchedIndexError(Exception):
    """An index holds tensors that are batched by `vmap`."""


def _at_batched(x: Any, index: Any) -> Any:
    """`getitem` with an index that is batched by `vmap`."""
    parts: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
    tensors: list[Any] = [part for part in parts if isinstance(part, Variable)]
    if any(x.dtype.kind in "bu" and x._batched for x in tensors):
        raise RuntimeError(
            "vmap: It looks like you're attempting to use an operator that has dynamic shape: how "
            "many elements a mask selects differs from example to example. Use asyncgrad.where."
        )
    plain = all(x.dtype.kind == "i" for x in tensors) and all(
        part.__class__ is int or isinstance(part, Variable) for part in parts
    )
    if not plain:
        return by_parts(getitem, x, parts)
    level = level_of((x, *parts))
    assert level is not None
    own = [getattr(part, "_batched", False) and part._level is level for part in parts]
    ndim = max(tensor.ndim for tensor in tensors)
    aligned = [
        R.reshape(part._value, (level.size, *(1,) * (ndim - part.ndim), *part.shape))
        if mine
        else part
        for part, mine in zip(parts, own, strict=True)
    ]
    if not (x._batched and x._level is level):
        return lift_batch(getitem(x, tuple(aligned)), level)
    numbers = np.arange(level.size).reshape(-1, *(1,) * ndim)
    return lift_batch(getitem(x._value, (numbers, *aligned)), level)


def _set_batched(x: Any, index: Any, value: Tensor | Number) -> None:
    """`setitem` with an index that is batched by `vmap`."""
    level = level_of((x, value, *(index if isinstance(index, tuple) else (index,))))
    if level is None or not (x._batched and x._level is level):
        raise RuntimeError(
            "vmap: inplace arithmetic(__setitem__) is not possible because the index or the value "
            "has a batch and the tensor is the same for all examples. Use index_put."
        )
    for i in range(level.size):

        def example(part: Any, i: int = i) -> Any:
            own = getattr(part, "_batched", False) and part._level is level
            return R.getitem(part._value, (i, Ellipsis)) if own else part

        at = tuple(map(example, index)) if isinstance(index, tuple) else example(index)
        setitem(example(x), at, example(value))


def setitem(input: Tensor, index: Index, value: Tensor | Number) -> None:
    """Write a number or a tensor, broadcast, at an index, in place."""
    number = None
    if not isinstance(value, Variable):
        number = promotion.as_number(value)
        if number is None:
            raise TypeError(
                f"can't assign a {class_of(value)} to a tensor of {input._metadata.dtype}. "
                f"Make a tensor of it first."
            )
        dtype = input._metadata.dtype
        if is_half(dtype) and isinstance(number, (int, float)):
            # As in PyTorch, numbers beyond the range of a half-precision dtype become infinite.
            number = call_without_fp_errors(dtype.type, float(number)).item()
        number = fitted("__setitem__", number, dtype)
    if index is True:
        # As in PyTorch, True selects the whole tensor and is not treated as a mask.
        index = None
    try:
        basic, arrays, watched = _parsed(input._metadata.shape, index)
        target = R.getitem(input, basic) if basic else input
    except _BatchedIndexError:
        _set_batched(input, index, value if number is None else number)
        return
    except IndexError as error:
        raise refused_index(input._metadata.shape, error) from None
    if arrays is not None:
        if number is not None and _is_mask(target, arrays, watched):
            kept = target._metadata.dtype.type(number).item()
            in_place.change(target, "__setitem__", _put_masked, watched[0], kept)
            return
        if number is not None:
            value = promotion.constant(number, input)
        _put_into(target, arrays, watched, value, "__setitem__")
    elif number is not None:
        in_place.fill(target, number, "__setitem__")
    else:
        in_place.copy(target, value, "__setitem__")


def _put_masked(target: Tensor, mask: Tensor, number: Number) -> Any:
    return renamed(R.masked_fill(target, mask, number), "IndexPutBackward0")


def _is_mask(target: Tensor, arrays: tuple[Any, ...], watched: tuple[Any, ...]) -> bool:
    """Whether an index is one full mask whose elements need not, or must not, be counted.

    On a device that would wait, and in a call that is recorded their number may be another later.
    """
    metadata = target._metadata
    return (
        (metadata.device.streamed or current().recorder is not None)
        and len(arrays) == len(watched) == 1
        and arrays[0].dtype == np.bool_
        and arrays[0].shape == metadata.shape
        and arrays[0].__class__ is metadata.F.array_type
    )


def _parsed(
    shape: tuple[int, ...], index: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...] | None, tuple[Any, ...]]:
    """Split an index into a part that selects a view and a part that selects a copy.

    Returns:
        The basic index of the view, empty if it is the whole tensor; the arrays and full slices
        that select from the view, or None; the index tensors, which must not change later.
    """
    if not isinstance(index, tuple):
        # As in NumPy, a list with elements other than numbers is treated as a tuple.
        several = isinstance(index, list) and any(
            part is None
            or part is Ellipsis
            or isinstance(part, (slice, list, tuple, Variable, np.ndarray))
            for part in index
        )
        index = tuple(index) if several else (index,)
    parts = [_plain(part) for part in index]
    consumed = sum([_axes_of(part) for part in parts])
    if consumed > len(shape):
        if not shape:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor "
                "to a number."
            )
        raise IndexError(
            f"too many indices for tensor of dimension {len(shape)}: {consumed} axes are indexed"
        )
    basic: list[Any] = []
    arrays: list[Any] = []
    trivial = True
    for part in parts:
        if part is None or part.__class__ is slice:
            basic.append(part)
            arrays.append(_ALL)
            trivial = trivial and part == _ALL
        elif part is Ellipsis:
            # A second Ellipsis is not checked here: NumPy raises for it.
            basic.append(part)
            arrays += [_ALL] * (len(shape) - consumed)
        elif part.__class__ is int:
            basic.append(part)
            trivial = False
        elif part.ndim:
            if not part.size and part.dtype == np.bool_:
                hidden = (len(shape) - consumed - 1) * (Ellipsis in basic)
                _check_empty(part, shape, len(basic) - basic.count(None) + hidden)
            basic += [_ALL] * _axes_of(part)
            arrays.append(part)
        else:
            # A boolean scalar adds an axis of length 1, or 0 if it is False.
            basic.append(None)
            arrays.append(part.reshape(1))
            trivial = False
    # With an Ellipsis, NumPy returns an array of no dimensions instead of a scalar.
    if not any(part is Ellipsis for part in basic):
        basic.append(Ellipsis)
    if all(part.__class__ is slice for part in arrays):
        return tuple(basic), None, ()
    watched = tuple([part for part in index if isinstance(part, Variable)])
    return () if trivial else tuple(basic), tuple(arrays), watched


def _check_empty(mask: Array, shape: tuple[int, ...], axis: int) -> None:
    """Raise unless a mask without elements fits: NumPy takes it for axes of any length."""
    expected = shape[axis : axis + mask.ndim]
    if mask.shape != expected:
        raise IndexError(
            f"The shape of the mask {list(mask.shape)} does not match the shape of the indexed "
            f"tensor {list(expected)} at {axis}"
        )


def _plain(part: Any) -> Any:
    """A part of an index: int, slice, None, Ellipsis, or an array of integers or booleans."""
    if part.__class__ is int or part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        step = 1 if part.step is None else operator.index(part.step)
        if step <= 0:
            raise ValueError(f"step must be greater than zero, got {step}. Use flip().")
        try:
            start, stop = (
                None if bound is None else operator.index(bound)
                for bound in (part.start, part.stop)
            )
        except TypeError:
            raise TypeError(
                f"slice indices must be integers or None or have an __index__ method, got "
                f"{part.start!r}:{part.stop!r}"
            ) from None
        return slice(start, stop, None if step == 1 else step)
    if isinstance(part, str):
        raise TypeError("index of a tensor: invalid data type 'str'. A tensor has no named fields.")
    if isinstance(part, Variable):
        if part._batched:
            raise _BatchedIndexError
        array = part._array
    elif isinstance(part, (np.ndarray, bool, np.bool_)):
        array = np.array(part)
    elif isinstance(part, (list, tuple, range)):
        array = np.array([on_host(p).item() if isinstance(p, Variable) else p for p in part])
        if array.dtype.kind == "f":
            array = array.astype(np.int64)
        recording.note_constant(array)
    else:
        try:
            return operator.index(part)
        except TypeError:
            raise IndexError(
                f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
                f"are valid indices (got {class_of(part)})"
            ) from None
    return _checked_index(array)


def _checked_index(array: Array) -> Any:
    """Check an index array: integers (an int if it has no dimensions) or booleans."""
    if array.dtype == np.uint8:
        warn("indexing with dtype uint8 is deprecated, please use a dtype bool instead")
        return array.astype(np.bool_)
    if array.dtype != np.bool_:
        if array.dtype not in {_INT64, _INT32} and (array.ndim or array.dtype.kind not in "iu"):
            raise IndexError(
                f"tensors used as indices must be long, int, byte or bool tensors, not "
                f"{array.dtype}. Convert with .long()."
            )
        if not array.ndim:
            recording.note_look("a tensor is a number of an index")
            return int(array)
    return array


_INT64, _INT32, _BOOL = np.dtype("int64"), np.dtype("int32"), np.dtype("bool")


def _axes_of(part: Any) -> int:
    """The number of axes that a part of an index consumes."""
    if part is None or part is Ellipsis:
        return 0
    if part.__class__ is int or part.__class__ is slice or part.dtype != np.bool_:
        return 1
    return part.ndim


def _picked(
    x: Tensor, arrays: tuple[Any, ...], watched: tuple[Any, ...], node: str = "IndexBackward0"
) -> Any:
    """Copy the elements at an index of arrays; `node` is PyTorch's name for the graph node."""
    return renamed(R.index(x, arrays), node, saves=True, watched=watched)


def _region(shape: tuple[int, ...], arrays: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of the elements that an index of arrays selects."""
    picked = [
        (int(np.count_nonzero(part)),) if part.dtype == np.bool_ else part.shape
        for part in arrays
        if part.__class__ is not slice
    ]
    try:
        common = picked[0] if len(picked) == 1 else np.broadcast_shapes(*picked)
    except ValueError:
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes "
            f"{', '.join(str(list(p)) for p in picked)}"
        ) from None
    kept: list[int] = []
    before: list[int] = []
    blocks = 0
    axis = 0
    for part in arrays:
        if part.__class__ is slice:
            kept.append(shape[axis])
            axis += 1
            continue
        if not before or len(kept) != before[-1]:
            blocks += 1
        before.append(len(kept))
        axis += _axes_of(part)
    kept += shape[axis:]
    place = before[0] if blocks == 1 else 0
    return (*kept[:place], *common, *kept[place:])


def _fitted(value: Any, region: tuple[int, ...]) -> Any:
    """Broadcast a value to the shape of the indexed elements."""
    given = value._metadata.shape
    if given == region:
        return value
    extra = len(given) - len(region)
    if extra > 0 and given[:extra] == (1,) * extra:
        value = R.reshape(value, given[extra:])
    try:
        return expand(value, region)
    except RuntimeError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(given)} cannot be broadcast to indexing "
            f"result of shape {list(region)}"
        ) from None


def _fills(arrays: tuple[Any, ...], value: Any, accumulate: bool) -> bool:
    """Whether the index is one mask and the value one number, which may have any dtype."""
    masks = [part for part in arrays if part.__class__ is not slice]
    return value._metadata.size == 1 and not accumulate and [m.dtype for m in masks] == [_BOOL]


def _put_into(
    tensor: Tensor, arrays: tuple[Any, ...], watched: tuple[Any, ...], value: Any, name: str,
    accumulate: bool = False, region: tuple[int, ...] | None = None,
) -> Any:  # fmt: skip
    """Write into a tensor at an index of arrays, which selects elements of shape `region`."""
    metadata = tensor._metadata
    if value._metadata.dtype != metadata.dtype and _fills(arrays, value, accumulate):
        value = held(name, value, metadata.dtype)
    if value._metadata.dtype != metadata.dtype:
        raise unmet(name, "Index put requires the source and destination dtypes match: "
                    f"{metadata.dtype}", source=value.dtype)  # fmt: skip
    if value._metadata.device is not metadata.device:
        value = promotion.on_common_device(name, tensor, value)[1]
    if region is None:
        region = metadata.device.launching(_region)(metadata.shape, arrays)
    refuse_overlap(tensor, (value,), name, elsewhere=True)
    value = _fitted(value, region)
    if tensor._batched or value._batched:
        put = R.put_add if accumulate else R.put
        return in_place.copy(tensor, put(R.clone(tensor), value, arrays), name)
    recorded = current().grad and (requires_grad(tensor) or requires_grad(value))
    in_place.check_change(tensor, name, recorded=recorded)
    if recorded:
        # A view whose base has changed gets its edge from the base's values so far.
        gradient_edge(tensor)
    bump_version(tensor)
    try:
        node = (R.put_add if accumulate else R.put)(tensor, value, arrays)._edge
    except IndexError:
        # The index is out of range and nothing was written, so the version bump is undone.
        if not is_inference(tensor):
            counter_of(tensor).value -= 1
        raise
    if recorded:
        known = name.strip("_") if name != "__setitem__" else "index_put"
        called = known.title().replace("_", "") + "Backward0"
        rename(node, called, saves=True, watched=watched)
        in_place.rebase(tensor, node)
    return tensor


# -- along one axis -------------------------------------------------------------------------------


@writes_exactly
def index_select(input: Tensor, dim: Axis, index: ByExample) -> Tensor:
    """The slices of `input` along `dim` at `index`, a tensor with at most one axis."""
    shape = input._metadata.shape
    promotion.check_device("index_select", input, index)
    numbers = _numbers("index_select", index, int32=True)
    if numbers.ndim > 1:
        raise unmet("index_select", "Index is supposed to be a vector", IndexError, index=index)
    check_range("index_select", numbers, shape[dim] if shape else 1, IndexError)
    if not shape:
        if numbers.size != 1:
            raise unmet("index_select", "Index to scalar can have only 1 value", index=index)
        return renamed(R.clone(input), "IndexSelectBackward0", saves=True)
    picked = (_ALL,) * dim + (numbers if numbers.ndim == 1 else numbers.reshape(-1),)
    return _picked(input, picked, (index,), "IndexSelectBackward0")


def _numbers(name: str, index: Tensor, *, int32: bool = False) -> Any:
    """The array of an index tensor, checked to be int64 (or int32 if `int32`)."""
    array = index._array
    if array.dtype != _INT64 and not (int32 and array.dtype == _INT32):
        raise RuntimeError(
            f"{name}(): Expected dtype {'int32/int64' if int32 else 'int64'} for index, got "
            f"{array.dtype}. Convert it with .long()."
        )
    return array


def check_range(
    name: str, numbers: Array, bound: int, error: type[Exception], lowest: int = 0
) -> None:
    """Raise unless lowest <= number < bound for all numbers in host memory.

    Negative numbers are huge as unsigned ones, so one pass usually suffices. Device arrays are not
    checked.
    """
    if isinstance(numbers, np.ndarray) and numbers.size:
        recording.again(_check_numbers, name, numbers, bound, error, lowest)


def _check_numbers(
    name: str, numbers: Array, bound: int, error: type[Exception], lowest: int
) -> None:
    if greatest(numbers.view(f"u{numbers.itemsize}")) < bound:
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low < lowest or high >= bound:
        wrong = high if high >= bound else low
        raise error(
            f"{name}(): index out of range in self: index {wrong} is out of bounds for an axis of "
            f"size {bound}"
        )


def along(numbers: Array, axis: int) -> tuple[Any, ...]:
    """An index of arrays: `numbers` for one axis, each element's own index for the others."""
    places = _places(numbers.shape)
    if recording.recorders:
        for part in places:
            recording.note_constant(part)
    return (*places[:axis], numbers, *places[axis + 1 :])


@functools.lru_cache(128)
def _places(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """For each axis, `arange` of its length along that axis (as `numpy.ogrid`)."""
    ndim = len(shape)
    return tuple(
        np.arange(n).reshape((1,) * i + (n,) + (1,) * (ndim - i - 1)) for i, n in enumerate(shape)
    )


def numbers_along(name: str, x: Tensor, axis: int, index: Tensor) -> Any:
    """The checked index array of `gather` and `scatter`."""
    promotion.check_device(name, x, index)
    shape = x._metadata.shape
    numbers = index._array
    if not numbers.size:
        # As in PyTorch, the dtype of an empty index does not matter.
        return numbers.astype(np.int64, copy=False)
    _numbers(name, index, int32=True)
    if max(numbers.ndim, 1) != max(len(shape), 1):
        raise unmet(name, "Index tensor must have the same number of dimensions as input "
                    "tensor", index=index)  # fmt: skip
    check_range(name, numbers, shape[axis] if shape else 1, RuntimeError)
    return numbers


@writes_exactly
def gather(input: Tensor, dim: Axis, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """The elements at `index` along `dim`; the result has the shape of `index`."""
    if getattr(index, "_batched", False):
        return mapped_along(gather, input, dim, index)
    numbers = numbers_along("gather", input, dim, index)
    shape = input._metadata.shape
    check_scattered("gather", shape, dim, numbers)
    if not shape or not numbers.size:
        # A tensor without axes is treated as a vector of one; an empty index fits any shape.
        flat = R.reshape(input, (-1,) if input._metadata.size else (0,))
        picked = _picked(flat, (numbers.reshape(-1),), (index,))
        return renamed(R.reshape(picked, numbers.shape), "GatherBackward0")
    return _picked(input, along(numbers, dim), (index,), "GatherBackward0")


@writes_exactly
def take_along_dim(input: Tensor, indices: Tensor, dim: Axis | None = None) -> Tensor:
    """`gather` with broadcasting apart from `dim`; if `dim` is None, of the flattened input."""
    if not indices._batched:
        _numbers("take_along_dim", indices)
    if dim is None:
        input = R.reshape(input, (input._metadata.size,))
        return _wrapped_gather(input, 0, R.reshape(indices, (indices._metadata.size,)))
    a, b = input._metadata.shape, indices._metadata.shape
    if len(a) != len(b):
        raise unmet("take_along_dim", "input and indices should have the same number of dimensions",
                    input=input, indices=indices)  # fmt: skip
    if not a or (*a[:dim], *a[dim + 1 :]) == (*b[:dim], *b[dim + 1 :]):
        return _wrapped_gather(input, dim, indices)
    try:
        before, after = (
            np.broadcast_shapes(m, n) for m, n in ((a[:dim], b[:dim]), (a[dim + 1 :], b[dim + 1 :]))
        )
    except ValueError:
        raise RuntimeError(
            f"take_along_dim(): shapes {list(a)} and {list(b)} can't be broadcast apart from "
            f"dimension {dim}"
        ) from None
    wide = expand(input, (*before, a[dim], *after))
    return _wrapped_gather(wide, dim, expand(indices, (*before, b[dim], *after)))


def _wrapped_gather(x: Tensor, axis: int, index: Tensor) -> Any:
    """`gather` in which negative numbers count from the end."""
    if index._batched:
        return mapped_along(_wrapped_gather, x, axis, index)
    numbers, metadata = index._array, index._metadata
    size = x._metadata.shape[axis] if x._metadata.shape else 1
    if metadata.device.streamed:
        index = wrap(metadata.device.launching(operator.mod)(numbers, size), metadata)
    elif numbers.size and recording.again(_is_below, numbers):
        index = wrap(np.where(numbers < 0, numbers + size, numbers), metadata)
    return gather(x, axis, index)


def _is_below(numbers: Array) -> bool:
    return bool(numbers.min() < 0)


# -- put back -------------------------------------------------------------------------------------


def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of `input` with `values`, broadcast, at the tensors of integers or masks `indices`.

    Args:
        indices: one tensor for each of the leading axes.
        values: of the dtype of `input`.
        accumulate: add the values instead of replacing; repeated indices add up.
    """
    return index_put_(copied(input, *indices, values), indices, values, accumulate)


def index_put_(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`index_put`, in place."""
    if level_of(indices) is not None:
        out = by_parts(index_put, input, tuple(indices), values, accumulate)
        return in_place.copy(input, out, "index_put_")
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            f"index_put_(): argument 'indices' must be tuple of Tensors, not {class_of(indices)}"
        )
    if not indices:
        raise RuntimeError("index_put_(): at least one index is needed")
    parts = tuple(promotion.as_tensor_operand(part, "index_put_", 2) for part in indices)
    basic, arrays, watched = _parsed(
        input._metadata.shape,
        tuple(
            R.reshape(part, (1,))
            if not part._metadata.shape and part._metadata.dtype != np.bool_
            else part
            for part in parts
        ),
    )
    assert arrays is not None
    ndim = len(input._metadata.shape)
    if basic and len(parts) > ndim:
        raise IndexError(
            f"index_put_(): too many indices for tensor of dimension {ndim} (got {len(parts)}). "
            f"A mask without axes counts as one, too."
        )
    # The indexing result has the axes that its indices have in common, and those not indexed.
    common, others = 0, ndim
    for part in parts:
        own, indexed = len(part._metadata.shape), 1
        if part._metadata.dtype.kind != "i":
            # A mask indexes its axes by the places of its true elements, in one row.
            own, indexed = int(own > 0), own
        common, others = max(common, own), others - indexed
    # One number may have any axes if one mask selects where it goes, as in `masked_fill`.
    if values.ndim > common + others and not _fills(arrays, values, accumulate):
        raise unmet("index_put_", "shape mismatch: values have more axes than the indexing result, "
                    f"which has {common + others}", values=values, input=input)  # fmt: skip
    # A mask without axes selects all or nothing, along a new axis.
    target = R.getitem(input, basic) if basic else input
    _put_into(target, arrays, watched, values, "index_put_", accumulate)
    return input


def copied(input: Tensor, *others: Any) -> Any:
    """A contiguous copy of `input` to be changed in place, batched if one of `others` is."""
    modes, metadata = current(), input._metadata
    if modes.plain and modes.grad:
        # The copy is not recorded, since the following in-place change records one node for both.
        clone = metadata.kernels["clone"]
        out = wrap(clone(input._array, "C"), metadata, gradient_edge(input))
        out._counter = VersionCounter()
        if recording.recorders:
            recording.note_result(out._array, clone, input._array, "C")
        return out
    return functools.reduce(for_each, others, R.clone(input, "C"))


@writes_exactly
def index_add(
    input: Tensor, dim: Axis, index: Tensor, source: Tensor, *, alpha: Number = 1
) -> Tensor:
    """A copy of `input` with `alpha` times the slices of `source` added at `index` along `dim`.

    Args:
        index: the position of each slice, of one axis; repeated positions add up.
        source: of the dtype of `input`, and of its shape apart from `dim`.
    """
    return index_add_(copied(input, index, source), dim, index, source, alpha=alpha)


def index_add_(
    input: Tensor, dim: Axis, index: Tensor, source: Alike, *, alpha: Number = 1
) -> Tensor:
    """`index_add`, in place."""
    if getattr(index, "_batched", False):
        out = by_parts(index_add, input, dim, index, source, alpha=alpha)
        return in_place.copy(input, out, "index_add_")
    promotion.check_device("index_add_", input, index, source)
    shape = input._metadata.shape
    error = RuntimeError if len(shape) > 1 else IndexError  # as in PyTorch
    numbers = rows_to_change("index_add_", input, dim, index, source, error)
    if promotion.as_number(alpha) != 1:
        source = promotion.cast(R.mul(source, alpha), source._metadata.dtype)
    if not shape:
        return in_place.change(input, "index_add_", R.add, source)
    at = (_ALL,) * dim + (numbers,)
    return _put_into(input, at, (index,), source, "index_add_", accumulate=True)


def rows_to_change(
    name: str, x: Tensor, axis: int, index: Tensor, source: Tensor, error: type[Exception]
) -> Any:
    """The checked positions, as a vector, of the slices of `source`.

    Numbers out of range raise `error`.
    """
    shape, given = x._metadata.shape, source._metadata.shape
    numbers = _numbers(name, index, int32=True)
    if numbers.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {numbers.ndim}")
    rest = (*shape[:axis], *shape[axis + 1 :])
    if len(given) != len(shape) or (*given[:axis], *given[axis + 1 :]) != rest:
        raise unmet(name, "source tensor shape must match self tensor shape, excluding the "
                    "specified dimension", self=x, source=source, dim=axis)  # fmt: skip
    if given and numbers.size != given[axis]:
        raise unmet(name, f"Number of indices ({numbers.size}) should be equal to "
                    f"source.size(dim): ({given[axis]}), for dim: {axis}")  # fmt: skip
    if not given and numbers.size != 1:
        raise IndexError(f"{name}(): a source without axes is one slice, but index has "
                         f"{numbers.size} numbers")  # fmt: skip
    check_range(name, numbers, shape[axis] if shape else 1, error)
    return numbers if numbers.ndim else numbers.reshape(1)


@writes_exactly
def scatter(
    input: Tensor, dim: Axis, index: Tensor, src: Tensor | Number | None = None, *,
    value: Number | None = None, reduce: ScatterKind | None = None,
) -> Tensor:  # fmt: skip
    """A copy of `input` with the elements of `src` written at `index` along `dim`.

    Args:
        index: the positions, no larger than `src`, nor than `input` apart from `dim`.
        src: a tensor of the dtype of `input`, or a number.
        value: the number, as a keyword, instead of `src`.
        reduce: None to replace elements, or "add" or "multiply"; as in PyTorch these have no
            gradient, which `scatter_add` and `scatter_reduce` have.
    """
    return scatter_(copied(input, index, src), dim, index, src, value=value, reduce=reduce)


@requires("(src is None) != (value is None)  # expected either 'src' or 'value'", error=TypeError)
def scatter_(
    input: Tensor, dim: Axis, index: Tensor, src: Tensor | Number | None = None, *,
    value: Number | None = None, reduce: ScatterKind | None = None,
) -> Tensor:  # fmt: skip
    """`scatter`, in place."""
    out = _scatter_into(input, dim, index, value if src is None else src, reduce, "scatter_")
    if reduce is not None and current().grad and requires_grad(out):
        in_place.change(out, "scatter_", R.scattered)
    return out


@writes_exactly
def scatter_add(input: Tensor, dim: Axis, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` with the elements of `src` added at `index` along `dim`."""
    return scatter_add_(copied(input, index, src), dim, index, src)


def scatter_add_(input: Tensor, dim: Axis, index: Tensor, src: Tensor) -> Tensor:
    """`scatter_add`, in place."""
    return _scatter_into(input, dim, index, src, "add", "scatter_add_")


def _scatter_into(
    input: Tensor, axis: int, index: Tensor, src: Any, reduce: ScatterKind | None, name: str
) -> Any:
    if getattr(index, "_batched", False):

        def scattered(x: Tensor, axis: int, index: Tensor, src: Tensor | Number = src) -> Any:
            return _scatter_into(R.clone(x), axis, index, src, reduce, name)

        tensors = (index, src) if isinstance(src, Variable) else (index,)
        return in_place.copy(input, mapped_along(scattered, input, axis, *tensors), name)
    numbers = numbers_along(name, input, axis, index)
    shape = input._metadata.shape
    src = scattered_values(input, src, numbers, name)
    check_scattered(name, shape, axis, numbers)
    if not numbers.size:
        return in_place.change(input, name, R.clone)
    if not shape and numbers.size > 1:
        _scatter_into(R.unsqueeze(input, 0), axis, index, src, reduce, name)
        return input
    if reduce == "multiply" and shape:
        return in_place.change(input, name, R.scatter_multiply, src, along(numbers, axis))
    if not shape:
        values = R.reshape(src, ())
        if reduce is None:
            return in_place.copy(input, values, name)
        return in_place.change(input, name, R.add if reduce == "add" else R.mul, values)
    at = along(numbers, axis)
    return _put_into(input, at, (index,), src, name, reduce == "add", numbers.shape)


def check_scattered(name: str, shape: tuple[int, ...], axis: int, numbers: Array) -> None:
    """Raise if an index is larger than the tensor apart from the scattered axis.

    As in PyTorch, one without elements may have any shape.
    """
    pairs = enumerate(zip(numbers.shape, shape, strict=False))
    if numbers.size and any(m > n for i, (m, n) in pairs if i != axis):
        raise unmet(name, f"Expected index {list(numbers.shape)} to be no larger than self "
                    f"{list(shape)} apart from dimension {axis}")  # fmt: skip


def scattered_values(x: Tensor, src: Any, numbers: Array, name: str) -> Any:
    """The values to scatter, in the shape of the index: a part of `src`, or a number."""
    if not isinstance(src, Variable):
        number = promotion.as_number(src)
        if number is None:
            raise TypeError(f"{name}(): argument 'src' must be Tensor, not {class_of(src)}")
        return R.expand(
            promotion.constant(fitted(name, number, x._metadata.dtype), x), numbers.shape
        )
    promotion.check_device(name, x, src)
    given = src._metadata.shape
    if src._metadata.dtype != x._metadata.dtype:
        raise unmet(name, "Expected self.dtype to be equal to src.dtype",
                    self=x._metadata.dtype, src=src._metadata.dtype)  # fmt: skip
    if not numbers.size:
        return src
    if max(len(given), 1) != max(numbers.ndim, 1):
        raise unmet(
            name, "Index tensor must have the same number of dimensions as src tensor", src=src
        )
    if any(m > n for m, n in zip(numbers.shape, given or (1,), strict=False)):
        raise unmet(name, f"Expected index {list(numbers.shape)} to be no larger than self and to "
                    f"be no larger size than src {list(given)}")  # fmt: skip
    if given == numbers.shape or not given:
        return src if given == numbers.shape else R.reshape(src, numbers.shape)
    return R.getitem(src, (*[slice(n) for n in numbers.shape], Ellipsis))


# -- masks, tables --------------------------------------------------------------------------------


@writes_exactly
def masked_select(input: Tensor, mask: Mask) -> Tensor:
    """The elements where `mask` is True, as a vector; both are broadcast."""
    promotion.check_device("masked_select", input, mask)
    if input._metadata.shape != mask._metadata.shape:
        input, mask = broadcast_tensors(input, mask)
    if not input._metadata.shape:
        input, mask = R.reshape(input, (1,)), R.reshape(mask, (1,))
    return _picked(input, (mask._array,), (mask,), "MaskedSelectBackward0")


@writes_exactly
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The indices of nonzero elements: a row for each, or with `as_tuple` a tensor by axis."""
    F = input._metadata.F
    array = input._array
    if array.size < _MANY or array.__class__ is not np.ndarray:
        found = F.xp.nonzero(array.reshape(array.shape or (1,)))
    else:
        found = _nonzero(input._metadata.device.pooled_xp, array)
    if as_tuple:
        return tuple([leaf("nonzero", part, input._metadata.device) for part in found])
    if len(found) == 1:
        rows = found[0][:, None]
    else:
        rows = (F.xp.stack(found) if isinstance(found, tuple) else found).T
    return leaf("nonzero", rows if array.ndim else rows[:, :0], input._metadata.device)


def _nonzero(xp: Library, array: Array) -> Any:
    """What `nonzero` finds; NumPy finds the nonzero elements of a vector much faster."""
    left = np.flatnonzero(array)
    found = xp.empty((array.ndim, len(left)), np.int64)
    for axis in range(array.ndim - 1, 0, -1):
        above = left // array.shape[axis]
        np.subtract(left, above * array.shape[axis], found[axis])
        left = above
    found[0] = left
    return found


@writes_exactly
@requires("size >= 0  # 'size' must be an non-negative integer")
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the first `size` nonzero elements, a row for each; absent rows are filled."""
    rows: Any = nonzero(input)
    absent = rows.new_full((max(size - len(rows), 0), rows.shape[1]), fill_value)
    return R.cat([rows[:size], absent], 0)


def embedding(
    input: Tensor, weight: Matrix, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Look up rows of a table.

    Args:
        input: integers of any shape.
        weight: the table, of shape (rows, length).
        padding_idx: a row that gets no gradient.
        max_norm: looked-up rows of a greater norm are scaled down to it, in place.
        norm_type: the order of that norm.
        scale_grad_by_freq: divide a row's gradient by how often it occurs in `input`.
        sparse: the table's gradient holds no more than the rows that were looked up; on other
            devices than the CPU it is dense.

    Raises:
        RuntimeError: if the table has not two axes, or `input` is not of integers; in the backward
            pass, if both `sparse` and `scale_grad_by_freq` are set.
    """
    index, shape = input, weight._metadata.shape
    if index._batched or (weight._batched and (padding_idx is not None or scale_grad_by_freq)):
        return by_parts(embedding, index, weight, padding_idx, None, norm_type, scale_grad_by_freq)
    promotion.check_device("embedding", weight, index)
    numbers = _numbers("embedding", index, int32=True)
    check_range("embedding", numbers, shape[0], IndexError)
    if padding_idx is not None:
        # As in PyTorch, an AssertionError is raised here.
        assert -shape[0] <= padding_idx < shape[0], "Padding_idx must be within num_embeddings"
        padding_idx %= shape[0]
    if max_norm is not None:
        _shorten(weight, numbers, max_norm, norm_type)
    if sparse and weight._metadata.device is CPU:
        out = R.lookup(weight, numbers, padding_idx)
        rename(out._edge, "EmbeddingBackward0", saves=True, watched=(index,))
        if scale_grad_by_freq and out._edge is not None:
            out.register_hook(_refuse_frequencies)
        return out
    out = _picked(weight, (numbers,), (index,), "EmbeddingBackward0")
    if out._edge is None or (padding_idx is None and not scale_grad_by_freq):
        return out
    metadata = weight._metadata
    shares = metadata.device.launching(functools.partial(_shares, metadata.F.xp))
    factors = recording.again(
        shares, numbers, shape[0], metadata.dtype, padding_idx, scale_grad_by_freq
    )
    factors = wrap(factors, metadata.F.metadata_of(factors))
    return R.scale_gradient(out, factors, padding_idx is not None)


def _shares(
    xp: Library, numbers: Array, rows: int, dtype: np.dtype[Any], padding: int | None, by_freq: bool
) -> Any:
    """The factor of each look-up's gradient."""
    share = xp.ones(numbers.shape, dtype=dtype)
    if by_freq:
        share /= xp.bincount(numbers.reshape(-1), minlength=rows)[numbers]
    if padding is not None:
        share[numbers == padding] = 0
    return share[..., None]


def _refuse_frequencies(gradient: Tensor) -> None:
    """Raise in the backward pass, as PyTorch: its forward pass accepts the option."""
    raise RuntimeError(
        "embedding_backward: scale_grad_by_freq not supported with sparse gradients. Pass "
        "sparse=False."
    )


def _shorten(weight: Tensor, numbers: Array, max_norm: float, norm_type: float) -> None:
    """Scale rows down to `max_norm`, in place and unrecorded."""
    in_place.check_change(weight, "embedding_renorm_", recorded=False)
    check_inexact("embedding_renorm_", weight._metadata.dtype)
    recording.unrepeatable("shortens the rows of an embedding")
    metadata = weight._metadata
    bump_version(weight)
    metadata.device.launching(_shortened)(
        metadata.F.xp, weight._array, numbers, max_norm, norm_type
    )


def _shortened(
    xp: Library, array: Array, numbers: Array, max_norm: float, norm_type: float
) -> None:
    rows = xp.unique(numbers)
    norms = xp.linalg.norm(array[rows], norm_type, axis=1)
    long = norms > max_norm
    if long.any():
        array[rows[long]] *= (max_norm / (norms[long, None] + 1e-7)).astype(array.dtype)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Rows of `num_classes` zeros with a one at the index in `input`.

    Args:
        input: int64, of any shape.
        num_classes: the length of the rows; -1 for one more than the greatest number.
    """
    if input._batched and num_classes > 0:
        return mapped(one_hot, input, num_classes=num_classes)
    array = _numbers("one_hot", input)
    given = num_classes != -1
    if not array.size:
        if num_classes <= 0:
            raise unmet("one_hot", "Can not infer total number of classes from empty tensor. Pass "
                        "num_classes", num_classes=num_classes)  # fmt: skip
    elif not isinstance(array, np.ndarray):
        # As in PyTorch, device values are not checked, and read only to infer `num_classes`.
        if num_classes == -1:
            num_classes = 1 + input._metadata.device.launching(_greatest)(array)
    elif given:
        recording.again(_check_classes, array, num_classes)
    else:
        num_classes = 1 + _greatest_class(array)
    device = input._metadata.device
    rows = device.launching(_hot)(device.pooled_xp, array, num_classes)
    if recording.recorders and given:
        recording.note_result(rows, functools.partial(_hot, device.pooled_xp), array, num_classes)
    return leaf("one_hot", rows, device)


def _greatest_class(array: Array) -> int:
    # Viewed as unsigned, negative numbers are huge, so one maximum checks both.
    top: int = greatest(array.view(np.uint64))
    if top >= 1 << 63:
        raise RuntimeError("one_hot: Class values must be non-negative.")
    return top


def _check_classes(array: Array, num_classes: int) -> None:
    top = _greatest_class(array)
    if num_classes < 1:
        raise RuntimeError(f"one_hot: num_classes should be positive, got {num_classes}")
    if top >= num_classes:
        raise unmet(
            "one_hot", f"Class values must be smaller than num_classes: {top} >= {num_classes}"
        )


def _greatest(array: Array) -> int:
    return int(array.max())


def _hot(xp: Library, array: Array, classes: int) -> Any:
    if xp.ndarray is not np.ndarray or array.size * classes <= _MANY:
        # On a device a number that is out of range must not reach another row.
        return (array[..., None] == xp.arange(classes)).astype(_INT64, "C")
    rows = xp.zeros((*array.shape, classes), _INT64)
    rows.reshape(-1)[xp.arange(0, rows.size, classes) + array.reshape(-1)] = 1
    return rows
