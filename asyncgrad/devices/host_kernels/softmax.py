"""Softmax, its logarithm and the slopes of cross entropy on the host, along any axis.

Each kernel goes through rows `low` to `high` of arrays that are passed as one line.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, prod
from typing import Any

import numpy as np

from asyncgrad.devices.host_kernels.calls import DTYPES, Unfit, empty, flat, share, supported
from asyncgrad.devices.host_kernels.compiling import compiled, kernel
from asyncgrad.devices.host_kernels.functions import exp, line_dot, line_sum, order, value

_SOFTMAX, _LOG_SOFTMAX, _LOG_SUMS = range(3)


@kernel("ii ii x yy")
def _softmax(low: int, high: int, length: int, how: int, x_: Any, y_: Any, sums_: Any) -> None:
    """Softmax, its logarithm or the logarithm of the sum of exponentials, along the last axis."""
    T = x_.dtype.type
    own = np.empty(length, x_.dtype)
    for line in range(low, high):
        x = x_[line * length : (line + 1) * length]
        y = y_[line * length : (line + 1) * length] if how != _LOG_SUMS else y_
        peak = order(T(-np.inf))
        for at in range(length):
            peak = max(peak, order(x[at]))
        top = value(peak)
        if how == _LOG_SOFTMAX:
            # Stored, so that the greatest number, which may be large, is not added to the
            # logarithm of the sum, which is small.
            for at in range(length):
                y[at] = x[at] - top
        shares = y if how == _SOFTMAX else own
        for at in range(length):
            shares[at] = exp(x[at] - top)
        total = line_sum(shares)
        if how == _SOFTMAX:
            inverse = T(1.0 / total)
            for at in range(length):
                y[at] *= inverse
        elif how == _LOG_SUMS:
            sums_[line] = T(log(total)) + top
        else:
            log_total = T(log(total))
            for at in range(length):
                y[at] -= log_total


@kernel("ii ii xx y")
def _softmax_gradient(
    low: int, high: int, length: int, how: int, g_: Any, y_: Any, d_: Any
) -> None:
    """The gradient of softmax, or of its logarithm, along the last axis."""
    T = g_.dtype.type
    for line in range(low, high):
        g = g_[line * length : (line + 1) * length]
        y = y_[line * length : (line + 1) * length]
        d = d_[line * length : (line + 1) * length]
        if how == _SOFTMAX:
            total = T(line_dot(g, y))
            for at in range(length):
                d[at] = y[at] * (g[at] - total)
        else:
            total = T(line_sum(g))
            for at in range(length):
                d[at] = g[at] - exp(y[at]) * total


#: So many lines that lie side by side are computed at a time, and the fewest for which that pays.
_WIDTH, _FEWEST = 256, 8


@compiled()
def _lines_of(group: int, beside: int) -> tuple[int, int, int]:
    """Before which axis a group of lines is, its first line, and how many it has."""
    groups = (beside + _WIDTH - 1) // _WIDTH
    first = group % groups * _WIDTH
    return group // groups, first, min(_WIDTH, beside - first)


@kernel("ii iii x yy")
def _softmax_beside(
    low: int, high: int, length: int, beside: int, how: int, x_: Any, y_: Any, sums_: Any
) -> None:
    """What `_softmax` computes, along another axis; `low` and `high` are groups of lines."""
    T = x_.dtype.type
    top_ = np.empty(_WIDTH, x_.dtype)
    for group in range(low, high):
        outer, first, width = _lines_of(group, beside)
        start = outer * length * beside + first
        top = top_[:width]
        total = sums_[outer * beside + first : outer * beside + first + width]
        top[:] = T(-np.inf)
        total[:] = T(0)
        for place in range(length):
            x = x_[start + place * beside : start + place * beside + width]
            for at in range(width):
                top[at] = top[at] if top[at] > x[at] else x[at]
        for place in range(length):
            x = x_[start + place * beside : start + place * beside + width]
            if how == _LOG_SUMS:
                for at in range(width):
                    total[at] += exp(x[at] - top[at])
                continue
            y = y_[start + place * beside : start + place * beside + width]
            for at in range(width):
                part = x[at] - top[at]
                share = exp(part)
                y[at] = share if how == _SOFTMAX else part
                total[at] += share
        for at in range(width):
            total[at] = T(1) / total[at] if how == _SOFTMAX else T(log(total[at]))
        if how == _LOG_SUMS:
            for at in range(width):
                total[at] += top[at]
            continue
        for place in range(length):
            y = y_[start + place * beside : start + place * beside + width]
            if how == _SOFTMAX:
                for at in range(width):
                    y[at] *= total[at]
            else:
                for at in range(width):
                    y[at] -= total[at]


@kernel("ii iii xx y")
def _softmax_gradient_beside(
    low: int, high: int, length: int, beside: int, how: int, g_: Any, y_: Any, d_: Any
) -> None:
    """What `_softmax_gradient` computes, along another axis."""
    T = g_.dtype.type
    total_ = np.empty(_WIDTH, g_.dtype)
    for group in range(low, high):
        outer, first, width = _lines_of(group, beside)
        start = outer * length * beside + first
        total = total_[:width]
        total[:] = T(0)
        for place in range(length):
            g = g_[start + place * beside : start + place * beside + width]
            y = y_[start + place * beside : start + place * beside + width]
            if how == _SOFTMAX:
                for at in range(width):
                    total[at] += g[at] * y[at]
            else:
                for at in range(width):
                    total[at] += g[at]
        for place in range(length):
            g = g_[start + place * beside : start + place * beside + width]
            y = y_[start + place * beside : start + place * beside + width]
            d = d_[start + place * beside : start + place * beside + width]
            if how == _SOFTMAX:
                for at in range(width):
                    d[at] = y[at] * (g[at] - total[at])
            else:
                for at in range(width):
                    d[at] = g[at] - exp(y[at]) * total[at]


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


def _parts(x: Any, dim: int) -> tuple[tuple[int, ...], int, int, int]:
    """The shape of what belongs to lines, and how many elements come before and after the axis."""
    shape = x.shape
    if x.dtype not in DTYPES or not x.size:
        raise Unfit
    before, beside = prod(shape[:dim]), prod(shape[dim + 1 :])
    return (*shape[:dim], 1, *shape[dim + 1 :]), before, shape[dim], beside


def _along_axis(
    last: Any, side: Any, before: int, length: int, beside: int, given: tuple[Any, ...], size: int
) -> None:
    """Call a kernel for lines along the last axis, or one for those that lie side by side."""
    if beside == 1:
        share(lambda low, high: last(low, high, length, *given), before, size)
    elif beside < _FEWEST:
        raise Unfit
    else:
        groups = before * -(-beside // _WIDTH)
        share(lambda low, high: side(low, high, length, beside, *given), groups, size)


def _along(how: int) -> Callable[..., Any]:
    """Softmax, its logarithm or the logarithm of the sum of exponentials, along any axis."""

    def call(x: Any, dim: int) -> Any:
        of_lines, before, length, beside = _parts(x, dim)
        shape, dtype = x.shape, x.dtype
        sums = np.empty(of_lines, dtype)
        out = sums if how == _LOG_SUMS else empty(shape, dtype, x.size)
        given = how, flat(x, shape, dtype), out.ravel(), sums.ravel()
        _along_axis(_softmax, _softmax_beside, before, length, beside, given, x.size)
        return out

    return call


def _gradient_along(how: int) -> Callable[..., Any]:
    """The gradient of softmax, or of its logarithm, along any axis."""

    def call(g: Any, y: Any, dim: int) -> Any:
        _, before, length, beside = _parts(y, dim)
        shape, dtype = y.shape, y.dtype
        d = empty(shape, dtype, y.size)
        given = how, flat(g, shape, dtype), flat(y, shape, dtype), d.ravel()
        _along_axis(
            _softmax_gradient, _softmax_gradient_beside, before, length, beside, given, y.size
        )
        return d

    return call


def _slopes(x: Any, sums: Any, factor: Any, dim: int, place: Any = None) -> Any:
    """The softmax times factors of lines, or one factor; minus them at places of lines."""
    of_lines, before, length, beside = _parts(x, dim)
    shape, dtype = x.shape, x.dtype
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
    share(lambda low, high: _class_slopes(low, high, *given), before, x.size)
    return d


_NOWHERE = np.zeros(0, np.int64)

#: The functions by the names of `ops.fused`.
FUNCTIONS = {
    "softmax": supported(_along(_SOFTMAX)),
    "log_softmax": supported(_along(_LOG_SOFTMAX)),
    "log_sums": supported(_along(_LOG_SUMS)),
    "softmax_gradient": supported(_gradient_along(_SOFTMAX)),
    "log_softmax_gradient": supported(_gradient_along(_LOG_SOFTMAX)),
    "one_factor": supported(lambda x, sums, dim, factor: _slopes(x, sums, factor, dim)),
    "factors": supported(_slopes),
    "class_slopes_of_lines": supported(_slopes),
}
