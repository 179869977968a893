"""Fused losses, which save neither logarithms nor differences.

A reduced loss is a sum with the factor `scale` for each element. With `each` there is no sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops import batch_rules, written
from asyncgrad.ops.fused import along, compiled, elementwise, joined, masked, number, summed
from asyncgrad.ops.op import Op, Part, binary, fused, linear, operation, parameters, unary
from asyncgrad.ops.table import activation
from asyncgrad.ops.table.elementwise import signs_of
from asyncgrad.ops.table.reduction import push_of
from asyncgrad.ops.table.shape import in_order, kept_shape
from asyncgrad.ops.widening import widened, widening
from asyncgrad.types import Array, Library, Namespace, Value

#: The lower bound of logarithms of probabilities, as in PyTorch.
_LOG_FLOOR = -100.0
_PRODUCT_FLOOR = 1e-12
#: Where lines start is computed anew in each call if there are more.
_MANY = 1 << 12
#: From so many lines of up to so many classes on, exponentials are added up side by side.
_LINES, _CLASSES = 16, 32


#: What formulas call.
_HELPERS = {"log_one_plus": activation.log_one_plus, "sgn": signs_of, "sigmoid": activation.sigmoid}


def _elementwise_loss(
    name: str, value: Callable[..., Any], slopes: dict[str, Callable[..., Any]], node: str,
    kernels: dict[str, Callable[..., Any]] | None = None,
) -> Op:  # fmt: skip
    """A loss that is a sum over pairs of elements.

    Args:
        value: the loss of each pair, as a formula `value(F, x, y, parameter)` or as a function
            `value(xp, out, x, y, parameter)`.
        slopes: the derivatives by both, as formulas `slope(F, x, y, parameter)`.
        node: PyTorch's name of the node.
        kernels: other formulas of them for kernels, which have no derivatives.
    """
    if parameters(value)[0] == "F":
        value = written.written(name, value, arrays=2, helpers=_HELPERS)
    each_value = elementwise(2, name)(value)

    @summed(2, f"{name}_total")
    def total(xp: Library, x: Array, y: Array, parameter: float | None, scale: float) -> Any:
        return value(xp, None, x, y, parameter).sum() * scale

    def forward(
        xp: Library, x: Array, y: Array, parameter: float | None, scale: float, each: bool
    ) -> Any:
        return each_value(xp, x, y, parameter) if each else total(xp, x, y, parameter, scale)

    def pull(which: str) -> Part:
        slope = (kernels or slopes)[which]

        def times(F: Namespace, x: Value, y: Value, factor: Value, parameter: float | None) -> Any:
            return slope(F, x, y, parameter) * factor

        by_each = written.kernel(f"{name}_each_by_{which}", times, arrays=3, helpers=_HELPERS)
        by_number = written.kernel(f"{name}_by_{which}", times, arrays=2, helpers=_HELPERS)

        def kernel(
            xp: Library, g: Array, x: Array, y: Array, parameter: float | None, scale: float,
            each: bool,
        ) -> Any:  # fmt: skip
            if each:
                return by_each(xp, x, y, g, parameter)
            return by_number(xp, x, y, g * scale, parameter)

        def rule(
            F: Namespace, g: Value, x: Value, y: Value, parameter: float | None, scale: float,
            each: bool,
        ) -> Any:  # fmt: skip
            return slopes[which](F, x, y, parameter) * (g if each else g * scale)

        return fused(kernel, rule)

    def push(which: str) -> Callable[..., Any]:
        def rule(
            F: Namespace, t: Value, x: Value, y: Value, parameter: float | None, scale: float,
            each: bool,
        ) -> Any:  # fmt: skip
            product = slopes[which](F, x, y, parameter) * t
            return product if each else F.sum(product, tuple(range(len(x.shape))), False) * scale

        return rule

    return operation(
        name,
        forward,
        "x y",
        pulls={which: pull(which) for which in slopes},
        pushes={which: push(which) for which in slopes},
        node=node,
        cost=lambda x, *rest: 5_000 + 3 * x._metadata.cost,
        batch=batch_rules.loss,
    )


# -- of differences -------------------------------------------------------------------------------


def _of_difference(
    name: str, value: Callable[..., Any], slope: Callable[..., Any], node: str,
    kernel: Callable[..., Any] | None = None,
) -> Op:  # fmt: skip
    """A loss that depends on x - y: its value and its derivative are formulas of the difference.

    The arguments are those of `_elementwise_loss`.
    """

    def by_both(slope: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
        return {
            "x": lambda F, x, y, parameter: slope(F, x - y, parameter),
            "y": lambda F, x, y, parameter: -slope(F, x - y, parameter),
        }

    return _elementwise_loss(
        name,
        lambda F, x, y, parameter: value(F, x - y, parameter),
        by_both(slope),
        node,
        by_both(kernel or slope),
    )


def _huber(F: Namespace, d: Value, delta: float) -> Any:
    """m * (|d| - m / 2) with m = min(|d|, delta)."""
    size = F.abs(d)
    m = F.minimum(size, delta)
    return (size - 0.5 * m) * m


# -- of probabilities -----------------------------------------------------------------------------


def _divergence(xp: Library, out: Array | None, x: Array, y: Array, *_: object) -> Any:
    """y * log(y) - x * y, where y * log(y) is 0 at y = 0."""
    d = xp.log(y, out)
    xp.multiply(d, y, d)
    xp.copyto(d, 0, where=y == 0)
    return xp.subtract(d, x * y, d)


def _log_odds(F: Namespace, x: Value) -> Any:
    """log(1 - x) - log(x), with both bounded by the floor."""
    return F.maximum(F.log1p(-x), _LOG_FLOOR) - F.maximum(F.log(x), _LOG_FLOOR)


def _binary(F: Namespace, x: Value, y: Value, _: object) -> Any:
    """-(y * log(x) + (1 - y) * log(1 - x))."""
    # Each logarithm has its own factor: a sum of both would lose the digits of the smaller one.
    q = F.maximum(F.log1p(-x), _LOG_FLOOR)
    p = F.maximum(F.log(x), _LOG_FLOOR)
    return q * (y - 1) - p * y


def _binary_slope(F: Namespace, x: Value, y: Value) -> Any:
    return (x - y) / F.maximum((1 - x) * x, _PRODUCT_FLOOR)


_HELPERS |= {"binary_cross_entropy_slope": _binary_slope, "clamped_log_odds": _log_odds}


def _binary_curvature(F: Namespace, x: Value, y: Value) -> Any:
    """The second derivative by x, as PyTorch has it: 0 where a certain x is right."""
    product = (x + _PRODUCT_FLOOR) * (1 - x + _PRODUCT_FLOOR)
    return F.div(F.div(x * x - x * y * 2 + y, product), product)


def _binary_logits(F: Namespace, x: Value, y: Value, _: object) -> Any:
    """-log of the probability of y."""
    return F.log_one_plus(F.exp(-F.abs(x))) - F.minimum(x, 0) + (1 - y) * x


# -- of classes -----------------------------------------------------------------------------------


def _places(xp: Library, shape: tuple[int, ...], dim: int, target: Array) -> Any:
    """The flat numbers of the target's elements in `x`."""
    known = xp.ndarray is np.ndarray and target.size <= _MANY
    starts, inner = _known_starts(shape, dim) if known else _starts(xp, shape, dim)
    # In the dtype of small integers the products would overflow.
    scaled = target if inner == 1 else xp.multiply(target, inner, dtype=np.int64)
    return starts + scaled.reshape(-1)


def _starts(xp: Library, shape: tuple[int, ...], dim: int) -> tuple[Any, int]:
    """The flat numbers of the first element of each line, and how far apart its elements are."""
    inner = prod(shape[dim + 1 :])
    # At least 1, because `arange` refuses a step of 0 if there are no classes.
    line = shape[dim] * inner or 1
    starts = xp.arange(0, prod(shape[:dim]) * line, line)
    return starts if inner == 1 else (starts[:, None] + xp.arange(inner)).reshape(-1), inner


_known_starts = functools.lru_cache(64)(functools.partial(_starts, np))


@along(reduces=True, in_order=True)
def _sums_beside(
    xp: Library, out: Array | None, x: Array, dim: int, tops: list[tuple[Array]]
) -> Any:
    """The logarithms of the sums of exp(x - top) along an axis, which stays with length 1."""
    if (
        len(x) >= _LINES
        and x.ndim == 2
        and dim == 1
        and x.shape[1] <= _CLASSES
        and xp.ndarray is np.ndarray
    ):
        # NumPy's loops are as long as a row, so the transposed matrix takes less time.
        e = x.T.copy()
        top = np.maximum.reduce(e, 0)
        tops.append((top[:, None],))
        xp.exp(xp.subtract(e, top, e), e)
        return xp.log(activation.ones(len(e), e.dtype).dot(e))[:, None]
    top = activation.line_maxima(x, dim)
    tops.append((top,))
    e = xp.subtract(x, top)
    return xp.log(activation.line_total(xp, xp.exp(e, e), dim))


def _line_sums(xp: Library, x: Array, dim: int) -> Any:
    """The greatest element of each line, and the logarithm of the sum of exp(x - top).

    Added up they would lose digits of the logarithm, which is small beside large elements. Those of
    half precision are of float32.
    """
    if not x.size:
        nothing = x.sum(axis=dim, keepdims=True)
        return nothing, nothing
    wide = widened(x)
    if xp.compiled and (made := compiled(xp, "log_sums", wide, dim)) is not NotImplemented:
        sums, top = made
        return top, sums
    tops: list[tuple[Array]] = []
    sums = _sums_beside(xp, wide, dim, tops)
    (top,) = joined(xp, tops)
    return top.reshape(sums.shape), sums


def _losses(
    xp: Library, x: Array, top: Array | float, sums: Array | float, dim: int, target: Array,
    counts: Array | float, kept: Array | None,
) -> Any:  # fmt: skip
    """Top + sums minus the target's elements, by a device's kernel; NotImplemented without one."""
    if xp.ndarray is np.ndarray:
        return NotImplemented
    place = target.reshape(kept_shape(x.shape, (dim,)))
    return compiled(xp, "class_losses", x, top, sums, place, counts, kept, dim)


def _cross_entropy(
    xp: Library, x: Array, top: Array, sums: Array, dim: int, target: Array,
    counts: Array | float, kept: Array | None, smooth: Array | float | None,
    weight: Array | None, each: bool,
) -> Any:  # fmt: skip
    if xp.compiled and kept is None and smooth is None and not each:
        total = compiled(xp, "class_total", x, top, sums, target, counts, dim)
        if total is not NotImplemented:
            return total
    losses = _losses(xp, x, top, sums, dim, target, counts, kept)
    if losses is NotImplemented:
        picked = x.reshape(-1).take(_places(xp, x.shape, dim, target)).reshape(sums.shape)
        losses = _chosen(xp, (sums - (picked - top)) * number(xp, counts, sums.dtype), kept)
    if smooth is not None:
        below = x - top
        weighted = below if weight is None else below * weight
        total = x.shape[dim] if weight is None else weight.sum()
        spread = (sums * total - weighted.sum(axis=dim, keepdims=True)) * smooth
        losses += _chosen(xp, spread, kept)
    return losses.squeeze(dim) if each else losses.sum()


def _chosen(xp: Library, values: Array, kept: Array | None) -> Any:
    """The values of lines, and 0 for ignored lines, even if they hold NaN."""
    return values if kept is None else masked(xp, values, kept)


def _class_weights(
    xp: Library, x: Array, dim: int, target: Array, counts: Array | float,
    smooth: Array | float | None, weight: Array | None,
) -> Any:  # fmt: skip
    """The weight of each class's negative log probability."""
    out = xp.zeros(x.shape, x.dtype)
    if smooth is not None:
        out += smooth if weight is None else smooth * weight
    places = _places(xp, x.shape, dim, target)
    flat = out.reshape(-1)
    flat[places] += counts.reshape(-1) if hasattr(counts, "reshape") else counts
    return out


def _cross_entropy_pull(
    F: Namespace, g: Value, x: Value, top: Value, sums: Value, dim: int, target: Value,
    counts: Value | float, kept: Value | None, smooth: Value | float | None,
    weight: Value | None, each: bool,
) -> Any:  # fmt: skip
    if each:
        g = F.reshape(g, kept_shape(x.shape, (dim,)))
    if not x.shape[dim]:
        return x * g
    weights = F.class_weights(x, dim, target, counts, smooth, weight)
    return (F.softmax(x, dim) * F.sum(weights, (dim,), True) - weights) * g


#: The exponentials of x - top, times a factor for each line.
_shares = along(3)(
    written.written("shares", lambda F, x, top, factors, dim: F.exp(x - top) * factors, arrays=3)
)


def _cross_entropy_gradient(
    xp: Library, g: Array, x: Array, top: Array, sums: Array, dim: int, target: Array,
    counts: Array | float, kept: Array | None, smooth: Array | float | None,
    weight: Array | None, each: bool,
) -> Any:  # fmt: skip
    """The softmax times each line's weight, minus that weight at the target's place."""
    if each:
        g = g.reshape(sums.shape)
    if smooth is None and xp.ndarray is not np.ndarray:
        place = target.reshape(sums.shape)
        made = compiled(xp, "class_slopes", x, top, sums, place, counts, kept, g, dim)
        if made is not NotImplemented:
            return made
    taken: Array = _chosen(xp, number(xp, counts, g.dtype) * g, kept)
    if smooth is None and xp.compiled:
        made = compiled(xp, "class_slopes_of_lines", x, top, taken, dim, sums, target)
        if made is not NotImplemented:
            return made
    full = taken
    if smooth is not None:
        smooth = _chosen(xp, smooth * g, kept)
        full = taken + smooth * (x.shape[dim] if weight is None else weight.sum())
    out = _shares(xp, x, top, full / xp.exp(sums), dim)
    if smooth is not None:
        xp.subtract(out, smooth if weight is None else smooth * weight, out)
    # It is a copy if the logits, and therefore `out`, are not contiguous.
    flat = out.reshape(-1)
    flat[_places(xp, x.shape, dim, target)] -= taken.reshape(-1) if taken.ndim else taken
    return flat.reshape(x.shape)


def _nll(
    xp: Library, x: Array, dim: int, target: Array, counts: Array | float, kept: Array | None,
    each: bool,
) -> Any:  # fmt: skip
    losses = _losses(xp, x, 0.0, 0.0, dim, target, counts, kept)
    if losses is NotImplemented:
        picked = x.reshape(-1).take(_places(xp, x.shape, dim, target))
        picked = picked.reshape(kept_shape(x.shape, (dim,)))
        losses = _chosen(xp, picked * -counts, kept)
    losses = losses.squeeze(dim)
    return losses if each else losses.sum()


def _nll_spread(
    xp: Library, g: Array, shape: tuple[int, ...], dim: int, target: Array, counts: Array | float,
    kept: Array | None, each: bool,
) -> Any:  # fmt: skip
    """The adjoint of the negative log likelihood."""
    out = xp.zeros(shape, g.dtype)
    values = _chosen(xp, -counts * (g.reshape(kept_shape(shape, (dim,))) if each else g), kept)
    out.reshape(-1)[_places(xp, shape, dim, target)] = (
        values if values.size == 1 else values.reshape(-1)
    )
    return out


# -- of vectors -----------------------------------------------------------------------------------


def _dots(xp: Library, x: Array, y: Array, dim: int) -> Any:
    """The dot products along an axis, which stays with length 1."""
    if dim == x.ndim - 1 and x.dtype.kind != "V" and xp.ndarray is np.ndarray:
        return in_order(np.einsum("...i,...i->...", x, y))[..., None]
    return in_order((x * y).sum(axis=dim, keepdims=True))


def _cosine(xp: Library, x: Array, y: Array, dim: int, eps: float) -> Any:
    norms = xp.maximum(xp.sqrt(_dots(xp, x, x, dim)), eps)
    norms *= xp.maximum(xp.sqrt(_dots(xp, y, y, dim)), eps)
    return (_dots(xp, x, y, dim) / norms).squeeze(dim)


def _cosine_pull(F: Namespace, g: Value, x: Value, y: Value, dim: int, eps: float) -> Any:
    """The gradient by x; as in PyTorch, the lower bound on the norms does not make it 0."""
    norm = F.sqrt(F.sum(x * x, (dim,), True))
    bounded = F.clamp(norm, eps, None)
    other = F.clamp(F.sqrt(F.sum(y * y, (dim,), True)), eps, None)
    cosine = F.sum(x * y, (dim,), True) / (bounded * other)
    inverse = F.mask(F.reciprocal(norm), norm != 0)
    slope = y / (bounded * other) - x * (cosine * inverse / bounded)
    return slope * F.reshape(g, norm.shape)


def _cosine_pull_by_y(F: Namespace, g: Value, x: Value, y: Value, dim: int, eps: float) -> Any:
    return _cosine_pull(F, g, y, x, dim, eps)


@widening
def _cosine_gradient(xp: Library, g: Array, x: Array, y: Array, dim: int, eps: float) -> Any:
    norm = xp.sqrt(_dots(xp, x, x, dim))
    bounded = xp.maximum(norm, eps)
    both = bounded * xp.maximum(xp.sqrt(_dots(xp, y, y, dim)), eps)
    g = g.reshape(norm.shape) / both
    norm[norm == 0] = 1
    out = xp.multiply(y, g)
    return xp.subtract(out, x * (g * _dots(xp, x, y, dim) / (norm * bounded)), out)


def _lines_cost(x: Variable, *rest: object) -> int:
    return 5_000 + 3 * int(x._metadata.line_cost)


OPS = (
    _of_difference(
        "squared_loss", lambda F, d, _: d * d, lambda F, d, _: d + d, "MseLossBackward0"
    ),
    _of_difference(
        "absolute_loss", lambda F, d, _: F.abs(d), lambda F, d, _: F.sgn(d), "L1LossBackward0"
    ),
    _of_difference(
        "huber_loss",
        _huber,
        # Not `clamp`: where the two pieces meet, PyTorch's second derivative is 0.
        lambda F, d, delta: F.where((d >= delta) | (d <= -delta), F.sgn(d) * delta, d),
        "HuberLossBackward0",
        lambda F, d, delta: F.maximum(F.minimum(d, delta), -delta),
    ),
    _elementwise_loss(
        "kl_div",
        _divergence,
        # By y it is undefined at y = 0, like PyTorch's.
        {"x": lambda F, x, y, _: -y, "y": lambda F, x, y, _: F.log(y) - x + F.div(y, y)},
        "KlDivBackward0",
    ),
    _elementwise_loss(
        "kl_div_log",
        lambda F, x, y, _: F.exp(y) * (y - x),
        {"x": lambda F, x, y, _: -F.exp(y), "y": lambda F, x, y, _: F.exp(y) * (y - x + 1)},
        "KlDivBackward0",
    ),
    _elementwise_loss(
        "binary_cross_entropy",
        _binary,
        {
            "x": lambda F, x, y, _: F.binary_cross_entropy_slope(x, y),
            "y": lambda F, x, y, _: F.clamped_log_odds(x),
        },
        "BinaryCrossEntropyBackward0",
    ),
    binary(
        "binary_cross_entropy_slope",
        _binary_curvature,
        lambda F, x: -F.reciprocal(F.clamp((1 - x) * x, _PRODUCT_FLOOR, None)),
        written.kernel("binary_cross_entropy_slope", _binary_slope, arrays=2),
        node="BinaryCrossEntropyBackwardBackward0",
    ),
    unary(
        "clamped_log_odds",
        lambda F, x: -F.reciprocal((1 - x) * x),
        written.kernel("clamped_log_odds", _log_odds),
        node="SubBackward0",
    ),
    _elementwise_loss(
        "binary_cross_entropy_with_logits",
        _binary_logits,
        {"x": lambda F, x, y, _: F.sigmoid(x) - y, "y": lambda F, x, y, _: -x},
        "BinaryCrossEntropyWithLogitsBackward0",
    ),
    operation(
        "cross_entropy",
        _cross_entropy,
        wide=True,
        pulls={"x": fused(_cross_entropy_gradient, _cross_entropy_pull)},
        pushes={"x": push_of(_cross_entropy_pull)},
        node="NllLossBackward0",
        cost=_lines_cost,
    ),
    operation("log_sums", _line_sums),
    operation("class_weights", _class_weights),
    linear(
        "nll_loss",
        _nll,
        lambda F, g, x_shape, dim, target, counts, kept, each: F.nll_spread(
            g, x_shape, dim, target, counts, kept, each
        ),
        frees=("target", "counts", "kept"),
    ),
    linear(
        "nll_spread",
        _nll_spread,
        lambda F, g, dim, target, counts, kept, each: F.nll_loss(
            g, dim, target, counts, kept, each
        ),
        attributes="shape dim target counts kept each",
        node="NllLossBackwardBackward0",
    ),
    operation(
        "cosine_similarity",
        _cosine,
        "x y",
        wide=True,
        pulls={
            "x": fused(_cosine_gradient, _cosine_pull),
            "y": fused(
                lambda xp, g, x, y, dim, eps: _cosine_gradient(xp, g, y, x, dim, eps),
                _cosine_pull_by_y,
            ),
        },
        pushes={"x": push_of(_cosine_pull), "y": push_of(_cosine_pull_by_y)},
        node="SumBackward1",
        cost=_lines_cost,
    ),
)
