"""Norms over the last axis on the host, with the gradients by weight and bias.

Each kernel goes through rows `low` to `high` of arrays that are passed as one line.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np

from asyncgrad.devices.host_kernels.calls import (
    DTYPES,
    Unfit,
    empty,
    flat,
    ranges,
    share,
    supported,
)
from asyncgrad.devices.host_kernels.compiling import kernel
from asyncgrad.devices.host_kernels.functions import ADDED, line_squares, line_sum
from asyncgrad.devices.pieces import in_pieces

#: Rows whose gradients by weights are added up in the arrays' dtype.
_ROWS = 32


@kernel("ii ii n xxx yyy")
def _norm(
    low: int, high: int, length: int, centred: int, eps: Any, x_: Any, weight_: Any, bias_: Any,
    y_: Any, mean_: Any, inverse_: Any,
) -> None:  # fmt: skip
    """Rows divided by the root of their mean square, which is that of the centred ones or not."""
    T = x_.dtype.type
    for line in range(low, high):
        x = x_[line * length : (line + 1) * length]
        y = y_[line * length : (line + 1) * length]
        mean = T(line_sum(x) / length) if centred else T(0)
        inverse = T(1) / sqrt(T(line_squares(x, mean) / length) + eps)
        for at in range(length):
            y[at] = (x[at] - mean) * inverse * weight_[at] + bias_[at]
        mean_[line] = mean
        inverse_[line] = inverse


@kernel("ii iii xxxxx y s")
def _norm_gradient(
    low: int, high: int, length: int, columns: int, centred: int, g_: Any, x_: Any, mean_: Any,
    inverse_: Any, weight_: Any, d_: Any, sums_: Any,
) -> None:  # fmt: skip
    """The gradient by rows, and what is added to those by weight and bias if there are columns."""
    T = x_.dtype.type
    by_weight = np.empty(columns, x_.dtype)
    by_bias = np.empty(columns, x_.dtype)
    for first in range(low, high, _ROWS):
        by_weight[:] = T(0)
        by_bias[:] = T(0)
        for line in range(first, min(first + _ROWS, high)):
            mean = mean_[line]
            inverse = inverse_[line]
            total = 0.0
            aligned = 0.0
            for start in range(0, length, ADDED):
                size = min(ADDED, length - start)
                at_line = line * length + start
                g = g_[at_line : at_line + size]
                x = x_[at_line : at_line + size]
                d = d_[at_line : at_line + size]
                weight = weight_[start : start + size]
                part = T(0)
                aligned_part = T(0)
                for at in range(size):
                    # Rounded now: fused with the subtraction below, the product would differ from
                    # the mean of equal ones.
                    weighted = g[at] * weight[at]
                    d[at] = weighted
                    part += weighted
                    aligned_part += weighted * (x[at] - mean)
                total += part
                aligned += aligned_part
            shift = T(total / length) if centred else T(0)
            slope = T(aligned / length) * inverse * inverse
            g = g_[line * length : (line + 1) * length]
            x = x_[line * length : (line + 1) * length]
            d = d_[line * length : (line + 1) * length]
            for at in range(length):
                d[at] = inverse * (d[at] - shift - (x[at] - mean) * slope)
            for at in range(columns):
                by_weight[at] += g[at] * ((x[at] - mean) * inverse)
                by_bias[at] += g[at]
        by_weight_sums = sums_[:columns]
        by_bias_sums = sums_[columns:]
        for at in range(columns):
            by_weight_sums[at] += by_weight[at]
            by_bias_sums[at] += by_bias[at]


def _normalised(x: Any, weight: Any, bias: Any, eps: float, centred: bool) -> tuple[Any, Any, Any]:
    """The rows, their means, and the inverses of their deviations."""
    shape, dtype = x.shape, x.dtype
    if dtype not in DTYPES or not x.size:
        raise Unfit
    rows, length = shape
    y, mean, inverse = empty(shape, dtype, x.size), *np.empty((2, rows, 1), dtype)
    given = (
        length, centred, eps, flat(x, shape, dtype),
        _level(1, length, dtype) if weight is None else flat(weight, (length,), dtype),
        _level(0, length, dtype) if bias is None else flat(bias, (length,), dtype),
        y.ravel(), mean.ravel(), inverse.ravel(),
    )  # fmt: skip
    share(lambda low, high: _norm(low, high, *given), rows, x.size)
    return y, mean, inverse


def _layer_norm(x: Any, dim: int, weight: Any, bias: Any, eps: float, kept: list[Any]) -> Any:
    y, mean, inverse = _normalised(x, weight, bias, eps, True)
    kept.append((mean, inverse))
    return y


def _rms_norm(x: Any, dim: int, weight: Any, eps: float, kept: list[Any]) -> Any:
    y, _, inverse = _normalised(x, weight, None, eps, False)
    kept.append(inverse)
    return y


def _layer_norm_gradient(
    g: Any, x: Any, mean: Any, inverse: Any, dim: int, weight: Any, sums: list[Any] | None,
    centred: bool = True,
) -> Any:  # fmt: skip
    """The gradient by `x`; those by weight and bias are appended to a list."""
    shape, dtype = x.shape, x.dtype
    if dtype not in DTYPES or not x.size:
        raise Unfit
    rows, length = shape
    columns = 0 if sums is None else length
    parts = ranges(rows, x.size)
    given = (
        flat(g, shape, dtype), flat(x, shape, dtype), flat(mean, (rows, 1), dtype),
        flat(inverse, (rows, 1), dtype),
        _level(1, length, dtype) if weight is None else flat(weight, (length,), dtype),
    )  # fmt: skip
    d = empty(shape, dtype, x.size)
    own = np.zeros((len(parts), 2 * columns))

    def compute(piece: int) -> None:
        _norm_gradient(*parts[piece], length, columns, centred, *given, d.ravel(), own[piece])

    in_pieces(compute, range(len(parts)))
    if sums is not None:
        total = own.sum(axis=0).astype(dtype)
        sums.append((total[:length], total[length:]))
    return d


def _rms_gradient(
    g: Any, x: Any, inverse: Any, dim: int, weight: Any, sums: list[Any] | None
) -> Any:
    """The gradient by `x` of a norm that subtracts no mean."""
    mean = np.zeros(inverse.shape, x.dtype)
    return _layer_norm_gradient(g, x, mean, inverse, dim, weight, sums, False)


@lru_cache(64)
def _level(number: int, length: int, dtype: Any) -> Any:
    return np.full(length, number, dtype)


#: The functions by the names of `ops.fused`.
FUNCTIONS = {
    "layer_norm": supported(_layer_norm),
    "rms_norm": supported(_rms_norm),
    "layer_norm_gradient": supported(_layer_norm_gradient),
    "rms_gradient": supported(_rms_gradient),
}
