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
from asyncgrad.ops import batch_rules, written
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


def sigmoid(F: Namespace, x: Value) -> Any:
    """The logistic function as a formula."""
    return 1 / (F.exp(-x) + 1)


_sigmoid = written.written("sigmoid", sigmoid)


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


def _silu_slope(F: Namespace, x: Value) -> Any:
    s = F.sigmoid(x)
    return (1 + x * (1 - s)) * s


def log_one_plus(xp: Any, out: Any, x: Any) -> Any:
    """log(1 + x) of numbers from 0 to 1.

    Here the logarithm of the rounded sum is corrected by what the rounding has left out.
    """
    if VECTORS or x.dtype.itemsize != 4 or x.size < FEW or xp.ndarray is not np.ndarray:
        return xp.log1p(x, out)
    total = xp.add(x, 1)
    error = xp.subtract(total, 1)
    xp.subtract(error, x, error)
    xp.divide(error, total, error)
    xp.log(total, total)
    return xp.subtract(total, error, out)


def _has_threshold(x: Array, beta: float, threshold: float) -> bool:
    """Whether softplus may differ from x above the threshold; in float32 it equals x from 18 on."""
    return x.dtype.itemsize > 4 or beta != 1 or threshold < 18


def _softplus(xp: Library, out: Array | None, x: Array, beta: float, threshold: float) -> Any:
    z = x if beta == 1 else x * beta
    y = xp.abs(z, out)
    xp.negative(y, y)
    xp.exp(y, y)
    log_one_plus(xp, y, y)
    xp.add(y, at_least(xp, None, z, 0), y)
    if beta != 1:
        xp.divide(y, beta, y)
    if _has_threshold(x, beta, threshold):
        xp.copyto(y, x, where=z > threshold)
    return y


@elementwise()
def _softplus_slope(xp: Library, out: Array | None, x: Array, beta: float, threshold: float) -> Any:
    z = x if beta == 1 else x * beta
    d = _sigmoid(xp, out, z)
    if _has_threshold(x, beta, threshold):
        xp.copyto(d, 1, where=z > threshold)
    return d


def _mish_slope(F: Namespace, x: Value) -> Any:
    t = F.tanh(F.softplus(x, 1, 20))
    return t + x * F.sigmoid(x) * (1 - t * t)


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


def _pdf(F: Namespace, x: Value) -> Any:
    return F.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def _gelu(F: Namespace, x: Value) -> Any:
    return F.normal_cdf(x) * x


def _gelu_slope(F: Namespace, x: Value) -> Any:
    return F.normal_pdf(x) * x + F.normal_cdf(x)


_NORMAL = {"normal_cdf": _cdf, "normal_pdf": _pdf}


def _tanh_of_cubic(F: Namespace, x: Value) -> Any:
    return F.tanh((x * x * (_SQRT_HALF_PI * _CUBIC) + _SQRT_HALF_PI) * x)


def _gelu_tanh(F: Namespace, x: Value) -> Any:
    return (_tanh_of_cubic(F, x) + 1) * x * 0.5


def _gelu_tanh_slope(F: Namespace, x: Value) -> Any:
    """(1 + t) / 2 + u' * (1 - t) * (1 + t) * x / 2 with t = tanh(u)."""
    # For large elements x * u' would be infinite, and one of the factors between them is 0.
    t = _tanh_of_cubic(F, x)
    inner = x * x * (3 * _SQRT_HALF_PI * _CUBIC) + _SQRT_HALF_PI
    more = t + 1
    return (inner * (1 - t) * more * x + more) * 0.5


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
        _silu_slope,
        written.kernel("silu", lambda F, x: x / (F.exp(-x) + 1)),
        kernel=written.slope_kernel("silu_gradient", _silu_slope, helpers={"sigmoid": sigmoid}),
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
        written.kernel(
            "mish", lambda F, x: F.tanh(F.softplus(x, 1, 20)) * x, helpers={"softplus": _softplus}
        ),
        pulls={"x": compiled_or("mish_gradient", lambda F, g, x: F.chain(g, _mish_slope(F, x)))},
        cost=4,
    ),
    unary(
        "logsigmoid",
        lambda F, x: F.sigmoid(-x),
        written.kernel(
            "logsigmoid",
            lambda F, x: F.minimum(x, 0) - F.log_one_plus(F.exp(-F.abs(x))),
            helpers={"log_one_plus": log_one_plus},
        ),
        kernel=written.kernel("logsigmoid_gradient", lambda F, g, x: g / (F.exp(x) + 1), arrays=2),
        cost=2,
        node="LogSigmoidBackward0",
    ),
    unary("normal_cdf", lambda F, x: F.normal_pdf(x), elementwise()(_cdf)),
    unary("normal_pdf", lambda F, x, out: -x * out, written.kernel("normal_pdf", _pdf)),
    unary(
        "gelu",
        _gelu_slope,
        written.kernel("gelu", _gelu, helpers=_NORMAL),
        kernel=written.slope_kernel("gelu_gradient", _gelu_slope, helpers=_NORMAL),
        cost=8,
        leaving_slope=written.kernel("gelu_leaving_slope", _gelu, _gelu_slope, helpers=_NORMAL),
    ),
    unary(
        "gelu_tanh",
        _gelu_tanh_slope,
        written.kernel("gelu_tanh", _gelu_tanh),
        kernel=written.slope_kernel("gelu_tanh_gradient", _gelu_tanh_slope),
        cost=4,
        leaving_slope=written.kernel("gelu_tanh_leaving_slope", _gelu_tanh, _gelu_tanh_slope),
        node="GeluBackward0",
    ),
    unary(
        "hardswish",
        forward=written.kernel("hardswish", lambda F, x: F.maximum(F.minimum(x + 3, 6), 0) * x / 6),
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
