"""Normalisation and dropout.

The forward functions put the moments into the list `kept`, if it is empty, for the gradients.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops import batch_products, batch_rules, written
from asyncgrad.ops.fused import along, blocks_of, compiled, in_lines, joined, number, silent
from asyncgrad.ops.op import Op, fused, fused_together, linear, operation, part
from asyncgrad.ops.table.activation import ones, spread_total
from asyncgrad.ops.table.linalg import total_of_rows
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.widening import widening
from asyncgrad.types import Array, Library, Namespace, Shape, Value

#: BLAS adds up products line by line if there are few elements or the lines are long.
_FEW = 1024
_LONG = 64
#: Channels with as many places are gone through one by one.
_WIDE = 4096
#: From this many images on their channels are added up image by image.
_MANY = 4

# -- over the last axes ---------------------------------------------------------------------------


def _rows(x: Array, count: int) -> Any:
    """The array as a matrix: each row is normalised by itself and holds the last axes."""
    shape = x.shape
    if len(shape) == 2 and count == 1:
        return in_order(x)
    return x.reshape(prod(shape[:-count]), prod(shape[-count:]))


def _line(x: Array | None) -> Any:
    """A parameter of one axis; no call where it has one already, as it nearly always has."""
    return x if x is None or x.ndim == 1 else x.reshape(-1)


def _row_dots(xp: Library, x: Array, y: Array) -> Any:
    if x.size <= _FEW or xp.ndarray is not np.ndarray:
        # CuPy's `einsum` takes this for many products of matrices.
        return spread_total(xp, x * y, 1)
    if x.shape[1] >= _LONG:
        return np.vecdot(x, y)[:, None]
    return np.einsum("ij,ij->i", x, y)[:, None]


@along(in_order=True)
def _layer_norm(
    xp: Library, out: Array | None, x: Array, dim: int, weight: Array | None, bias: Array | None,
    eps: float, kept: list[Any],
) -> Any:  # fmt: skip
    n = number(xp, x.shape[1], x.dtype)
    mean = spread_total(xp, x, 1)
    mean /= n
    y = xp.subtract(x, mean, out)
    inverse = _row_dots(xp, y, y)
    inverse /= n
    inverse += eps
    xp.sqrt(inverse, inverse)
    xp.reciprocal(inverse, inverse)
    kept.append((mean, inverse))
    xp.multiply(y, inverse, y)
    if weight is not None:
        lines, weight, bias = in_lines(y, weight, bias)
        xp.multiply(lines, weight, lines)
        xp.add(lines, bias, lines)
    return y


@along(4, in_order=True)
def _layer_norm_gradient(
    xp: Library, out: Array | None, g: Array, x: Array, mean: Array, inverse: Array, dim: int,
    weight: Array | None, sums: list[Any] | None,
) -> Any:  # fmt: skip
    n = number(xp, x.shape[1], x.dtype)
    y = xp.subtract(x, mean)
    d = xp.multiply(g, inverse, out)
    if sums is not None:
        # The parts of the gradients by weight and bias are computed while both are in the cache.
        line = ones(len(x), x.dtype)
        sums.append((line.dot(xp.multiply(y, d)), line.dot(g)))
    if weight is not None:
        lines, weight = in_lines(d, weight)
        xp.multiply(lines, weight, lines)
    part = _row_dots(xp, d, y)
    part *= inverse
    part *= inverse
    part /= n
    xp.multiply(y, part, y)
    total = spread_total(xp, d, 1)
    total /= n
    xp.subtract(d, total, d)
    return xp.subtract(d, y, d)


def _by_input(
    kernel: Callable[..., Any], xp: Library, g: Array, x: Array, weight: Array | None, count: int,
    kept: list[Any], sums: list[Any] | None = None,
) -> Any:  # fmt: skip
    rows = _rows(g, count), _rows(x, count)
    return kernel(xp, *rows, *kept[0], 1, _line(weight), sums).reshape(x.shape)


def _by_weight(xp: Library, g: Array, x: Array, count: int, kept: list[Any]) -> Any:
    *means, inverse = kept[0]
    g, x = _rows(g, count), _rows(x, count)

    def of_block(block: slice) -> Any:
        centred = x[block] - means[0][block] if means else x[block]
        return xp.dot(inverse[block, 0], centred * g[block])

    return _summed(of_block, x)


def _gradients(kernel: Callable[..., Any], *, sums_up: bool) -> Callable[..., Any]:
    """All gradients of a norm, whose kernel computes that by the input.

    On the host a compiled kernel, or NumPy's if it `sums_up`, also gives those by weight and bias.
    """

    @widening
    def gradients(
        xp: Library, g: Array, wanted: tuple[str, ...], x: Array, weight: Array, count: int,
        eps: float, kept: list[Any],
    ) -> Any:  # fmt: skip
        made: dict[str, Any] = {}
        sums: list[Any] = []
        if "x" in wanted:
            several = len(wanted) > 1 and xp.ndarray is np.ndarray
            together = sums if several and (sums_up or xp.compiled) else None
            made["x"] = _by_input(kernel, xp, g, x, weight, count, kept, together)
        if sums:
            totals = map(sum, zip(*sums, strict=True)) if sums[1:] else sums[0]
            made |= zip(("weight", "bias"), totals, strict=False)
        else:
            if "weight" in wanted:
                made["weight"] = _by_weight(xp, g, x, count, kept)
            if "bias" in wanted:
                made["bias"] = total_of_rows(xp, _rows(g, count))
        return tuple([made[n] if n == "x" else made[n].reshape(weight.shape) for n in wanted])

    return gradients


def _number(x: Value, dims: Shape) -> int:
    """How many elements are normalised together; at least 1, so that empty means are 0."""
    return prod(x.shape[dim] for dim in dims) or 1


def _moments(
    F: Namespace, x: Value, dims: Shape, eps: float, centred: bool = True
) -> tuple[Any, Any]:
    """The normalised values, and the inverse of the deviation, or of the root mean square."""
    n = _number(x, dims)
    y = x - F.sum(x, dims, True) * (1 / n) if centred else x
    inverse = F.rsqrt(F.sum(y * y, dims, True) * (1 / n) + eps)
    return y * inverse, inverse


def _through_moments(
    F: Namespace, g: Value, x: Value, dims: Shape, eps: float, centred: bool = True
) -> Any:
    """The gradient through the normalisation; the derivative is symmetric, so also its tangent."""
    n = _number(x, dims)
    y, inverse = _moments(F, x, dims, eps, centred)
    # The rounding of the mean of `x` leaves `y` a mean, by which that of `g` would be multiplied.
    if centred:
        g = g - F.sum(g, dims, True) * (1 / n)
    part = F.sum(g * y, dims, True) * (1 / n)
    return (g - y * part) * inverse


def _last(x: Value, count: int) -> tuple[int, ...]:
    ndim = len(x.shape)
    return tuple(range(ndim - count, ndim))


# -- over the root of the mean square -------------------------------------------------------------


@along(in_order=True)
def _rms_norm(
    xp: Library, out: Array | None, x: Array, dim: int, weight: Array | None, eps: float,
    kept: list[Any],
) -> Any:  # fmt: skip
    inverse = _row_dots(xp, x, x)
    inverse /= number(xp, x.shape[1], x.dtype)
    inverse += eps
    xp.sqrt(inverse, inverse)
    xp.reciprocal(inverse, inverse)
    kept.append((inverse,))
    y = xp.multiply(x, inverse, out)
    if weight is not None:
        lines, weight = in_lines(y, weight)
        xp.multiply(lines, weight, lines)
    return y


@along(3, in_order=True)
def _rms_gradient(
    xp: Library, out: Array | None, g: Array, x: Array, inverse: Array, dim: int,
    weight: Array | None, sums: list[Any] | None,
) -> Any:  # fmt: skip
    """The gradient by the input; only a compiled kernel puts those by the parameters into sums."""
    d = xp.multiply(g, 1 if weight is None else weight, out)
    part = _row_dots(xp, d, x)
    part *= inverse * inverse
    part /= number(xp, x.shape[1], x.dtype)
    xp.subtract(d, x * part, d)
    return xp.multiply(d, inverse, d)


def _over_last(
    plain: str, name: str, inputs: str, kernel: Callable[..., Any], gradient: Callable[..., Any],
    node: str, *, centred: bool,
) -> tuple[Op, Op]:  # fmt: skip
    """The rows of a norm over the last axes: without parameters, and with those in `inputs`.

    Args:
        kernel: normalises rows, and appends their moments to a list.
        gradient: the gradient by the rows, from these moments.
        centred: whether the mean is subtracted first. Then NumPy's `gradient`, and not only a
            compiled one, sums up the gradients of the parameters, too.
    """
    none = (None,) * (len(inputs.split()) - 1)

    def forward(xp: Library, x: Array, *given: Any) -> Any:
        *parameters, count, eps, kept = given
        found: list[Any] = []
        out = kernel(xp, _rows(x, count), 1, *map(_line, parameters), eps, found)
        if not kept:
            kept.append(joined(xp, found))
        return out.reshape(x.shape)

    def normalised(F: Namespace, x: Value, count: int, eps: float) -> Any:
        return _moments(F, x, _last(x, count), eps, centred)[0]

    def through(F: Namespace, g: Value, x: Value, count: int, eps: float) -> Any:
        return _through_moments(F, g, x, _last(x, count), eps, centred)

    rules: dict[str, Any] = {
        "x": lambda F, g, x, weight, count, eps, kept: through(F, g * weight, x, count, eps),
        "weight": lambda F, g, x, weight, count, eps, kept: F.sum_to(
            g * normalised(F, x, count, eps), weight.shape
        ),
        "bias": lambda F, g, x, weight, *rest: F.sum_to(g, weight.shape),
    }
    pushes: dict[str, Any] = {
        "x": lambda F, t, x, weight, count, eps: through(F, t, x, count, eps) * weight,
        "weight": lambda F, t, x, count, eps: normalised(F, x, count, eps) * t,
        "bias": lambda F, t, out_shape: F.expand(t, out_shape),
    }
    return (
        operation(
            plain,
            lambda xp, x, count, eps, kept: forward(xp, x, *none, count, eps, kept),
            pulls={
                "x": fused(
                    lambda xp, g, x, count, eps, kept: _by_input(
                        gradient, xp, g, x, None, count, kept
                    ),
                    lambda F, g, x, count, eps, kept: through(F, g, x, count, eps),
                )
            },
            pushes={"x": through},
            node=node,
            cost=_cost,
            batch=batch_rules.layer_norm,
        ),
        operation(
            name,
            forward,
            inputs,
            "count eps kept",
            pushes={key: pushes[key] for key in inputs.split()},
            together=fused_together(_gradients(gradient, sums_up=centred), rules),
            node=node,
            cost=_cost,
            batch=batch_rules.layer_norm,
        ),
    )


# -- over batches ---------------------------------------------------------------------------------


def _channels(x: Array) -> Any:
    """The array as (batch, channels, places)."""
    shape = x.shape
    return x.reshape(shape[0], shape[1], prod(shape[2:]))


def _in_lines(xp: Library, x: Array, *values: Array) -> tuple[Any, ...]:
    """An array (batch, channels, places), and values for each channel as operands for it.

    NumPy goes through channels of few places one by one, and through images with values of their
    own in one go.
    """
    if x.size <= _FEW or x.shape[2] > _WIDE or xp.ndarray is not np.ndarray:
        return x, *[value[:, None] for value in values]
    images = x.reshape(len(x), -1)
    return in_lines(images, *[value.repeat(x.shape[2]) for value in values])


def _channel_sums(xp: Library, x: Array) -> Any:
    """The sum of each channel; BLAS adds up the images of a batch."""
    if len(x) < _MANY or x.size <= _FEW:
        return x.sum(axis=(0, 2))
    images = xp.dot(xp.ones(len(x), x.dtype), x.reshape(len(x), -1))
    return images.reshape(x.shape[1:]).sum(axis=1)


def _channel_dots(xp: Library, x: Array, y: Array, shape: Shape) -> Any:
    """The sums of products for each channel, of some lines of arrays of that shape."""
    if x.size <= _FEW or xp.ndarray is not np.ndarray:
        return (x * y).sum(axis=(0, 2))
    channels, places = shape[1:]
    images = x.size // (channels * places)
    if images < _MANY or places > _LONG:
        parts = [part.reshape(images, channels, places) for part in (x, y)]
        return np.vecdot(*parts).sum(axis=0)
    total = np.einsum("ns,ns->s", x.reshape(images, -1), y.reshape(images, -1))
    return total.reshape(channels, places).sum(axis=1)


def _channel_moments(xp: Library, x: Array) -> tuple[Any, Any]:
    x = _channels(x)
    n = number(xp, x.shape[0] * x.shape[2], x.dtype)
    mean = _summed(lambda block: _channel_sums(xp, x[block]), x) / n
    lines, middle = _in_lines(xp, x, mean)

    def squares(block: slice) -> Any:
        y = xp.subtract(lines[block], middle)
        return _channel_dots(xp, y, y, x.shape)

    return mean, _summed(squares, lines) / n


def _summed(compute: Callable[[slice], Any], x: Array) -> Any:
    """The sum of what is computed for each block of an array."""
    return functools.reduce(operator.add, map(compute, blocks_of(x)))


def _linear(xp: Library, x: Array, scale: Array, shift: Array) -> Any:
    """scale * x + shift for each channel."""
    shape = x.shape
    x, scale, shift = _in_lines(xp, _channels(x), scale, shift)
    out = xp.empty(x.shape, x.dtype)
    for block in blocks_of(x):
        y = xp.multiply(x[block], scale, out[block])
        xp.add(y, shift, y)
    return out.reshape(shape)


@silent
def _batch_norm(
    xp: Library, x: Array, weight: Array, bias: Array, eps: float, kept: list[Any]
) -> Any:
    made = compiled(xp, "batch_norm", x, weight, bias, eps)
    if made is not NotImplemented:
        y, *moments = made
        if not kept:
            kept.append(tuple(moments))
        return y
    # An empty channel has no mean; zeros keep the gradients from becoming NaN.
    moments = _channel_moments(xp, x) if x.size else (xp.zeros_like(weight), xp.ones_like(weight))
    if not kept:
        kept.append(moments)
    return _batch_norm_by_moments(xp, x, weight, bias, *moments, eps)


@silent
def _batch_norm_by_moments(
    xp: Library, x: Array, weight: Array, bias: Array, mean: Array, variance: Array, eps: float
) -> Any:
    scale = weight / xp.sqrt(variance + number(xp, eps, variance.dtype))
    return _linear(xp, x, scale, bias - mean * scale)


def _gradient_sums(xp: Library, g: Array, x: Array, mean: Array) -> tuple[Any, Any]:
    """For each channel the sums of the gradient, and of the gradient times (x - mean)."""
    plain = _summed(lambda block: _channel_sums(xp, g[block]), x)
    lines, middle = _in_lines(xp, x, mean)
    given = g.reshape(lines.shape)

    def products(block: slice) -> Any:
        return _channel_dots(xp, given[block], xp.subtract(lines[block], middle), x.shape)

    return plain, _summed(products, lines)


def _batch_by_input(
    xp: Library, g: Array, x: Array, weight: Array, mean: Array, inverse: Array, by_weight: Array,
    by_bias: Array,
) -> Any:  # fmt: skip
    scale = inverse * weight
    share = scale / number(xp, -x.shape[0] * x.shape[2], x.dtype)
    slope = share * inverse * by_weight
    shift = share * by_bias - slope * mean
    x, scale, slope, shift = _in_lines(xp, x, scale, slope, shift)
    g, out = g.reshape(x.shape), xp.empty_like(x)
    for block in blocks_of(x):
        d = xp.multiply(g[block], scale, out[block])
        y = xp.multiply(x[block], slope)
        xp.add(y, shift, y)
        xp.add(d, y, d)
    return out


@widening
def _batch_gradients(
    xp: Library, g: Array, wanted: tuple[str, ...], x: Array, weight: Array, eps: float,
    kept: list[Any],
) -> Any:  # fmt: skip
    """All gradients of `batch_norm`, from the same two sums."""
    mean, variance = kept[0]
    parts: dict[str, Any] = {}
    made = compiled(xp, "batch_norm_gradient", g, x, weight, mean, variance, eps)
    if made is not NotImplemented:
        parts = dict(zip(("x", "weight", "bias"), made, strict=True))
    else:
        inverse = 1 / xp.sqrt(variance + number(xp, eps, variance.dtype))
        lines = _channels(g), _channels(x)
        plain, product = _gradient_sums(xp, *lines, mean)
        parts = {"weight": product * inverse, "bias": plain}
        if "x" in wanted:
            made = _batch_by_input(xp, *lines, weight, mean, inverse, *parts.values())
            parts["x"] = made.reshape(x.shape)
    return tuple([parts[name] for name in wanted])


@widening
def _batch_by_weight(
    xp: Library, g: Array, x: Array, mean: Array, variance: Array, eps: float
) -> Any:
    product = _gradient_sums(xp, _channels(g), _channels(x), mean)[1]
    return product / xp.sqrt(variance + eps)


def _batch_dims(x: Value) -> tuple[int, ...]:
    return tuple(dim for dim in range(len(x.shape)) if dim != 1)


def _column(F: Namespace, value: Value, x: Value) -> Any:
    """A value for each channel, reshaped to be broadcast."""
    return F.reshape(value, (-1,) + (1,) * (len(x.shape) - 2))


#: The pull and the push of a bias, a number for each channel.
BIAS_PULL = fused(
    widening(lambda xp, g: _channel_sums(xp, _channels(g))),
    lambda F, g: F.sum(g, _batch_dims(g), False),
)
BIAS_PUSH = part(lambda F, t, out, out_shape: F.expand(_column(F, t, out), out_shape))
_BATCH_RULES: dict[str, Any] = {
    "x": lambda F, g, x, weight, eps, kept: _through_moments(
        F, g * _column(F, weight, x), x, _batch_dims(x), eps
    ),
    "weight": lambda F, g, x, weight, eps, kept: F.sum(
        g * _moments(F, x, _batch_dims(x), eps)[0], _batch_dims(x), False
    ),
    "bias": lambda F, g, *rest: F.sum(g, _batch_dims(g), False),
}


def _scaled(F: Namespace, x: Value, weight: Value, variance: Value, eps: float) -> Any:
    """A gradient or a tangent of the input times the factor of its channel."""
    return x * _column(F, weight * F.rsqrt(variance + eps), x)


def _standardised(F: Namespace, x: Value, mean: Value, variance: Value, eps: float) -> Any:
    return (x - _column(F, mean, x)) * _column(F, F.rsqrt(variance + eps), x)


def _cost(x: Variable, *rest: object) -> int:
    return 8_000 + 4 * int(x._metadata.line_cost)


def _batch_cost(x: Variable, *rest: object) -> int:
    # Channels of few places are not gone through line by line: see `_in_lines`.
    return 50_000 + 2 * int(x._metadata.cost)


OPS = (
    *_over_last(
        "normalise",
        "layer_norm",
        "x weight bias",
        _layer_norm,
        _layer_norm_gradient,
        "NativeLayerNormBackward0",
        centred=True,
    ),
    *_over_last(
        "root_mean_square",
        "rms_norm",
        "x weight",
        _rms_norm,
        _rms_gradient,
        "FusedRmsNormBackward0",
        centred=False,
    ),
    operation(
        "batch_norm",
        _batch_norm,
        "x weight bias",
        wide=True,
        together=fused_together(_batch_gradients, _BATCH_RULES),
        pushes={
            "x": lambda F, t, x, weight, eps: (
                _through_moments(F, t, x, _batch_dims(x), eps) * _column(F, weight, x)
            ),
            "weight": lambda F, t, x, eps: (
                _moments(F, x, _batch_dims(x), eps)[0] * _column(F, t, x)
            ),
            "bias": BIAS_PUSH,
        },
        node="NativeBatchNormBackward0",
        cost=_batch_cost,
        batch=batch_products.batch_norm,
    ),
    operation(
        "batch_norm_by_moments",
        _batch_norm_by_moments,
        "x weight bias mean variance",
        wide=True,
        pulls={
            "x": _scaled,
            "weight": fused(
                _batch_by_weight,
                lambda F, g, x, mean, variance, eps: F.sum(
                    g * _standardised(F, x, mean, variance, eps), _batch_dims(x), False
                ),
            ),
            "bias": BIAS_PULL,
        },
        pushes={
            "x": _scaled,
            "weight": lambda F, t, x, mean, variance, eps: (
                _standardised(F, x, mean, variance, eps) * _column(F, t, x)
            ),
            "bias": BIAS_PUSH,
        },
        node="NativeBatchNormBackward0",
        cost=_batch_cost,
    ),
    linear(
        "dropout",
        written.kernel("dropout", lambda F, x, mask, scale: x * mask * scale, arrays=2),
        lambda F, g, mask, scale: F.dropout(g, mask, scale),
        node="MulBackward0",
        frees=("mask",),
        batch=batch_rules.same,
    ),
)
