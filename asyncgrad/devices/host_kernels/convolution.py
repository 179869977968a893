"""Convolutions by the compiled kernels of `tiles`, and the tables of offsets for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import gcd, prod
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Value
from asyncgrad.devices.host_kernels.calls import DTYPES, empty
from asyncgrad.devices.host_kernels.tiles import convolve, lanes, lay, weigh
from asyncgrad.devices.host_kernels.vectors import PLACES
from asyncgrad.devices.pieces import here, in_pieces
from asyncgrad.records import NamedTuple

#: Products of numbers in a piece that idle threads take: some 0.1 ms of work.
_PIECE = 1 << 23
#: How many sums of products are made apart from one another.
_RUNS = 8
#: The largest images in places, as each place has two numbers in tables.
_AREA = 1 << 16
#: The least number of places that are computed at a time: several small images have so many.
_PLACES = 64
#: Each sum of the weight's gradient that is made apart has so many terms at least.
_ADDED = 512
_REMEMBERED = 256


class _Phase(NamedTuple):
    """Places of the output, along one axis, which depend on the same places of the kernel."""

    where: range
    #: For each place of the output, where the source's place would be for the kernel's place 0.
    starts: range
    #: The places of the kernel.
    taps: range
    #: For each place of the kernel, its distance from there.
    steps: range


def _forward(n: int, m: int, k: int, s: int, d: int, before: int) -> list[_Phase]:
    """The phases of a convolution's output: all places are in one."""
    return [_Phase(range(m), range(-before, m * s - before, s), range(k), range(0, k * d, d))]


def _backward(n: int, m: int, k: int, s: int, d: int, before: int) -> list[_Phase]:
    """The phases of the gradient by the input: for stride `s`, each place depends on every s-th."""
    phases = []
    period = s // gcd(s, d)
    for first in range(min(period, k)):
        rest = first * d % s
        where = range((rest - before) % s, n, s)
        start = (where.start + before - rest) // s
        taps = range(first, k, period)
        begin, each = (first * d - rest) // s, period * d // s
        phases.append(
            _Phase(
                where,
                range(start, start + len(where)),
                taps,
                range(-begin, -begin - len(taps) * each, -each),
            )
        )
    return [phase for phase in phases if phase.where]


class _Plan(NamedTuple):
    """The tables for images that are computed at a time; see `tiles`."""

    #: The elements of the padded images, 0 without padding.
    size: int
    rows: Any
    parts: Any
    #: For each part the places of the kernel, and where its weights begin.
    taps: list[tuple[Any, int]]
    offsets: Any
    where: Any
    steps: Any
    #: Whether some places of the output have no part.
    gaps: bool


def _table(values: list[Any]) -> Any:
    table = np.concatenate(values or [np.empty(0)]).astype(np.int64)
    table.flags.writeable = False
    return table


def _sums(ranges: list[range], strides: list[int]) -> Any:
    """The numbers of all places of some rows, columns, ..., in order."""
    total = np.zeros(1, np.int64)
    for places, stride in zip(ranges, strides, strict=True):
        total = (total[:, None] + np.array(places, np.int64) * stride).reshape(-1)
    return total


def _strides(shape: Sequence[int]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


@lru_cache(_REMEMBERED)
def _plan(
    make: Callable[..., list[_Phase]], source: tuple[int, ...], target: tuple[int, ...],
    kernel: tuple[int, ...], group: int, lane: int, geometry: Value,
) -> _Plan:  # fmt: skip
    """The tables for reading images of shape `source` and writing those of shape `target`.

    `make` gives the phases of an axis, `group` images are computed at a time, and a vector has
    `lane` channels.
    """
    channels, *image = source
    outs, *written = target
    stride, padding, dilation, _ = geometry
    ends = (image, written) if make is _forward else (written, image)
    axes = [
        make(n, m, k, s, d, before)
        for n, m, k, s, d, (before, _) in zip(*ends, kernel, stride, dilation, padding, strict=True)
    ]
    before, padded = [], []
    for length, phases in zip(image, axes, strict=True):
        reached = [
            end + step
            for phase in phases
            for end in (phase.starts[0], phase.starts[-1])
            for step in (phase.steps[0], phase.steps[-1])
        ]
        before.append(max(0, -min(reached, default=0)))
        padded.append(before[-1] + max(length, 1 + max(reached, default=0)))
    images = range(group)
    size, *strides = _strides((group, channels, *padded))
    edge = sum(b * s for b, s in zip(before, strides[1:], strict=True))
    rows: list[Any] = []
    if padded != image:
        lines = [images, range(channels), *(range(length) for length in image[:-1])]
        rows.append(_sums(lines, [size, *strides[:-1]]) + edge)
    each = outs * prod(written)
    parts, taps, offsets, where, steps = [], [], [], [], []
    place = step = begin = 0
    for chosen in product(*axes):
        own = _sums([images, *(phase.starts for phase in chosen)], [size, *strides[1:]]) + edge
        there = _sums([images, *(phase.where for phase in chosen)], [each, *_strides(written)])
        fill = -len(own) % PLACES
        offsets += [own, np.full(fill, own[-1])]
        where += [there, np.full(fill, -1)]
        steps.append(_sums([range(channels), *(phase.steps for phase in chosen)], strides))
        taps.append((_table([_sums([phase.taps for phase in chosen], _strides(kernel))]), begin))
        end = place + len(own) + fill
        parts.append([place, end, step, step + len(steps[-1]), begin])
        place, step = end, step + len(steps[-1])
        begin += -(-outs // lane) * lane * len(steps[-1])
    # For a multiple of PLACES, as the weight's gradient has a sum for each.
    steps.append(np.zeros(-step % PLACES, np.int64))
    covered = sum(int(np.count_nonzero(part >= 0)) for part in where)
    return _Plan(
        group * size if rows else 0, _table(rows), _table(parts), taps, _table(offsets),
        _table(where), _table(steps), covered < group * prod(written),
    )  # fmt: skip


@lru_cache(_REMEMBERED)
def _grouped(batch: int, area: int) -> int:
    """How many images are computed at a time: a divisor, so that there are `_PLACES` places."""
    chosen = 1
    for count in range(1, min(batch, 16 * _PLACES // area) + 1):
        if batch % count == 0:
            chosen, places = count, count * area
            if places >= 4 * _PLACES or (places >= _PLACES and places % PLACES == 0):
                break
    return chosen


def _is_fit(x: Array, other: Array, geometry: Value, target: tuple[int, ...]) -> bool:
    """Whether the kernels compute it, and faster than BLAS; `target` is the output's shape."""
    return (
        x.dtype in DTYPES
        and x.dtype is other.dtype
        and x.flags.aligned
        and other.flags.aligned
        and geometry.groups == 1
        and min(target) > 0
        and target[1] > 1
        and prod(target[2:]) <= _AREA
        and x.size > 0
        and other.size > 0
    )


@lru_cache(_REMEMBERED)
def _pieces(
    groups: int, outs: int, lane: int, work: int, most: int
) -> tuple[Any, list[tuple[int, int, int, int]], tuple[int, int, int, int]]:
    """Cut groups of images at `most` places or fewer, and channels where there are too few groups.

    Returns:
        Where the groups are cut; for each piece the first and the last cut and the first and the
        last vector of channels; and these for all of it.
    """
    count, lines = work // _PIECE, -(-outs // lane)
    runs = _cut(groups, min(count, most))
    # An even number of vectors, as two are computed at a time.
    columns = [2 * line for line in _cut(-(-lines // 2), count // max(1, len(runs) - 1))]
    columns[-1] = lines
    pieces = [
        (run, run + 1, first, last)
        for run in range(len(runs) - 1)
        for first, last in pairwise(columns)
    ]
    return _table([runs]), pieces, (0, len(runs) - 1, 0, lines)


def _cut(length: int, count: int) -> tuple[int, ...]:
    """Where a length is cut into equal pieces, about so many."""
    step = -(-length // max(1, min(count, length)))
    return (*range(0, length, step), length)


def _share(call: Callable[[Any], object], pieces: list[Any], whole: Any) -> None:
    """Call a function for each piece where idle threads may take some, else once for all."""
    if here.lender is None:
        call(whole)
    else:
        in_pieces(call, pieces)


def _convolve(
    make: Callable[..., list[_Phase]], x: Array, weight: Array, target: tuple[int, ...],
    geometry: Value, apart: int, distance: int,
) -> Any:  # fmt: skip
    """Compute a convolution's output or, of that one's gradient `x`, the gradient by the input.

    Two channels of the result lie `apart` elements from one another in the weight, and two channels
    of `x` lie `distance` elements from one another.
    """
    if not _is_fit(x, weight, geometry, target):
        return NotImplemented
    batch, outs, *image = target
    area, lane = prod(image), lanes(x.dtype)
    group = _grouped(batch, area)
    plan = _plan(make, x.shape[1:], target[1:], weight.shape[2:], group, lane, geometry)
    out = empty(target, x.dtype, prod(target))
    if plan.gaps:
        out[...] = 0
    laid = np.empty(-(-outs // lane) * lane * (weight.size // outs), x.dtype)
    flat = np.ascontiguousarray(weight).reshape(-1)
    for taps, begin in plan.taps:
        lay(begin, outs, apart, x.shape[1], distance, taps, flat, laid)
    given = (
        group, group * prod(x.shape[1:]), x.shape[-1], plan.size, outs, area, plan.parts,
        plan.rows, plan.offsets, plan.steps, plan.where, np.ascontiguousarray(x).reshape(-1), laid,
        out.reshape(-1),
    )  # fmt: skip
    runs, pieces, whole = _pieces(batch // group, outs, lane, batch * area * weight.size, batch)

    def compute(piece: tuple[int, int, int, int]) -> None:
        first, last, *lines = piece
        convolve(runs[first], runs[last], *lines, *given)

    _share(compute, pieces, whole)
    return out


def convolution(x: Array, weight: Array, geometry: Value) -> Any:
    """See `ops/table/convolution.py`; NotImplemented where BLAS is faster."""
    kernel = weight.shape[2:]
    target = (x.shape[0], weight.shape[0], *geometry.out_shape(x.shape[2:], kernel))
    each = prod(kernel)
    return _convolve(_forward, x, weight, target, geometry, x.shape[1] * each, each)


def convolution_input(y: Array, weight: Array, shape: tuple[int, ...], geometry: Value) -> Any:
    """See `ops/table/convolution.py`; NotImplemented where BLAS is faster."""
    each = prod(weight.shape[2:])
    return _convolve(_backward, y, weight, shape, geometry, each, shape[1] * each)


def convolution_weight(y: Array, x: Array, shape: tuple[int, ...], geometry: Value) -> Any:
    """See `ops/table/convolution.py`; NotImplemented where BLAS is faster."""
    if not _is_fit(y, x, geometry, y.shape):
        return NotImplemented
    batch, outs, *image = y.shape
    area, taps, lane = prod(image), prod(shape[1:]), lanes(y.dtype)
    group = _grouped(batch, area)
    plan = _plan(_forward, x.shape[1:], y.shape[1:], shape[2:], group, lane, geometry)
    runs, pieces, whole = _pieces(
        batch // group, outs, lane, batch * area * prod(shape), min(_RUNS, batch * area // _ADDED)
    )
    totals = np.zeros((whole[1], -(-outs // lane), len(plan.steps), lane), y.dtype)
    given = (
        group, group * prod(x.shape[1:]), x.shape[-1], plan.size, outs, area, runs, plan.rows,
        plan.offsets, plan.steps, np.ascontiguousarray(x).reshape(-1),
        np.ascontiguousarray(y).reshape(-1), totals.reshape(-1),
    )  # fmt: skip
    _share(lambda piece: weigh(*piece, *given), pieces, whole)
    total = totals[0]
    for other in totals[1:]:
        total += other
    made = total[:, :taps].transpose(0, 2, 1).reshape(-1, taps)[:outs]
    return np.ascontiguousarray(made).reshape(shape)


#: By the names under which `ops/table/convolution.py` looks for them.
FUNCTIONS = {
    "convolution": convolution,
    "convolution_input": convolution_input,
    "convolution_weight": convolution_weight,
}
