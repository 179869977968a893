"""Pooling."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import wrap
from asyncgrad.ops.arguments import one_int
from asyncgrad.ops.batching import by_parts, mapped
from asyncgrad.ops.derivatives.pooling import Counts, Window, peak_indices
from asyncgrad.ops.functions.convolution import for_each
from asyncgrad.ops.functions.index import gather
from asyncgrad.ops.functions.reduction import mean
from asyncgrad.ops.functions.shape import cat, flatten
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.out import writes
from asyncgrad.ops.promotion import as_tensor_operand, category
from asyncgrad.ops.renamed import renamed

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of PyTorch's top level; all are functions of `nn.functional`.
__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
    "avg_pool1d",
    "max_pool1d",
    "max_pool2d",
]
#: Those that are methods of tensors, and those that have a form in place (`add_`).
METHODS = ()
IN_PLACE = ()


def _window(
    name: str,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Window:
    """The windows of a pooling of two axes, checked."""
    shape = x._metadata.shape
    kernel = for_each(name, "kernel_size", kernel_size, 2)
    strides = (
        kernel
        if stride is None or (isinstance(stride, (tuple, list)) and not stride)
        else for_each(name, "stride", stride, 2)
    )
    pads = for_each(name, "padding", padding, 2)
    dilations = for_each(name, "dilation", dilation, 2)
    return _fitted(name, shape, kernel, strides, pads, dilations, bool(ceil_mode))


@functools.lru_cache(1024)
def _fitted(
    name: str,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    ceil_mode: bool,
) -> Window:
    """The windows on images of a shape, checked."""
    if min(kernel) <= 0 or min(strides) <= 0 or min(dilations) <= 0:
        raise RuntimeError(
            f"{name}: kernel size, stride and dilation should be greater than zero, but got "
            f"{kernel}, {strides} and {dilations}"
        )
    if min(pads) < 0:
        raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {pads}")
    if any(p > (d * (k - 1) + 1) // 2 for k, p, d in zip(kernel, pads, dilations, strict=True)):
        raise RuntimeError(
            f"{name}: pad should be at most half of effective kernel size, but got pad={pads}, "
            f"kernel_size={kernel} and dilation={dilations}"
        )
    if len(shape) not in {3, 4} or 0 in shape[-3:]:
        raise RuntimeError(
            f"{name}: Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got: {list(shape)}"
        )
    image = shape[-2:]
    out = tuple(
        _pooled_length(*axis, ceil_mode)
        for axis in zip(image, kernel, strides, pads, dilations, strict=True)
    )
    if min(out) <= 0:
        raise RuntimeError(
            f"{name}: Given input size: {list(shape[-3:])}. Calculated output size: {list(out)}. "
            f"Output size is too small"
        )
    return Window(kernel, strides, pads, dilations, image, out)


def _pooled_length(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """How many windows fit; in ceil mode the last may reach beyond the end, but not begin there."""
    free = n + 2 * p - d * (k - 1) - 1
    length = (free + (s - 1 if ceil_mode else 0)) // s + 1
    return length - 1 if ceil_mode and (length - 1) * s >= n + p else length


def _as_rows(name: str, x: Any) -> Any:
    """Lines (n, channels, length) as images (n, channels, 1, length)."""
    shape = x._metadata.shape
    if len(shape) not in {2, 3} or 0 in shape[-2:]:
        raise RuntimeError(
            f"{name}: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got: {list(shape)}"
        )
    return R.reshape(x, (*shape[:-1], 1, shape[-1]))


def _as_lines(x: Any) -> Any:
    """The inverse of `_as_rows`."""
    shape = x._metadata.shape
    return renamed(R.reshape(x, (*shape[:-2], shape[-1])), "SqueezeBackward1")


def _in_row(name: str, what: str, value: Any, across: int) -> Any:
    """A number for lines as one for rows of an image; None stays None."""
    if value is None or (isinstance(value, (tuple, list)) and not value):
        return None
    return across, *for_each(name, what, value, 1)


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of each window.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        kernel_size: the length of the window.
        stride: how far it moves; its length if None.
        padding: how far windows may reach beyond the sides.
        dilation: how far apart a window's elements are.
        ceil_mode: the last window may reach beyond the end.
        return_indices: return where the elements are, too.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "max_pool1d"
    x = _as_rows(name, as_tensor_operand(input, name, 1))
    window = _window(
        name,
        x,
        _in_row(name, "kernel_size", kernel_size, 1),
        _in_row(name, "stride", stride, 1),
        _in_row(name, "padding", padding, 0),
        _in_row(name, "dilation", dilation, 1),
        ceil_mode,
    )
    out, indices = _peaks(name, x, window, return_indices)
    return (_as_lines(out), _as_lines(indices)) if return_indices else _as_lines(out)


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of each window.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the window, a number or one for each axis.
        stride: how far it moves; its size if None.
        padding: how far windows may reach beyond the sides.
        dilation: how far apart a window's elements are.
        ceil_mode: the last windows may reach beyond the end.
        return_indices: return where the elements are in their planes, too.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "max_pool2d"
    x = as_tensor_operand(input, name, 1)
    window = _window(name, x, kernel_size, stride, padding, dilation, ceil_mode)
    out, indices = _peaks(name, x, window, return_indices)
    return (out, indices) if return_indices else out


def _peaks(name: str, x: Any, window: Window, return_indices: bool) -> tuple[Any, Any]:
    """The greatest elements of the windows, and where they are in their planes if asked for."""
    if x._metadata.dtype.kind in "bc":
        raise NotImplementedError(f'"{name}" not implemented for {x._metadata.dtype}')
    out = R.max_pool(x, window)
    if not return_indices:
        return out, None
    if x._batched:
        found: tuple[Any, Any] = by_parts(lambda x: _peaks(name, x, window, True), x)
        return found
    F = x._metadata.F
    find = x._metadata.device.launching(peak_indices)
    indices = find(F.xp, x._array, out._array, window)
    return out, wrap(indices, F.metadata_of(indices))


def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        kernel_size: the length of the window.
        stride: how far it moves; its length if None.
        padding: zeros on both sides.
        ceil_mode: the last window may reach beyond the end.
        count_include_pad: those zeros count.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "avg_pool1d"
    x = _as_rows(name, as_tensor_operand(input, name, 1))
    window = _window(
        name,
        x,
        _in_row(name, "kernel_size", kernel_size, 1),
        _in_row(name, "stride", stride, 1),
        _in_row(name, "padding", padding, 0),
        1,
        ceil_mode,
    )
    return _as_lines(_means(name, x, window, Counts(count_include_pad, None)))


@writes
def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the window, a number or one for each axis.
        stride: how far it moves; its size if None.
        padding: zeros on both sides.
        ceil_mode: the last windows may reach beyond the end.
        count_include_pad: those zeros count.
        divisor_override: divide the sums by this number.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "avg_pool2d"
    x = as_tensor_operand(input, name, 1)
    window = _window(name, x, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    return _means(name, x, window, Counts(count_include_pad, divisor_override))


def _means(name: str, x: Any, window: Window, counts: Counts) -> Any:
    if category(x._metadata.dtype) == 0 or x._metadata.is_complex:
        raise NotImplementedError(f'"{name}" not implemented for {x._metadata.dtype}')
    return R.avg_pool(x, window, counts)


# -- adaptive -------------------------------------------------------------------------------------


def _bins(n: int, count: int) -> Iterator[tuple[int, int]]:
    """Where the windows begin and end that divide `n` elements into `count` equal parts, nearly."""
    for i in range(count):
        yield i * n // count, -((i + 1) * n // -count)


def _sizes(name: str, x: Any, output_size: Any, ndim: int) -> tuple[int, ...]:
    """How many windows there are along each of the last axes; None keeps the axis."""
    shape = x._metadata.shape
    if ndim > 1 and isinstance(output_size, (tuple, list)) and len(shape) <= len(output_size):
        # PyTorch has another class for this one.
        raise ValueError(
            f"{name}: Input dimension should be at least {len(output_size) + 1}, but got input of "
            f"size {list(shape)}"
        )
    if len(shape) not in {ndim + 1, ndim + 2} or 0 in shape[-ndim - 1 :]:
        raise RuntimeError(
            f"{name}: Expected {ndim + 1}D or {ndim + 2}D tensor whose axes but the batch's are "
            f"not empty, but got input of size {list(shape)}"
        )
    if x._metadata.dtype.kind not in "fV":
        raise NotImplementedError(f'"{name}" not implemented for {x._metadata.dtype}')
    wanted = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * ndim
    if len(wanted) != ndim:
        raise RuntimeError(
            f"{name}: output_size must be a single integer or {ndim} of them, got {output_size!r}"
        )
    sizes = tuple(
        n if size is None else one_int(name, "output_size", size)
        for n, size in zip(shape[-ndim:], wanted, strict=True)
    )
    if min(sizes) < 0:
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0, got {wanted}"
        )
    return sizes


def _uniform(x: Any, sizes: tuple[int, ...]) -> Window | None:
    """The windows over the last two axes if all are alike."""
    image = x._metadata.shape[-2:]
    if not all(sizes) or any(n % size for n, size in zip(image, sizes, strict=True)):
        return None
    kernel = tuple(n // size for n, size in zip(image, sizes, strict=True))
    return Window(kernel, kernel, (0, 0), (1, 1), image, sizes)


def _averaged(x: Any, axis: int, count: int) -> Any:
    """The means of the windows along one axis."""
    n = x._metadata.shape[axis]
    if n == count:
        return x
    if not count:
        return R.narrow(x, axis, 0, 0)
    parts = [
        mean(R.narrow(x, axis, start, end - start), axis, True) for start, end in _bins(n, count)
    ]
    return cat(parts, axis)


def _adaptive_means(name: str, x: Any, sizes: tuple[int, ...]) -> Any:
    window = _uniform(x, sizes)
    if window is not None:
        means = _means(name, x, window, Counts(True, None))
    else:
        ndim = len(x._metadata.shape)
        means = _averaged(_averaged(x, ndim - 2, sizes[0]), ndim - 1, sizes[1])
    if means is x:
        return x
    if sizes == (1, 1):
        return renamed(means, "MeanBackward1", saves=False)
    return renamed(means, "AdaptiveAvgPool2DBackward0", saves=True)


def _adaptive_peaks(name: str, x: Any, sizes: tuple[int, ...], return_indices: bool) -> Any:
    window = _uniform(x, sizes)
    if window is not None:
        return _peaks(name, x, window, return_indices)
    if x._batched:
        return mapped(lambda batch: _adaptive_peaks(name, batch, sizes, return_indices), x)
    F = x._metadata.F
    places = x._metadata.device.launching(_peak_places)(F.xp, x._array, sizes)
    *lead, _, _ = places.shape
    indices = wrap(places, F.metadata_of(places))
    picked = gather(flatten(x, -2), -1, R.reshape(indices, (*lead, sizes[0] * sizes[1])))
    return R.reshape(picked, places.shape), indices


def _peak_places(xp: Any, array: Any, sizes: tuple[int, ...]) -> Any:
    """Where in each image the greatest elements of the windows are."""
    *lead, height, width = array.shape
    places = xp.empty((*lead, *sizes), np.int64)
    for i, (top, bottom) in enumerate(_bins(height, sizes[0])):
        for j, (left, right) in enumerate(_bins(width, sizes[1])):
            region = array[..., top:bottom, left:right].reshape(*lead, -1)
            row, column = xp.divmod(region.argmax(axis=-1), right - left)
            places[..., i, j] = (top + row) * width + left + column
    return places


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """The means of `output_size` windows that divide the length evenly, or nearly.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        output_size: the number of windows.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "adaptive_avg_pool1d"
    x = as_tensor_operand(input, name, 1)
    sizes = _sizes(name, x, output_size, 1)
    return _as_lines(_adaptive_means(name, _as_rows(name, x), (1, *sizes)))


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """The means of windows that divide the image evenly, or nearly.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        output_size: the number of windows, or one for rows and one for columns; None for as many
            as there are elements.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "adaptive_avg_pool2d"
    x = as_tensor_operand(input, name, 1)
    return _adaptive_means(name, x, _sizes(name, x, output_size, 2))


def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest elements of `output_size` windows that divide the length evenly, or nearly.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        output_size: the number of windows.
        return_indices: return where the elements are, too.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "adaptive_max_pool1d"
    x = as_tensor_operand(input, name, 1)
    sizes = (1, *_sizes(name, x, output_size, 1))
    out, indices = _adaptive_peaks(name, _as_rows(name, x), sizes, return_indices)
    return (_as_lines(out), _as_lines(indices)) if return_indices else _as_lines(out)


def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest elements of windows that divide the image evenly, or nearly.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        output_size: the number of windows, or one for rows and one for columns; None for as many
            as there are elements.
        return_indices: return where the elements are in their planes, too.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "adaptive_max_pool2d"
    x = as_tensor_operand(input, name, 1)
    out, indices = _adaptive_peaks(name, x, _sizes(name, x, output_size, 2), return_indices)
    return (out, indices) if return_indices else out
