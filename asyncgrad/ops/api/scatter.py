"""Scatter functions: values written at indices of a tensor, beyond those in `index`."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any, cast

import numpy as np

from asyncgrad.choices import IndexReduceKind, ScatterReduceKind
from asyncgrad.core.recording import note_look
from asyncgrad.core.variable import Variable
from asyncgrad.ops import promotion
from asyncgrad.ops.api.creation import zeros
from asyncgrad.ops.api.data import tensor
from asyncgrad.ops.api.elementwise import clamp, where
from asyncgrad.ops.api.index import (
    along,
    check_range,
    check_scattered,
    copied,
    index_put,
    index_select,
    numbers_along,
    rows_to_change,
    scattered_values,
)
from asyncgrad.ops.api.reduction import cumsum
from asyncgrad.ops.api.shape import broadcast_to, expand, reshape
from asyncgrad.ops.batching import bottom, for_each, mapped_along
from asyncgrad.ops.converted import converted, one_node, writes, writes_exactly
from asyncgrad.ops.dtype import REAL, check_dtype, refuse
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view, renamed
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.tensors import in_place
from asyncgrad.types import Alike, AtLeast2D, Axis, ByExample, Mask, Number, Tensor

__all__ = [
    "index_copy", "index_fill", "index_reduce", "masked_scatter", "put", "scatter_reduce",
    "select_scatter", "slice_scatter", "take",
]  # fmt: skip
METHODS = (*__all__, "fill_diagonal_")
IN_PLACE = (
    "index_copy", "index_fill", "index_reduce", "masked_scatter", "put", "scatter_reduce",
)  # fmt: skip


def _at(axis: int, place: object) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, place)


def _index(name: str, index: Tensor, length: int, lowest: int) -> Any:
    """Check an index: integers from `lowest` on, at most one axis."""
    if index.ndim > 1 or promotion.category(index._metadata.dtype) != 1:
        raise IndexError(f"{name}(): Expected a vector of int64 for index, got {index!r}")
    check_range(name, index._array, length, IndexError, lowest)
    return reshape(index, (index.numel(),))


def _check_flat(name: str, index: Tensor, length: int) -> None:
    """Check indices into a flattened tensor: int64, of which negative ones count from the end."""
    if index._metadata.dtype != np.int64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {index.dtype}")
    if not index._batched:
        check_range(name, index._array, length, IndexError, -length)


@writes_exactly
@requires(
    "input.ndim == source.ndim or 0 in {input.ndim, source.ndim}"
    "  # When source and destination are not scalars, their dimensionality must match",
    error=IndexError,
)
def index_copy(input: Tensor, dim: Axis, index: ByExample, source: Alike) -> Tensor:
    """A copy of `input` with the slices of `source` written at `index` along `dim`."""
    x, y = input, source
    promotion.check_device("index_copy", x, index, y)
    at = _index("index_copy", index, x.shape[dim] if x.ndim else 1, 0)
    wanted = (*x.shape[:dim], len(at), *x.shape[dim + 1 :])
    if y.shape != wanted and (y.ndim or wanted != (1,)):
        # As in PyTorch, a wrong number of slices raises another class than a wrong shape.
        slices = y.shape[:dim] + y.shape[dim + 1 :] == wanted[:dim] + wanted[dim + 1 :]
        raise (IndexError if slices or (not y.ndim and len(at) != 1) else RuntimeError)(
            f"index_copy: source of shape {list(wanted)} expected, got {list(y.shape)}: Number of "
            f"indices should be equal to source.size(dim), and all else to that of self"
        )
    if not x.ndim:
        return R.overwrite(x, R.clone(reshape(y, (-1,))[-1])) if len(at) else R.clone(x)
    out = for_each(R.clone(x, "C"), y)
    out[_at(dim, at)] = y
    return out


@writes
def index_fill(input: Tensor, dim: Axis, index: ByExample, value: Tensor | Number) -> Tensor:
    """A copy of `input` with one value in all slices at `index` along `dim`."""
    promotion.check_device("index_fill", input, index)
    length = input.shape[dim] if input.ndim else 1
    at = _index("index_fill", index, length, -length)
    if isinstance(value, Variable):
        if value._metadata.shape:
            raise unmet(
                "index_fill", "index_fill_ only supports a 0-dimensional value tensor", value=value
            )
        if value._metadata.is_complex and not input._metadata.is_complex:
            raise RuntimeError("index_fill: Converting complex Scalar to non-complex type")
    else:
        number = promotion.as_number(value)
        if number is None:
            raise promotion.refusal(value, "index_fill", 3)
        value = promotion.constant(fitted("index_fill", number, input._metadata.dtype), input)
    value = cast("Tensor", value).to(input._metadata.dtype)
    if not input.ndim:
        return R.overwrite(input, R.clone(value)) if len(at) else R.clone(input)
    # With a mask, repeated indices count only once in the value's gradient.
    none = zeros(length, dtype=np.bool_, device=input.device)
    mask = index_put(none, (at,), promotion.constant(True, none))
    out = where(reshape(mask, (length,) + (1,) * (input.ndim - dim - 1)), value, input)
    return renamed(out, "IndexFillBackward0")


#: The neutral element of each reduction, which replaces elements that are not included.
_NEUTRAL = {"sum": 0, "prod": 1, "mean": 0}


def _neutral(reduce: str, dtype: np.dtype[Any]) -> Any:
    if reduce in _NEUTRAL:
        return _NEUTRAL[reduce]
    if dtype.kind == "b":
        return reduce == "amin"
    if promotion.category(dtype) > 1:
        return -np.inf if reduce == "amax" else np.inf
    limits = np.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def _reduced(
    x: Tensor, at: tuple[Any, ...], index: Tensor, src: Tensor, reduce: ScatterReduceKind, own: bool
) -> Any:
    """A copy in which elements are reduced with those of `src` that have the same index."""

    def kept(out: Tensor) -> Any:
        return renamed(out, "ScatterReduceBackward0", saves=True, watched=(index,))

    metadata = x._metadata
    held = copied(x, src)
    if not own:
        value = promotion.constant(_neutral(reduce, metadata.dtype), x)
        held = kept(R.put(held, R.expand(value, src._metadata.shape), at))
    if reduce == "prod":
        return kept(R.scatter_multiply(held, src, at))
    if reduce in {"amax", "amin"}:
        return kept(R.extreme_at(held, src, at, reduce == "amax", own))
    total = kept(R.put_add(held, src, at))
    if reduce == "sum":
        return total
    one = promotion.constant(1, x)
    counts = R.clone(R.expand(one, metadata.shape))
    if not own:
        counts = R.put(counts, R.expand(promotion.constant(0, x), src._metadata.shape), at)
    counts = R.put_add(counts, R.expand(one, src._metadata.shape), at)
    counts = where(R.eq(counts, 0), one, counts)
    return (R.div_floor if promotion.category(metadata.dtype) < 2 else R.div)(total, counts)


def _check_reduction(name: str, x: Tensor, reduce: str) -> None:
    kind = x._metadata.dtype.kind
    if (kind == "b" and reduce == "mean") or (kind == "c" and reduce in {"amax", "amin"}):
        refuse(f"{name} by {reduce}", x._metadata.dtype)


@one_node("ScatterReduceBackward0", writes_exactly)
def scatter_reduce(
    input: Tensor, dim: Axis, index: Tensor, src: Tensor, reduce: ScatterReduceKind, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """A copy of `input` in which elements are reduced with those of `src` along `dim`.

    Args:
        index, src: as in `scatter`.
        reduce: "sum", "prod", "mean", "amax" or "amin", whose gradient is shared among ties.
        include_self: include the elements of `input`; else they stay only where none is scattered.

    Raises:
        NotImplementedError: for extremes of complex numbers, or means of booleans.
    """
    name = "scatter_reduce"
    x, y = input, src
    _check_reduction(name, x, reduce)
    if getattr(index, "_batched", False):
        options: dict[str, Any] = {"reduce": reduce, "include_self": include_self}
        return mapped_along(scatter_reduce, x, dim, index, y, **options)
    numbers = numbers_along(name, x, dim, index)
    shape = x._metadata.shape
    y = scattered_values(x, y, numbers, name)
    check_scattered(name, shape, dim, numbers)
    if not numbers.size:
        return R.clone(x)
    if not shape:
        numbers, y = numbers.reshape(-1), reshape(y, (-1,))
        return reshape(_reduced(reshape(x, (1,)), (numbers,), index, y, reduce, include_self), ())
    return _reduced(x, along(numbers, dim), index, y, reduce, include_self)


@one_node("IndexReduceBackward0", writes_exactly)
def index_reduce(
    input: Tensor, dim: Axis, index: ByExample, source: Alike, reduce: IndexReduceKind, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """A copy of `input` in which slices along `dim` are reduced with those of `source`.

    Args:
        index, source: as in `index_add`.
        reduce, include_self: as in `scatter_reduce`, but not "sum".

    Raises:
        NotImplementedError: for extremes of complex numbers, or means of booleans; without
            `include_self`, for all complex numbers and booleans.
    """
    name = "index_reduce"
    x, y = input, source
    _check_reduction(name, x, reduce)
    if not include_self:
        check_dtype(name, x._metadata.dtype, REAL)
    promotion.check_device(name, x, index, y)
    numbers = rows_to_change(name, x, dim, index, y, IndexError)
    if not x._metadata.shape:
        out = _reduced(reshape(x, (1,)), (numbers,), index, reshape(y, (1,)), reduce, include_self)
        return reshape(out, ())
    return _reduced(x, _at(dim, numbers), index, y, reduce, include_self)


@requires(
    "index.numel() == source.numel()"
    "  # Expected source and index to have the same number of elements",
    error=IndexError,
)
def put(input: Tensor, index: Tensor, source: Alike, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements of `source` at flat indices.

    Args:
        index: int64; negative numbers count from the end.
        source: of the dtype of `input`, with as many elements as `index`.
        accumulate: add the values instead of replacing; repeated indices add up.
    """
    x, at, y = input, index, source
    _check_flat("put", at, x.numel())
    promotion.check_device("put", x, at, y)
    if not at.numel():
        out = R.clone(x)
    else:
        flat = index_put(reshape(x, (-1,)), (reshape(at, (-1,)),), reshape(y, (-1,)), accumulate)
        out = reshape(flat, x.shape)
    return renamed(out, "PutBackward0", saves=True)


def masked_scatter(input: Tensor, mask: Mask, source: Alike) -> Tensor:
    """A copy of `input` with the first elements of `source`, in order, where the mask is True."""
    x, y = input, source
    promotion.check_device("masked_scatter", x, mask, y)
    promotion.check_broadcast("masked_scatter", x, mask)
    shape = np.broadcast_shapes(x.shape, mask.shape)
    if not shape:
        return reshape(masked_scatter(reshape(x, (1,)), mask, y), ())
    x, mask = broadcast_to(x, shape), broadcast_to(mask, shape)
    if x._metadata.device.streamed:
        return _scattered(x, mask, reshape(y, (-1,)))
    note_look("masked_scatter()")
    axes = tuple(range(-len(shape), 0))
    count = int(np.max(np.count_nonzero(bottom(mask)._array, axes), initial=0))
    if count > y.numel():
        raise unmet("masked_scatter", "Number of elements of source < number of "
                    f"ones in mask: expected at least {count} elements in source, "
                    f"got {y.numel()}")  # fmt: skip
    if mask._batched:
        return _scattered(x, mask, reshape(y, (-1,)))
    return index_put(x, (mask,), reshape(y, (-1,))[:count])


def _scattered(x: Tensor, mask: Tensor, values: Tensor) -> Any:
    """`masked_scatter` without counting the mask's elements.

    That would wait for a device, and examples of a batch have different numbers of them.
    """
    if not values.numel():
        return R.clone(x)
    places = clamp(cumsum(reshape(mask, (-1,)), 0) - 1, 0, values.numel() - 1)
    return where(mask, reshape(index_select(values, 0, places), x.shape), x)


@writes_exactly
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at flat indices, in the shape of `index`."""
    length = input.numel()
    _check_flat("take", index, length)
    promotion.check_device("take", input, index)
    places = R.remainder(reshape(index, (-1,)), length) if length else reshape(index, (-1,))
    return no_view(reshape(index_select(reshape(input, (-1,)), 0, places), index.shape))


@converted
def select_scatter(input: Tensor, src: Tensor, dim: Axis, index: int) -> Tensor:
    """A copy of `input` with `src` as the slice at `index` along `dim`."""
    return replaced("select_scatter", input, src, getitem, _at(dim, index))


@writes_exactly
@requires("step > 0  # slice step must be positive")
def slice_scatter(
    input: Tensor, src: Tensor, dim: Axis = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """A copy of `input` with `src` as the slice along `dim`."""
    return replaced("slice_scatter", input, src, getitem, _at(dim, slice(start, end, step)))


def replaced(name: str, x: Tensor, src: Tensor, view: Callable[..., Any], *at: Any) -> Any:
    """A copy of a tensor of which a view has other values."""
    out = for_each(R.clone(x), src)
    part = view(out, *at)
    if part._metadata.shape != src._metadata.shape:
        raise unmet(
            name, "expected src to have a size equal to the slice of self", src=src, slice=part
        )
    part.copy_(src)
    return out


@requires(
    "input.ndim <= 2 or len(set(input.shape)) == 1"
    "  # all dimensions of input must be of equal length"
)
def fill_diagonal_(input: AtLeast2D, fill_value: Number, wrap: bool = False) -> Tensor:
    """Fill the main diagonal with one number, in place.

    Args:
        input: a tensor of two axes, or of more axes of equal length.
        wrap: in a tall matrix, start the diagonal again after its end.
    """
    mask = np.zeros(input.shape, dtype=bool)
    np.fill_diagonal(mask, True, wrap=wrap)
    number = fitted("fill_diagonal_", fill_value, input._metadata.dtype)
    value = expand(promotion.constant(number, input, input._metadata.dtype), input.shape)
    return in_place.change(input, "fill_diagonal_", lambda held: where(tensor(mask), value, held))
