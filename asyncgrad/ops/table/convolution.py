"""Convolutions as matrix products.

The windows under the kernel are laid out as columns of a matrix, for a few images or rows of an
image at a time, so that they stay in the cache. The gradients of `convolution`, `convolution_input`
and `convolution_weight` are each made of the other two, so double backward needs no more ops.
"""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.ops import batch_products
from asyncgrad.ops.op import fused, operation
from asyncgrad.ops.table.linalg import conjugate, product_cost
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.core.variable import Variable
    from asyncgrad.types import Array, Library, Namespace, Shape, Value

#: The most elements of the columns that are made at a time.
_COLUMNS = 1 << 18
#: Rows with fewer elements are short; from this many images on they are put side by side.
_SHORT, _SIDE_BY_SIDE = 32, 8
#: Up to this many elements, gradients are spread out with zeros between them.
_SMALL = 4096
#: Images that are put side by side at a time.
_FEW = 16
#: BLAS computes products with fewer multiplications from where they are, without packing them
#: first, if no side is shorter than this.
_SMALL_PRODUCT, _NARROW = 10**6, 32
#: Elements between two rows of a matrix.
_APART = 16
#: How many shapes and window layouts are cached.
_REMEMBERED = 1024


class Geometry(NamedTuple):
    """How a kernel moves over an image, for each axis of the image."""

    stride: tuple[int, ...]
    #: For each axis, the padding before and after.
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    def out_shape(self, image: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the output image."""
        return _out_shape(image, kernel, self)


@functools.lru_cache(_REMEMBERED)
def _out_shape(
    image: tuple[int, ...], kernel: tuple[int, ...], geometry: Geometry
) -> tuple[int, ...]:
    stride, padding, dilation, _ = geometry
    return tuple(
        (n + before + after - d * (k - 1) - 1) // s + 1
        for n, k, s, (before, after), d in zip(
            image, kernel, stride, padding, dilation, strict=True
        )
    )


def padded(xp: Library, x: Array, padding: tuple[tuple[int, int], ...], value: float = 0) -> Any:
    """Pad the last axes with `value`; negative padding crops."""
    if not any(map(any, padding)):
        return x
    shape, kept, inner = _frame(x.shape, padding)
    out = xp.zeros(shape, x.dtype) if value == 0 else xp.full(shape, value, x.dtype)
    out[inner] = x[kept]
    return out


@functools.lru_cache(_REMEMBERED)
def _frame(shape: tuple[int, ...], padding: tuple[tuple[int, int], ...]) -> tuple[Any, Any, Any]:
    """The padded shape, the slices kept of the array, and the slices where they go."""
    lead = len(shape) - len(padding)
    full, kept, inner = list(shape[:lead]), [], []
    for n, (before, after) in zip(shape[lead:], padding, strict=True):
        part = slice(max(0, -before), n - max(0, -after))
        start = max(0, before)
        stop = start + len(range(n)[part])
        kept.append(part)
        inner.append(slice(start, stop))
        full.append(stop + max(0, after))
    return tuple(full), (..., *kept), (..., *inner)


def _windows(xp: Library, x: Array, kernel: Shape, out: Shape, geometry: Geometry) -> Any:
    """A view (batch, groups, channels, *kernel, *out) of a padded image."""
    x = xp.ascontiguousarray(x)
    shape, strides = _layout(x.shape, x.strides, kernel, out, geometry)
    if xp.ndarray is np.ndarray:
        # It takes a tenth of the time of `as_strided`.
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


@functools.lru_cache(_REMEMBERED)
def _layout(
    shape: tuple[int, ...], strides: tuple[int, ...], kernel: Shape, out: Shape, geometry: Geometry
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    groups = geometry.groups
    batch, channel, *steps = strides
    own = shape[1] // groups
    return (shape[0], groups, own, *kernel, *out), (
        batch,
        own * channel,
        channel,
        *(d * step for d, step in zip(geometry.dilation, steps, strict=True)),
        *(s * step for s, step in zip(geometry.stride, steps, strict=True)),
    )


def _pieces(windows: Array, ndim: int) -> Iterator[tuple[slice, slice, Any]]:
    """The windows as matrices of columns, for some images or some rows of an image at a time.

    Yields:
        The images, the rows, and columns of shape (groups, channels * kernel, images * places).
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
            index: tuple[Any, ...] = (place, ..., cut, *(slice(None),) * (ndim - 1))
            part = windows[index]
            yield slice(place, place + 1), cut, part.reshape(groups, length, -1)


def _has_short_rows(x: Array, kernel: Shape, image: Shape) -> bool:
    """Whether it is faster to put the images of a batch side by side.

    NumPy copies row by row: long rows at the speed of memory, while each short row costs a step of
    its own.
    """
    columns = x.shape[1] * prod(kernel) * prod(image)
    return (
        image[-1] < _SHORT
        and len(x) >= _SIDE_BY_SIDE
        and 0 < columns * _SIDE_BY_SIDE <= 4 * _COLUMNS
        and x.__class__ is np.ndarray
    )


def _some_images(batch: int, columns: int, least: int = 1) -> list[slice]:
    """Images that are put side by side, from the elements of one's columns."""
    step = max(least, _COLUMNS // max(1, columns))
    return [slice(start, min(start + step, batch)) for start in range(0, batch, step)]


def _matrices(xp: Library, dtype: Any, groups: int, rows: int, width: int) -> Any:
    """Undefined matrices whose rows are some elements apart.

    Rows whose distance is a power of two would fall on the same lines of the cache.
    """
    return xp.empty((groups, rows, width + _APART), dtype)[..., :width]


def _side_by_side(
    xp: Library, x: Array, kernel: Shape, image: Shape, geometry: Geometry
) -> Iterator[tuple[slice, Any]]:
    """The windows as matrices of columns, for some images at a time along the last axis.

    Yields:
        The images, and columns of shape (groups, channels * kernel, places * images), which are
        written over by the next ones.
    """
    groups = geometry.groups
    length, places = x.shape[1] // groups * prod(kernel), prod(image)
    pieces = _some_images(len(x), groups * length * places, _SIDE_BY_SIDE)
    most = pieces[0].stop
    frame, kept, inner = _frame(x.shape, geometry.padding)
    frame, inner = (*frame[1:], most), (*inner, slice(None))
    # Each element of an image is a vector over the images.
    space = xp.zeros(frame, x.dtype)
    # The layout of one such image.
    shape, strides = _layout((1, *frame[:-1]), (0, *space.strides[:-1]), kernel, image, geometry)
    memory = _matrices(xp, x.dtype, groups, length, places * most)
    for images in pieces:
        part = x[images]
        count = len(part)
        _put_beside(space[..., :count][inner], part[kept])
        windows = np.ndarray((*shape[1:], count), x.dtype, space, 0, (*strides[1:], space.itemsize))
        columns = memory[..., : places * count]
        columns.reshape(windows.shape)[...] = windows
        yield images, columns


def _put_beside(target: Array, images: Array) -> None:
    """Copy images to vectors over the images, a few at a time: all would not fit into L1."""
    order = (*range(1, images.ndim), 0)
    for start in range(0, len(images), _FEW):
        some = slice(start, start + _FEW)
        target[..., some] = images[some].transpose(order)


def _beside(xp: Library, y: Array, groups: int) -> Any:
    """Some images as matrices of shape (groups, channels, places * images)."""
    shape = (groups, y.shape[1] // groups, *y.shape[2:], len(y))
    out = _matrices(xp, y.dtype, groups, shape[1], prod(shape[2:]))
    _put_beside(out.reshape(y.shape[1:] + shape[-1:]), y)
    return out


def _is_pointwise(kernel: Shape, geometry: Geometry) -> bool:
    """Whether each output element depends on one place of the image, with every place used once."""
    return (
        all(k == 1 for k in kernel)
        and all(s == 1 for s in geometry.stride)
        and not any(before or after for before, after in geometry.padding)
    )


def _of_groups(xp: Library, a: Array, b: Array) -> Any:
    """The matrix products for each group, or for each image and group."""
    out = xp.matmul(a[0], b[0])[None] if len(a) == 1 and b.ndim == 3 else a @ b
    # Products of bfloat16 have dtype float32.
    return out if out.dtype == a.dtype else out.astype(a.dtype)


@functools.lru_cache(_REMEMBERED)
def _parts(length: int, others: int) -> int:
    """Into how many parts a side of a product is cut, given the product of the other two sides."""
    count = 1
    while length // count * others > _SMALL_PRODUCT:
        if length % (2 * count) or length // (2 * count) < _NARROW:
            return 1
        count *= 2
    return count


def _in_parts(xp: Library, a: Array, b: Array) -> Any:
    """The products of `a` with some columns of `b` at a time, for each group."""
    groups, rows, inner = a.shape
    count = _parts(b.shape[2], rows * inner)
    if count == 1 or a.dtype.kind == "V":
        return _of_groups(xp, a, b)
    out = _matrices(xp, a.dtype, groups, rows, b.shape[2])
    b, cut = [x.reshape(groups, len(x[0]), count, -1).swapaxes(1, 2) for x in (b, out)]
    np.matmul(a[:, None], b, cut)
    return out


def _sum_of_parts(xp: Library, a: Array, b: Array) -> Any:
    """The products of some columns of `a` with the same rows of `b`, summed, for each group."""
    groups, rows, inner = a.shape
    count = _parts(inner, rows * b.shape[2])
    if count == 1 or a.dtype.kind == "V":
        return _of_groups(xp, a, b)
    a = a.reshape(groups, rows, count, -1).swapaxes(1, 2)
    return np.matmul(a, b.reshape(groups, count, -1, b.shape[2])).sum(axis=1)


def _convolution(xp: Library, x: Array, weight: Array, geometry: Geometry) -> Any:
    kernel = weight.shape[2:]
    groups, ndim = geometry.groups, len(kernel)
    batch, outs = x.shape[0], weight.shape[0]
    matrix = weight.reshape(groups, outs // groups, prod(weight.shape[1:]))
    if _is_pointwise(kernel, geometry):
        columns = x.reshape(batch, groups, x.shape[1] // groups, prod(x.shape[2:]))
        return _of_groups(xp, matrix, columns).reshape(batch, outs, *x.shape[2:])
    image = geometry.out_shape(x.shape[2:], kernel)
    if _has_short_rows(x, kernel, image):
        out = xp.empty((batch, outs, *image), x.dtype)
        for images, columns in _side_by_side(xp, x, kernel, image, geometry):
            made = _in_parts(xp, matrix, columns).reshape(outs, *image, -1)
            out[images] = made.transpose((ndim + 1, *range(ndim + 1)))
        return out
    windows = _windows(xp, padded(xp, x, geometry.padding), kernel, image, geometry)
    if batch == 1 and 0 < windows.size <= _COLUMNS:
        columns = windows.reshape(groups, matrix.shape[2], prod(image))
        return _of_groups(xp, matrix, columns).reshape(1, outs, *image)
    out = xp.empty((batch, groups, outs // groups, *image), x.dtype)
    if not windows.size:
        out[...] = 0
    for images, rows, columns in _pieces(windows, ndim):
        target = out[images, :, :, rows]
        made = _of_groups(xp, matrix, columns)
        made = made.reshape((*made.shape[:2], len(target), *target.shape[3:]))
        target[...] = made.transpose((2, 0, 1, *range(3, made.ndim)))
    return out.reshape(batch, outs, *image)


def _convolution_with_bias(
    xp: Library, x: Array, weight: Array, bias: Array, geometry: Geometry
) -> Any:
    out = _convolution(xp, x, weight, geometry)
    out += bias.reshape((-1,) + (1,) * len(geometry.stride))
    return out


def _convolution_weight(
    xp: Library, y: Array, x: Array, shape: tuple[int, ...], geometry: Geometry
) -> Any:
    """The gradient by the weight, of shape `shape`; `y` is the output's gradient."""
    kernel = shape[2:]
    groups, ndim = geometry.groups, len(kernel)
    outs, length = shape[0] // groups, prod(shape[1:])
    if _has_short_rows(x, kernel, y.shape[2:]):
        total = xp.zeros((groups, length, outs), y.dtype)
        for images, columns in _side_by_side(xp, x, kernel, y.shape[2:], geometry):
            part = y[images].reshape(-1, groups, outs, *y.shape[2:])
            part = part.transpose((1, *range(3, ndim + 3), 0, 2)).reshape(groups, -1, outs)
            total += _sum_of_parts(xp, columns, part)
        return xp.ascontiguousarray(total.swapaxes(1, 2)).reshape(shape)
    windows = _windows(xp, padded(xp, x, geometry.padding), kernel, y.shape[2:], geometry)
    if len(y) == 1 and 0 < windows.size <= _COLUMNS:
        columns = windows.reshape(groups, length, -1)
        return _of_groups(xp, y.reshape(groups, outs, -1), columns.swapaxes(1, 2)).reshape(shape)
    y = y.reshape(y.shape[0], groups, outs, *y.shape[2:])
    # Columns first: BLAS takes twice the time for few rows times a transposed matrix.
    total = xp.zeros((groups, length, outs), y.dtype)
    for images, rows, columns in _pieces(windows, ndim):
        part = y[images, :, :, rows]
        if len(part) > 1:
            part = part.transpose((1, 2, 0, *range(3, part.ndim)))
        part = part.reshape(groups, outs, columns.shape[2])
        total += _of_groups(xp, columns, part.swapaxes(1, 2))
    return xp.ascontiguousarray(total.swapaxes(1, 2)).reshape(shape)


def _apart(xp: Library, y: Array, stride: tuple[int, ...]) -> Any:
    """Put zeros between the elements, so that their distances are the strides."""
    if all(s == 1 for s in stride):
        return y
    lead = y.ndim - len(stride)
    places = tuple([slice(None, None, s) for s in stride])
    lengths = [(n - 1) * s + 1 for n, s in zip(y.shape[lead:], stride, strict=True)]
    out = xp.zeros((*y.shape[:lead], *lengths), y.dtype)
    out[(..., *places)] = y
    return out


def _convolution_input(
    xp: Library, y: Array, weight: Array, shape: tuple[int, ...], geometry: Geometry
) -> Any:
    """The gradient by the input, of shape `shape`; `y` is the output's gradient."""
    kernel = weight.shape[2:]
    groups, ndim = geometry.groups, len(kernel)
    weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    small = y.size * prod(geometry.stride) <= _SMALL
    if small or all(s == 1 for s in geometry.stride):
        # A convolution with the flipped kernel over the gradients, spread out by the strides.
        y = _apart(xp, y, geometry.stride)
        backwards: tuple[Any, ...] = (..., *(slice(None, None, -1),) * ndim)
        turned = weight.swapaxes(1, 2)[backwards]
        turned = turned.reshape(shape[1], weight.shape[1], *kernel)
        reach = [d * (k - 1) for d, k in zip(geometry.dilation, kernel, strict=True)]
        padding = tuple(
            (r - before, n - m + before)
            for r, n, m, (before, _) in zip(
                reach, shape[2:], y.shape[2:], geometry.padding, strict=True
            )
        )
        near = geometry._replace(stride=(1,) * ndim, padding=padding)
        return _convolution(xp, y, turned, near)
    image = y.shape[2:]
    matrix = weight.reshape(groups, weight.shape[1], -1).swapaxes(1, 2)
    spread = [
        n + before + max(0, after)
        for n, (before, after) in zip(shape[2:], geometry.padding, strict=True)
    ]
    inner = tuple(
        slice(before, before + n)
        for n, (before, _) in zip(shape[2:], geometry.padding, strict=True)
    )
    out = xp.empty(shape, y.dtype)
    if not y.size:
        out[...] = 0
    for images in _some_images(len(y), groups * matrix.shape[1] * prod(image)):
        part = _in_parts(xp, matrix, _beside(xp, y[images], groups))
        part = part.reshape(shape[1], *kernel, *image, -1)
        total = xp.zeros((shape[1], *spread, part.shape[-1]), y.dtype)
        for offset in np.ndindex(*kernel):
            axes = zip(offset, image, geometry.stride, geometry.dilation, strict=True)
            places = tuple([slice(i * d, i * d + (n - 1) * s + 1, s) for i, n, s, d in axes])
            total[(slice(None), *places)] += part[(slice(None), *offset)]
        out[images] = total[(slice(None), *inner)].transpose((ndim + 1, *range(ndim + 1)))
    return out


def _bias_gradient(xp: Library, g: Array) -> Any:
    return g.reshape(*g.shape[:2], prod(g.shape[2:])).sum(axis=2).sum(axis=0)


def _bias_rule(F: Namespace, g: Value) -> Any:
    return F.sum(g, (0, *range(2, len(g.shape))), False)


def _cost(x: Variable, weight: Variable, *rest: Any) -> int:
    stride = prod(rest[-1].stride)
    places = x._metadata.size // max(1, x._metadata.shape[1]) // stride
    return 10_000 + product_cost(places * weight._metadata.size)


def _products_cost(y: Variable, other: Variable, shape: Shape, geometry: Geometry) -> int:
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

OPS = (
    operation(
        "convolution",
        _convolution,
        "x weight",
        "geometry",
        pulls=_BY_INPUT_AND_WEIGHT,
        pushes=_PUSHES,
        cost=_cost,
        batch=batch_products.convolution,
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
        batch=batch_products.convolution,
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
        batch=batch_products.convolution_input,
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
