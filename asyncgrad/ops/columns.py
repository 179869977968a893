"""The windows under a kernel as columns of matrices, and products of such matrices.

Columns are made of a few images at a time, or of some rows of one, so that they stay in the cache.
"""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.ops.dtype import is_half
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from asyncgrad.types import Array, Library, Shape

#: The most elements of the columns that are made at a time. On a device each part costs several
#: launches, and a product of few columns leaves most of it idle.
COLUMNS, _OF_DEVICE = 1 << 18, 1 << 27
#: Rows with fewer elements are short; from this many images on they are put side by side.
_SHORT, _SIDE_BY_SIDE = 32, 8
#: Numbers in a line of the cache.
_LINE = 16
#: Images that are copied side by side at a time. Their rows may share a set of lines of the cache,
#: which holds eight.
_FEW = 8
#: BLAS does not pack the operands of products with at most so many multiplications. Parts of a
#: product have as many columns at least.
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


def windows_of(xp: Library, x: Array, kernel: Shape, out: Shape, geometry: Geometry) -> Any:
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


def _most(array: Array) -> int:
    """The most elements of the columns of an array that are made at a time."""
    return COLUMNS if array.__class__ is np.ndarray else _OF_DEVICE


def some_windows(windows: Array, ndim: int) -> list[tuple[slice, slice]]:
    """Slices of the images and of their rows: some images, or some rows of one, at a time."""
    shape = windows.shape
    batch, rows = shape[0], shape[-ndim]
    image = prod(shape[1:])
    if batch == 0 or image == 0:
        return []
    most = _most(windows)
    if image <= most // 2:
        step = max(1, most // image)
        return [(slice(start, start + step), slice(None)) for start in range(0, batch, step)]
    step = max(1, most * rows // image)
    return [
        (slice(place, place + 1), slice(start, start + step))
        for place in range(batch)
        for start in range(0, rows, step)
    ]


def columns_of(windows: Array, ndim: int, images: slice, rows: slice) -> Any:
    """Some windows as columns, of shape (groups, channels * kernel, images * places)."""
    index: tuple[Any, ...] = (images, ..., rows, *(slice(None),) * (ndim - 1))
    part = windows[index]
    order = (*range(1, 3 + ndim), 0, *range(3 + ndim, 3 + 2 * ndim))
    length = prod(part.shape[2 : 3 + ndim])
    return part.transpose(order).reshape(part.shape[1], length, -1)


def has_short_rows(x: Array, kernel: Shape, image: Shape) -> bool:
    """Whether it is faster to put the images of a batch side by side.

    NumPy copies row by row: long rows at the speed of memory, while each short row costs a step of
    its own.
    """
    columns = x.shape[1] * prod(kernel) * prod(image)
    return (
        image[-1] < _SHORT
        and len(x) >= _SIDE_BY_SIDE
        and 0 < columns * _SIDE_BY_SIDE <= 4 * COLUMNS
        and x.__class__ is np.ndarray
    )


def some_images(y: Array, columns: int) -> list[slice]:
    """Images that are put side by side, from the elements of one's columns.

    Parts of about the same length, in full lines of the cache.
    """
    batch, most = len(y), _most(y)
    step = -(-most // (max(1, columns) * _LINE)) * _LINE
    step = -(-batch // (-(-batch // step) * _LINE)) * _LINE
    return [slice(start, min(start + step, batch)) for start in range(0, batch, step)]


def _matrices(xp: Library, dtype: Any, groups: int, rows: int, width: int) -> Any:
    """Undefined matrices whose rows are some elements apart.

    Rows whose distance is a power of two would fall on the same lines of the cache.
    """
    return xp.empty((groups, rows, width + _APART), dtype)[..., :width]


def side_by_side(xp: Library, x: Array, kernel: Shape, image: Shape, geometry: Geometry) -> Any:
    """The windows of some images, side by side along the last axis, as matrices of columns.

    Their shape is (groups, channels * kernel, places * images).
    """
    groups, count = geometry.groups, len(x)
    length, places = x.shape[1] // groups * prod(kernel), prod(image)
    frame, kept, inner = _frame(x.shape, geometry.padding)
    # Each element of an image is a vector over the images.
    space = xp.zeros((*frame[1:], count), x.dtype)
    # The layout of one such image.
    shape, strides = _layout((1, *frame[1:]), (0, *space.strides[:-1]), kernel, image, geometry)
    _put_beside(space[(*inner, slice(None))], x[kept])
    windows = np.ndarray((*shape[1:], count), x.dtype, space, 0, (*strides[1:], space.itemsize))
    columns = _matrices(xp, x.dtype, groups, length, places * count)
    columns.reshape(windows.shape)[...] = windows
    return columns


def _put_beside(target: Array, images: Array) -> None:
    """Copy images to vectors over the images, a few at a time: all would not fit into L1."""
    order = (*range(1, images.ndim), 0)
    for start in range(0, len(images), _FEW):
        some = slice(start, start + _FEW)
        target[..., some] = images[some].transpose(order)


def beside(xp: Library, y: Array, groups: int) -> Any:
    """Some images as matrices of shape (groups, channels, places * images)."""
    shape = (groups, y.shape[1] // groups, *y.shape[2:], len(y))
    out = _matrices(xp, y.dtype, groups, shape[1], prod(shape[2:]))
    _put_beside(out.reshape(y.shape[1:] + shape[-1:]), y)
    return out


def of_groups(xp: Library, a: Array, b: Array) -> Any:
    """The matrix products for each group, or for each image and group."""
    out = xp.matmul(a[0], b[0])[None] if len(a) == 1 and b.ndim == 3 else xp.matmul(a, b)
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
