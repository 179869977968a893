"""The slopes of cross entropy on the host, along any axis.

The kernel goes through rows `low` to `high` of arrays that are passed as one line.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from asyncgrad.devices.host_kernels.calls import DTYPES, Unfit, empty, flat, share, supported
from asyncgrad.devices.host_kernels.compiling import kernel
from asyncgrad.devices.host_kernels.functions import exp


@kernel("ii ii n xxxx p y")
def _class_slopes(
    low: int, high: int, length: int, beside: int, same: float, x_: Any, top_: Any, full_: Any,
    sums_: Any, place_: Any, d_: Any,
) -> None:  # fmt: skip
    """exp(x - top) times what a line has in full, which is the same for all unless they are given.

    With places it is also divided by exp(sums), and what is full is subtracted at these.
    """
    alike, picking = len(full_) == 0, len(place_) > 0
    shares = np.empty(beside, x_.dtype)
    for line in range(low, high):
        first = line * beside
        for at in range(beside):
            full = same if alike else full_[first + at]
            shares[at] = full / exp(sums_[first + at]) if picking else full
        if beside == 1:
            x = x_[line * length : (line + 1) * length]
            d = d_[line * length : (line + 1) * length]
            top, share = top_[line], shares[0]
            for at in range(length):
                d[at] = exp(x[at] - top) * share
        else:
            tops = top_[first : first + beside]
            for row in range(line * length, (line + 1) * length):
                x = x_[row * beside : (row + 1) * beside]
                d = d_[row * beside : (row + 1) * beside]
                for at in range(beside):
                    d[at] = exp(x[at] - tops[at]) * shares[at]
        if picking:
            for at in range(beside):
                place = place_[first + at]
                if 0 <= place < length:
                    full = same if alike else full_[first + at]
                    d_[(line * length + place) * beside + at] -= full


def _slopes(x: Any, top: Any, full: Any, dim: int, sums: Any = None, place: Any = None) -> Any:
    """exp(x - top) times shares of lines; with places, as `_class_slopes` says."""
    dtype, length, beside = x.dtype, x.shape[dim], prod(x.shape[dim + 1 :])
    if dtype not in DTYPES or not x.size or top.size * length != x.size:
        raise Unfit
    same = 0.0
    if place is None:
        sums, place = top, _NOWHERE
    elif place.dtype is not _INTEGERS or place.size != top.size or not place.flags.carray:
        raise Unfit
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
    "class_slopes_of_lines": supported(_slopes),
}
