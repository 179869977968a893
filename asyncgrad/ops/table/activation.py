"""Activation functions and softmax."""

from __future__ import annotations

import functools
import math
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.lib.introspect import opt_func_info

from asyncgrad.core.variable import Variable
from asyncgrad.devices.pointwise import NORMAL_CDF
from asyncgrad.ops import batch_rules
from asyncgrad.ops.fused import FEW, along, bounded, elementwise, inverted
from asyncgrad.ops.op import compiled_or, fused, operation, unary
from asyncgrad.ops.special import special_function
from asyncgrad.types import Array, Library, Namespace, Value

#: Longer vectors of ones are not kept.
_LONG = 1 << 15
#: Rows up to this length are added up by a product with a matrix of ones: NumPy takes longer for a
#: step of its own for each row.
_SHORT = 8
#: BLAS computes the products of rows from this length on one by one.
_LONG_ROWS = 64
_HAS_SCIPY = find_spec("scipy") is not None
_SQRT_HALF_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _has_vectors() -> bool:
    """Whether NumPy computes `expm1` and `log1p` of float32 with vectors.

    It does so on Linux, on processors with AVX-512. Elsewhere it calls the C library for each
    number.
    """
    found = opt_func_info(func_name="^expm1$", signature="float32").get("expm1", {})
    used = [each["current"] for each in found.values()]
    return sys.platform == "linux" and bool(used) and "baseline" not in "".join(used)


VECTORS = _has_vectors()
#: For fewer rows, `reduceat` takes longer than `reduce`.
_ROWS = 32


def at_most(xp: Library, out: Array | None, x: Array, limit: float) -> Any:
    """The elements, bounded from above by a number."""
    return bounded(xp.minimum, x, limit, out)


def at_least(xp: Library, out: Array | None, x: Array, limit: float) -> Any:
    """The elements, bounded from below by a number."""
    return bounded(xp.maximum, x, limit, out)


def sigmoid(xp: Library, out: Array | None, x: Array) -> Any:
    """1 / (1 + exp(-x))."""
    e = xp.negative(x, out)
    xp.exp(e, e)
    xp.add(e, 1, e)
    return inverted(xp, e)


@elementwise()
def _leaky_relu(xp: Library, out: Array | None, x: Array, slope: float) -> Any:
    if 0 < slope <= 1:
        y = xp.multiply(x, slope, out)
        return xp.maximum(x, y, out=y)
    y = xp.multiply(at_most(xp, None, x, 0), slope, out)
    return xp.add(y, at_least(xp, None, x, 0), y)


@elementwise()
def _leaky_slope(xp: Library, out: Array | None, x: Array, slope: float) -> Any:
    """1 for positive elements, the slope for others."""
    positive = x > 0
    d = xp.empty_like(x) if out is None else out
    d[...] = positive
    if 0 <= slope <= 1:
        return at_least(xp, d, d, slope)
    d *= -slope
    d += slope
    d += positive
    return d


@elementwise(2)
def _leaky_gradient(xp: Library, out: Array | None, g: Array, y: Array, slope: float) -> Any:
    d = _leaky_slope(xp, y, slope)
    return xp.multiply(d, g, out)


def _exp_minus_one(xp: Library, x: Array) -> Any:
    """Replace numbers up to 0 by exp(x) - 1.

    With t = tanh(x / 2), here it is 2 * t / (1 - t), up to 3 units in the last place from the true
    value.
    """
    if VECTORS or x.dtype.itemsize != 4 or x.size < FEW or xp.ndarray is not np.ndarray:
        return xp.expm1(x, x)
    xp.multiply(x, 0.5, x)
    xp.tanh(x, x)
    rest = xp.subtract(1, x)
    xp.add(x, x, x)
    return xp.divide(x, rest, x)


@elementwise()
def _elu(xp: Library, out: Array | None, x: Array, alpha: float) -> Any:
    y = _exp_minus_one(xp, at_most(xp, out, x, 0))
    if alpha != 1:
        xp.multiply(y, alpha, y)
    if 0 <= alpha <= 1:
        return xp.maximum(x, y, out=y)
    return xp.add(y, at_least(xp, None, x, 0), y)


@elementwise()
def _elu_slope(xp: Library, out: Array | None, x: Array, alpha: float) -> Any:
    # NaN counts as positive, as in PyTorch.
    d = xp.fmin(x, 0, out)
    xp.exp(d, d)
    if alpha != 1:
        xp.multiply(d, alpha, d)
        xp.copyto(d, 1, where=~(x <= 0))
    return d


@elementwise()
def _silu(xp: Library, out: Array | None, x: Array) -> Any:
    e = xp.negative(x, out)
    xp.exp(e, e)
    xp.add(e, 1, e)
    return xp.divide(x, e, e)


@elementwise(2)
def _silu_gradient(xp: Library, out: Array | None, g: Array, x: Array) -> Any:
    s = sigmoid(xp, None, x)
    d = xp.subtract(1, s, out)
    xp.multiply(d, x, d)
    xp.add(d, 1, d)
    xp.multiply(d, s, d)
    return xp.multiply(d, g, d)


def log_one_plus(xp: Any, x: Any) -> Any:
    """Replace numbers from 0 to 1 by log(1 + x).

    Here the logarithm of the rounded sum is corrected by what the rounding has left out.
    """
    if VECTORS or x.dtype.itemsize != 4 or x.size < FEW or xp.ndarray is not np.ndarray:
        return xp.log1p(x, x)
    total = xp.add(x, 1)
    error = xp.subtract(total, 1)
    xp.subtract(error, x, error)
    xp.divide(error, total, error)
    xp.log(total, total)
    return xp.subtract(total, error, x)


def _has_threshold(x: Array, beta: float, threshold: float) -> bool:
    """Whether softplus may differ from x above the threshold; in float32 it equals x from 18 on."""
    return x.dtype.itemsize > 4 or beta != 1 or threshold < 18


def _softplus(xp: Library, out: Array | None, x: Array, beta: float, threshold: float) -> Any:
    z = x if beta == 1 else x * beta
    y = xp.abs(z, out)
    xp.negative(y, y)
    xp.exp(y, y)
    log_one_plus(xp, y)
    xp.add(y, at_least(xp, None, z, 0), y)
    if beta != 1:
        xp.divide(y, beta, y)
    if _has_threshold(x, beta, threshold):
        xp.copyto(y, x, where=z > threshold)
    return y


@elementwise()
def _softplus_slope(xp: Library, out: Array | None, x: Array, beta: float, threshold: float) -> Any:
    z = x if beta == 1 else x * beta
    d = sigmoid(xp, out, z)
    if _has_threshold(x, beta, threshold):
        xp.copyto(d, 1, where=z > threshold)
    return d


@elementwise()
def _mish(xp: Library, out: Array | None, x: Array) -> Any:
    y = _softplus(xp, out, x, 1, 20)
    xp.tanh(y, y)
    return xp.multiply(y, x, y)


def _mish_slope(F: Namespace, x: Value) -> Any:
    t = F.tanh(F.softplus(x, 1, 20))
    return t + x * F.sigmoid(x) * (1 - t * t)


@elementwise()
def _logsigmoid(xp: Library, out: Array | None, x: Array) -> Any:
    y = xp.abs(x, out)
    xp.negative(y, y)
    xp.exp(y, y)
    log_one_plus(xp, y)
    return xp.subtract(at_most(xp, None, x, 0), y, y)


@elementwise(2)
def _logsigmoid_gradient(xp: Library, out: Array | None, g: Array, x: Array) -> Any:
    """The gradient divided by 1 + exp(x)."""
    d = xp.exp(x, out)
    xp.add(d, 1, d)
    return xp.divide(g, d, d)


def _cdf(xp: Library, out: Array | None, x: Array) -> Any:
    """The normal distribution's cdf: a polynomial in single precision, otherwise SciPy's `ndtr`.

    For few elements one call of SciPy's is faster than the polynomial's many calls.
    """
    if x.dtype.itemsize > 4 or (x.size < FEW and _HAS_SCIPY):
        return special_function("ndtr")(x, out)
    s = xp.square(x)
    p = xp.multiply(s, NORMAL_CDF[0], out)
    for coefficient in NORMAL_CDF[1:-1]:
        xp.add(p, coefficient, p)
        xp.multiply(p, s, p)
    xp.add(p, NORMAL_CDF[-1], p)
    xp.multiply(p, x, p)
    # NumPy's `exp` takes less time than its `tanh`, and is as precise for the smallest results.
    xp.exp(p, p)
    xp.add(p, 1, p)
    return inverted(xp, p)


def _pdf(xp: Library, out: Array | None, x: Array) -> Any:
    p = xp.square(x, out)
    xp.multiply(p, -0.5, p)
    xp.exp(p, p)
    return xp.multiply(p, 1 / math.sqrt(2 * math.pi), p)


@elementwise()
def _gelu(xp: Library, out: Array | None, x: Array) -> Any:
    y = _cdf(xp, out, x)
    return xp.multiply(y, x, y)


def _gelu_slope(xp: Library, out: Array | None, x: Array, cdf: Array) -> Any:
    d = _pdf(xp, out, x)
    xp.multiply(d, x, d)
    return xp.add(d, cdf, d)


@elementwise(2)
def _gelu_gradient(xp: Library, out: Array | None, g: Array, x: Array) -> Any:
    d = _gelu_slope(xp, out, x, _cdf(xp, None, x))
    return xp.multiply(d, g, d)


@elementwise()
def _gelu_leaving_slope(xp: Library, out: Array | None, x: Array) -> Any:
    cdf = _cdf(xp, None, x)
    y = xp.multiply(cdf, x, out)
    x[...] = _gelu_slope(xp, None, x, cdf)
    return y


def _tanh_of_cubic(xp: Library, out: Array | None, x: Array) -> Any:
    t = xp.multiply(x, x, out)
    xp.multiply(t, _SQRT_HALF_PI * _CUBIC, t)
    xp.add(t, _SQRT_HALF_PI, t)
    xp.multiply(t, x, t)
    return xp.tanh(t, t)


@elementwise()
def _gelu_tanh(xp: Library, out: Array | None, x: Array) -> Any:
    y = _tanh_of_cubic(xp, out, x)
    xp.add(y, 1, y)
    xp.multiply(y, x, y)
    return xp.multiply(y, 0.5, y)


def _slope_of_tanh(xp: Library, out: Array | None, x: Array, t: Array) -> Any:
    """The derivative; the tanh of the cubic becomes 1 + tanh."""
    # It is (1 + t) / 2 + u' * (1 - t) * (1 + t) * x / 2 with t = tanh(u). For large elements x * u'
    # would be infinite, and one of the factors between them is 0.
    d = xp.multiply(x, x, out)
    xp.multiply(d, 3 * _SQRT_HALF_PI * _CUBIC, d)
    xp.add(d, _SQRT_HALF_PI, d)
    xp.multiply(d, 1 - t, d)
    xp.add(t, 1, t)
    xp.multiply(d, t, d)
    xp.multiply(d, x, d)
    xp.add(d, t, d)
    return xp.multiply(d, 0.5, d)


@elementwise(2)
def _gelu_tanh_gradient(xp: Library, out: Array | None, g: Array, x: Array) -> Any:
    d = _slope_of_tanh(xp, out, x, _tanh_of_cubic(xp, None, x))
    return xp.multiply(d, g, d)


@elementwise()
def _gelu_tanh_leaving_slope(xp: Library, out: Array | None, x: Array) -> Any:
    y = _tanh_of_cubic(xp, out, x)
    slope = _slope_of_tanh(xp, None, x, y)
    xp.multiply(y, x, y)
    x[...] = slope
    return xp.multiply(y, 0.5, y)


def _gelu_tanh_slope(F: Namespace, x: Value) -> Any:
    t = F.tanh(x * (x * x * (_SQRT_HALF_PI * _CUBIC) + _SQRT_HALF_PI))
    inner = x * x * (3 * _SQRT_HALF_PI * _CUBIC) + _SQRT_HALF_PI
    return (t + 1 + (1 - t) * (t + 1) * x * inner) * 0.5


@elementwise()
def _hardswish(xp: Library, out: Array | None, x: Array) -> Any:
    y = xp.add(x, 3, out)
    at_least(xp, y, at_most(xp, y, y, 6), 0)
    xp.multiply(y, x, y)
    return xp.divide(y, 6, y)


def _hardswish_pull(F: Namespace, g: Value, x: Value) -> Any:
    slope = F.mask(x, (x > -3) & (x < 3)) / 3 + 0.5
    return F.mask(F.where(x < 3, g * slope, g), ~(x <= -3))


def line_maxima(x: Array, dim: int) -> Any:
    """The greatest elements along an axis, with length 1.

    NumPy's `reduceat` takes half the time of its `reduce` for many rows of 2 to 500 elements, but
    thirty times as long for rows of one element.
    """
    if x.__class__ is not np.ndarray:
        return x.max(axis=dim, keepdims=True)
    if x.size >= FEW and dim == x.ndim - 1 and x.flags.c_contiguous:
        length = x.shape[dim]
        if 1 < length <= x.size // _ROWS:
            made = np.maximum.reduceat(x.reshape(-1), np.arange(0, x.size, length))
            return made.reshape(*x.shape[:-1], 1)
    # A method of the array takes 0.4 us longer.
    return np.maximum.reduce(x, axis=dim, keepdims=True)


def line_total(xp: Library, x: Array, dim: int) -> Any:
    """The sums along an axis, with length 1; BLAS computes those of a matrix's rows."""
    if x.__class__ is np.ndarray and dim == 1 and x.ndim == 2:
        return x.dot(ones(x.shape[1], x.dtype))[:, None]
    return xp.add.reduce(x, dim, None, None, True)


def spread_total(xp: Library, x: Array, dim: int) -> Any:
    """Sums as of `line_total`; those of a matrix's short rows are repeated in each place of a row.

    NumPy goes through two such arrays in one go, but row by row where each row has a number.
    """
    if dim == 1 and x.ndim == 2 and 0 < x.shape[1] <= _SHORT and x.__class__ is np.ndarray:
        return x.dot(_known_ones((x.shape[1],) * 2, x.dtype))
    return line_total(xp, x, dim)


def ones(count: int, dtype: Any) -> Any:
    """A vector of ones in host memory, for sums by BLAS; the same again unless it is long."""
    return _known_ones(count, dtype) if count <= _LONG else np.ones(count, dtype)


_known_ones = functools.lru_cache(64)(np.ones)


def _place_of_result(xp: Library, out: Array | None, x: Array) -> Any:
    """Where the result goes: it is contiguous, whatever the operand's strides are."""
    return out if out is not None or x.flags.c_contiguous else xp.empty(x.shape, x.dtype)


@along()
def _softmax(xp: Library, out: Array | None, x: Array, dim: int) -> Any:
    e = xp.subtract(x, line_maxima(x, dim), _place_of_result(xp, out, x))
    xp.exp(e, e)
    return xp.divide(e, spread_total(xp, e, dim), e)


@along(2)
def _softmax_gradient(xp: Library, out: Array | None, g: Array, y: Array, dim: int) -> Any:
    if dim == 1 and g.ndim == 2 and g.shape[1] >= _LONG_ROWS and xp.ndarray is np.ndarray:
        d = xp.subtract(g, np.vecdot(g, y)[:, None], out)
    else:
        d = xp.multiply(g, y, out)
        xp.subtract(g, spread_total(xp, d, dim), d)
    return xp.multiply(d, y, d)


def softmax_pull(F: Namespace, g: Value, out: Value, dim: int) -> Any:
    """The gradient through the softmax, and also its tangent: the derivative is symmetric."""
    weighted = g * out
    return weighted - out * F.sum(weighted, (dim,), True)


@along()
def _log_softmax(xp: Library, out: Array | None, x: Array, dim: int) -> Any:
    y = xp.subtract(x, line_maxima(x, dim), _place_of_result(xp, out, x))
    return xp.subtract(y, xp.log(line_total(xp, xp.exp(y), dim)), y)


@along(2)
def _log_softmax_gradient(xp: Library, out: Array | None, g: Array, y: Array, dim: int) -> Any:
    e = xp.exp(y, out)
    xp.multiply(e, spread_total(xp, g, dim), e)
    return xp.subtract(g, e, e)


def _log_softmax_pull(F: Namespace, g: Value, out: Value, dim: int) -> Any:
    return g - F.exp(out) * F.sum(g, (dim,), True)


def _lines_cost(x: Variable, dim: int) -> int:
    return 5_000 + 2 * int(x._metadata.line_cost)


OPS = (
    unary(
        "leaky_relu",
        lambda F, x, slope: F.leaky_slope(x, slope),
        _leaky_relu,
        cost=3,
        kernel=lambda xp, g, saved: _leaky_gradient(xp, g, *saved),
    ),
    unary("leaky_slope", forward=_leaky_slope, pulls={"x": lambda F, g: F.zero(g)}, linear=True),
    unary("elu", lambda F, x, alpha: F.elu_slope(x, alpha), _elu, cost=3),
    unary(
        "elu_slope",
        lambda F, x, out: F.leaky_slope(-x, 0) * out,
        _elu_slope,
        node="EluBackwardBackward0",
    ),
    unary(
        "silu",
        lambda F, x: F.sigmoid(x) * (1 + x * (1 - F.sigmoid(x))),
        _silu,
        kernel=_silu_gradient,
        cost=(3, 25),
    ),
    unary(
        "softplus",
        lambda F, x, beta, threshold: F.softplus_slope(x, beta, threshold),
        elementwise()(_softplus),
        cost=3,
    ),
    unary(
        "softplus_slope",
        lambda F, out, beta: out * (1 - out) * beta,
        _softplus_slope,
        node="SoftplusBackwardBackward0",
    ),
    unary(
        "mish",
        _mish_slope,
        _mish,
        pulls={"x": compiled_or("mish_gradient", lambda F, g, x: F.chain(g, _mish_slope(F, x)))},
        cost=4,
    ),
    unary(
        "logsigmoid",
        lambda F, x: F.sigmoid(-x),
        _logsigmoid,
        kernel=_logsigmoid_gradient,
        cost=2,
        node="LogSigmoidBackward0",
    ),
    unary("normal_cdf", lambda F, x: F.normal_pdf(x), elementwise()(_cdf)),
    unary("normal_pdf", lambda F, x, out: -x * out, elementwise()(_pdf)),
    unary(
        "gelu",
        lambda F, x: F.normal_cdf(x) + x * F.normal_pdf(x),
        _gelu,
        kernel=_gelu_gradient,
        cost=8,
        leaving_slope=_gelu_leaving_slope,
    ),
    unary(
        "gelu_tanh",
        _gelu_tanh_slope,
        _gelu_tanh,
        kernel=_gelu_tanh_gradient,
        cost=4,
        leaving_slope=_gelu_tanh_leaving_slope,
        node="GeluBackward0",
    ),
    unary(
        "hardswish",
        forward=_hardswish,
        pulls={"x": compiled_or("hardswish_gradient", _hardswish_pull)},
        linear=True,
    ),
    operation(
        "softmax",
        _softmax,
        pulls={"x": fused(_softmax_gradient, softmax_pull)},
        pushes={"x": softmax_pull},
        cost=_lines_cost,
        batch=batch_rules.line,
    ),
    operation(
        "log_softmax",
        _log_softmax,
        pulls={"x": fused(_log_softmax_gradient, _log_softmax_pull)},
        pushes={"x": lambda F, t, out, dim: t - F.sum(F.exp(out) * t, (dim,), True)},
        cost=_lines_cost,
        batch=batch_rules.line,
    ),
)
