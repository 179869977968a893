"""The loops of convolutions, compiled by Numba.

All three functions of a convolution are sums `out[i] = sum over j of x[a[i] + b[j]] * w[j]`, where
`x` is an image, `a` and `b` are tables of offsets, and `w[j]` and `out[i]` are vectors over
channels. For the output, `a` has the places of the image and `b` the places of the kernel in all
input channels; for the weight's gradient it is the other way round. `vectors` has the inner
loop: it computes `PLACES` sums at a time, which stay in registers.

Some images, a group, are copied with their padding first, so few of them that they stay in the
cache. A group has `group` images of `length` elements in all, in rows of `width`; with padding it
has `size` elements, 0 if there is none, and its rows begin at `rows`. The output has `outs`
channels of `area` places. Functions compute groups, or runs of groups, from `low` to `high`, and
vectors of channels from `first` to `last`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.devices.host_kernels.compiling import compiled, kernel
from asyncgrad.devices.host_kernels.vectors import (
    BYTES,
    PAIR,
    PLACES,
    added_to_one,
    added_to_pair,
    address,
    copy,
    gather,
    sums_of_one,
    sums_of_pair,
)


def lanes(dtype: np.dtype[Any]) -> int:
    """How many numbers a vector has."""
    return BYTES // dtype.itemsize


#: Sums stay in their order.
_PLAIN: frozenset[str] = frozenset()
_inner: Any = compiled(fastmath=_PLAIN)


@_inner
def _copy(space: Any, rows: Any, x_: Any, start: Any, width: Any) -> None:
    """Copy the rows of some images to where they lie in the padded images."""
    for row in range(len(rows)):
        copy(x_, address(x_, start + row * width), address(space, rows[row]), width)


@_inner
def _slopes(y_: Any, base: Any, area: Any, channels: Any, first: Any, lane: Any, own: Any) -> None:
    """Write the places of one image as vectors of channels; missing ones keep what they have."""
    some = min(channels - first, lane)
    base += first * area
    whole = area // PLACES * PLACES if some == lane else 0
    for at in range(0, whole, PLACES):
        gather(y_, address(y_, base + at), area, address(own, at * lane))
    for channel in range(some):
        line = y_[base + channel * area : base + (channel + 1) * area]
        for at in range(whole, area):
            own[at * lane + channel] = line[at]


@kernel("iiiii p x y", _PLAIN)
def lay(
    begin: int, outs: int, apart: int, channels: int, distance: int, taps: Any, weight_: Any,
    out_: Any,
) -> None:  # fmt: skip
    """Lay out the weights of one part as (vectors of output channels, steps), from `begin` on.

    `taps` are the places of the kernel. Two of the `outs` channels of the output lie `apart`
    elements from one another, and two of the channels that are added up `distance` elements.
    """
    lane = BYTES // weight_.itemsize
    at = begin
    for first in range(0, outs, lane):
        some = min(outs - first, lane)
        for channel in range(channels):
            for tap in taps:
                start = first * apart + channel * distance + tap
                for n in range(some):
                    out_[at + n] = weight_[start + n * apart]
                for n in range(some, lane):
                    out_[at + n] = 0
                at += lane


@kernel("iiiiiiiiii ppppp xx y", _PLAIN)
def convolve(
    low: int, high: int, first: int, last: int, group: int, length: int, width: int, size: int,
    outs: int, area: int, parts: Any, rows: Any, offsets: Any, steps: Any, where: Any, x_: Any,
    weights_: Any, out_: Any,
) -> None:  # fmt: skip
    """Compute some vectors of channels of the output for some groups of images.

    Each of the `parts` of the output has five numbers: where its offsets and its steps begin and
    end, and its weights begin. `offsets` are the places of the padded images, a multiple of
    `PLACES` for each part, `steps` those of the kernel in all channels, and `where` has for each
    place that of the output, or -1. The weights are (vectors of channels, steps).
    """
    lane = BYTES // x_.itemsize
    space = np.zeros(size, x_.dtype)
    scratch = np.empty(PAIR * lane * PLACES, x_.dtype)
    source = address(space, 0)
    for image in range(low, high):
        if size:
            _copy(space, rows, x_, image * length, width)
        else:
            source = address(x_, image * length)
        base = image * group * outs * area
        for part in range(0, len(parts), 5):
            start, stop, step, end, begin = (
                parts[part], parts[part + 1], parts[part + 2], parts[part + 3], parts[part + 4]
            )  # fmt: skip
            each = (end - step) * lane
            tables, terms = address(offsets, 0), address(steps, step)
            for line in range(first, last, PAIR):
                some = min(outs - line * lane, min(last - line, PAIR) * lane)
                factors = address(weights_, begin + line * each)
                own = base + line * lane * area
                for at in range(start, stop, PLACES):
                    place = where[at]
                    whole = where[at + PLACES - 1] == place + PLACES - 1 and some % lane == 0
                    target, apart = address(scratch, 0), PLACES
                    if whole:
                        target, apart = address(out_, own + place), area
                    if some > lane:
                        sums_of_pair(
                            x_, source, tables + 8 * at, terms, end - step, factors, each, target,
                            apart,
                        )  # fmt: skip
                    else:
                        sums_of_one(
                            x_, source, tables + 8 * at, terms, end - step, factors, each, target,
                            apart,
                        )  # fmt: skip
                    if not whole:
                        for channel in range(some):
                            for n in range(PLACES):
                                if where[at + n] >= 0:
                                    there = own + channel * area + where[at + n]
                                    out_[there] = scratch[channel * PLACES + n]


@kernel("iiiiiiiiii pppp xx y", _PLAIN)
def weigh(
    low: int, high: int, first: int, last: int, group: int, length: int, width: int, size: int,
    outs: int, area: int, runs: Any, rows: Any, offsets: Any, steps: Any, x_: Any, y_: Any,
    total_: Any,
) -> None:  # fmt: skip
    """Add what some runs of groups of images contribute to the gradient by the weight.

    `runs` has the first group of each run, and the end of the last. `total_` has for each run the
    gradient as (vectors of channels, steps), of which there are a multiple of `PLACES`. Of it some
    vectors of channels are added to.
    """
    lane = BYTES // x_.itemsize
    space = np.zeros(size, x_.dtype)
    places, taps = group * area, len(steps)
    slopes = np.zeros(PAIR * places * lane, x_.dtype)
    source, terms = address(space, 0), address(offsets, 0)
    lines = (outs + lane - 1) // lane
    for run in range(low, high):
        for image in range(runs[run], runs[run + 1]):
            if size:
                _copy(space, rows, x_, image * length, width)
            else:
                source = address(x_, image * length)
            for line in range(first, last, PAIR):
                pair = min(PAIR, last - line)
                for member in range(group):
                    base = (image * group + member) * outs * area
                    for n in range(pair):
                        own = slopes[(n * places + member * area) * lane :]
                        _slopes(y_, base, area, outs, (line + n) * lane, lane, own)
                factors = address(slopes, 0)
                for tap in range(0, taps, PLACES):
                    target = address(total_, ((run * lines + line) * taps + tap) * lane)
                    chosen = address(steps, tap)
                    if pair == PAIR:
                        added_to_pair(
                            x_, source, chosen, terms, places, factors, places * lane, target,
                            taps * lane,
                        )  # fmt: skip
                    else:
                        added_to_one(
                            x_, source, chosen, terms, places, factors, places * lane, target,
                            taps * lane,
                        )  # fmt: skip
