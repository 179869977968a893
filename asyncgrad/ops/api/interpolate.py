"""Resizing of images; each axis is interpolated separately by weighted sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncgrad.choices import ResizeMode
from asyncgrad.core.frames import warn
from asyncgrad.core.recording import note_constant
from asyncgrad.core.variable import wrap
from asyncgrad.ops.api.linalg import matmul
from asyncgrad.ops.api.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d
from asyncgrad.ops.arguments import one_int
from asyncgrad.ops.batching import by_parts
from asyncgrad.ops.dtype import is_half, refuse
from asyncgrad.ops.float32_compute import computing_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import cast, category, constant
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.table.shape import in_order
from asyncgrad.types import Array, Ints, Library, Tensor, Truth

#: The number of axes of an image in each mode; None for any.
_AXES: dict[ResizeMode, int | None] = {
    "nearest": None, "nearest-exact": None, "area": None, "linear": 1, "bilinear": 2,
    "bicubic": 2, "trilinear": 3,
}  # fmt: skip
_WITH_CORNERS = ("linear", "bilinear", "bicubic", "trilinear")
#: The modes that support bytes and `antialias`.
_SMOOTH = ("bilinear", "bicubic")
#: The constant of the cubic curve that PyTorch interpolates with; with `antialias` another.
_CUBIC, _CUBIC_ANTIALIAS = -0.75, -0.5
#: The number of bits of the integer weights for bytes.
_BITS = 15


@requires(
    "align_corners is None or mode in _WITH_CORNERS  # align_corners option can only be set with "
    "the interpolating modes: linear | bilinear | bicubic | trilinear",
    "not antialias or (mode in _SMOOTH and input.ndim == 4)  # Anti-alias option is restricted to "
    "bilinear and bicubic modes and requires a 4-D tensor as input", error=ValueError,
)  # fmt: skip
def interpolate(
    input: Tensor, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: ResizeMode = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: Truth | None = None, antialias: Truth = False,
) -> Tensor:  # fmt: skip
    """Resize images.

    Args:
        input: of shape (n, channels, *image), where the image has one to three axes.
        size: the new size, a number or one for each axis; otherwise
        scale_factor: the factor of the size; the new size is rounded down.
        mode: "nearest", "nearest-exact", "linear" (one axis), "bilinear", "bicubic" (two),
            "trilinear" (three) or "area".
        align_corners: align the centres of the corner elements of input and output instead of
            their edges.
        recompute_scale_factor: compute the scale from the sizes instead of `scale_factor`.
        antialias: when shrinking, use all elements that a new element covers, for "bilinear" and
            "bicubic".

    Raises:
        NotImplementedError: if the mode does not support the number of axes, or the dtype.
    """
    axes = len(input._metadata.shape) - 2
    old = input._metadata.shape[2:]
    # PyTorch, too, computes the size of means itself.
    computed = bool(recompute_scale_factor) or (mode == "area" and size is None)
    new, factors = _sizes(old, size, scale_factor, computed)
    wanted = _AXES[mode]
    if axes not in {1, 2, 3} or (wanted is not None and axes != wanted):
        raise unmet("interpolate", "Input Error: Only 3D, 4D and 5D input Tensors supported. "
                    "'linear' needs 3D, 'bilinear' and 'bicubic' 4D, 'trilinear' 5D",
                    NotImplementedError, input=input, mode=mode)  # fmt: skip
    if 0 in input._metadata.shape[1:] or min(new) <= 0:
        raise unmet(
            "interpolate", "Input and output sizes should be greater than 0", input=input, size=new
        )
    dtype = input._metadata.dtype
    whole = dtype == np.uint8 and mode in _SMOOTH
    bytes_ = whole or (dtype == np.uint8 and mode.startswith("nearest"))
    if not bytes_ and (category(dtype) != 2 or (antialias and is_half(dtype))):
        refuse("interpolate", dtype)
    if mode == "area":
        return _areas(input, new)
    if antialias or whole:
        return _by_products(input, new, factors, mode, bool(align_corners), antialias)
    if mode.startswith("nearest"):
        out = R.clone(input) if new == old else input
    else:
        out = cast(input, computing_dtype(dtype))
    for axis, (length, count, factor) in enumerate(zip(old, new, factors, strict=True), 2):
        out = _along(out, axis, length, count, factor, mode, bool(align_corners))
    if out is input:
        return input
    stem = mode.title().replace("-", "")
    return renamed(cast(out, dtype), f"Upsample{stem}{len(old)}DBackward0")


def _sizes(
    old: tuple[int, ...], size: Any, scale_factor: Any, recompute: bool
) -> tuple[tuple[int, ...], list[float | None]]:
    """The new size, and for each axis the scale factor, or None to compute it from the sizes."""
    if (size is None) == (scale_factor is None):
        raise unmet("interpolate", f"{'either' if size is None else 'only one of'} size or "
                    "scale_factor should be defined", ValueError)  # fmt: skip
    name, given = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    values = [*given] if isinstance(given, (tuple, list)) else [given] * len(old)
    if len(values) != len(old):
        raise unmet("interpolate", f"Input and {name.replace('size', 'output')} must have the "
                    "same number of spatial dimensions. Please provide input tensor in (N, C, "
                    "d1, d2, ...,dK) format",
                    ValueError, **{"input.shape[2:]": old, name: given})  # fmt: skip
    if scale_factor is None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        new = tuple([one_int("interpolate", "size", value) for value in values])
        return new, [None] * len(old)
    numbers = [float(factor) for factor in values]
    lengths = [n * factor for n, factor in zip(old, numbers, strict=True)]
    if not recompute and not all(abs(length) < 2**63 for length in lengths):
        raise unmet("interpolate", "value cannot be converted to type int64_t without overflow. "
                    "Scale by a finite number", scale_factor=scale_factor)  # fmt: skip
    return tuple(map(math.floor, lengths)), [None if recompute else f for f in numbers]


def _areas(x: Tensor, new: tuple[int, ...]) -> Any:
    """Resize an image by averaging areas."""
    if len(new) == 1:
        return adaptive_avg_pool1d(x, new)
    if len(new) == 2:
        return adaptive_avg_pool2d(x, new)
    # The mean over a box is the mean, along one axis, of the means over the other two.
    n, channels, depth, rows, columns = x._metadata.shape
    flat = adaptive_avg_pool2d(R.reshape(x, (n, channels * depth, rows, columns)), new[1:])
    lines = R.reshape(flat, (n, channels, depth, new[1] * new[2]))
    return R.reshape(adaptive_avg_pool2d(lines, (new[0], new[1] * new[2])), (n, channels, *new))


def _along(
    x: Tensor, axis: int, length: int, count: int, factor: float | None, mode: ResizeMode,
    corners: bool,
) -> Any:  # fmt: skip
    """Resize an image along one axis."""
    # As in PyTorch: if the length stays, a factor near 1 has no effect, except in bicubic mode.
    still = mode != "bicubic" or corners or factor in {None, 1.0}
    if mode in _WITH_CORNERS and length == count and still:
        return x
    if mode.startswith("nearest"):
        step = length / count if factor is None else 1 / factor
        offset = 0.5 if mode == "nearest-exact" else 0.0
        # Positions are in single precision, as in PyTorch.
        steps = (np.arange(count, dtype=np.float32) + np.float32(offset)) * np.float32(step)
        places = np.minimum(np.floor(steps).astype(np.int64), length - 1)
        if mode == "nearest" and len(x._metadata.shape) == 4 and count in {length, 2 * length}:
            # As in PyTorch, for images of two axes, the factor is ignored here.
            places = np.arange(count) // (count // length)
        return R.index(x, _at(x, axis, places))
    out = None
    for places, weights in _taps(length, count, factor, mode, corners, x._metadata.dtype):
        shape = (1,) * axis + (count,) + (1,) * (len(x._metadata.shape) - axis - 1)
        part = R.mul(R.index(x, _at(x, axis, places)), constant(weights.reshape(shape), x))
        out = part if out is None else R.add(out, part)
    return out


def _by_products(
    x: Tensor, new: tuple[int, ...], factors: list[float | None], mode: ResizeMode, corners: bool,
    anti: bool,
) -> Any:  # fmt: skip
    """Resize an image of two axes by products with weight matrices for rows and columns."""
    metadata = x._metadata
    if x._batched and metadata.dtype == np.uint8:
        return by_parts(_by_products, x, new, factors, mode, corners, anti)
    lines = []
    for length, count, factor in zip(metadata.shape[2:], new, factors, strict=True):
        if length == count:
            weights = np.eye(length)
        elif anti:
            weights = _spread_weights(length, count, factor, mode, corners)
        else:
            weights = np.zeros((count, length))
            for places, part in _taps(length, count, factor, mode, corners, weights.dtype):
                np.add.at(weights, (np.arange(count), places), part)
        lines.append(weights)
    if metadata.dtype == np.uint8:
        F = metadata.F
        array = metadata.device.launching(_of_bytes)(F.xp, x._array, *lines)
        return wrap(array, F.metadata_of(array))
    rows, columns = [constant(weights, x) for weights in lines]
    out = matmul(rows, matmul(x, R.permute(columns, (1, 0))))
    return renamed(out, f"Upsample{mode.title()}2DAaBackward0")


def _spread_weights(
    length: int, count: int, factor: float | None, mode: ResizeMode, corners: bool
) -> Any:
    """The antialiasing weights of all elements for each new element, as a matrix."""
    if corners:
        step = (length - 1) / (count - 1) if count > 1 else 0.0
    else:
        step = length / count if factor is None else 1 / factor
    wide = max(step, 1.0)
    reach = wide * (1 if mode == "bilinear" else 2)
    centres = step * (np.arange(count)[:, None] + 0.5)
    places = np.arange(length)
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((centres + reach + 0.5).astype(np.int64), length)
    t = np.abs(places + 0.5 - centres) / wide
    if mode == "bilinear":
        weights = np.maximum(1 - t, 0)
    else:
        near, far = _near(t, _CUBIC_ANTIALIAS), _far(t, _CUBIC_ANTIALIAS)
        weights = np.where(t < 1, near, np.where(t < 2, far, 0))
    weights = np.where((first <= places) & (places < end), weights, 0)
    return weights / weights.sum(axis=1, keepdims=True)


def _of_bytes(xp: Library, x: Array, rows: Array, columns: Array) -> Any:
    """As PyTorch for bytes: products with integer weights, rounded after each axis."""
    for axis, weights in ((3, columns), (2, rows)):
        # Scale the weights so that the greatest has `_BITS` bits, besides the sign.
        bits = next(b for b in range(23) if int(0.5 + weights.max() * (2 << b)) >> _BITS)
        whole = xp.asarray(np.copysign(np.floor(np.abs(weights) * (1 << bits) + 0.5), weights))
        sums = xp.moveaxis(xp.tensordot(x, whole, (axis, 1)), -1, axis)
        x = xp.clip(xp.floor(sums / (1 << bits) + 0.5), 0, 255).astype(np.uint8)
    return in_order(x)


def _taps(
    length: int, count: int, factor: float | None, mode: ResizeMode, corners: bool,
    dtype: np.dtype[Any],
) -> list[tuple[Any, Any]]:  # fmt: skip
    """Pairs of arrays: the indices of elements, and their weights in the new elements."""
    real = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    if corners:
        step = (length - 1) / (count - 1) if count > 1 else 0.0
        where = np.arange(count, dtype=real) * real.type(step)
    else:
        step = length / count if factor is None else 1 / factor
        where = (np.arange(count, dtype=real) + real.type(0.5)) * real.type(step) - real.type(0.5)
        if mode != "bicubic":
            where = np.maximum(where, 0)
    low = np.floor(where).astype(np.int64)
    t = (where - low).astype(real)
    last = length - 1
    if mode != "bicubic":
        low = np.minimum(low, last)
        return [(low, 1 - t), (np.minimum(low + 1, last), t)]
    return [
        (np.clip(low + shift, 0, last), weight)
        for shift, weight in zip(
            (-1, 0, 1, 2), (_far(t + 1), _near(t), _near(1 - t), _far(2 - t)), strict=True
        )
    ]


def _near(t: Array, a: float = _CUBIC) -> Any:
    """The cubic kernel at a distance of 0 to 1."""
    return ((a + 2) * t - (a + 3)) * t * t + 1


def _far(t: Array, a: float = _CUBIC) -> Any:
    """The cubic kernel at a distance of 1 to 2."""
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a


def _at(x: Tensor, axis: int, places: Array) -> tuple[Any, ...]:
    array = x._metadata.F.xp.asarray(places)
    note_constant(array)
    return (slice(None),) * axis + (array,)


def upsample(
    input: Tensor, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: ResizeMode = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """`interpolate` by an older name."""
    _warn_of("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` in mode "nearest", by an older name."""
    _warn_of("upsample_nearest")
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: Tensor, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` in mode "bilinear" with aligned corners, by an older name."""
    _warn_of("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


def _warn_of(name: str) -> None:
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")
