"""Convolutions, as products of matrices.

The windows that the kernel sees are laid out as the columns of a matrix, a few images or rows of
an image at a time, so that they stay in the cache. Of `convolution`, the gradient by its input and
that by its weight, each is made of the other two: double backward closes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncgrad.ops.derivatives.linalg import conjugate, product_cost
from asyncgrad.ops.entry import operation
from asyncgrad.ops.fused import fused

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Elements of the columns that are made at a time.
_COLUMNS = 1 << 18


class Geometry(NamedTuple):
    """How a kernel moves over an image, for each axis of the image."""

    stride: tuple[int, ...]
    #: What is added before and after.
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    def out_shape(self, image: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the image that comes out."""
        axes = zip(image, kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(
            (n + before + after - d * (k - 1) - 1) // s + 1 for n, k, s, (before, after), d in axes
        )


def padded(xp: Any, x: Any, padding: tuple[tuple[int, int], ...], value: Any = 0) -> Any:
    """The last axes with `value` before and after; a negative padding cuts off."""
    if not any(before or after for before, after in padding):
        return x
    kept = x[
        (
            ...,
            *(
                slice(max(0, -before), n - max(0, -after))
                for n, (before, after) in zip(x.shape[-len(padding) :], padding, strict=True)
            ),
        )
    ]
    before = [max(0, b) for b, _ in padding]
    lead = x.ndim - len(padding)
    inner = kept.shape[lead:]
    shape = tuple(b + n + max(0, a) for b, n, (_, a) in zip(before, inner, padding, strict=True))
    if value == 0:
        out = xp.zeros((*x.shape[:lead], *shape), x.dtype)
    else:
        out = xp.full((*x.shape[:lead], *shape), value, x.dtype)
    out[(..., *(slice(b, b + n) for b, n in zip(before, inner, strict=True)))] = kept
    return out


def _windows(xp: Any, x: Any, kernel: Any, out: Any, geometry: Geometry) -> Any:
    """A view (batch, groups, channels, *kernel, *out) of a padded image."""
    x = xp.ascontiguousarray(x)
    groups = geometry.groups
    batch, channel, *steps = x.strides
    own = x.shape[1] // groups
    shape = (x.shape[0], groups, own, *kernel, *out)
    strides = (
        batch,
        own * channel,
        channel,
        *(d * step for d, step in zip(geometry.dilation, steps, strict=True)),
        *(s * step for s, step in zip(geometry.stride, steps, strict=True)),
    )
    if isinstance(x, np.ndarray):
        # A tenth of what `as_strided` takes.
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def _pieces(windows: Any, ndim: int) -> Iterator[tuple[slice, slice, Any]]:
    """The windows as matrices of columns, some images or some rows of an image at a time.

    Yields:
        The images, the rows, and (groups, channels * kernel, images * places).
    """
    shape = windows.shape
    batch, groups = shape[:2]
    rows, width = shape[-ndim], prod(shape[len(shape) - ndim + 1 :])
    length = prod(shape[2 : len(shape) - ndim])
    image = groups * length * rows * width
    if batch == 0 or image == 0:
        return
    order = (*range(1, 3 + ndim), 0, *range(3 + ndim, 3 + 2 * ndim))
    if image <= _COLUMNS // 2:
        step = max(1, _COLUMNS // image)
        for start in range(0, batch, step):
            part = windows[start : start + step]
            columns = part.transpose(order).reshape(groups, length, len(part) * rows * width)
            yield slice(start, start + step), slice(None), columns
        return
    step = max(1, _COLUMNS * rows // image)
    for place in range(batch):
        for start in range(0, rows, step):
            cut = slice(start, start + step)
            part = windows[(place, ..., cut, *(slice(None),) * (ndim - 1))]
            yield slice(place, place + 1), cut, part.reshape(groups, length, -1)


def _is_pointwise(kernel: Any, geometry: Geometry) -> bool:
    """Whether the kernel sees one place at a time, and every place once."""
    return (
        all(k == 1 for k in kernel)
        and all(s == 1 for s in geometry.stride)
        and not any(before or after for before, after in geometry.padding)
    )


def _of_groups(xp: Any, a: Any, b: Any) -> Any:
    """The products of the matrices of each group."""
    return xp.dot(a[0], b[0])[None] if len(a) == 1 else a @ b


def _convolution(xp: Any, x: Any, weight: Any, geometry: Geometry) -> Any:
    kernel = weight.shape[2:]
    groups, ndim = geometry.groups, len(kernel)
    batch, outs = x.shape[0], weight.shape[0]
    matrix = weight.reshape(groups, outs // groups, prod(weight.shape[1:]))
    if _is_pointwise(kernel, geometry):
        columns = x.reshape(batch, groups, x.shape[1] // groups, prod(x.shape[2:]))
        return (matrix @ columns).reshape(batch, outs, *x.shape[2:])
    image = geometry.out_shape(x.shape[2:], kernel)
    windows = _windows(xp, padded(xp, x, geometry.padding), kernel, image, geometry)
    out = xp.empty((batch, groups, outs // groups, *image), x.dtype)
    if not windows.size:
        out[...] = 0
    for images, rows, columns in _pieces(windows, ndim):
        target = out[images, :, :, rows]
        made = _of_groups(xp, matrix, columns)
        made = made.reshape((*made.shape[:2], len(target), *target.shape[3:]))
        target[...] = made.transpose((2, 0, 1, *range(3, made.ndim)))
    return out.reshape(batch, outs, *image)


def _convolution_with_bias(xp: Any, x: Any, weight: Any, bias: Any, geometry: Geometry) -> Any:
    out = _convolution(xp, x, weight, geometry)
    out += bias.reshape((-1,) + (1,) * len(geometry.stride))
    return out


def _convolution_weight(xp: Any, y: Any, x: Any, shape: tuple[int, ...], geometry: Geometry) -> Any:
    """The gradient by the weight, of that shape: `y` is the gradient of the output."""
    kernel = shape[2:]
    groups, ndim = geometry.groups, len(kernel)
    outs, length = shape[0] // groups, prod(shape[1:])
    y = y.reshape(y.shape[0], groups, outs, *y.shape[2:])
    total = xp.zeros((groups, outs, length), y.dtype)
    windows = _windows(xp, padded(xp, x, geometry.padding), kernel, y.shape[3:], geometry)
    for images, rows, columns in _pieces(windows, ndim):
        part = y[images, :, :, rows]
        if len(part) > 1:
            part = part.transpose((1, 2, 0, *range(3, part.ndim)))
        part = part.reshape(groups, outs, columns.shape[2])
        total += _of_groups(xp, part, columns.swapaxes(1, 2))
    return total.reshape(shape)


def _convolution_input(
    xp: Any, y: Any, weight: Any, shape: tuple[int, ...], geometry: Geometry
) -> Any:
    """The gradient by the input, of that shape: `y` is the gradient of the output."""
    kernel = weight.shape[2:]
    groups, ndim = geometry.groups, len(kernel)
    weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    if all(s == 1 for s in geometry.stride):
        # A convolution with the kernel turned round.
        turned = weight.swapaxes(1, 2)[(..., *(slice(None, None, -1),) * ndim)]
        turned = turned.reshape(shape[1], weight.shape[1], *kernel)
        reach = [d * (k - 1) for d, k in zip(geometry.dilation, kernel, strict=True)]
        padding = tuple(
            (r - before, r - after)
            for r, (before, after) in zip(reach, geometry.padding, strict=True)
        )
        return _convolution(xp, y, turned, geometry._replace(padding=padding))
    spread = [
        n + before + max(0, after)
        for n, (before, after) in zip(shape[2:], geometry.padding, strict=True)
    ]
    out = xp.zeros((shape[0], groups, shape[1] // groups, *spread), y.dtype)
    matrix = weight.reshape(groups, weight.shape[1], -1).swapaxes(1, 2)
    image = y.shape[2:]
    y = y.reshape(y.shape[0], groups, y.shape[1] // groups, prod(image))
    step = max(1, _COLUMNS // max(1, matrix.shape[1] * groups * prod(image)))
    for start in range(0, len(y), step):
        part = matrix @ y[start : start + step]
        part = part.reshape(len(part), groups, shape[1] // groups, *kernel, *image)
        for offset in np.ndindex(*kernel):
            axes = zip(offset, image, geometry.stride, geometry.dilation, strict=True)
            places = tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, n, s, d in axes)
            out[(slice(start, start + step), slice(None), slice(None), *places)] += part[
                (slice(None), slice(None), slice(None), *offset)
            ]
    padding = geometry.padding
    out = out.reshape(shape[0], shape[1], *spread)
    inner = (slice(b, b + n) for n, (b, _) in zip(shape[2:], padding, strict=True))
    return out[(..., *inner)] if any(map(any, padding)) else out


def _bias_gradient(xp: Any, g: Any) -> Any:
    return g.reshape(*g.shape[:2], prod(g.shape[2:])).sum(axis=2).sum(axis=0)


def _bias_rule(F: Any, g: Any) -> Any:
    return F.sum(g, (0, *range(2, len(g.shape))), False)


def _cost(x: Any, weight: Any, *rest: Any) -> int:
    stride = prod(rest[-1].stride)
    places = x._metadata.size // max(1, x._metadata.shape[1]) // stride
    return 10_000 + product_cost(places * weight._metadata.size)


def _products_cost(y: Any, other: Any, shape: Any, geometry: Geometry) -> int:
    return 10_000 + product_cost(y._metadata.size * prod(shape[1:]))


_BY_INPUT_AND_WEIGHT = {
    "x": lambda F, g, weight, x_shape, geometry: F.convolution_input(
        g, conjugate(F, weight), x_shape, geometry
    ),
    "weight": lambda F, g, x, weight_shape, geometry: F.convolution_weight(
        g, conjugate(F, x), weight_shape, geometry
    ),
}
_PUSHES = {
    "x": lambda F, t, weight, geometry: F.convolution(t, weight, geometry),
    "weight": lambda F, t, x, geometry: F.convolution(x, t, geometry),
}

ENTRIES = (
    operation(
        "convolution",
        _convolution,
        "x weight",
        "geometry",
        pulls=_BY_INPUT_AND_WEIGHT,
        pushes=_PUSHES,
        cost=_cost,
    ),
    operation(
        "convolution_with_bias",
        _convolution_with_bias,
        "x weight bias",
        "geometry",
        pulls={**_BY_INPUT_AND_WEIGHT, "bias": fused(_bias_gradient, _bias_rule)},
        pushes={
            **_PUSHES,
            "bias": lambda F, t, out_shape: F.expand(
                F.reshape(t, (-1,) + (1,) * (len(out_shape) - 2)), out_shape
            ),
        },
        node="ConvolutionBackward0",
        cost=_cost,
    ),
    operation(
        "convolution_input",
        _convolution_input,
        "y weight",
        "shape geometry",
        pulls={
            "y": lambda F, g, weight, geometry: F.convolution(g, conjugate(F, weight), geometry),
            "weight": lambda F, g, y, weight_shape, geometry: F.convolution_weight(
                conjugate(F, y), g, weight_shape, geometry
            ),
        },
        pushes={
            "y": lambda F, t, weight, shape, geometry: F.convolution_input(
                t, weight, shape, geometry
            ),
            "weight": lambda F, t, y, shape, geometry: F.convolution_input(y, t, shape, geometry),
        },
        node="ConvolutionBackwardBackward0",
        cost=_products_cost,
    ),
    operation(
        "convolution_weight",
        _convolution_weight,
        "y x",
        "shape geometry",
        pulls={
            "y": lambda F, g, x, geometry: F.convolution(conjugate(F, x), g, geometry),
            "x": lambda F, g, y, x_shape, geometry: F.convolution_input(
                conjugate(F, y), g, x_shape, geometry
            ),
        },
        pushes={
            "y": lambda F, t, x, shape, geometry: F.convolution_weight(t, x, shape, geometry),
            "x": lambda F, t, y, shape, geometry: F.convolution_weight(y, t, shape, geometry),
        },
        node="ConvolutionBackwardBackward0",
        cost=_products_cost,
    ),
)
