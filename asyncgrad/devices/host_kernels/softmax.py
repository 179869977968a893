"""Cross entropy on the host, along any axis: the sum of the losses, and the slopes.

The kernels go through rows `low` to `high` of arrays that are passed as one line.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from asyncgrad.devices.host_kernels.calls import (
    DTYPES,
    LINES_BESIDE,
    Unfit,
    empty,
    flat,
    share,
    supported,
)
from asyncgrad.devices.host_kernels.compiling import kernel
from asyncgrad.devices.host_kernels.functions import ADDED, exp


@kernel("ii ii xxx p s")
def _class_total(
    low: int, high: int, length: int, beside: int, x_: Any, top_: Any, sums_: Any, place_: Any,
    total: Any,
) -> None:  # fmt: skip
    """Add up the sums minus what x has at the places, from which the maximum is subtracted."""
    for first in range(low * beside, high * beside, ADDED):
        part = 0.0
        for at in range(first, min(first + ADDED, high * beside)):
            if 0 <= place_[at] < length:
                picked = x_[(at // beside * length + place_[at]) * beside + at % beside]
                part += sums_[at] - (picked - top_[at])
        total[0] += part


def _total(x: Any, top: Any, sums: Any, place: Any, share: Any, dim: int) -> Any:
    """The sum of the losses of all lines, each of which has the same share."""
    length, beside = x.shape[dim], prod(x.shape[dim + 1 :])
    _check(x, top, length, place)
    if share.__class__ is not float:
        raise Unfit
    total = np.zeros(1)
    _class_total(
        0, top.size // beside, length, beside, flat(x, x.shape, x.dtype), top.ravel(),
        sums.ravel(), place.ravel(), total,
    )  # fmt: skip
    return x.dtype.type(total[0] * share)


def _check(x: Any, top: Any, length: int, place: Any) -> None:
    """Raise unless logits, their maxima, and places or None are what kernels support."""
    if x.dtype not in DTYPES or not x.size or top.size * length != x.size:
        raise Unfit
    if place is not None and (
        place.dtype is not _INTEGERS or place.size != top.size or not place.flags.carray
    ):
        raise Unfit


@kernel("ii ii n xxxx p y")
def _class_slopes(
    low: int, high: int, length: int, beside: int, same: float, x_: Any, top_: Any, full_: Any,
    sums_: Any, place_: Any, d_: Any,
) -> None:  # fmt: skip
    """exp(x - top) times what a line has in full, which is the same for all unless they are given.

    With places it is also divided by exp(sums), and what is full is subtracted at these.
    """
    given, picking = len(full_) > 0, len(place_) > 0
    room = min(beside, LINES_BESIDE)
    shares, fulls = np.empty(room, x_.dtype), np.full(room, same, x_.dtype)
    for line in range(low, high):
        if beside == 1:
            x = x_[line * length : (line + 1) * length]
            d = d_[line * length : (line + 1) * length]
            full = full_[line] if given else same
            top, share = top_[line], full / exp(sums_[line]) if picking else full
            for at in range(length):
                d[at] = exp(x[at] - top) * share
            if picking and 0 <= place_[line] < length:
                d[place_[line]] -= full
            continue
        start = line * length * beside
        for before in range(0, beside, room):
            count = min(room, beside - before)
            # Compilers make vectors of loops over slices.
            first = line * beside + before
            tops, sums = top_[first : first + count], sums_[first : first + count]
            if given:
                fulls = full_[first : first + count]
            for at in range(count):
                shares[at] = fulls[at] / exp(sums[at]) if picking else fulls[at]
            for row in range(start + before, start + length * beside, beside):
                x, d = x_[row : row + count], d_[row : row + count]
                for at in range(count):
                    d[at] = exp(x[at] - tops[at]) * shares[at]
            if picking:
                places, d = place_[first : first + count], d_[start + before :]
                for at in range(count):
                    if 0 <= places[at] < length:
                        d[places[at] * beside + at] -= fulls[at]


def _slopes(x: Any, top: Any, full: Any, dim: int, sums: Any = None, place: Any = None) -> Any:
    """exp(x - top) times shares of lines; with places, as `_class_slopes` says."""
    dtype, length, beside = x.dtype, x.shape[dim], prod(x.shape[dim + 1 :])
    _check(x, top, length, place)
    same = 0.0
    if place is None:
        sums, place = top, _NOWHERE
    if full.ndim:
        full = flat(full, top.shape, dtype)
    else:
        same, full = float(full), _NOTHING[dtype]
    d = empty(x.shape, dtype, x.size)
    given = (
        length, beside, same, flat(x, x.shape, dtype), top.ravel(), full, sums.ravel(),
        place.ravel(), d.ravel(),
    )  # fmt: skip
    share(_class_slopes, top.size // beside, x.size, *given)
    return d


_INTEGERS = np.dtype(np.int64)
_NOWHERE = np.zeros(0, np.int64)
_NOTHING = {dtype: np.zeros(0, dtype) for dtype in DTYPES}

#: The functions by the names of `ops.fused`.
FUNCTIONS = {
    "shares": supported(_slopes),
    "class_total": supported(_total),
    "class_slopes_of_lines": supported(_slopes),
}
