"""Pooling over windows.

All windows are processed at once, one place of the window at a time. The greatest element of a
window gets the whole gradient: of several the first, and of several NaN the last, as in PyTorch.
Padding is never chosen, even if all elements are minus infinity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops import batch_products
from asyncgrad.ops.columns import padded
from asyncgrad.ops.dtype import FLOATING
from asyncgrad.ops.fused import blocks_of, masked
from asyncgrad.ops.op import Op, linear, operation
from asyncgrad.ops.table.activation import line_total
from asyncgrad.records import NamedTuple
from asyncgrad.types import Array, Library

#: Up to this many elements are processed with all windows laid out as rows.
_SMALL = 4096
#: BLAS adds up as many elements of a window at most: its sums of more lose digits.
_BY_BLAS = 256
#: The dtypes that `bincount` and `argmax` handle natively.
_OWN = frozenset({np.dtype("float32"), np.dtype("float64")})


class Window(NamedTuple):
    """How a window moves over the last two axes of an array."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    #: The lengths of the axes, and the numbers of windows.
    image: tuple[int, ...]
    out: tuple[int, ...]

    @functools.lru_cache(1024)  # noqa: B019  by value: windows are few
    def sides(self) -> tuple[tuple[int, int], ...]:
        """The padding (or cropping, if negative) with which the windows fit exactly."""
        axes = zip(*self, strict=True)
        return tuple([(p, (m - 1) * s + d * (k - 1) + 1 - n - p) for k, s, p, d, n, m in axes])

    def steps(self, axis: int) -> Iterator[slice]:
        """For each place of a window along an axis, the slice of that place in all windows."""
        k, s, d, m = self.kernel[axis], self.stride[axis], self.dilation[axis], self.out[axis]
        for i in range(k):
            yield slice(i * d, i * d + (m - 1) * s + 1, s)

    def places(self) -> Iterator[tuple[Any, ...]]:
        """For each place of a two-dimensional window, the index of that place in all windows."""
        for rows in self.steps(0):
            for columns in self.steps(1):
                yield ..., rows, columns

    @property
    def whole(self) -> bool:
        """Whether the window is the image."""
        return self.kernel == self.image and not any(self.padding) and max(self.dilation) == 1

    @property
    def overlap(self) -> bool:
        """Whether windows may overlap."""
        axes = zip(self.kernel, self.stride, self.dilation, strict=True)
        return any(d * (k - 1) >= s for k, s, d in axes)


def _planes(x: Array) -> Any:
    """The array as (planes, rows, columns)."""
    return x.reshape(prod(x.shape[:-2]), *x.shape[-2:])


def _lowest(xp: Library, dtype: np.dtype[Any]) -> Any:
    return -xp.inf if dtype.kind in FLOATING else xp.iinfo(dtype).min


# -- few elements: all windows in one piece -------------------------------------------------------


def _is_small(x: Array) -> bool:
    """Whether the overhead of library calls would dominate."""
    return x.size <= _SMALL and x.__class__ is np.ndarray and x.dtype in _OWN


def _windows(x: Array, window: Window, value: float) -> Any:
    """The windows of planes as rows of a matrix."""
    part = np.ascontiguousarray(padded(np, x, window.sides(), value))
    plane, row, column = part.strides
    (down, right), (below, beside) = window.stride, window.dilation
    strides = (plane, down * row, right * column, below * row, beside * column)
    shape = (len(part), *window.out, *window.kernel)
    return np.ndarray(shape, part.dtype, part, 0, strides).reshape(-1, prod(window.kernel))


@functools.lru_cache(64)
def _numbered(planes: int, window: Window) -> Any:
    """The flat number of each element of the windows; all padding shares one more number."""
    count = planes * prod(window.image)
    return _windows(np.arange(count).reshape(planes, *window.image), window, count)


def _collected(shape: tuple[int, ...], numbers: Array, values: Array) -> Any:
    """Add up values with the same number."""
    count = prod(shape)
    totals = np.bincount(numbers, values.reshape(-1), count + 1)[:count]
    return totals.astype(values.dtype).reshape(shape)


# -- peaks ----------------------------------------------------------------------------------------


def _max_pool(xp: Library, x: Array, window: Window) -> Any:
    lead = x.shape[:-2]
    x = _planes(x)
    if _is_small(x):
        peaks = _windows(x, window, _lowest(xp, x.dtype)).max(axis=1)
        return peaks.reshape(*lead, *window.out)
    out = xp.empty((len(x), *window.out), x.dtype)
    sides, lowest = window.sides(), _lowest(xp, x.dtype)
    for block in blocks_of(x):
        part = padded(xp, x[block], sides, lowest)
        out[block] = _combined(xp.maximum, part, window)
    return out.reshape(*lead, *window.out)


def _combined(function: Any, x: Array, window: Window) -> Any:
    """What an elementwise function makes of the places of all windows of padded planes."""
    rest: Any
    for axis, rest in enumerate(((slice(None),), ())):
        places = [(..., step, *rest) for step in window.steps(axis)]
        if len(places) == 1:
            x = x[places[0]]
            continue
        out = function(x[places[0]], x[places[1]])
        for place in places[2:]:
            function(out, x[place], out=out)
        x = out
    return x


def _hits(xp: Library, x: Array, peak: Array, window: Window) -> Iterator[tuple[Any, Any]]:
    """For each place of a window: its index in all windows, and the windows that peak there."""
    sides, lowest = window.sides(), _lowest(xp, x.dtype)
    free = xp.ones(peak.shape, bool)
    # A device's values are not read, because that would wait for the device.
    looks = isinstance(peak, np.ndarray)
    inside, ahead = None, None
    if any(map(any, sides)) and not (looks and (peak > lowest).all()):
        inside = padded(xp, xp.ones(x.shape, bool), sides)
    x = padded(xp, x, sides, lowest)
    if not looks or (peak != peak).any():
        ahead = xp.zeros(peak.shape, int)
        for place in window.places():
            ahead += x[place] != x[place]
    for place in window.places():
        part = x[place]
        hit = part == peak
        if inside is not None:
            hit &= inside[place]
        if ahead is not None:
            nan = part != part
            ahead -= nan
            hit |= nan & (ahead == 0)
        hit &= free
        free ^= hit
        yield place, hit


def peak_places(xp: Library, lines: Array) -> Any:
    """The places of the greatest elements of lines along the last axis."""
    first = lines.argmax(axis=-1)
    nan = lines != lines
    if isinstance(nan, np.ndarray) and not nan.any():
        return first
    last = lines.shape[-1] - 1 - nan[..., ::-1].argmax(axis=-1)
    return xp.where(nan.any(axis=-1), last, first)


def _max_spread(xp: Library, y: Array, x: Array, peak: Array, window: Window) -> Any:
    """The adjoint of picking the peaks: put each element of `y` where its window peaks."""
    shape = x.shape
    if not peak.size:
        return xp.zeros(shape, y.dtype)
    x, y, peak = _planes(x), _planes(y), _planes(peak)
    lowest = _lowest(xp, x.dtype)
    # The least peak is NaN if any peak is.
    if _is_small(x) and _is_small(y) and peak.item(peak.argmin()) > lowest:
        numbers = _numbered(len(x), window)
        first = _windows(x, window, lowest).argmax(axis=1)
        return _collected(shape, numbers[np.arange(len(first)), first], y)
    out = xp.zeros((len(x), *window.image), y.dtype)
    sides = window.sides()
    exact = not any(map(any, sides))
    for block in blocks_of(x):
        total = out[block] if exact else padded(xp, out[block], sides)
        value = y[block]
        for place, hit in _hits(xp, x[block], peak[block], window):
            if window.overlap:
                total[place] += masked(xp, value, hit)
            else:
                total[place] = masked(xp, value, hit)
        if not exact:
            _store(out[block], total, window)
    return out.reshape(shape)


def _store(planes: Array, padded: Array, window: Window) -> None:
    """Store the image's part of padded planes, which may end before the image does."""
    axes = zip(window.padding, window.image, strict=True)
    part = padded[(slice(None), *(slice(p, p + n) for p, n in axes))]
    planes[tuple([slice(0, n) for n in part.shape])] = part


def _max_pick(xp: Library, y: Array, x: Array, peak: Array, window: Window) -> Any:
    """Pick the elements of `y` where the windows of `x` peak."""
    shape = peak.shape
    x, y, peak = _planes(x), _planes(y), _planes(peak)
    out = xp.zeros(peak.shape, y.dtype)
    for block in blocks_of(x):
        values = padded(xp, y[block], window.sides())
        for place, hit in _hits(xp, x[block], peak[block], window):
            out[block] += masked(xp, values[place], hit)
    return out.reshape(shape)


def peak_indices(xp: Library, x: Array, peak: Array, window: Window) -> Any:
    """The flat numbers of the peaks within their planes."""
    shape = peak.shape
    x, peak = _planes(x), _planes(peak)
    rows, columns = (
        xp.arange(m) * s - p
        for m, s, p in zip(window.out, window.stride, window.padding, strict=True)
    )
    width = window.image[1]
    first = rows[:, None] * width + columns
    out = xp.zeros(peak.shape, "int64")
    for place, hit in _hits(xp, x, peak, window):
        offset = place[1].start * width + place[2].start
        out += (first + offset) * hit
    return out.reshape(shape)


# -- means ----------------------------------------------------------------------------------------


class Counts(NamedTuple):
    """How the divisor of each window's sum is determined."""

    include_pad: bool
    override: int | None


def divisors(xp: Library, window: Window, counts: Counts, dtype: np.dtype[Any]) -> Any:
    """The divisor: one number, or an array of one for each window."""
    if counts.override is not None:
        return counts.override
    lengths = _held_elements(window, counts.include_pad)
    if lengths is None:
        return prod(window.kernel)
    first, *others = (xp.asarray(held, dtype) for held in lengths)
    for held in others:
        first = first[..., None] * held
    return first


@functools.lru_cache(1024)
def _held_elements(window: Window, include_pad: bool) -> tuple[list[int], ...] | None:
    """How many elements the windows have along each axis; None if all are full."""
    lengths = []
    uniform = True
    for k, s, p, _, n, m in zip(*window, strict=True):
        starts = [i * s - p for i in range(m)]
        ends = [min(start + k, n + p) for start in starts]
        if not include_pad:
            ends = [min(end, n) for end in ends]
            starts = [max(start, 0) for start in starts]
        held = [end - start for start, end in zip(starts, ends, strict=True)]
        uniform = uniform and all(length == k for length in held)
        lengths.append(held)
    return None if uniform else tuple(lengths)


def _avg_pool(xp: Library, x: Array, window: Window, counts: Counts) -> Any:
    lead = x.shape[:-2]
    x = _planes(x)
    numbers = divisors(xp, window, counts, x.dtype)
    if _is_small(x):
        totals = _windows(x, window, 0).sum(axis=1).reshape(-1, *window.out)
        totals /= numbers
        return totals.reshape(*lead, *window.out)
    out = xp.empty((len(x), *window.out), x.dtype)
    sides = window.sides()
    for block in blocks_of(x):
        part = padded(xp, x[block], sides)
        if window.whole:
            part = part.reshape(len(part), prod(window.kernel))
            few = part.shape[1] <= _BY_BLAS
            total = line_total(xp, part, 1) if few else part.sum(axis=1, keepdims=True)
            total = total[..., None]
        else:
            # As `+`: arrays that stay in the cache need no pool.
            total = _combined(getattr(xp, "unpooled", xp).add, part, window)
        if x.dtype.kind == "i":
            # Integer division rounded towards zero.
            out[block] = (total - xp.fmod(total, numbers)) // numbers
        else:
            xp.divide(total, numbers, out[block])
    return out.reshape(*lead, *window.out)


def _avg_spread(xp: Library, y: Array, window: Window, counts: Counts) -> Any:
    """The adjoint of the means: share each element of `y` among the elements of its window."""
    lead = y.shape[:-2]
    y = _planes(y)
    numbers = divisors(xp, window, counts, y.dtype)
    if _is_small(y) and not window.whole:
        share = (y / numbers).reshape(-1, 1).repeat(prod(window.kernel), 1)
        shape = (*lead, *window.image)
        return _collected(shape, _numbered(len(y), window).reshape(-1), share)
    out = xp.zeros((len(y), *window.image), y.dtype)
    height, width = (
        n + before + after for n, (before, after) in zip(window.image, window.sides(), strict=True)
    )
    for block in blocks_of(out):
        share = y[block] / numbers
        if window.whole:
            out[block] = share
            continue
        columns = xp.zeros((len(share), window.out[0], width), y.dtype)
        for step in window.steps(1):
            columns[..., step] += share
        total = xp.zeros((len(share), height, width), y.dtype)
        for step in window.steps(0):
            total[:, step] += columns
        _store(out[block], total, window)
    return out.reshape(*lead, *window.image)


# -- windows of different sizes -------------------------------------------------------------------


def bins(n: int, count: int) -> Iterator[tuple[int, int]]:
    """The start and end of `count` windows that divide `n` elements nearly evenly."""
    for i in range(count):
        yield i * n // count, -((i + 1) * n // -count)


def _bin_sizes(xp: Library, x: Array, dim: int, n: int, count: int) -> Any:
    """The windows' numbers of elements, to be broadcast against the means."""
    sizes = [end - start for start, end in bins(n, count)]
    return xp.asarray(sizes, dtype=x.dtype).reshape((-1,) + (1,) * (x.ndim - dim - 1))


def _bin_means(xp: Library, x: Array, dim: int, count: int) -> Any:
    """The means of the windows along an axis, which may overlap."""
    front = (slice(None),) * dim
    out = xp.empty((*x.shape[:dim], count, *x.shape[dim + 1 :]), x.dtype)
    for i, (start, end) in enumerate(bins(x.shape[dim], count)):
        xp.add.reduce(x[(*front, slice(start, end))], dim, x.dtype, out[(*front, i)])
    return xp.divide(out, _bin_sizes(xp, x, dim, x.shape[dim], count), out)


def _bin_spread(xp: Library, y: Array, dim: int, n: int) -> Any:
    """The adjoint: each element is shared among those of its window."""
    front = (slice(None),) * dim
    share = xp.divide(y, _bin_sizes(xp, y, dim, n, y.shape[dim]))
    out = xp.zeros((*y.shape[:dim], n, *y.shape[dim + 1 :]), y.dtype)
    for i, (start, end) in enumerate(bins(n, y.shape[dim])):
        out[(*front, slice(start, end))] += share[(*front, slice(i, i + 1))]
    return out


def _cost(x: Variable, *rest: object) -> int:
    window = next(value for value in rest if isinstance(value, Window))
    return 10_000 + 2 * int(x._metadata.cost) * prod(window.kernel)


def _by_peaks(name: str, forward: Callable[..., Any], adjoint: str, node: str) -> Op:
    """A linear op of `y` with the places of the greatest elements, and the name of its adjoint."""
    return operation(
        name,
        forward,
        "y x peak",
        "window",
        pulls={"y": lambda F, g, x, peak, window: getattr(F, adjoint)(g, x, peak, window)},
        multilinear=True,
        node=node,
        cost=_cost,
        batch=batch_products.images,
    )


def _means(
    name: str, forward: Callable[..., Any], adjoint: str, node: str, frees: tuple[str, ...] = ()
) -> Op:
    """A linear op with the means of windows, and the name of its adjoint."""
    return linear(
        name,
        forward,
        lambda F, g, window, counts: getattr(F, adjoint)(g, window, counts),
        attributes="window counts",
        wide=True,
        node=node,
        cost=_cost,
        frees=frees,
        batch=batch_products.images,
    )


def _along_bins(name: str, forward: Callable[..., Any], length: str, adjoint: str) -> Op:
    """A linear op that gives an axis another length, and the name of its adjoint."""
    return linear(
        name,
        forward,
        lambda F, g, x_shape, dim: getattr(F, adjoint)(g, dim, x_shape[dim]),
        attributes=f"dim {length}",
        wide=True,
    )


OPS = (
    operation(
        "max_pool",
        _max_pool,
        pulls={"x": lambda F, g, x, out, window: F.max_spread(g, x, out, window)},
        pushes={"x": lambda F, t, x, out, window: F.max_pick(t, x, out, window)},
        node="MaxPool2DWithIndicesBackward0",
        # PyTorch saves indices and not the output, so the output may change in place.
        renews=True,
        cost=_cost,
        batch=batch_products.images,
    ),
    _by_peaks("max_spread", _max_spread, "max_pick", "MaxPool2DWithIndicesBackwardBackward0"),
    _by_peaks("max_pick", _max_pick, "max_spread", "GatherBackward0"),
    _means("avg_pool", _avg_pool, "avg_spread", "AvgPool2DBackward0", frees=("x",)),
    _means("avg_spread", _avg_spread, "avg_pool", "AvgPool2DBackwardBackward0"),
    _along_bins("bin_means", _bin_means, "count", "bin_spread"),
    _along_bins("bin_spread", _bin_spread, "n", "bin_means"),
)
