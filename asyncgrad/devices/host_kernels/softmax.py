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


@kernel("ii iii xxx p x y")
def _class_slopes(
    low: int, high: int, length: int, beside: int, picking: int, x_: Any, top_: Any,
    share_: Any, place_: Any, taken_: Any, d_: Any,
) -> None:  # fmt: skip
    """exp(x - top) times a share for each line, minus what is taken at a place of each line."""
    for line in range(low, high):
        if beside == 1:
            x = x_[line * length : (line + 1) * length]
            d = d_[line * length : (line + 1) * length]
            top = top_[line]
            share = share_[line]
            for at in range(length):
                d[at] = exp(x[at] - top) * share
            if picking and 0 <= place_[line] < length:
                d[place_[line]] -= taken_[line]
            continue
        tops = top_[line * beside : (line + 1) * beside]
        shares = share_[line * beside : (line + 1) * beside]
        for row in range(line * length, (line + 1) * length):
            x = x_[row * beside : (row + 1) * beside]
            d = d_[row * beside : (row + 1) * beside]
            for at in range(beside):
                d[at] = exp(x[at] - tops[at]) * shares[at]
            if picking:
                places = place_[line * beside : (line + 1) * beside]
                taken = taken_[line * beside : (line + 1) * beside]
                for at in range(beside):
                    if places[at] == row - line * length:
                        d[at] -= taken[at]


def _slopes(x: Any, top: Any, shares: Any, dim: int, place: Any = None, taken: Any = None) -> Any:
    """exp(x - top) times shares of lines; minus what is taken at places of lines."""
    shape, dtype = x.shape, x.dtype
    if dtype not in DTYPES or not x.size:
        raise Unfit
    before, length, beside = prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])
    of_lines = (*shape[:dim], 1, *shape[dim + 1 :])
    picking = place is not None
    if place is None:
        place, taken = _NOWHERE, shares
    elif place.dtype != np.int64 or place.size != top.size or not place.flags.carray:
        raise Unfit
    elif taken.size == 1:
        taken = np.full(of_lines, taken, dtype)
    d = empty(shape, dtype, x.size)
    given = (
        length, beside, picking, flat(x, shape, dtype), flat(top, of_lines, dtype),
        flat(shares, of_lines, dtype), place.ravel(), flat(taken, of_lines, dtype), d.ravel(),
    )  # fmt: skip
    share(_class_slopes, before, x.size, *given)
    return d


_NOWHERE = np.zeros(0, np.int64)

#: The functions by the names of `ops.fused`.
FUNCTIONS = {
    "shares": supported(_slopes),
    "class_slopes_of_lines": supported(_slopes),
}
