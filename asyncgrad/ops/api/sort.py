"""Sorting, `topk`, medians, `kthvalue`, `mode`, quantiles, and cumulative maxima and minima."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.choices import Interpolation
from asyncgrad.core.recording import note_result, recorders
from asyncgrad.core.variable import Variable
from asyncgrad.ops import return_types
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.index import gather
from asyncgrad.ops.api.reduction import selected
from asyncgrad.ops.batching import mapped_along
from asyncgrad.ops.bfloat16 import sortable
from asyncgrad.ops.converted import writes, writes_exactly
from asyncgrad.ops.dtype import REAL, check_dtype, is_half
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.namespace import Raw
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.promotion import constant, operand_of
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.tensors.new_tensors import from_host, leaf
from asyncgrad.ops.tensors.transfer import computed_on_host
from asyncgrad.types import Array, Axis, ByExample, Library, Tensor

__all__ = [
    "argsort", "cummax", "cummin", "kthvalue", "median", "mode", "msort", "nanmedian",
    "nanquantile", "quantile", "sort", "topk",
]  # fmt: skip
METHODS = tuple(__all__)

#: In longer lines, `topk` partitions first and sorts only the `k` elements.
_PARTED = 64
#: Up to this `k` the elements are found one after the other, each in a tenth of the time of a
#: partition.
_SINGLY = 8


@writes_exactly
def sort(
    input: Tensor, dim: Axis = -1, descending: bool = False, stable: bool | None = False
) -> return_types.sort:
    """The sorted `values` along an axis, and their int64 `indices`.

    NaN is greater than all numbers. Equal elements always keep their order.

    Args:
        input: a real tensor.
        descending: sort the greatest first.
        stable: without effect, as the sort is always stable.
    """
    if getattr(input, "_batched", False):
        return mapped_along(sort, input, dim, descending=descending)
    order = _ordered(input, dim, descending)
    return return_types.sort(*selected(input, "sort", order, dim, True))


@writes_exactly
def argsort(
    input: Tensor, dim: Axis = -1, descending: bool = False, *, stable: bool = False
) -> Tensor:
    """The indices that sort the elements along an axis; see `sort`."""
    if getattr(input, "_batched", False):
        return mapped_along(argsort, input, dim, descending=descending)
    return leaf("argsort", _ordered(input, dim, descending), input._metadata.device)


def _ordered(input: Tensor, dim: int, descending: bool) -> Any:
    """The indices that sort a tensor."""
    metadata = input._metadata
    if metadata.is_complex:
        raise RuntimeError("Sort does not support complex dtypes. Sort the absolute values.")
    order = _order(metadata.F, input._array, dim, descending)
    if recorders:
        note_result(order, argsort, input, dim, descending)
    return order


def _order(F: Raw, array: Array, axis: int, descending: bool) -> Any:
    """The indices that sort an array; equal elements keep their order."""
    xp, array = F.xp, sortable(array)
    if not array.ndim:
        return xp.zeros((), dtype=xp.int64)
    if not descending:
        return xp.argsort(array, axis=axis, kind="stable")
    # The reversed array is sorted, so that equal elements keep their order in the reversed result.
    back = (slice(None),) * axis + (slice(None, None, -1),)
    order = xp.argsort(array[back], axis=axis, kind="stable")
    return xp.subtract(array.shape[axis] - 1, order[back])


@writes_exactly
@requires(
    "input.dtype.kind not in 'bc'  # topk does not support bool dtypes and complex ones",
    "0 <= k <= (input.shape[dim] if input.ndim else 1)"
    "  # selected index k out of range for dimension {dim}",
)
def topk(
    input: Tensor, k: int, dim: Axis = -1, largest: bool = True, sorted: bool = True
) -> return_types.topk:
    """The `k` greatest or smallest `values` along an axis, and their int64 `indices`.

    Args:
        input: a real tensor. NaN is greater than all numbers.
        largest: return the greatest, otherwise the smallest.
        sorted: without effect, as the result is always sorted.
    """
    metadata = input._metadata
    shape = metadata.shape
    if input._batched:
        return mapped_along(lambda x, axis: topk(x, k, axis, largest), input, dim)

    def places(array: Array) -> Any:
        if shape:
            return _first(metadata.F, array, k, dim, largest)
        return _order(metadata.F, array, dim, largest)

    indices = places(input._array)
    if recorders:
        note_result(indices, places, input._array)
    return return_types.topk(*selected(input, "topk", indices, dim, True))


def _first(F: Raw, array: Array, count: int, axis: int, largest: bool) -> Any:
    """The indices of the first `count` elements in order."""
    length = array.shape[axis]
    front = (slice(None),) * axis
    if length <= _PARTED or not 0 < count < length:
        # A copy, so that the full order is not kept in memory. `xp.array`, unlike an array's
        # method, uses the current stream.
        return F.xp.array(_order(F, array, axis, largest)[(*front, slice(count))], order="C")
    array = sortable(array)
    if count <= _SINGLY and array.__class__ is np.ndarray:
        found = _first_few(F, array, count, axis, largest)
        if found is not None:
            return found
    cut = length - count if largest else count - 1
    parted = F.xp.argpartition(array, cut, axis=axis)
    near = parted[(*front, slice(cut, None) if largest else slice(count))]
    order = _order(F, F.along(array, near, axis, True), axis, largest)
    return F.along(near, order, axis, True)


def _first_few(F: Raw, array: Array, count: int, axis: int, largest: bool) -> Any:
    """As `_first` in host memory; None if a line has too few elements before infinities or NaN."""
    given = np.moveaxis(array, axis, -1)
    lines = F.xp.empty(given.shape, given.dtype)
    lines[...] = given
    lines = lines.reshape(-1, given.shape[-1])
    rows = np.arange(len(lines))
    last = -np.inf if largest else np.inf
    if array.dtype.kind != "f":
        last = getattr(np.iinfo(array.dtype), "min" if largest else "max")
    found = []
    for _ in range(count):
        places = lines.argmax(1) if largest else lines.argmin(1)
        values = lines[rows, places]
        if (values == last).any() or (not largest and (values != values).any()):
            return None
        found.append(places)
        lines[rows, places] = last
    stacked = np.stack(found, -1).reshape(*given.shape[:-1], count)
    return np.ascontiguousarray(np.moveaxis(stacked, -1, axis))


# -- elements at a rank ---------------------------------------------------------------------------


def _found(
    name: str, op: str, function: Callable[..., Any], input: Tensor, axis: int, keepdim: bool,
    place: Callable[..., Any],
) -> Any:  # fmt: skip
    """The elements at the ranks that `place` gives, in each line, and their indices."""
    metadata = input._metadata
    check_dtype(name, metadata.dtype, f"{REAL}b" if name == "mode" else REAL)
    shape = metadata.shape
    if input._batched:
        return mapped_along(function, input, axis, keepdim=keepdim)
    xp = metadata.F.xp
    kind = getattr(return_types, name)
    if not shape:
        place(xp, input._array.reshape(1))
        return kind(*selected(input, op, xp.zeros((), dtype=xp.int64), 0, True))
    if not shape[axis]:
        raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")

    def found(array: Array) -> Any:
        lines = xp.moveaxis(sortable(array), axis, -1)
        order = xp.argsort(lines, axis=-1, kind="stable")
        places = place(xp, xp.take_along_axis(lines, order, -1))
        indices = xp.moveaxis(xp.take_along_axis(order, places, -1), -1, axis)
        return metadata.F.as_array(indices)

    launched = metadata.device.launching(found)
    indices = launched(input._array)
    if recorders:
        note_result(indices, launched, input._array)
    return kind(*selected(input, op, indices, axis, keepdim))


def _middle(name: str, doc: str, place: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(
        input: Tensor, dim: Axis | None = None, keepdim: bool = False
    ) -> Tensor | return_types.median | return_types.nanmedian:
        if dim is not None:
            return _found(name, f"{name}_along", function, input, dim, keepdim, place)
        if keepdim is not False:
            raise TypeError(f"{name}() missing 1 required positional argument: 'dim'")
        return getattr(R, name)(operand_of(REAL, input, name))

    doc = f"""{doc}

    Args:
        input: a real tensor.
        dim: None for the middle of all elements, whose gradient is shared among ties; an axis for a
            named tuple of `values` and `indices`, where all of the gradient goes to the index.

    Raises:
        NotImplementedError: for booleans and complex numbers.
    """
    return writes(named(function, name, doc))


def _median_place(xp: Library, lines: Array) -> Any:
    length = lines.shape[-1]
    # NaN is sorted to the end, so the first NaN has rank `known`.
    known = length - xp.count_nonzero(xp.isnan(lines), axis=-1, keepdims=True)
    return xp.where(known == length, (length - 1) // 2, known)


def _nanmedian_place(xp: Library, lines: Array) -> Any:
    known = lines.shape[-1] - xp.count_nonzero(xp.isnan(lines), axis=-1, keepdims=True)
    return xp.maximum(known - 1, 0) // 2


median = _middle(
    "median", "The middle element, the lower of two; NaN where there is any.", _median_place
)
nanmedian = _middle(
    "nanmedian", "The middle element of those that are not NaN, the lower of two.", _nanmedian_place
)


@writes
def kthvalue(input: Tensor, k: int, dim: Axis = -1, keepdim: bool = False) -> return_types.kthvalue:
    """The `k`-th smallest element along an axis, counted from 1, and its index, an int64.

    Args:
        input: a real tensor, not of booleans. NaN is greater than all numbers.
    """

    def place(xp: Library, lines: Array) -> Any:
        if not 0 < k <= lines.shape[-1]:
            raise unmet("kthvalue", f"selected number k out of range for dimension {dim}",
                        k=k, input=input)  # fmt: skip
        return xp.full((*lines.shape[:-1], 1), k - 1)

    along = lambda x, axis, keepdim: kthvalue(x, k, axis, keepdim)  # noqa: E731  a name for it
    return _found("kthvalue", "kthvalue", along, input, dim, keepdim, place)


@writes
def mode(input: Tensor, dim: Axis = -1, keepdim: bool = False) -> return_types.mode:
    """The most frequent element along an axis, the least of several, and its index, an int64.

    Args:
        input: a real tensor.
    """
    return _found("mode", "mode", mode, input, dim, keepdim, _most_frequent)


def _most_frequent(xp: Library, lines: Array) -> Any:
    """The last index of the longest run of equal elements."""
    begins, ends = (xp.ones(lines.shape, dtype=bool) for _ in range(2))
    begins[..., 1:] = ends[..., :-1] = lines[..., 1:] != lines[..., :-1]
    # Each line begins a run, so that the runs of all lines have numbers of their own.
    runs = xp.cumsum(begins.reshape(-1)) - 1
    lengths = xp.bincount(runs)[runs].reshape(lines.shape)
    return xp.argmax(xp.where(ends, lengths, 0), axis=-1)[..., None]


# -- quantiles ------------------------------------------------------------------------------------


@writes_exactly
def msort(input: Tensor) -> Tensor:
    """The elements sorted along the first axis."""
    return sort(input, 0).values


def _scanned(ufunc: Any, axis: int, array: Array) -> Any:
    """Where the extreme elements up to each are."""
    if not array.ndim:
        return np.zeros((), np.int64)
    # As in PyTorch, the last of equal elements is chosen, and NaN is passed on.
    hits = (array == ufunc.accumulate(array, axis=axis)) | (array != array)
    shape = [1] * array.ndim
    shape[axis] = -1
    places = np.where(hits, np.arange(array.shape[axis]).reshape(shape), 0)
    return in_order(np.maximum.accumulate(places, axis=axis))


def _so_far(name: str, greatest: str) -> Callable[..., Any]:
    kind = getattr(return_types, name)
    ufunc: Any = np.maximum if name == "cummax" else np.minimum

    @requires(
        "not input.is_complex()  # does not support complex input. Take its real part",
        error=NotImplementedError,
    )
    def scan(input: ByExample, dim: Axis) -> return_types.cummax | return_types.cummin:
        # Device libraries have no such scans, so this is computed on the host.
        places = computed_on_host(partial(_scanned, ufunc, dim), input)
        numbers = from_host(name, places, input._metadata.device)
        return kind(gather(input, dim, numbers), numbers)

    doc = f"The {greatest} elements up to each along an axis, and where they are."
    return writes(named(scan, name, doc))


cummax = _so_far("cummax", "greatest")
cummin = _so_far("cummin", "smallest")


def _quantiles(
    name: str, input: Tensor, q: Tensor | float, dim: int | None, keepdim: bool,
    interpolation: Interpolation, skip: bool,
) -> Any:  # fmt: skip
    dtype = input._metadata.dtype
    if dtype.kind != "f" or is_half(dtype):
        raise unmet(
            name, f"{name}() input tensor must be either float or double dtype", input=dtype
        )
    if not isinstance(q, Variable):
        levels = constant(float(q), input, dtype)
    elif q._metadata.dtype == dtype:
        levels = q
    else:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    count = len(levels._metadata.shape)
    if count > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    computed_on_host(partial(_check_levels, name), levels)
    shape = input._metadata.shape
    if not input._metadata.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if dim is None:
        axis, lines = 0, R.reshape(input, (input._metadata.size,))
    else:
        axis, lines = dim, input if shape else R.reshape(input, (1,))
    ordered = sort(lines, axis).values
    spread = tuple(-1 if i == axis else 1 for i in range(len(lines._metadata.shape)))
    found = computed_on_host(partial(_ranks, axis, spread, skip, interpolation), ordered, levels)
    lower, higher, share, scale, rest = [
        from_host(name, array, input._metadata.device) for array in found
    ]
    out = gather(ordered, axis, lower)
    if interpolation in {"linear", "midpoint"}:
        upper = gather(ordered, axis, higher)
        if isinstance(q, Variable) and interpolation == "linear":
            share = R.add(R.mul(R.reshape(q, spread), scale), rest)
        # As in PyTorch's `lerp`, interpolated from the nearer end.
        step = R.sub(upper, out)
        out = where(
            R.lt(share, 0.5),
            R.add(out, R.mul(step, share)),
            R.sub(upper, R.mul(step, R.sub(1.0, share))),
        )
    order = tuple(range(len(out._metadata.shape)))
    if dim is None and keepdim:
        out = R.reshape(out, (out._metadata.shape[0], *(1,) * len(shape)))
    else:
        out = R.permute(out, (axis, *order[:axis], *order[axis + 1 :]))
        if keepdim and shape:
            out = R.unsqueeze(out, axis + 1)
    return no_view(out if count else R.squeeze(out, (0,)))


def _check_levels(name: str, levels: Array) -> None:
    if not np.all((levels >= 0) & (levels <= 1)):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")


def _ranks(
    axis: int, spread: tuple[int, ...], skip: bool, interpolation: Interpolation, ordered: Array,
    levels: Array,
) -> tuple[Array, ...]:  # fmt: skip
    """The ranks below and above quantiles, and the share of the upper one.

    After these come the factor and the offset that give the share of quantiles with a gradient;
    `spread` is the shape of the quantiles beside the elements.
    """
    scale, offset = _ends(ordered, axis, skip)
    ranks = levels.reshape(spread) * scale + offset
    below = np.floor(ranks)
    share = np.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - below
    if interpolation == "lower":
        ranks = below
    elif interpolation == "higher":
        ranks = np.ceil(ranks)
    elif interpolation == "nearest":
        ranks = np.round(ranks)
    lower, upper = [edge(ranks).astype(np.int64) for edge in (np.floor, np.ceil)]
    return lower, upper, share, scale, offset - below


def _ends(ordered: Array, axis: int, skip: bool) -> tuple[Any, Any]:
    """The factor and offset that map a quantile in [0, 1] to a rank among ordered elements."""
    length = ordered.shape[axis]
    counts = (~np.isnan(ordered)).sum(axis=axis, keepdims=True)
    if skip:
        scale, offset = np.maximum(counts - 1, 0), np.zeros(counts.shape)
    else:
        # NaN is sorted to the end; every rank of a line with NaN is set to its last element.
        scale = np.where(counts < length, 0, length - 1)
        offset = np.where(counts < length, length - 1, 0)
    return scale.astype(ordered.dtype), offset.astype(ordered.dtype)


@writes_exactly
def quantile(
    input: ByExample, q: ByExample | float, dim: Axis | None = None, keepdim: bool = False, *,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """The quantiles of all elements, or along an axis; NaN if there is one.

    Args:
        input: a float or double tensor, not empty.
        q: a number from 0 to 1, or a vector of them, whose axis is the result's first.
        interpolation: between two elements: "linear", "lower", "higher", "midpoint", "nearest".
    """
    return _quantiles("quantile", input, q, dim, keepdim, interpolation, False)


@writes_exactly
def nanquantile(
    input: ByExample, q: ByExample | float, dim: Axis | None = None, keepdim: bool = False, *,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """The quantiles without NaN; see `quantile`."""
    return _quantiles("nanquantile", input, q, dim, keepdim, interpolation, True)
