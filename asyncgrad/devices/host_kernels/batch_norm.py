"""Norms over a batch, compiled by Numba.

What a channel has in each image is copied to one place first: a loop over it has the same length
for small images and large ones, and the copy stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from asyncgrad.aliases import Array
from asyncgrad.devices.host_kernels.calls import DTYPES, PIECE, empty
from asyncgrad.devices.host_kernels.compiling import compiled, kernel
from asyncgrad.devices.host_kernels.functions import ADDED, line_squares, line_sum
from asyncgrad.devices.host_kernels.vectors import address, copy
from asyncgrad.devices.pieces import in_pieces

#: Channels are computed if they have so many elements beside one another.
_BESIDE = 8

_inner: Any = compiled()


@_inner
def _sum(x_: Any, start: int, apart: int, runs: int, beside: int) -> Any:
    """The sum of `runs` runs of `beside` elements, whose first ones are so far apart."""
    total = 0.0
    for run in range(runs):
        begin = start + run * apart
        total += line_sum(x_[begin : begin + beside])
    return total


@_inner
def _squares(x_: Any, start: int, apart: int, runs: int, beside: int, mean: Any) -> Any:
    """The sum of the squares of the differences from the mean."""
    total = 0.0
    for run in range(runs):
        begin = start + run * apart
        total += line_squares(x_[begin : begin + beside], mean)
    return total


@_inner
def _products(
    g_: Any, x_: Any, start: int, apart: int, runs: int, beside: int, mean: Any
) -> tuple[Any, Any]:
    """The sum of `g_`, and that of the products with the differences from the mean."""
    plain = product = 0.0
    for run in range(runs):
        for first in range(0, beside, ADDED):
            begin = start + run * apart + first
            end = begin + min(ADDED, beside - first)
            g, x = g_[begin:end], x_[begin:end]
            part = both = x_.dtype.type(0)
            for at in range(len(g)):
                part += g[at]
                both += g[at] * (x[at] - mean)
            plain += part
            product += both
    return plain, product


@_inner
def _scaled(
    x_: Any, start: int, apart: int, runs: int, beside: int, mean: Any, scale: Any, bias: Any,
    y_: Any, there: int, distance: int,
) -> None:  # fmt: skip
    """Write the differences from the mean, scaled, to runs that begin at `there`."""
    for run in range(runs):
        begin, to = start + run * apart, there + run * distance
        x, y = x_[begin : begin + beside], y_[to : to + beside]
        for at in range(beside):
            y[at] = (x[at] - mean) * scale + bias


@_inner
def _slopes(
    g_: Any, x_: Any, start: int, apart: int, runs: int, beside: int, mean: Any, scale: Any,
    shift: Any, slope: Any, d_: Any, there: int, distance: int,
) -> None:  # fmt: skip
    """Write the gradient by the input to runs that begin at `there`."""
    for run in range(runs):
        begin, to = start + run * apart, there + run * distance
        g, x, d = g_[begin : begin + beside], x_[begin : begin + beside], d_[to : to + beside]
        for at in range(beside):
            d[at] = scale * (g[at] - shift - (x[at] - mean) * slope)


@_inner
def _gather(x_: Any, start: int, apart: int, runs: int, beside: int, own: Any) -> None:
    """Copy runs to one place."""
    for run in range(runs):
        copy(x_, address(x_, start + run * apart), address(own, run * beside), beside)


@kernel("iiiii n xxx yyy")
def _normalise(
    low: int, high: int, runs: int, beside: int, count: int, eps: Any, x_: Any, weight_: Any,
    bias_: Any, y_: Any, mean_: Any, variance_: Any,
) -> None:  # fmt: skip
    """Normalise channels `low` to `high` of `count`, which have `beside` elements in each image."""
    T, length, apart = x_.dtype.type, runs * beside, count * beside
    own = np.empty(length if beside < ADDED else 0, x_.dtype)
    for channel in range(low, high):
        start = channel * beside
        bias = bias_[channel]
        if beside < ADDED:
            _gather(x_, start, apart, runs, beside, own)
            mean = T(_sum(own, 0, 0, 1, length) / length)
            variance = T(_squares(own, 0, 0, 1, length, mean) / length)
            scale = weight_[channel] / np.sqrt(variance + eps)
            _scaled(own, 0, beside, runs, beside, mean, scale, bias, y_, start, apart)
        else:
            mean = T(_sum(x_, start, apart, runs, beside) / length)
            variance = T(_squares(x_, start, apart, runs, beside, mean) / length)
            scale = weight_[channel] / np.sqrt(variance + eps)
            _scaled(x_, start, apart, runs, beside, mean, scale, bias, y_, start, apart)
        mean_[channel], variance_[channel] = mean, variance


@kernel("iiiii n xxxxx yyy")
def _gradients(
    low: int, high: int, runs: int, beside: int, count: int, eps: Any, g_: Any, x_: Any,
    weight_: Any, mean_: Any, variance_: Any, d_: Any, by_weight_: Any, by_bias_: Any,
) -> None:  # fmt: skip
    """The gradients by the input, the weight and the bias; `g_` is that of the output."""
    T, length, apart = x_.dtype.type, runs * beside, count * beside
    held = length if beside < ADDED else 0
    slopes, own = np.empty(held, x_.dtype), np.empty(held, x_.dtype)
    for channel in range(low, high):
        start = channel * beside
        mean, inverse = mean_[channel], T(1) / np.sqrt(variance_[channel] + eps)
        if beside < ADDED:
            _gather(g_, start, apart, runs, beside, slopes)
            _gather(x_, start, apart, runs, beside, own)
            plain, product = _products(slopes, own, 0, 0, 1, length, mean)
        else:
            plain, product = _products(g_, x_, start, apart, runs, beside, mean)
        by_weight, by_bias = T(product) * inverse, T(plain)
        scale, shift = weight_[channel] * inverse, by_bias / T(length)
        slope = by_weight * inverse / T(length)
        if beside < ADDED:
            _slopes(
                slopes, own, 0, beside, runs, beside, mean, scale, shift, slope, d_, start, apart
            )
        else:
            _slopes(g_, x_, start, apart, runs, beside, mean, scale, shift, slope, d_, start, apart)
        by_weight_[channel], by_bias_[channel] = by_weight, by_bias


def _call(compute: Any, eps: float, x: Array, *others: Array) -> Any:
    """Call a kernel with arrays of which the first ones have the shape of `x`, and others channels.

    Returns:
        An array of that shape and two of channels; NotImplemented if NumPy has to compute them.
    """
    runs, count, beside = x.shape[0], x.shape[1], prod(x.shape[2:])
    if beside < _BESIDE or x.dtype not in DTYPES or not x.size:
        return NotImplemented
    arrays = (x, *others)
    for array in arrays:
        fits = array.dtype is x.dtype and array.size in (count, x.size)
        if not fits or not array.flags.aligned:
            return NotImplemented
    outs = empty(x.shape, x.dtype, x.size), np.empty(count, x.dtype), np.empty(count, x.dtype)
    flat = [np.ascontiguousarray(array).reshape(-1) for array in (*arrays, *outs)]
    step = max(1, PIECE // (runs * beside))

    def of_channels(low: int) -> None:
        compute(low, min(low + step, count), runs, beside, count, eps, *flat)

    in_pieces(of_channels, range(0, count, step))
    return outs


def batch_norm(x: Array, weight: Array, bias: Array, eps: float) -> Any:
    """See `ops/table/normalisation.py`."""
    return _call(_normalise, eps, x, weight, bias)


def batch_norm_gradient(
    g: Array, x: Array, weight: Array, mean: Array, variance: Array, eps: float
) -> Any:
    """See `ops/table/normalisation.py`."""
    return _call(_gradients, eps, g, x, weight, mean, variance)


#: The functions by the names of `ops.fused`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "batch_norm": batch_norm,
    "batch_norm_gradient": batch_norm_gradient,
}
