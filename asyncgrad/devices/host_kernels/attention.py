"""Attention's scores on the host: kernels that write over them.

Each one goes through rows `low` to `high` of arrays that are passed as one line.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from asyncgrad.devices.host_kernels.compiling import compiled, kernel
from asyncgrad.devices.host_kernels.functions import exp, order, value


@compiled()
def _score(product: Any, scale: Any, mask: Any) -> Any:
    """A score of a product of query and key: what is masked is masked whatever the product is."""
    score = product * scale + mask
    return mask if mask == -np.inf else score


@compiled()
def _mask_of(line: int, mask_: Any, rows: int, keys: int, of_matrix: int, of_row: int) -> Any:
    """What is added to the scores of a row."""
    start = line // rows * of_matrix + line % rows * of_row
    return mask_[start : start + keys]


@kernel("ii iiii nn x yy")
def _attention_shares(
    low: int, high: int, rows: int, keys: int, of_matrix: int, of_row: int, scale: Any,
    lowest: Any, mask_: Any, x_: Any, sums_: Any,
) -> None:  # fmt: skip
    """Replace scores, before they are scaled and masked, by their shares."""
    T = x_.dtype.type
    for line in range(low, high):
        x = x_[line * keys : (line + 1) * keys]
        mask = _mask_of(line, mask_, rows, keys, of_matrix, of_row)
        peak = order(lowest)
        for at in range(keys):
            score = _score(x[at], scale, mask[at])
            x[at] = score
            peak = max(peak, order(score))
        top = value(peak)
        total = T(0)
        for at in range(keys):
            share = exp(x[at] - top)
            x[at] = share
            total += share
        # At least 1, unless all is masked; or NaN, which `max` would drop.
        total += max(T(1) - total, T(0))
        inverse = T(1) / total
        for at in range(keys):
            x[at] *= inverse
        sums_[line] = T(log(total)) + top


@kernel("ii iiii n xx yy")
def _attention_slopes(
    low: int, high: int, rows: int, keys: int, of_matrix: int, of_row: int, scale: Any,
    mask_: Any, sums_: Any, x_: Any, d_: Any,
) -> None:  # fmt: skip
    """Replace scores by their shares, and the shares' gradient by that of the products."""
    T = x_.dtype.type
    for line in range(low, high):
        x = x_[line * keys : (line + 1) * keys]
        d = d_[line * keys : (line + 1) * keys]
        mask = _mask_of(line, mask_, rows, keys, of_matrix, of_row)
        of_line = sums_[line]
        for at in range(keys):
            x[at] = _score(x[at], scale, mask[at])
        total = T(0)
        product = T(0)
        for at in range(keys):
            x[at] = exp(x[at] - of_line)
            total += x[at]
            product += x[at] * d[at]
        # Large scores are rounded when the logarithm is subtracted: the shares' sum is not quite 1,
        # and where one of them is nearly 1 that difference would be the gradient.
        inverse = T(0) if total == T(0) else T(1) / total
        product *= inverse
        for at in range(keys):
            share = x[at] * inverse
            x[at] = share
            d[at] = (d[at] - product) * share * scale


def attention_shares_over(
    scores: Any, mask: Any, steps: tuple[int, int], scale: float, lowest: float
) -> Any:
    """Replace products of queries and keys by shares; return the logarithms of their sums.

    `steps` says how far the masks of two matrices, and of two rows, lie apart in the mask's memory,
    and `lowest` is the least number that is the greatest of a row.
    """
    *_, rows, keys = scores.shape
    sums = np.empty((*scores.shape[:-1], 1), scores.dtype)
    _attention_shares(
        0, sums.size, rows, keys, *steps, scale, lowest, _line(mask),
        _own(scores), sums.ravel(),
    )  # fmt: skip
    return sums


def attention_slopes_over(
    scores: Any, slopes: Any, sums: Any, mask: Any, steps: tuple[int, int], scale: float
) -> None:
    """Replace products of queries and keys by shares, and their gradient by the products'."""
    *_, rows, keys = scores.shape
    _attention_slopes(
        0, sums.size, rows, keys, *steps, scale, _line(mask), sums.reshape(-1),
        _own(scores), _own(slopes),
    )  # fmt: skip


def _line(mask: Any) -> Any:
    """A mask as one line, whose memory may be that of a part of a file."""
    return mask.ravel() if mask.flags.aligned else mask.copy().ravel()


def _own(array: Any) -> Any:
    """A contiguous array as one line: no copy, which would be written to in its place."""
    assert array.flags.c_contiguous
    return array.ravel()


#: The functions by the names that `ops` calls them by.
FUNCTIONS = {
    "attention_shares_over": attention_shares_over,
    "attention_slopes_over": attention_slopes_over,
}
