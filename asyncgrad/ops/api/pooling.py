"""Max, average, adaptive and fractional pooling, and unpooling."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.recording import again
from asyncgrad.core.variable import wrap
from asyncgrad.ops.api.convolution import SHAPES, for_each
from asyncgrad.ops.api.index import check_range, gather
from asyncgrad.ops.api.random import rand
from asyncgrad.ops.api.shape import flatten
from asyncgrad.ops.arguments import one_int
from asyncgrad.ops.batching import by_parts, mapped
from asyncgrad.ops.converted import writes, writes_exactly
from asyncgrad.ops.dtype import FLOATING, REAL, check_dtype
from asyncgrad.ops.float32_compute import computing_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import cast, check_device
from asyncgrad.ops.requirements import unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.table.pooling import Counts, Window, bins, divisors, peak_indices, peak_places
from asyncgrad.ops.tensors.new_tensors import from_host
from asyncgrad.types import Array, ByExample, Ints, Library, OutputSize, Shape, Tensor, Truth

#: The functions at PyTorch's top level; all functions here are in `nn.functional`.
__all__ = [
    "adaptive_avg_pool1d", "avg_pool1d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip


def _window(
    name: str, x: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints,
    ceil_mode: bool, ndim: int,
) -> Window:  # fmt: skip
    """The checked windows of pooling over one to three axes; lines are images of one row."""
    shape = x._metadata.shape
    kernel = for_each(name, "kernel_size", kernel_size, ndim)
    strides = (
        kernel
        if stride is None or (isinstance(stride, (tuple, list)) and not stride)
        else for_each(name, "stride", stride, ndim)
    )
    pads = for_each(name, "padding", padding, ndim)
    dilations = for_each(name, "dilation", dilation, ndim)
    if ndim == 1:
        kernel, strides, pads, dilations = (1, *kernel), (1, *strides), (0, *pads), (1, *dilations)
    return _fitted(name, shape, kernel, strides, pads, dilations, bool(ceil_mode))


def _check_image(name: str, shape: Shape, ndim: int, filled: Shape) -> None:
    """Raise unless a shape is one of images or of a batch, in which some lengths are not 0."""
    if len(shape) not in {ndim + 1, ndim + 2} or 0 in filled:
        raise unmet(name, f"Expected {ndim + 1}D or {ndim + 2}D (batch mode) tensor with optional "
                    "0 dim batch size for input. Expected input to have non-zero size for "
                    "non-batch dimensions", **{"input.shape": shape})  # fmt: skip


@functools.lru_cache(1024)
def _fitted(
    name: str, shape: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...],
    pads: tuple[int, ...], dilations: tuple[int, ...], ceil_mode: bool,
) -> Window:  # fmt: skip
    """The checked windows on images of a shape."""
    for what, lengths in (("kernel_size", kernel), ("stride", strides), ("dilation", dilations)):
        if min(lengths) <= 0:
            raise RuntimeError(
                f"{name}() {what} must be greater than zero ({what} should not be zero), but got "
                f"{min(lengths)}"
            )
    if min(pads) < 0:
        raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {pads}")
    if any(p > (d * (k - 1) + 1) // 2 for k, p, d in zip(kernel, pads, dilations, strict=True)):
        raise unmet(name, "pad should be at most half of effective kernel size",
                    padding=pads, kernel_size=kernel, dilation=dilations)  # fmt: skip
    ndim = len(kernel)
    _check_image(name, shape, ndim, shape[-ndim - 1 :])
    image = shape[-ndim:]
    out = tuple(
        _pooled_length(*axis, ceil_mode)
        for axis in zip(image, kernel, strides, pads, dilations, strict=True)
    )
    if min(out) <= 0:
        raise unmet(name, f"Given input size: {shape[-ndim - 1 :]}. Calculated output size: {out}. "
                    "Output size is too small")  # fmt: skip
    return Window(kernel, strides, pads, dilations, image, out)


def _pooled_length(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """The number of windows; in ceil mode the last may reach, but not start, beyond the end."""
    free = n + 2 * p - d * (k - 1) - 1
    length = (free + (s - 1 if ceil_mode else 0)) // s + 1
    return length - 1 if ceil_mode and (length - 1) * s >= n + p else length


def _layers(window: Window) -> tuple[Window, Window]:
    """Split 3D windows into 2D windows within layers and 1D windows across the layers."""
    within = Window._make(axes[1:] for axes in window)
    (depth, *_), places = window.image, prod(within.out)
    first = [axes[0] for axes in window[:4]]
    steps = [(one, other) for one, other in zip(first, (1, 1, 0, 1), strict=True)]
    return within, Window._make([*steps, (depth, places), (window.out[0], places)])


def _flat_layers(x: Tensor) -> Any:
    """Merge the last two axes."""
    *lead, rows, columns = x._metadata.shape
    return R.reshape(x, (*lead, rows * columns))


def _as_rows(name: str, x: Tensor) -> Any:
    """Make lines (n, channels, length) images of one row."""
    shape = x._metadata.shape
    _check_image(name, shape, 1, shape[1:])
    return R.reshape(x, (*shape[:-1], 1, shape[-1]))


def _as_lines(x: Tensor) -> Any:
    """The inverse of `_as_rows`."""
    shape = x._metadata.shape
    return renamed(R.reshape(x, (*shape[:-2], shape[-1])), "SqueezeBackward1")


def _with_indices(out: Tensor, indices: Any, ndim: int, return_indices: bool) -> Any:
    """The maxima of images of `ndim` axes, and their indices if wanted."""
    if ndim == 1:
        return (_as_lines(out), _as_lines(indices)) if return_indices else _as_lines(out)
    return (out, indices) if return_indices else out


#: What docstrings say of images with one, two and three axes, and of windows.
WHOLE = {1: "line", 2: "plane", 3: "volume"}
WINDOWS = """kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None."""


def _max_pool(ndim: int) -> Callable[..., Any]:
    name = f"max_pool{ndim}d"

    def function(
        input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        dilation: Ints = 1, ceil_mode: bool = False, return_indices: Truth = False,
    ) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
        x = _as_rows(name, input) if ndim == 1 else input
        window = _window(name, x, kernel_size, stride, padding, dilation, ceil_mode, ndim)
        if ndim == 1 and not return_indices:
            check_dtype(name, x._metadata.dtype, FLOATING)
        out, indices = _peaks(name, x, window, return_indices)
        return _with_indices(out, indices, ndim, return_indices)

    doc = f"""The greatest element of each window.

    Args:
        input: {SHAPES[ndim]}
        {WINDOWS}
        padding: how far windows may reach beyond the sides.
        dilation: the distance between the window's elements.
        ceil_mode: let the last windows reach beyond the end.
        return_indices: also return the elements' indices in their {WHOLE[ndim]}s.
    """
    return named(function, name, doc)


max_pool1d, max_pool2d, max_pool3d = map(_max_pool, (1, 2, 3))


def _peaks(name: str, x: Tensor, window: Window, return_indices: bool) -> Any:
    """The maxima of the windows, with their indices in the planes if `return_indices`."""
    check_dtype(name, x._metadata.dtype, REAL)
    if len(window.kernel) == 3:
        return _peaks_of_layers(name, x, window, return_indices)
    out = R.max_pool(x, window)
    if not return_indices:
        return out, None
    if x._batched:
        return by_parts(lambda x: _peaks(name, x, window, True), x)
    F = x._metadata.F
    find = functools.partial(x._metadata.device.launching(peak_indices), F.xp)
    indices = again(find, x._array, out._array, window)
    return out, wrap(indices, F.metadata_of(indices))


def _peaks_of_layers(name: str, x: Tensor, window: Window, return_indices: bool) -> tuple[Any, Any]:
    """`_peaks` of 3D windows: the maxima within layers, then the maxima across layers."""
    within, across = _layers(window)
    shape = (*x._metadata.shape[:-3], *window.out)
    flat, places = _peaks(name, x, within, return_indices)
    out, layers = _peaks(name, _flat_layers(flat), across, return_indices)
    out = renamed(R.reshape(out, shape), "MaxPool3DWithIndicesBackward0")
    if not return_indices:
        return out, None
    layers = _flat_layers(layers)
    rows = gather(_flat_layers(_flat_layers(places)), -1, layers)
    depth = R.div_floor(layers, across.image[1])
    indices = R.add(rows, R.mul(depth, prod(within.image)))
    return out, R.reshape(indices, shape)


def avg_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        kernel_size: the length of the window.
        stride: the step of the window; its length if None.
        padding: zeros on both sides.
        ceil_mode: let the last windows reach beyond the end.
        count_include_pad: include those zeros in the mean.
    """
    name = "avg_pool1d"
    x = _as_rows(name, input)
    window = _window(name, x, kernel_size, stride, padding, 1, ceil_mode, 1)
    return _as_lines(_means(name, x, window, Counts(count_include_pad, None)))


def _avg_pool(ndim: int) -> Callable[..., Tensor]:
    name = f"avg_pool{ndim}d"

    def function(
        input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:  # fmt: skip
        window = _window(name, input, kernel_size, stride, padding, 1, ceil_mode, ndim)
        if divisor_override == 0:
            raise RuntimeError(f"{name}: divisor must be not zero")
        return _means(name, input, window, Counts(count_include_pad, divisor_override))

    doc = f"""The mean of each window.

    Args:
        input: {SHAPES[ndim]}
        {WINDOWS}
        padding: zeros on both sides.
        ceil_mode: let the last windows reach beyond the end.
        count_include_pad: include those zeros in the mean.
        divisor_override: divide the sums by this number.
    """
    return (writes_exactly if ndim == 2 else writes)(named(function, name, doc))


avg_pool2d, avg_pool3d = map(_avg_pool, (2, 3))


def _means(name: str, x: Tensor, window: Window, counts: Counts) -> Any:
    if x._metadata.dtype != np.int64:
        check_dtype(name, x._metadata.dtype, FLOATING)
    if len(window.kernel) == 2:
        return R.avg_pool(x, window, counts)
    whole = x._metadata.dtype.kind in "iu"
    within, across = _layers(window)
    sums = counts._replace(override=1)
    inner = counts if counts.override is None and not whole else sums
    flat = _flat_layers(R.avg_pool(x, within, inner))
    means = R.avg_pool(flat, across, sums if whole else counts)
    means = R.reshape(means, (*x._metadata.shape[:-3], *window.out))
    if whole:
        # Means of integers are truncated; dividing once avoids truncating twice.
        found = divisors(np, window, counts, x._metadata.dtype)
        if not isinstance(found, int):
            found = from_host("avg_pool3d", found, x._metadata.device)
        return R.div_trunc(means, found)
    return renamed(means, "AvgPool3DBackward0")


# -- adaptive -------------------------------------------------------------------------------------


def _sizes(name: str, x: Tensor, output_size: OutputSize, ndim: int) -> tuple[int, ...]:
    """The number of windows along each of the last axes; None keeps the axis."""
    shape = x._metadata.shape
    if ndim > 1 and isinstance(output_size, (tuple, list)) and len(shape) <= len(output_size):
        # As in PyTorch, this is a ValueError, not a RuntimeError.
        raise unmet(
            name, f"Input dimension should be at least {len(output_size) + 1}", ValueError, input=x
        )
    # Without a batch PyTorch looks past the channels.
    _check_image(name, shape, ndim, shape[1:])
    check_dtype(name, x._metadata.dtype, FLOATING)
    wanted = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * ndim
    if len(wanted) != ndim:
        raise unmet(name, f"output_size must be {ndim} numbers, or one", output_size=output_size)
    sizes = tuple(
        n if size is None else one_int(name, "output_size", size)
        for n, size in zip(shape[-ndim:], wanted, strict=True)
    )
    if min(sizes) < 0:
        raise unmet(
            name, "elements of output_size must be greater than or equal to 0", output_size=wanted
        )
    return sizes


def _uniform(x: Tensor, sizes: tuple[int, ...]) -> Window | None:
    """The windows over the last axes if all have the same size, else None."""
    ndim = len(sizes)
    image = x._metadata.shape[-ndim:]
    if not all(sizes) or any(n % size for n, size in zip(image, sizes, strict=True)):
        return None
    kernel = tuple(n // size for n, size in zip(image, sizes, strict=True))
    return Window(kernel, kernel, (0,) * ndim, (1,) * ndim, image, sizes)


def _adaptive_means(name: str, x: Tensor, sizes: tuple[int, ...]) -> Any:
    window = _uniform(x, sizes)
    if window is not None:
        means = _means(name, x, window, Counts(True, None))
    else:
        means = cast(x, computing_dtype(x._metadata.dtype))
        for axis, size in enumerate(sizes, len(x._metadata.shape) - len(sizes)):
            if size != x._metadata.shape[axis]:
                means = R.bin_means(means, axis, size)
    if means is x:
        return x
    means = cast(means, x._metadata.dtype)
    if set(sizes) == {1}:
        return renamed(means, "MeanBackward1", saves=False)
    return renamed(means, f"AdaptiveAvgPool{len(sizes)}DBackward0", saves=True)


def _adaptive_peaks(name: str, x: Tensor, sizes: tuple[int, ...], return_indices: bool) -> Any:
    window = _uniform(x, sizes)
    if window is not None:
        return _peaks(name, x, window, return_indices)
    if x._batched:
        return mapped(lambda batch: _adaptive_peaks(name, batch, sizes, return_indices), x)
    find = functools.partial(x._metadata.device.launching(_peak_places), x._metadata.F.xp)
    return _picked(x, again(find, x._array, sizes), len(sizes))


def _picked(x: Tensor, places: Array, ndim: int) -> tuple[Any, Any]:
    """The elements at flat indices in each image, and the indices as a tensor."""
    indices = wrap(places, x._metadata.F.metadata_of(places))
    flat = R.reshape(indices, (*places.shape[:-ndim], prod(places.shape[-ndim:])))
    return R.reshape(gather(flatten(x, -ndim), -1, flat), places.shape), indices


def _peak_places(xp: Library, array: Array, sizes: tuple[int, ...]) -> Any:
    """The flat index, in its image, of the greatest element of each window."""
    ndim = len(sizes)
    lead, image = array.shape[:-ndim], array.shape[-ndim:]
    places = xp.empty((*lead, *sizes), np.int64)
    lines = [enumerate(bins(n, size)) for n, size in zip(image, sizes, strict=True)]
    for ends in itertools.product(*lines):
        index: tuple[Any, ...] = (..., *(slice(*pair) for _, pair in ends))
        region = array[index]
        region = region.reshape(*lead, prod(region.shape[-ndim:]))
        rest = peak_places(xp, region)
        place, step = 0, 1
        for n, (_, (start, end)) in zip(reversed(image), reversed(ends), strict=True):
            rest, along = xp.divmod(rest, end - start)
            place = place + (start + along) * step
            step *= n
        places[(..., *(i for i, _ in ends))] = place
    return places


_COUNTS = """output_size: the number of windows, or one for each axis; None for as many as there
            are elements."""


def _adaptive_avg_pool(ndim: int) -> Callable[..., Tensor]:
    name = f"adaptive_avg_pool{ndim}d"

    def function(input: Tensor, output_size: OutputSize) -> Tensor:
        sizes = _sizes(name, input, output_size, ndim)
        if ndim > 1:
            return _adaptive_means(name, input, sizes)
        return _as_lines(_adaptive_means(name, _as_rows(name, input), (1, *sizes)))

    doc = f"""The means of windows that divide the {WHOLE[ndim]} evenly, or nearly.

    Args:
        input: {SHAPES[ndim]}
        {_COUNTS}
    """
    return named(function, name, doc)


def _adaptive_max_pool(ndim: int) -> Callable[..., Any]:
    name = f"adaptive_max_pool{ndim}d"

    def function(
        input: Tensor, output_size: OutputSize, return_indices: Truth = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        sizes = _sizes(name, input, output_size, ndim)
        if ndim == 1:
            input, sizes = _as_rows(name, input), (1, *sizes)
        out, indices = _adaptive_peaks(name, input, sizes, return_indices)
        if ndim == 3:
            out = renamed(out, "AdaptiveMaxPool3DBackward0")
        return _with_indices(out, indices, ndim, return_indices)

    doc = f"""The greatest elements of windows that divide the {WHOLE[ndim]} evenly, or nearly.

    Args:
        input: {SHAPES[ndim]}
        {_COUNTS}
        return_indices: also return the elements' indices in their {WHOLE[ndim]}s.
    """
    return named(function, name, doc)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_adaptive_avg_pool, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max_pool, (1, 2, 3))


# -- windows at random places ---------------------------------------------------------------------


def _fractional(
    name: str, input: Tensor, kernel_size: Ints, output_size: Ints | None,
    output_ratio: float | Sequence[float] | None, return_indices: bool, samples: Tensor | None,
    ndim: int,
) -> Any:  # fmt: skip
    x = input
    shape = x._metadata.shape
    if output_size is None:
        if output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * ndim
        if len(ratios) != ndim:
            raise unmet(name, f"{name} requires output_ratio to be a single number or {ndim} of "
                        "them", ValueError, output_ratio=output_ratio)  # fmt: skip
        output_size = [int(n * ratio) for n, ratio in zip(shape[-ndim:], ratios, strict=False)]
    _check_image(name, shape, ndim, shape[-ndim - 1 :])
    check_dtype(name, x._metadata.dtype, FLOATING)
    kernel = for_each(name, "kernel_size", kernel_size, ndim)
    sizes = for_each(name, "output_size", output_size, ndim)
    for n, k, size in zip(shape[-ndim:], kernel, sizes, strict=True):
        if k < 1 or size < 0 or size + k - 1 > n:
            raise unmet(name, "pool too large relative to input: kernel_size + output_size - 1 may "
                        "not exceed its size",
                        input=x, kernel_size=kernel, output_size=sizes)  # fmt: skip
    batch = (*shape[:-ndim], ndim) if len(shape) > ndim + 1 else (1, *shape[:-ndim], ndim)
    if samples is None:
        samples = rand(batch, dtype=x._metadata.dtype, device=x.device)
    elif (
        samples.dtype != x.dtype
        or samples.ndim != 3
        or samples.shape[0] < batch[0]
        or samples.shape[1:] != batch[1:]
    ):
        raise unmet(name, f"Expect _random_samples to have the same dtype as input, {x.dtype}, and "
                    f"shape {batch}. Make them with rand()",
                    _random_samples=samples, dtype=samples._metadata.dtype)  # fmt: skip
    out, indices = _peaks_of_drawn(x, samples, kernel, sizes)
    out = renamed(out, f"FractionalMaxPool{ndim}DBackward0")
    return (out, indices) if return_indices else out


def _peaks_of_drawn(
    x: Tensor, samples: Tensor, kernel: tuple[int, ...], sizes: tuple[int, ...]
) -> Any:
    """The maxima of windows at random positions, and their indices."""
    if x._batched or samples._batched:
        return by_parts(_peaks_of_drawn, x, samples, kernel, sizes)
    find = functools.partial(x._metadata.device.launching(_drawn_peak_places), x._metadata.F.xp)
    return _picked(x, again(find, x._array, samples._array, kernel, sizes), len(sizes))


def _drawn_peak_places(
    xp: Library, array: Array, samples: Array, kernel: tuple[int, ...], sizes: tuple[int, ...]
) -> Any:
    """The flat index, in its image, of the greatest element of each window.

    The windows' starts are integer parts of multiples of a step, shifted at random; the last window
    ends at the image's end.
    """
    ndim = len(sizes)
    lead, image = array.shape[:-ndim], array.shape[-ndim:]
    # PyTorch's first sample is for an image's columns, but for a volume's layers.
    draws = samples[: prod(lead[:-1]), :, :: -1 if ndim == 2 else 1].reshape(*lead, ndim, 1)
    kind = array.dtype.type
    places: Any = 0
    for axis, (n, k, size) in enumerate(zip(image, kernel, sizes, strict=True)):
        draw = draws[..., axis, :]
        step = kind(n - k) / kind(max(1, size - 1))
        begins = ((xp.arange(size).astype(array.dtype) + draw) * step).astype(np.int64)
        begins -= (draw * step).astype(np.int64)
        begins[..., size - 1 :] = n - k
        alone = tuple(slice(None) if other == axis else None for other in range(ndim))
        begins, within = begins[(..., *alone, *(None,) * ndim)], xp.arange(k)[alone]
        places = places * n + begins + within
    places = places.reshape(*lead, prod(sizes), prod(kernel))
    values = xp.take_along_axis(array.reshape(*lead, 1, prod(image)), places, -1)
    best = values.argmax(axis=-1)[..., None]
    return xp.take_along_axis(places, best, -1).reshape(*lead, *sizes)


def _fractional_max_pool(ndim: int) -> Callable[..., Any]:
    name = f"fractional_max_pool{ndim}d"

    def function(
        input: Tensor, kernel_size: Ints, output_size: Ints | None = None,
        output_ratio: float | Sequence[float] | None = None, return_indices: Truth = False,
        _random_samples: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
        return _fractional(
            name, input, kernel_size, output_size, output_ratio, return_indices, _random_samples,
            ndim,
        )  # fmt: skip

    doc = f"""The greatest elements of windows that are moved by random steps.

    Args:
        input: {SHAPES[ndim]}
        kernel_size: the size of the window: a number, or one for each axis.
        output_size: the number of windows, or one for each axis; if None, `output_ratio` is used.
        output_ratio: the output's size divided by the input's.
        return_indices: also return the elements' indices in their {WHOLE[ndim]}s.
        _random_samples: numbers in [0, 1) to draw the steps from, of shape (n, channels, {ndim}).

    Source: Graham, "Fractional max-pooling", 2014.
    """
    return named(function, name, doc)


fractional_max_pool2d, fractional_max_pool3d = map(_fractional_max_pool, (2, 3))


# -- back to where peaks were ---------------------------------------------------------------------


def _unpooled_size(
    name: str, usual: list[int], strides: tuple[int, ...], output_size: Sequence[int] | None
) -> tuple[int, ...]:
    """The size of an unpooled image: `output_size` if it is within a stride of the usual size."""
    if output_size is None:
        return tuple(usual)
    ndim, size = len(strides), list(output_size)
    if len(size) == ndim + 2:
        size = size[2:]
    if len(size) != ndim:
        raise unmet(name, f"output_size should be a sequence containing {ndim} or {ndim + 2} "
                    "elements", ValueError, output_size=output_size)  # fmt: skip
    for axis, (n, known, step) in enumerate(zip(size, usual, strides, strict=True)):
        if not known - step < n < known + step:
            raise unmet(name, f'invalid output_size "{size}" (dim {axis} must be between '
                        f'{known - step} and {known + step})', ValueError)  # fmt: skip
    return tuple(size)


def _max_unpool(ndim: int) -> Callable[..., Tensor]:
    name = f"max_unpool{ndim}d"

    def function(
        input: Tensor, indices: ByExample, kernel_size: Ints, stride: Ints | None = None,
        padding: Ints = 0, output_size: Sequence[int] | None = None,
    ) -> Tensor:  # fmt: skip
        shape, found = input._metadata.shape, indices._metadata
        if len(shape) < ndim:
            raise unmet(name, "tuple index out of range. Give an input with at least "
                        f"{ndim} axes", IndexError, input=input)  # fmt: skip
        kernel = for_each(name, "kernel_size", kernel_size, ndim)
        strides = kernel if stride is None else for_each(name, "stride", stride, ndim)
        pads = for_each(name, "padding", padding, ndim)
        usual = [
            (n - 1) * s + k - 2 * p
            for n, k, s, p in zip(shape[-ndim:], kernel, strides, pads, strict=True)
        ]
        out = _unpooled_size(name, usual, strides, output_size)
        if found.dtype != np.int64:
            raise unmet(name, "elements in indices should be type int64", indices=found.dtype)
        _check_image(name, shape, ndim, shape[-ndim - 1 :])
        if found.shape != shape:
            raise RuntimeError(
                f"{name}: Expected shape of indices to be same as that of the input tensor "
                f"({list(shape)}) but got indices tensor with shape: {list(found.shape)}"
            )
        check_dtype(name, input._metadata.dtype, FLOATING)
        check_device(name, input, indices)
        lead = shape[:-ndim]
        rows, volume = prod(lead), prod(out)
        numbers = indices._array.reshape(rows, prod(shape[-ndim:]))
        check_range(name, numbers, volume, RuntimeError)
        places = (np.arange(rows)[:, None], numbers)
        values = R.reshape(input, numbers.shape)
        node = f"MaxUnpool{max(ndim, 2)}DBackward0"
        spread = R.zeros_put(values, (rows, volume), places)
        renamed(spread, node, saves=True, watched=(indices,))
        return renamed(R.reshape(spread, (*lead, *out)), node if ndim > 1 else "SqueezeBackward1")

    doc = f"""Undo `max_pool{ndim}d`: zeros, with each maximum at its former index.

    Args:
        input: {SHAPES[ndim]}
        indices: int64, as `max_pool{ndim}d` returns them.
        {WINDOWS}
        padding: how far windows reached beyond the sides.
        output_size: the size of the result, or its shape; if None, the smallest that fits.
    """
    return named(function, name, doc)


max_unpool1d, max_unpool2d, max_unpool3d = map(_max_unpool, (1, 2, 3))
