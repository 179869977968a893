"""Functions of sampled values: gradients, integrals, histograms, covariances and grids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops import return_types
from asyncgrad.ops.api import shape
from asyncgrad.ops.api.elementwise import clamp
from asyncgrad.ops.api.index import index_select
from asyncgrad.ops.api.linalg import matmul
from asyncgrad.ops.api.linalg_norm import vander as powers
from asyncgrad.ops.api.reduction import sum
from asyncgrad.ops.arguments import many_dims, number_argument, one_int, one_shape
from asyncgrad.ops.batching import by_parts
from asyncgrad.ops.converted import converted, writes, writes_exactly
from asyncgrad.ops.dtype import is_half, refuse
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.promotion import (
    as_number,
    cast,
    category,
    default_dtype,
    tensor_operands,
)
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.tensors.new_tensors import from_host
from asyncgrad.ops.tensors.transfer import computed_on_host, on_host
from asyncgrad.types import Array, Axis, ByExample, Ints, Number, Tensor, Vector

__all__ = [
    "cartesian_prod", "combinations", "corrcoef", "cov", "cumulative_trapezoid", "gradient",
    "histc", "histogram", "trapezoid", "trapz", "unravel_index", "vander",
]  # fmt: skip
METHODS = ("corrcoef", "cov", "histc", "histogram")
_INT64 = np.dtype("int64")


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    """The elements along an axis from `start` to `stop`; negative ones count from the end."""
    length = x._metadata.shape[axis]
    begin = start + length if start < 0 else min(start, length)
    return shape.narrow(x, axis, begin, max(stop + length if stop <= 0 else stop, begin) - begin)


def _along(values: Tensor, axis: int, ndim: int) -> Any:
    """A vector reshaped to lie along one of `ndim` axes."""
    return R.reshape(values, tuple(-1 if i == axis else 1 for i in range(ndim)))


# -- slopes and areas -----------------------------------------------------------------------------


@converted
@requires(
    "input.dtype.kind not in 'bu'  # gradient does not support uint8 and bool input",
    "edge_order in {1, 2}  # gradient only supports edge_order=1 and edge_order=2",
)
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Ints | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Derivatives along axes, of the input's shape: central differences, one-sided at the edges.

    Args:
        input: values at the points of a grid.
        spacing: the distance of the points, one for each axis, or for each axis a vector of
            coordinates.
        dim: the axis, or several; all if None.
        edge_order: the order of accuracy at the edges: 1, or 2 with three points.
    """
    ndim = len(input._metadata.shape)
    axes = () if dim in ([], ()) else many_dims("gradient", dim, ndim)
    if isinstance(spacing, Variable) and not spacing._metadata.shape:
        spacing = number_argument("gradient", "spacing", spacing)
    number = as_number(1 if spacing is None else spacing)
    many = isinstance(spacing, (list, tuple))
    spacings = list(spacing) if many else [number] * len(axes)
    if not many and number is None:
        raise unmet("gradient", "gradient() received an invalid combination of arguments. Pass a "
                    "number, or one number or vector for each axis",
                    TypeError, spacing=spacing)  # fmt: skip
    if len(spacings) != len(axes):
        raise unmet("gradient", "gradient expected spacing to be unspecified, a scalar, or a list "
                    f"of length equal to dim, {len(axes)}", spacing=spacing, dim=axes)  # fmt: skip
    return tuple([_slopes(input, *pair, edge_order) for pair in zip(axes, spacings, strict=True)])


def _slopes(x: Tensor, axis: int, spacing: Any, order: int) -> Any:
    length, ndim = x._metadata.shape[axis], len(x._metadata.shape)
    if length < order + 1:
        raise unmet("gradient", "gradient expected each dimension size to be at least "
                    "edge_order+1", input=x, dim=axis, edge_order=order)  # fmt: skip
    steps = None
    if isinstance(spacing, Variable):
        if spacing._metadata.shape != (length,):
            raise unmet("gradient", f"gradient expected each tensor to have {length} coordinates",
                        spacing=spacing)  # fmt: skip
        steps = _along(R.sub(_part(spacing, 0, 1, 0), _part(spacing, 0, 0, -1)), axis, ndim)
    elif (spacing := as_number(spacing)) is None:
        raise TypeError("gradient(): argument 'spacing' must be made of Numbers or Tensors")
    rises = R.sub(_part(x, axis, 1, 0), _part(x, axis, 0, -1))
    slopes = R.div(rises, spacing if steps is None else steps)
    first, last = _part(slopes, axis, 0, 1), _part(slopes, axis, -1, 0)
    share: Any = 0.5
    # The derivative of the parabola through three points, in the middle and at its ends.
    if steps is None:
        # In one step over both sides: an infinite value in the middle has no part in it.
        inside = R.div(R.sub(_part(x, axis, 2, 0), _part(x, axis, 0, -2)), 2 * spacing)
    else:
        one, other = _part(steps, axis, 0, -1), _part(steps, axis, 1, 0)
        share = R.div(one, R.add(one, other))
        before, after = _part(slopes, axis, 0, -1), _part(slopes, axis, 1, 0)
        inside = R.add(R.mul(before, 1 - share), R.mul(after, share))
    if order == 2:
        low, high = share, share
        if steps is not None:
            low, high = _part(share, axis, 0, 1), _part(share, axis, -1, 0)
        begin, end = _part(slopes, axis, 1, 2), _part(slopes, axis, -2, -1)
        first = R.sub(R.mul(first, low + 1), R.mul(begin, low))
        last = R.sub(R.mul(last, 2 - high), R.mul(end, 1 - high))
    return shape.cat((first, inside, last), axis)


def _areas(name: str, y: Tensor, x: Tensor | None, dx: Number | None, axis: int) -> Any:
    """The areas between neighbours along an axis."""
    ndim = len(y._metadata.shape)
    if not ndim:
        raise IndexError(f"{name}: Dimension specified as {axis} but tensor has no dimensions")
    if x is not None and dx is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: pass `x` or `dx`.")
    for operand in (y, x):
        if isinstance(operand, Variable) and operand._metadata.dtype.kind == "b":
            raise RuntimeError(f"{name}: received a bool input, but bool is not supported")
    if x is None:
        width: Any = number_argument(name, "dx", 1 if dx is None else dx)
    else:
        places = x
        if len(places._metadata.shape) == 1:
            places = _along(places, axis, ndim)
        elif len(places._metadata.shape) < ndim:
            lead = (1,) * (ndim - len(places._metadata.shape))
            places = R.reshape(places, (*lead, *places._metadata.shape))
        if places._metadata.shape[axis] != y._metadata.shape[axis]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        width = R.sub(_part(places, axis, 1, 0), _part(places, axis, 0, -1))
    if y._metadata.dtype.kind in "iu":
        # Sums of small integers could be beyond their dtype.
        y = cast(y, _INT64)
    total = R.add(_part(y, axis, 0, -1), _part(y, axis, 1, 0))
    return R.div(R.mul(total, width), 2)


@converted
def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: Axis = -1
) -> Tensor:
    """The integral along an axis by the trapezoidal rule.

    Args:
        y: the values at the points.
        x: the coordinates: one vector, or a tensor broadcast against `y`.
        dx: the distance of neighbours, if `x` is not given.
    """
    areas, shape = _areas("trapezoid", y, x, dx, dim), y._metadata.shape
    # As in PyTorch, the integral over no points has their dtype and no gradient.
    return sum(areas, dim) if shape[dim] else y.new_zeros((*shape[:dim], *shape[dim + 1 :]))


trapz = trapezoid


@converted
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: Axis = -1
) -> Tensor:
    """The integrals up to each point but the first; see `trapezoid`."""
    return R.cumsum(_areas("cumulative_trapezoid", y, x, dx, dim), dim)


# -- statistics -----------------------------------------------------------------------------------


@requires(
    "input.ndim <= 2  # expected input to have two or fewer dimensions",
    "input.dtype != bool  # bool dtype is not supported for input",
)
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The covariances of variables: a square matrix, or of one variable its variance.

    Args:
        input: of shape (variables, observations), or one variable's observations.
        correction: subtracted from the number of observations.
        fweights: the number of repetitions of each observation, not negative.
        aweights: the weight of each observation.
    """
    dims, kind = len(input._metadata.shape), input._metadata.dtype.kind
    rows = input if dims == 2 else R.reshape(input, (1, input._metadata.size))
    count = rows._metadata.shape[1]
    weights: Any = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if len(given._metadata.shape) > 1 or given._metadata.size != count:
            raise unmet("cov", f"expected {name} to have the same numel as there are observations "
                        f"in the input, {count}, and one axis", **{name: given})  # fmt: skip
        if category(given._metadata.dtype) != (1 if name == "fweights" else 2):
            wanted = "integral" if name == "fweights" else "floating point"
            raise RuntimeError(f"cov(): expected {name} to have {wanted} dtype")
        if given._metadata.size and bool((given < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
        weights = given if weights is None else R.mul(weights, given)
    total: Any = count if weights is None else sum(weights)
    if weights is not None and not float(total) > 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    rows = rows if category(input._metadata.dtype) > 1 else cast(rows, default_dtype())
    known = rows if weights is None else R.mul(rows, weights)
    centred = R.sub(rows, R.div(sum(known, 1, True), total))
    lost: Any = correction
    if aweights is not None and correction:
        lost = R.mul(R.div(sum(R.mul(weights, aweights)), total), correction)
    free = R.sub(total, lost) if weights is not None else total - lost
    free = clamp(free, 0) if isinstance(free, Variable) else max(free, 0)  # type: ignore[arg-type]
    other = centred if weights is None else R.mul(centred, weights)
    product = matmul(centred, R.conj(shape.t(other)) if kind == "c" else shape.t(other))
    return shape.squeeze(R.div(product, free))


@requires("input.ndim <= 2  # expected input to have two or fewer dimensions")
def corrcoef(input: Tensor) -> Tensor:
    """The correlations of variables, whose observations are rows; see `cov`."""
    found = cov(input)
    if not found._metadata.shape:
        return R.div(found, found)
    spread = shape.diagonal(found)
    spread = R.sqrt(R.real(spread) if found._metadata.is_complex else spread)
    out = R.div(R.div(found, R.unsqueeze(spread, 1)), R.unsqueeze(spread, 0))
    if out._metadata.is_complex:
        return R.complex(clamp(R.real(out), -1, 1), clamp(R.imag(out), -1, 1))
    return clamp(out, -1, 1)


def _bounds(
    name: str, low: float, high: float, room: float, dtype: np.dtype[Any]
) -> tuple[float, float]:
    """The checked ends of the bins; equal ends are moved apart by `room` each."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{name}: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"{name}: max must be larger than min")
    low, high = fitted(name, low, dtype), fitted(name, high, dtype)
    return (low - room, high + room) if low == high else (low, high)


def _reach(array: Array) -> tuple[float, float]:
    """The least and the greatest element."""
    return (float(array.min()), float(array.max())) if array.size else (0.0, 1.0)


def _counted(x: Array, low: float, high: float, bins: int, weights: Tensor | None = None) -> Any:
    """The number of elements in each of `bins` bins of equal width."""
    inside = (x >= low) & (x <= high)
    number = x.dtype.type
    # Of the quarters, where the distance between the ends is too great a number.
    part = 1 if high - low <= float(np.finfo(x.dtype).max) else 0.25
    shares = (x[inside] * part - number(low * part)) / number(high * part - low * part)
    places = np.minimum((shares * bins).astype(np.int64), bins - 1)
    counted = None if weights is None else weights[inside]
    return np.bincount(places, counted, bins).astype(x.dtype)


def _checked(name: str, input: Tensor) -> Any:
    dtype = input._metadata.dtype
    if dtype.kind != "f" or is_half(dtype):
        refuse(name, dtype)
    return input


@writes_exactly
@requires("bins > 0  # bins must be > 0")
def histc(input: ByExample, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of `bins` bins of equal width; without a gradient.

    Args:
        input: a floating tensor.
        min: the start of the first bin.
        max: the end of the last bin; if both are equal, the elements' extremes are used.
    """
    dtype = input._metadata.dtype
    if is_half(dtype):
        return histc(input.to(np.float32), bins, min, max).to(dtype)
    input = _checked("histc", input)
    computed_on_host(partial(_check_ends, min, max), input)
    counts = computed_on_host(partial(_histogram, bins, min, max), input)
    return from_host("histc", counts, input._metadata.device)


def _check_ends(low: float, high: float, x: Array) -> None:
    _ends(low, high, x)


def _ends(low: float, high: float, x: Array) -> tuple[float, float]:
    """The start of the first bin of `histc`, and the end of the last."""
    ends = _reach(x.reshape(-1)) if low == high else (low, high)
    return _bounds("histc", *ends, 1, x.dtype)


def _histogram(bins: int, low: float, high: float, x: Array) -> Any:
    return _counted(x.reshape(-1), *_ends(low, high, x), bins)


@writes
@requires(
    "weight.shape == input.shape"
    "  # if weight tensor is provided it should have the same shape as the input tensor",
    "weight.dtype == input.dtype  # if weight tensor is provided, input tensor and weight tensor "
    "should have the same dtype",
)
def histogram(
    input: ByExample, bins: Ints | Tensor | Sequence[Tensor], *,
    range: tuple[float, float] | None = None,
    weight: ByExample | None = None, density: bool = False,
) -> return_types.histogram:  # fmt: skip
    """The number of elements in each bin, and the bins' edges; without a gradient.

    Args:
        input: a float or double tensor.
        bins: the number of bins of equal width, or the edges, in order.
        range: the start of the first and the end of the last bin; the elements' if None.
        weight: the weight of each element.
        density: divide by the sum, and by the width of each bin.
    """
    x = _checked("histogram", input)
    if getattr(bins, "_batched", False):
        return by_parts(histogram, x, bins, range=range, weight=weight, density=density)
    array, place = on_host(x).reshape(-1), x._metadata.device
    weights = None if weight is None else on_host(weight).reshape(-1)
    if isinstance(bins, Variable):
        edges = on_host(bins)
        if edges.ndim != 1:
            raise unmet("histogram", "bins tensor should have one dimension", bins=bins)
        if edges.size < 2:
            raise unmet("histogram", "bins must be > 0: give two edges or more", bins=bins)
        if edges.dtype != array.dtype:
            raise unmet("histogram", "input tensor and bins tensors should have the same dtype",
                        input=array.dtype, bins=edges.dtype)  # fmt: skip
        inside = (array >= edges[0]) & (array <= edges[-1])
        places = np.searchsorted(edges, array[inside], "right") - 1
        counted = None if weights is None else weights[inside]
        places = np.minimum(places, edges.size - 2)
        counts = np.bincount(places, counted, edges.size - 1).astype(array.dtype)
    else:
        count = one_int("histogram", "bins", bins)
        if count <= 0:
            raise RuntimeError(f"histogram(): bins must be > 0, but got {bins}")
        ends = _reach(array) if range is None else range
        low, high = _bounds("histogram", float(ends[0]), float(ends[1]), 0.5, array.dtype)
        edges = np.linspace(low, high, count + 1, dtype=array.dtype)
        counts = _counted(array, low, high, count, weights)
    if density:
        with np.errstate(invalid="ignore", divide="ignore"):
            counts = counts / (counts.sum() * np.diff(edges))
    return return_types.histogram(
        *[from_host("histogram", np.ascontiguousarray(part), place) for part in (counts, edges)]
    )


# -- points ---------------------------------------------------------------------------------------


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """The Cartesian product of vectors, one row for each combination."""
    vectors = tensor_operands("cartesian_prod", *tensors)
    for x in vectors:
        if len(x._metadata.shape) != 1:
            raise unmet("cartesian_prod", "Expect a 1D vector", tensor=x)
    if len(vectors) == 1:
        return vectors[0]
    grids = shape.meshgrid(*vectors, indexing="ij")
    return shape.stack([R.reshape(grid, (-1,)) for grid in grids], 1)


@requires("r >= 0  # Expect a non-negative number")
def combinations(input: Vector, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of `r` elements of a vector, in order, one row for each.

    Args:
        with_replacement: an element may be taken several times.
    """
    if r == 0:
        return input.new_empty((0,))
    ways = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.array(list(ways(np.arange(input._metadata.size), r)), np.int64).reshape(-1)
    numbers = from_host("combinations", places, input._metadata.device)
    return no_view(R.reshape(index_select(input, 0, numbers), (places.size // r, r)))


@requires("N is None or N >= 0  # N must be non-negative")
def vander(x: Vector, N: int | None = None, increasing: bool = False) -> Tensor:
    """A Vandermonde matrix: the powers of a vector's elements, the highest first.

    Args:
        N: how many powers; as many as elements if None.
        increasing: the lowest first.
    """
    count = x._metadata.size if N is None else N
    out = shape.narrow(powers(x, N=max(count, 2)), -1, 0, count)
    return out if increasing else shape.flip(out, (-1,))


@requires("indices.dtype.kind in 'iu'  # expected 'indices' to be integer dtype", error=TypeError)
def unravel_index(indices: Tensor, shape: Ints) -> tuple[Tensor, ...]:
    """Convert flat indices into indices along each axis of a shape.

    Args:
        indices: integers.
    """
    sizes: Sequence[int] = one_shape("unravel_index", (shape,))
    indices = cast(indices, _INT64)
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    out = []
    for axis in range(len(sizes)):
        behind = math.prod(sizes[axis + 1 :])
        # The bounds of 1 avoid divisions by zero for shapes without elements.
        out.append(R.remainder(R.div_floor(indices, max(behind, 1)), max(sizes[axis], 1)))
    return tuple(out)
