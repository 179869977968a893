"""The windows under a kernel as columns of matrices, and products of such matrices.

Columns are made of a few images at a time, or of some rows of one, so that they stay in the cache.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from asyncgrad.ops.dtype import is_half
from asyncgrad.records import NamedTuple
from asyncgrad.types import Array, Library, Shape

#: The most elements of the columns that are made at a time. On a device each part costs several
#: launches, and a product of few columns leaves most of it idle.
COLUMNS, _OF_DEVICE = 1 << 18, 1 << 27
#: Rows with fewer elements are short; from this many images on they are put side by side.
_SHORT, _SIDE_BY_SIDE = 32, 8
#: Numbers in a line of the cache.
_LINE = 16
#: Lines that stay in the first cache, and as many whose distance is a power of two.
_LINES, _FEW_LINES = 512, 128
#: Up to so many elements the fewest calls are the fastest.
_FEW = 4096
#: Products of rows have so many times as many columns as rows at least.
_WIDE = 4
#: BLAS does not pack the operands of products with at most so many multiplications. Parts of a
#: product have as many columns at least.
_SMALL_PRODUCT, _NARROW = 10**6, 32
#: Elements between two rows of a matrix.
_APART = 16
#: With fewer channels it takes longer to add up the products of a kernel's columns than to lay out
#: windows. With more of the output than of the input it does, too, if BLAS packs the operands.
_DEEP = 16
#: How many shapes and window layouts are cached.
REMEMBERED = 1024


class Geometry(NamedTuple):
    """How a kernel moves over an image, for each axis of the image."""

    stride: tuple[int, ...]
    #: For each axis, the padding before and after.
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @functools.lru_cache(REMEMBERED)  # noqa: B019  by value: geometries are few
    def out_shape(self, image: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the output image."""
        axes = zip(image, kernel, *self[:3], strict=True)
        return tuple(
            [
                (n + before + after - d * (k - 1) - 1) // s + 1
                for n, k, s, (before, after), d in axes
            ]
        )


def padded(xp: Library, x: Array, padding: tuple[tuple[int, int], ...], value: float = 0) -> Any:
    """Pad the last axes with `value`; negative padding crops."""
    return bordered(xp, x, *border_of(x.shape, padding), value) if any(map(any, padding)) else x


def bordered(xp: Library, x: Array, shape: Shape, kept: Any, inner: Any, value: Any = 0) -> Any:
    """An array of a shape with what is kept of another one in it, and one value around that."""
    given = x[kept]
    # Even a float 0.0 is filled in, as it may be -0.0.
    zeros = value.__class__ is int and not value
    out = (xp.zeros if zeros else xp.empty)(shape, x.dtype)
    if not zeros and given.size < out.size:
        out.fill(value)
    out[inner] = given
    return out


@functools.lru_cache(REMEMBERED)
def border_of(shape: tuple[int, ...], padding: tuple[tuple[int, int], ...]) -> tuple[Any, Any, Any]:
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


def windows_of(xp: Library, x: Array, kernel: Shape, out: Shape, geometry: Geometry) -> Any:
    """A view (batch, groups, channels, *kernel, *out) of an image, which is padded first."""
    border, shape, strides = _layout(x.shape, x.itemsize, kernel, out, geometry)
    x = xp.ascontiguousarray(x) if border is None else bordered(xp, x, *border)
    if xp.ndarray is np.ndarray:
        # It takes a tenth of the time of `as_strided`.
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


@functools.lru_cache(REMEMBERED)
def _layout(
    shape: tuple[int, ...], itemsize: int, kernel: Shape, out: Shape, geometry: Geometry
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    stride, padding, dilation, groups = geometry
    border = border_of(shape, padding) if any(map(any, padding)) else None
    own = shape[1] // groups
    whole = shape if border is None else border[0]
    batch, channel, *steps = [itemsize * prod(whole[axis:]) for axis in range(1, len(whole) + 1)]
    within = [d * step for d, step in zip(dilation, steps, strict=True)]
    between = [s * step for s, step in zip(stride, steps, strict=True)]
    strides = (batch, own * channel, channel, *within, *between)
    return border, (shape[0], groups, own, *kernel, *out), strides


def most_columns(array: Array) -> int:
    """The most elements of the columns of an array that are made at a time."""
    return COLUMNS if array.__class__ is np.ndarray else _OF_DEVICE


def some_windows(windows: Array, ndim: int) -> list[tuple[slice, slice]]:
    """Slices of the images and of their rows: some images, or some rows of one, at a time."""
    shape = windows.shape
    batch, rows = shape[0], shape[-ndim]
    image = prod(shape[1:])
    if batch == 0 or image == 0:
        return []
    most = most_columns(windows)
    if image <= most // 2:
        step = max(1, most // image)
        return [(slice(start, start + step), slice(None)) for start in range(0, batch, step)]
    step = max(1, most * rows // image)
    return [
        (slice(place, place + 1), slice(start, start + step))
        for place in range(batch)
        for start in range(0, rows, step)
    ]


def has_short_rows(x: Array, kernel: Shape, image: Shape) -> bool:
    """Whether it is faster to put the images of a batch side by side.

    NumPy copies row by row: long rows at the speed of memory, while each short row costs a step of
    its own.
    """
    return (
        image[-1] < _SHORT
        and len(x) >= _SIDE_BY_SIDE
        and 0 < x.shape[1] * prod(kernel) * prod(image) * _SIDE_BY_SIDE <= 4 * COLUMNS
        and x.__class__ is np.ndarray
    )


def some_images(batch: int, columns: int, most: int) -> list[slice]:
    """Images that are put side by side, from the elements of one's columns.

    Parts of about the same length, in full lines of the cache: an odd number of them, as vectors
    whose distance is a power of two would fall on the same lines.
    """
    lines = -(-batch // _LINE)
    count = -(-lines // -(-most // (max(1, columns) * _LINE)))
    if lines % 8 == 0:
        count = max(2, count)
    step = -(-lines // count)
    step = (step | (count > 1)) * _LINE
    return [slice(start, min(start + step, batch)) for start in range(0, batch, step)]


class SideBySide(NamedTuple):
    """How a kernel moves over images that are put side by side.

    The windows in a row of the output lie in `kernel[0]` rows of the image. If these follow one
    another in memory, they are the columns of a matrix, and the matrices of two rows share memory:
    so windows are laid out along the other axes only. Otherwise, and if rows are few or not next to
    each other, there is one row, of all places.
    """

    kernel: tuple[int, ...]
    image: tuple[int, ...]
    geometry: Geometry
    #: Whether the products with each column of the kernel are computed apart, and added up: their
    #: windows follow one another in the image, and need not be laid out.
    apart: bool
    #: The images that are taken at a time.
    parts: list[slice]

    def rows(self, x: Array) -> Any:
        """Images with as many axes as the kernel."""
        return x if x.ndim == 2 + len(self.kernel) else x[:, :, None]


@functools.lru_cache(REMEMBERED)
def side_by_side(
    shape: Shape, outs: int, kernel: Shape, image: Shape, geometry: Geometry, whole: bool = False
) -> SideBySide:
    """Choose how images of a shape are put side by side for `outs` channels of output.

    `whole` asks for one row of all places.
    """
    stride, padding, dilation, groups = geometry
    batch, channels = shape[:2]
    follow = len(kernel) > 1 and kernel[0] > 1 and stride[0] == dilation[0] == 1
    if follow and batch * channels * prod(image) > _FEW and not whole:
        height, width = image[0] - 1 + kernel[0], prod(image[1:])
        one = channels * height * prod(kernel[1:]) * width
        # BLAS packs the weights anew for each row.
        fewest = -(-_WIDE * outs // groups // width)
        if fewest <= batch and one * fewest <= 4 * COLUMNS:
            parts = some_images(batch, one, max(COLUMNS // 2, one * fewest))
            product = outs * kernel[0] * channels * width * parts[0].stop
            apart = len(kernel) == 2 and stride[1] == groups == 1 and channels >= _DEEP
            apart = apart and (outs <= channels or product <= _SMALL_PRODUCT)
            return SideBySide(kernel, image, geometry, apart, parts)
    in_one = Geometry((1, *stride), ((0, 0), *padding), (1, *dilation), groups)
    parts = some_images(batch, channels * prod(kernel) * prod(image), COLUMNS)
    return SideBySide((1, *kernel), (1, *image), in_one, False, parts)


def _matrices(xp: Library, dtype: Any, groups: int, rows: int, width: int) -> Any:
    """Undefined matrices whose rows are some elements apart.

    Rows whose distance is a power of two would fall on the same lines of the cache.
    """
    return xp.empty((groups, rows, width + _APART), dtype)[..., :width]


def batch_last(xp: Library, x: Array, padding: tuple[tuple[int, int], ...] = ()) -> Any:
    """Some images as (first axis, channels, other axes, images), padded with zeros.

    Each element of an image is a vector over the images.
    """
    order, shape, kept, inner, edges = _batch_last(x.shape, padding)
    if x.size <= 4 * _FEW or xp.ndarray is not np.ndarray:
        out = xp.zeros(shape, x.dtype)
        out[inner] = x[kept].transpose(order)
        return out
    # Images whose distance is a power of two would fall on the same lines of the cache.
    apart = _matrices(xp, x.dtype, 1, len(x), prod(x.shape[1:]))[0].reshape(x.shape)
    apart[...] = x
    out = xp.empty(shape, x.dtype)
    for edge in edges:
        out[edge] = 0
    out[inner] = apart[kept].transpose(order)
    return out


@functools.lru_cache(REMEMBERED)
def _batch_last(shape: Shape, padding: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
    """The order of the axes, the shape, what is kept of the images and where, and the edges."""
    order = (2, 1, *range(3, len(shape)), 0)
    full, kept, (_, first, *others) = border_of(shape, padding or ((0, 0),) * (len(shape) - 2))
    inner = (first, slice(None), *others)
    whole = tuple([full[axis] for axis in order])
    edges = []
    for axis, part in enumerate(inner):
        if part.start == 1 and part.stop == whole[axis] - 1:
            # The first and the last place, in one call.
            edges.append((*inner[:axis], slice(None, None, part.stop)))
            continue
        if part.start:
            edges.append((*inner[:axis], slice(part.start)))
        if part.stop is not None and part.stop < whole[axis]:
            edges.append((*inner[:axis], slice(part.stop, None)))
    return order, whole, kept, inner, edges


def batch_first(target: Array, values: Array) -> None:
    """Write an array (channels, other axes, images) into one of images.

    NumPy reads image by image, and a line of the cache for each element. Those of a few channels
    stay in the first cache until the next image is read.
    """
    values = values.transpose(*range(-1, values.ndim - 1))
    if values.size <= _LINES * len(values):
        target[...] = values
        return
    channels = values.shape[1]
    step = max(1, _FEW_LINES * channels * len(values) // values.size)
    for start in range(0, channels, step):
        target[:, start : start + step] = values[:, start : start + step]


def windows_beside(
    xp: Library, x: Array, kernel: Shape, image: Shape, geometry: Geometry, apart: bool
) -> Any:
    """The windows of some images as matrices of columns, one for each row of the output.

    Their shape is (groups, rows, kernel * channels, places * images), and they share memory. Those
    that are `apart` have the kernel's columns instead of groups.
    """
    space = batch_last(xp, x, geometry.padding)
    if apart:
        return windows_apart(space, kernel, image, geometry)
    windows, rows, matrices = _rows(space.shape, space.itemsize, kernel, image, geometry)
    laid = xp.empty(rows, x.dtype)
    laid[...] = np.ndarray(rows, x.dtype, space, 0, windows)
    return np.ndarray(matrices[0], x.dtype, laid, 0, matrices[1])


def windows_apart(
    space: Array, kernel: Shape, image: Shape, geometry: Geometry, start: Shape = (0, 0)
) -> Any:
    """The windows of each column of the kernel, from a place of images with the batch last on."""
    _, channels, _, count = space.shape
    row, line, step, itemsize = space.strides
    shape = kernel[1], image[0], kernel[0] * channels, image[1] * count
    strides = geometry.dilation[1] * step, row, line, itemsize
    return np.ndarray(shape, space.dtype, space, start[0] * row + start[1] * step, strides)


@functools.lru_cache(REMEMBERED)
def _rows(
    space: Shape, itemsize: int, kernel: Shape, image: Shape, geometry: Geometry
) -> tuple[Shape, Shape, tuple[Shape, Shape]]:
    """The strides of windows along all axes but the first, their shape, and that of matrices."""
    (_, *strides), _, (_, *dilation), groups = geometry
    own, count = space[1] // groups, space[-1]
    row, channel, *steps = [itemsize * prod(space[axis + 1 :]) for axis in range(len(space) - 1)]
    height, width = image[0] - 1 + kernel[0], prod(image[1:]) * count
    windows = (
        own * channel,
        row,
        *(d * step for d, step in zip(dilation, steps, strict=True)),
        channel,
        *(s * step for s, step in zip(strides, steps, strict=True)),
        itemsize,
    )
    line = itemsize * width
    row = line * own * prod(kernel[1:])
    return (
        windows,
        (groups, height, *kernel[1:], own, *image[1:], count),
        ((groups, image[0], prod(kernel) * own, width),
         (height * row, row, line, itemsize)),
    )  # fmt: skip


def products_beside(xp: Library, a: Array, windows: Array, apart: bool) -> Any:
    """The products of the matrices of each group with its windows, as (groups, outs, rows, ...).

    They are computed in parts whose operands BLAS does not pack. Those that are `apart` are added
    up.
    """
    groups, rows, inner, width = windows.shape
    outs = a.shape[1]
    out = xp.empty((groups, outs, rows, width), a.dtype)
    count = _parts(width, outs * inner)
    cut = windows.reshape(groups, rows, inner, count, -1).swapaxes(2, 3)
    made = out.reshape(groups, outs, rows, count, -1).transpose((0, 2, 3, 1, 4))
    xp.matmul(a[:, None, None], cut, made)
    if apart:
        for other in out[1:]:
            out[0] += other
        return out[:1]
    return out


def of_groups(xp: Library, a: Array, b: Array) -> Any:
    """The matrix products for each group, or for each image and group."""
    out = xp.dot(a[0], b[0])[None] if len(a) == 1 and b.ndim == 3 else xp.matmul(a, b)
    # Products of bfloat16 have dtype float32.
    return out if out.dtype == a.dtype else out.astype(a.dtype)


@functools.lru_cache(REMEMBERED)
def _parts(length: int, others: int) -> int:
    """Into how many parts a side of a product is cut, given the product of the other two sides."""
    count = 1
    while length // count * others > _SMALL_PRODUCT:
        if length % (2 * count) or length // (2 * count) < _NARROW:
            return 1
        count *= 2
    return count


def in_parts(xp: Library, a: Array, b: Array) -> Any:
    """The products of `a` with some columns of `b` at a time, for each group."""
    groups, rows, inner = a.shape
    count = _parts(b.shape[2], rows * inner)
    if count == 1 or is_half(a.dtype) or xp.ndarray is not np.ndarray:
        return of_groups(xp, a, b)
    out = _matrices(xp, a.dtype, groups, rows, b.shape[2])
    b, cut = [x.reshape(groups, len(x[0]), count, -1).swapaxes(1, 2) for x in (b, out)]
    np.matmul(a[:, None], b, cut)
    return out


def sum_of_parts(xp: Library, a: Array, b: Array) -> Any:
    """The products of some columns of `a` with the same rows of `b`, summed, for each group."""
    groups, rows, inner = a.shape
    count = _parts(inner, rows * b.shape[2])
    if count == 1 or is_half(a.dtype) or xp.ndarray is not np.ndarray:
        return of_groups(xp, a, b)
    a = a.reshape(groups, rows, count, -1).swapaxes(1, 2)
    return np.matmul(a, b.reshape(groups, count, -1, b.shape[2])).sum(axis=1)
