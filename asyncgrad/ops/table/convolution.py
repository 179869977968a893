"""Convolutions as matrix products.

The windows under the kernel are laid out as columns of a matrix, for a few images or rows of an
image at a time, so that they stay in the cache. The gradients of `convolution`, `convolution_input`
and `convolution_weight` are each made of the other two, so double backward needs no more ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from asyncgrad.aliases import DType
from asyncgrad.core.variable import Variable
from asyncgrad.ops import batch_products
from asyncgrad.ops.columns import (
    COLUMNS,
    REMEMBERED,
    Geometry,
    batch_first,
    batch_last,
    has_short_rows,
    in_parts,
    most_columns,
    of_groups,
    products_beside,
    side_by_side,
    some_images,
    some_windows,
    sum_of_parts,
    windows_apart,
    windows_beside,
    windows_of,
)
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.fused import compiled_first, share
from asyncgrad.ops.op import operation
from asyncgrad.ops.table.linalg import conjugate, product_cost
from asyncgrad.ops.table.normalisation import BIAS_PULL, BIAS_PUSH
from asyncgrad.types import Array, Library, Shape

#: How many sums of products are made apart from one another.
_RUNS = 8
#: Up to this many elements, gradients are spread out with zeros between them.
_SMALL = 4096
#: With so many times fewer channels than the output's, an input's gradient is added up by places:
#: columns of the output's gradient would be copied for few products.
_CHANNELS = 6
#: With more channels of output for each place of an image, the products of single images, which are
#: added up, take longer than one product of columns.
_OUTS = 4
#: Of a product with more elements BLAS computes less quickly with a transposed matrix.
_COPIED = 1200
#: Nanoseconds of the calls for the gradients of a small image.
_CALLS_NS = 30_000
#: Columns with fewer elements are made by one thread: in less than about 4 ms of work, others gain
#: nothing. They begin late, without the images in their caches, and two threads that come back to
#: Python every 10 us take half as long again for each call.
_MANY = 16 * COLUMNS


@functools.lru_cache(REMEMBERED)
def _is_pointwise(kernel: Shape, geometry: Geometry) -> bool:
    """Whether each output element depends on one place of the image."""
    return all(k == 1 for k in kernel) and not any(map(any, geometry.padding))


def _used(x: Array, kernel: Shape, geometry: Geometry) -> tuple[Any, Geometry, bool]:
    """The places of an image that a kernel of one element uses, next to each other.

    Returns:
        The image, how the kernel moves over it, and whether it is of one element.
    """
    if not _is_pointwise(kernel, geometry):
        return x, geometry, False
    ones = (1,) * len(kernel)
    if geometry.stride != ones:
        places: Any = (..., *[slice(None, None, s) for s in geometry.stride])
        x = x[places]
        geometry = geometry._replace(stride=ones)
    return x, geometry, True


def _share(
    xp: Library, compute: Callable[[Any], object], pieces: Sequence[Any], elements: int
) -> None:
    """Compute pieces, in several threads if the columns of all have many elements."""
    share(xp, compute, pieces, 2 if elements >= _MANY else len(pieces) + 1)


def _turned(weight: Array, kernel: Shape, groups: int, apart: bool) -> Any:
    """The weights as matrices (groups, outs, kernel * channels), or of the kernel's columns."""
    outs, own = weight.shape[:2]
    if apart:
        return weight.transpose((3, 0, 2, 1)).reshape(kernel[1], outs, -1)
    weight = weight.reshape(groups, outs // groups, own, prod(kernel))
    return weight.swapaxes(2, 3).reshape(groups, outs // groups, -1)


def _columns_of(windows: Array, ndim: int, images: slice, rows: slice) -> Any:
    """Some windows as columns, of shape (groups, channels * kernel, images * places)."""
    index: tuple[Any, ...] = (images, ..., rows, *(slice(None),) * (ndim - 1))
    part = windows[index]
    order = (*range(1, 3 + ndim), 0, *range(3 + ndim, 3 + 2 * ndim))
    length = prod(part.shape[2 : 3 + ndim])
    return part.transpose(order).reshape(part.shape[1], length, -1)


@compiled_first
def _convolution(xp: Library, x: Array, weight: Array, geometry: Geometry) -> Any:
    kernel = weight.shape[2:]
    x, geometry, pointwise = _used(x, kernel, geometry)
    groups, ndim = geometry.groups, len(kernel)
    batch, outs = x.shape[0], weight.shape[0]
    matrix = weight.reshape(groups, outs // groups, prod(weight.shape[1:]))
    if pointwise:
        columns = x.reshape(batch, groups, x.shape[1] // groups, prod(x.shape[2:]))
        return of_groups(xp, matrix, columns).reshape(batch, outs, *x.shape[2:])
    image = geometry.out_shape(x.shape[2:], kernel)
    if weight.size and has_short_rows(x, kernel, image):
        return _of_images(xp, x, weight.shape, image, geometry, weight)[0]
    windows = windows_of(xp, x, kernel, image, geometry)
    if batch == 1 and 0 < windows.size <= COLUMNS:
        columns = windows.reshape(groups, matrix.shape[2], prod(image))
        return of_groups(xp, matrix, columns).reshape(1, outs, *image)
    out = xp.empty((batch, groups, outs // groups, *image), x.dtype)
    if not windows.size:
        out[...] = 0

    def of_windows(part: tuple[slice, slice]) -> None:
        images, rows = part
        target = out[images, :, :, rows]
        made = in_parts(xp, matrix, _columns_of(windows, ndim, images, rows))
        made = made.reshape((*made.shape[:2], len(target), *target.shape[3:]))
        target[...] = made.transpose((2, 0, 1, *range(3, made.ndim)))

    _share(xp, of_windows, some_windows(windows, ndim), windows.size)
    return out.reshape(batch, outs, *image)


def _convolution_with_bias(
    xp: Library, x: Array, weight: Array, bias: Array, geometry: Geometry
) -> Any:
    out = _convolution(xp, x, weight, geometry)
    out += bias.reshape((-1,) + (1,) * len(geometry.stride))
    return out


def _sum_beside(xp: Library, windows: Array, y: Array, groups: int) -> Any:
    """The products of the windows of some images with others, summed over the images."""
    rows, inner = windows.shape[1:3]
    part = batch_last(xp, y).reshape(rows, groups, y.shape[1] // groups, -1)
    part = part.transpose((1, 0, 3, 2))
    if groups < len(windows) and inner * part.shape[3] > _COPIED:
        # In the pool's memory: new pages would cost more than the product gains.
        laid = xp.empty(part.shape, part.dtype)
        laid[...] = part
        part = laid
    made = xp.matmul(windows, part)
    return made[:, 0] if made.shape[1] == 1 else made.sum(axis=1)


def _total(
    xp: Library, product: Callable[[Any], Any], pieces: Sequence[Any], elements: int, shape: Shape,
    dtype: DType,
) -> Any:  # fmt: skip
    """The sum of the products of all pieces, added up in their order in a few runs."""
    totals = [xp.zeros(shape, dtype) for _ in range(min(len(pieces), _RUNS))]
    run = -(-len(pieces) // _RUNS)

    def compute(place: int) -> None:
        for piece in pieces[place * run : (place + 1) * run]:
            totals[place] += product(piece)

    _share(xp, compute, range(len(totals)), elements)
    total = totals[0] if totals else xp.zeros(shape, dtype)
    for other in totals[1:]:
        total += other
    return total


def _of_images(
    xp: Library, x: Array, shape: Shape, image: Shape, geometry: Geometry,
    weight: Array | None = None, y: Array | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The convolution by `weight`, and the weight's gradient by that of the output, `y`.

    Both are made of the same windows, of a few images that are put side by side. Without one of the
    arrays there is no such result. The weight has shape `shape`, an image of the output `image`.
    """
    outs, own, kernel, groups = *shape[:2], shape[2:], geometry.groups
    # Half precision would round the sum of each row.
    plan = side_by_side(x.shape, outs, kernel, image, geometry, is_half(x.dtype))
    apart = plan.apart
    x = plan.rows(x)
    if weight is not None:
        matrix = _turned(weight, plan.kernel, groups, apart)
        out = xp.empty((len(x), outs, *plan.image), x.dtype)
    if y is not None:
        y = plan.rows(y)

    def of_part(images: slice) -> Any:
        windows = windows_beside(xp, x[images], *plan[:4])
        if weight is not None:
            products = products_beside(xp, matrix, windows, apart)
            batch_first(out[images], products.reshape(outs, *plan.image, -1))
        return None if y is None else _sum_beside(xp, windows, y[images], groups)

    length = groups * own * prod(kernel)
    elements = len(x) * length * prod(image)
    if y is None:
        _share(xp, of_part, plan.parts, elements)
        return out.reshape(len(x), outs, *image), None
    count = kernel[1] if apart else groups
    sums = count, length // count, outs // groups
    total = _total(xp, of_part, plan.parts, elements, sums, y.dtype)
    total = total.reshape(count, -1, own, outs // groups)
    total = xp.ascontiguousarray(total.transpose((3, 2, 1, 0) if apart else (0, 3, 2, 1)))
    return None if weight is None else out.reshape(len(x), outs, *image), total.reshape(shape)


def _pointwise_weight(xp: Library, y: Array, x: Array, shape: Shape, groups: int) -> Any:
    """The products of images, added up, which are the gradient by a kernel of one element.

    Their shape is (groups, channels, outs). None where images have too few places for that.
    """
    outs, length = shape[0] // groups, prod(shape[1:])
    places = prod(x.shape[2:])
    most = most_columns(x)
    if outs > _OUTS * places or 2 * prod(shape) > most or is_half(x.dtype):
        return None
    step = max(1, most // max(1, prod(shape), prod(x.shape[1:])))
    x = x.reshape(len(x), groups, length, places)
    y = y.reshape(len(y), groups, outs, places).swapaxes(2, 3)
    parts = [slice(start, start + step) for start in range(0, len(x), step)]
    return _total(
        xp, lambda images: xp.matmul(x[images], y[images]).sum(axis=0), parts, x.size,
        (groups, length, outs), y.dtype,
    )  # fmt: skip


@compiled_first
def _convolution_weight(
    xp: Library, y: Array, x: Array, shape: tuple[int, ...], geometry: Geometry
) -> Any:
    """The gradient by the weight, of shape `shape`; `y` is the output's gradient."""
    kernel = shape[2:]
    x, geometry, pointwise = _used(x, kernel, geometry)
    groups, ndim = geometry.groups, len(kernel)
    outs, length = shape[0] // groups, prod(shape[1:])
    if pointwise and (total := _pointwise_weight(xp, y, x, shape, groups)) is not None:
        return xp.ascontiguousarray(total.swapaxes(1, 2)).reshape(shape)
    if has_short_rows(x, kernel, y.shape[2:]):
        return _of_images(xp, x, shape, y.shape[2:], geometry, y=y)[1]
    windows = windows_of(xp, x, kernel, y.shape[2:], geometry)
    if len(y) == 1 and 0 < windows.size <= COLUMNS:
        columns = windows.reshape(groups, length, -1)
        return of_groups(xp, y.reshape(groups, outs, -1), columns.swapaxes(1, 2)).reshape(shape)
    y = y.reshape(y.shape[0], groups, outs, *y.shape[2:])

    def of_windows(piece: tuple[slice, slice]) -> Any:
        images, rows = piece
        columns = _columns_of(windows, ndim, images, rows)
        part = y[images, :, :, rows]
        part = part.transpose((1, 2, 0, *range(3, part.ndim))).reshape(groups, outs, -1)
        # Columns first, because BLAS takes twice the time for few rows times a transposed matrix.
        return sum_of_parts(xp, columns, part.swapaxes(1, 2))

    pieces = some_windows(windows, ndim)
    total = _total(xp, of_windows, pieces, windows.size, (groups, length, outs), y.dtype)
    return xp.ascontiguousarray(total.swapaxes(1, 2)).reshape(shape)


def _apart(xp: Library, y: Array, stride: tuple[int, ...]) -> Any:
    """Put zeros between the elements, so that their distances are the strides."""
    lead = y.ndim - len(stride)
    places = tuple([slice(None, None, s) for s in stride])
    lengths = [(n - 1) * s + 1 for n, s in zip(y.shape[lead:], stride, strict=True)]
    out = xp.zeros((*y.shape[:lead], *lengths), y.dtype)
    out[(..., *places)] = y
    return out


@functools.lru_cache(REMEMBERED)
def _phases(
    geometry: Geometry, kernel: Shape, image: Shape, gradients: Shape
) -> list[tuple[Any, Any, Geometry]]:
    """The places of the input by the remainder that their numbers leave when divided by strides.

    Returns:
        For each remainder those places, the part of the kernel that reaches them, flipped, and how
        it moves over the gradients. Places that nothing reaches are left out.
    """
    axes = []
    for d, s, k, n, m, (before, _) in zip(
        geometry.dilation, geometry.stride, kernel, image, gradients, geometry.padding, strict=True
    ):
        found = []
        step = s // gcd(s, d)
        for start in range(min(s, n)):
            taps = [i for i in range(k) if (start + before - i * d) % s == 0]
            if taps:
                # Which gradients reach the first place through the first tap and the last.
                first, last = ((start + before - i * d) // s for i in (taps[0], taps[-1]))
                padding = -last, first + len(range(start, n, s)) - m
                flip = slice(taps[-1], taps[0] - 1 if taps[0] else None, -step)
                found.append((slice(start, None, s), flip, padding, d * step // s))
        axes.append(found)
    phases = [tuple(zip(*phase, strict=True)) for phase in product(*axes)]
    stride, groups = (1,) * len(kernel), geometry.groups
    return [
        ((..., *places), (..., *flip), Geometry(stride, padding, dilation, groups))
        for places, flip, padding, dilation in phases
    ]


@compiled_first
def _convolution_input(
    xp: Library, y: Array, weight: Array, shape: tuple[int, ...], geometry: Geometry
) -> Any:
    """The gradient by the input, of shape `shape`; `y` is the output's gradient."""
    kernel = weight.shape[2:]
    groups = geometry.groups
    weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    if not (y.size and weight.size):
        return xp.zeros(shape, y.dtype)
    apart = prod(geometry.stride)
    if apart > 1 and y.size * apart <= _SMALL:
        y = _apart(xp, y, geometry.stride)
        geometry, apart = geometry._replace(stride=(1,) * len(kernel)), 1
    if apart > 1 and _CHANNELS * weight.shape[2] <= weight.shape[1]:
        return _added_up(xp, y, weight, shape, geometry)
    phases = []
    for places, flip, backwards in _phases(geometry, kernel, shape[2:], y.shape[2:]):
        turned = weight.swapaxes(1, 2)[flip]
        turned = turned.reshape(shape[1], weight.shape[1], *turned.shape[3:])
        phases.append((places, turned, backwards))
    # A convolution with the flipped kernel over the gradients.
    if apart == 1 and phases:
        return _convolution(xp, y, *phases[0][1:])
    make = xp.empty if len(phases) == apart else xp.zeros
    if parts := _parts_of_phases(y, phases):
        return _of_phases(xp, y, shape, phases, parts, make)
    out = make(shape, y.dtype)
    for places, turned, backwards in phases:
        out[places] = _convolution(xp, y, turned, backwards)
    return out


def _parts_of_phases(y: Array, phases: list[Any]) -> list[slice]:
    """The images that are put side by side at a time, none if windows have to be laid out."""
    if not phases:
        return []
    _, turned, backwards = max(phases, key=lambda phase: phase[1].size)
    kernel = turned.shape[2:]
    image = backwards.out_shape(y.shape[2:], kernel)
    if not has_short_rows(y, kernel, image):
        return []
    plan = side_by_side(y.shape, len(turned), kernel, image, backwards, is_half(y.dtype))
    return plan.parts if plan.apart else []


def _of_phases(
    xp: Library, y: Array, shape: Shape, phases: list[Any], parts: list[slice],
    make: Callable[..., Any],
) -> Any:  # fmt: skip
    """The gradient by the input, from images that are put side by side once for all phases.

    While the images are the last axis, the places of a phase are written in long runs.
    """
    out = xp.empty(shape, y.dtype)
    sides = zip(*[backwards.padding for *_, backwards in phases], strict=True)
    rows, columns = [tuple([max(0, *side) for side in zip(*axis, strict=True)]) for axis in sides]

    def of_part(images: slice) -> None:
        space = batch_last(xp, y[images], (rows, columns))
        total = make((*shape[1:], space.shape[-1]), y.dtype)
        for (_, *places), turned, backwards in phases:
            kernel = turned.shape[2:]
            image = backwards.out_shape(y.shape[2:], kernel)
            (above, _), (before, _) = backwards.padding
            start = rows[0] - above, columns[0] - before
            windows = windows_apart(space, kernel, image, backwards, start)
            made = products_beside(xp, _turned(turned, kernel, 1, True), windows, True)
            target = total[(slice(None), *places)]
            target[...] = made.reshape(target.shape)
        batch_first(out[images], total)

    _share(xp, of_part, parts, y.size * prod(shape[1:]))
    return out


def _added_up(
    xp: Library, y: Array, weight: Array, shape: tuple[int, ...], geometry: Geometry
) -> Any:
    """The gradient by an input of few channels: what the gradients give it, place by place."""
    kernel, groups, image = weight.shape[3:], geometry.groups, y.shape[2:]
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

    def of_images(images: slice) -> None:
        part = batch_last(xp, y[images][:, :, None]).reshape(groups, matrix.shape[2], -1)
        part = in_parts(xp, matrix, part)
        part = part.reshape(shape[1], *kernel, *image, -1)
        total = xp.zeros((shape[1], *spread, part.shape[-1]), y.dtype)
        for offset in np.ndindex(*kernel):
            axes = zip(offset, image, geometry.stride, geometry.dilation, strict=True)
            places = tuple([slice(i * d, i * d + (n - 1) * s + 1, s) for i, n, s, d in axes])
            total[(slice(None), *places)] += part[(slice(None), *offset)]
        batch_first(out[images], total[(slice(None), *inner)])

    elements = groups * matrix.shape[1] * prod(image)
    parts = some_images(len(y), elements, most_columns(y))
    _share(xp, of_images, parts, len(y) * elements)
    return out


def _from_same_windows(
    xp: Library, y: Array, weight: Array, x: Array, geometry: Geometry
) -> tuple[Any, Any] | None:
    """The gradients by input and weight, if both can be made of the windows of the output's."""
    kernel, image = weight.shape[2:], x.shape[2:]
    plain = prod(geometry.stride) == 1 and not xp.compiled
    if not (plain and y.size and has_short_rows(y, kernel, image)):
        return None
    ((_, flip, backwards),) = _phases(geometry, kernel, image, y.shape[2:])
    if not side_by_side(y.shape, x.shape[1], kernel, image, backwards, is_half(y.dtype)).apart:
        return None
    flipped = weight.swapaxes(0, 1)[flip]
    out, total = _of_images(xp, y, flipped.shape, image, backwards, flipped, x)
    return out, xp.ascontiguousarray(total.swapaxes(0, 1)[flip])


def _gradients(
    F: Any, g: Any, wanted: tuple[str, ...], weight: Any, x_shape: Shape, geometry: Geometry,
    x: Any, weight_shape: Shape,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients by input and weight, and that by a bias if it is wanted."""
    by_bias: Any = BIAS_PULL
    rules: dict[str, Any] = _BY_INPUT_AND_WEIGHT
    made = _from_same_windows(F.xp, g, weight, x, geometry) if F.fused else None
    found: dict[str, Any] = dict(zip(wanted, made or (), strict=False))

    def compute(name: str) -> None:
        if name == "bias":
            found[name] = by_bias.kernel(F.xp, g) if F.fused else by_bias.function(F, g)
        else:
            given = (weight, x_shape) if name == "x" else (x, weight_shape)
            found[name] = rules[name](F, g, *given, geometry)

    left = wanted[len(found) :]
    if F.fused:
        # Eight multiplications take as long as an element of the columns.
        columns, products = prod(weight_shape[2:]), prod(weight_shape[1:])
        _share(F.xp, compute, left, g.size * (columns + products // 8))
    else:
        for name in left:
            compute(name)
    return tuple([found[name] for name in wanted])


def _cost(x: Variable, weight: Variable, *rest: Any) -> int:
    size, stride = x._metadata.size, prod(rest[-1].stride)
    places = size // max(1, x._metadata.shape[1]) // stride
    columns = size // stride * prod(weight._metadata.shape[2:])
    return _CALLS_NS + 2 * product_cost(places * weight._metadata.size, size + columns)


def _input_cost(y: Variable, weight: Variable, *rest: object) -> int:
    return _products_cost(y, weight._metadata.shape)


def _weight_cost(y: Variable, x: Variable, weight_shape: Shape, geometry: Geometry) -> int:
    return _products_cost(y, weight_shape)


def _products_cost(y: Variable, weight_shape: Shape) -> int:
    size = y._metadata.size
    products, columns = size * prod(weight_shape[1:]), size * prod(weight_shape[2:])
    return _CALLS_NS + 2 * product_cost(products, columns)


_BY_INPUT_AND_WEIGHT = {
    "x": lambda F, g, weight, x_shape, geometry: F.convolution_input(
        g, conjugate(F, weight), x_shape, geometry
    ),
    "weight": lambda F, g, x, weight_shape, geometry: F.convolution_weight(
        g, conjugate(F, x), weight_shape, geometry
    ),
}

OPS = (
    operation(
        "convolution",
        _convolution,
        "x weight",
        pulls=_BY_INPUT_AND_WEIGHT,
        together=_gradients,
        multilinear=True,
        cost=_cost,
        batch=batch_products.convolution,
    ),
    operation(
        "convolution_with_bias",
        _convolution_with_bias,
        "x weight bias",
        pulls={**_BY_INPUT_AND_WEIGHT, "bias": BIAS_PULL},
        together=_gradients,
        pushes={
            "x": lambda F, t, weight, geometry: F.convolution(t, weight, geometry),
            "weight": lambda F, t, x, geometry: F.convolution(x, t, geometry),
            "bias": BIAS_PUSH,
        },
        node="ConvolutionBackward0",
        cost=_cost,
        batch=batch_products.convolution,
    ),
    operation(
        "convolution_input",
        _convolution_input,
        "y weight",
        pulls={
            "y": lambda F, g, weight, geometry: F.convolution(g, conjugate(F, weight), geometry),
            "weight": lambda F, g, y, weight_shape, geometry: F.convolution_weight(
                conjugate(F, y), g, weight_shape, geometry
            ),
        },
        multilinear=True,
        node="ConvolutionBackwardBackward0",
        cost=_input_cost,
        batch=batch_products.convolution_input,
    ),
    operation(
        "convolution_weight",
        _convolution_weight,
        "y x",
        pulls={
            "y": lambda F, g, x, geometry: F.convolution(conjugate(F, x), g, geometry),
            "x": lambda F, g, y, x_shape, geometry: F.convolution_input(
                conjugate(F, y), g, x_shape, geometry
            ),
        },
        multilinear=True,
        node="ConvolutionBackwardBackward0",
        cost=_weight_cost,
    ),
)
