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


@kernel("ii iii xx p x y")
def _class_slopes(
    low: int, high: int, length: int, beside: int, picking: int, x_: Any, sums_: Any,
    place_: Any, factor_: Any, d_: Any,
) -> None:  # fmt: skip
    """The softmax times a factor for each line, minus that at a place of each line."""
    for line in range(low, high):
        if beside == 1:
            x = x_[line * length : (line + 1) * length]
            d = d_[line * length : (line + 1) * length]
            log_sum = sums_[line]
            factor = factor_[line]
            for at in range(length):
                d[at] = exp(x[at] - log_sum) * factor
            if picking and 0 <= place_[line] < length:
                d[place_[line]] -= factor
            continue
        log_sums = sums_[line * beside : (line + 1) * beside]
        factors = factor_[line * beside : (line + 1) * beside]
        for row in range(line * length, (line + 1) * length):
            x = x_[row * beside : (row + 1) * beside]
            d = d_[row * beside : (row + 1) * beside]
            for at in range(beside):
                d[at] = exp(x[at] - log_sums[at]) * factors[at]
            if picking:
                places = place_[line * beside : (line + 1) * beside]
                for at in range(beside):
                    if places[at] == row - line * length:
                        d[at] -= factors[at]


def _slopes(x: Any, sums: Any, factor: Any, dim: int, place: Any = None) -> Any:
    """The softmax times factors of lines, or one factor; minus them at places of lines."""
    shape, dtype = x.shape, x.dtype
    if dtype not in DTYPES or not x.size:
        raise Unfit
    before, length, beside = prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])
    of_lines = (*shape[:dim], 1, *shape[dim + 1 :])
    if factor.size == 1:
        factor = np.full(of_lines, factor, dtype)
    picking = place is not None
    if place is None:
        place = _NOWHERE
    elif place.dtype != np.int64 or place.size != sums.size or not place.flags.carray:
        raise Unfit
    d = empty(shape, dtype, x.size)
    given = (
        length, beside, picking, flat(x, shape, dtype), flat(sums, of_lines, dtype),
        place.ravel(), flat(factor, of_lines, dtype), d.ravel(),
    )  # fmt: skip
    share(_class_slopes, before, x.size, *given)
    return d


_NOWHERE = np.zeros(0, np.int64)

#: The functions by the names of `ops.fused`.
FUNCTIONS = {
    "one_factor": supported(lambda x, sums, dim, factor: _slopes(x, sums, factor, dim)),
    "factors": supported(_slopes),
    "class_slopes_of_lines": supported(_slopes),
}
