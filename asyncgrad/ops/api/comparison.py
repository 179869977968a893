"""Comparisons, searches and unique elements; none of these functions has a derivative."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from asyncgrad.choices import Side
from asyncgrad.core import recording
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.ops import promotion
from asyncgrad.ops.api.index import nonzero
from asyncgrad.ops.api.reduction import sum
from asyncgrad.ops.arguments import number_argument
from asyncgrad.ops.bfloat16 import sortable
from asyncgrad.ops.converted import converted, writes_exactly
from asyncgrad.ops.dtype import REAL, check_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.types import Alike, Array, Axis, ByExample, Ints, Library, Number, Tensor, Vector

__all__ = [
    "allclose", "argwhere", "bincount", "bucketize", "count_nonzero", "equal", "is_same_size",
    "isclose", "isin", "isreal", "searchsorted", "unique", "unique_consecutive",
]  # fmt: skip
_F = TypeVar("_F", bound="Callable[..., Any]")
METHODS = tuple([name for name in __all__ if name not in {"bucketize", "isin", "searchsorted"}])


def _made(like: Tensor, array: Array) -> Any:
    F = like._metadata.F
    array = F.as_array(array)
    return wrap(array, F.metadata_of(array))


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    return bool(input._metadata.shape == other._metadata.shape)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape and the same elements."""
    promotion.check_device("equal", input, other)
    if input._metadata.shape != other._metadata.shape:
        return False
    recording.note_look("equal()")
    return bool(input._metadata.F.xp.array_equal(input._array, other._array))


@requires(*[f"{x} >= 0  # {x} must be greater than or equal to zero" for x in ("rtol", "atol")])
def isclose(
    input: Tensor, other: Alike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Where `|input - other| <= atol + rtol * |other|` or both are equal infinities; broadcast.

    Args:
        other: a tensor of its dtype.
        rtol: the tolerance relative to `other`.
        atol: the absolute tolerance.
        equal_nan: treat NaN as close to NaN.
    """
    x, y = input.detach(), other.detach()
    close = x == y
    if promotion.category(x._metadata.dtype) < 2:
        if not (rtol or atol):
            return close
        x, y = x.double(), y.double()
    elif equal_nan:
        close = close | (R.isnan(x) & R.isnan(y))
    near = R.abs(R.sub(x, y)) <= R.add(R.mul(R.abs(y), rtol), atol)
    return close | (near & (R.abs(y) < math.inf))


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether `isclose` holds everywhere."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def isreal(input: Tensor) -> Tensor:
    """Where elements have no imaginary part."""
    if input._metadata.is_complex:
        return R.imag(input.detach()) == 0
    return _made(input, input._metadata.F.xp.ones(input._metadata.shape, dtype=bool))


@writes_exactly
def isin(
    elements: ByExample | Number, test_elements: ByExample | Number, *, assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:  # fmt: skip
    """Where elements occur in `test_elements`.

    Args:
        elements: a tensor or a number.
        test_elements: the others, likewise.
        assume_unique: both have no duplicates.
        invert: where elements do not occur.
    """
    like = elements if isinstance(elements, Variable) else test_elements
    like = promotion.as_tensor_operand(like, "isin", 1)
    promotion.check_device("isin", elements, test_elements)
    arrays: list[Any] = []
    for name, x in (("elements", elements), ("test_elements", test_elements)):
        if isinstance(x, Variable):
            check_dtype("isin", x._metadata.dtype, REAL)
            arrays.append(x._array)
        else:
            number = number_argument("isin", name, x)
            # A number is rounded as the elements are: 0.1 occurs among float32 elements.
            if isinstance(number, float):
                dtype = promotion.result_dtype(like, number)
                rounded = call_without_fp_errors(promotion.constant, number, like, dtype)
                number = rounded._array
            arrays.append(number)
    launched = like._metadata.device.launching(_occurring)
    found = functools.partial(launched, like._metadata.F.xp, assume_unique, invert)
    return _made(like, recording.again(found, *arrays))


def _occurring(
    xp: Library, unique: bool, invert: bool, elements: Array | Number, others: Array | Number
) -> Any:
    """Where elements occur among others; NumPy sorts both."""
    elements, others = sortable(xp.asarray(elements)), sortable(xp.asarray(others))
    return xp.isin(elements, others, assume_unique=unique, invert=invert)


@converted
def count_nonzero(input: Tensor, dim: Ints | None = None, *more: int) -> Tensor:
    """The number of nonzero elements, of all or over some axes, given as one sequence or singly."""
    axes: Any = (dim, *more) if more else dim
    return sum((input.detach() != 0), axes)


def argwhere(input: Tensor) -> Tensor:
    """The indices of the nonzero elements, one row for each."""
    rows: Any = nonzero(input)
    return rows


@requires(
    "input.dtype.kind in 'iu'  # bincount only supports 1-d non-negative integral inputs",
    "input.ndim == 1  # bincount only supports 1-d non-negative integral inputs. Flatten it",
    "weights.shape == input.shape  # weights should be 1-d and have the same length as input",
    "minlength >= 0  # minlength should be >= 0",
)
def bincount(input: ByExample, weights: ByExample | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each number from 0 to the largest.

    Args:
        input: integers that are not negative, in one axis.
        weights: the weight of each, of the same shape.
        minlength: the least length of the result.
    """
    least = int(input.min()) if input._metadata.size else 0
    if least < 0:
        raise unmet("bincount", "bincount only supports 1-d non-negative integral inputs",
                    **{"input.min()": least})  # fmt: skip
    promotion.check_device("bincount", input, weights)
    held = None if weights is None else weights._array
    found = input._metadata.F.xp.bincount(input._array, held, minlength)
    if weights is not None and weights.dtype == np.float32:
        found = input._metadata.F.to(found, weights._metadata.dtype)
    return _made(input, found)


@writes_exactly
@requires(
    "not (right and side == 'left')  # side and right can't be set to opposites",
    "sorted_sequence.ndim > 0  # boundaries tensor should have positive dimension",
)
def searchsorted(
    sorted_sequence: ByExample, input: ByExample | Number, *, out_int32: bool = False,
    right: bool = False, side: Side | None = None, sorter: ByExample | None = None,
) -> Tensor:  # fmt: skip
    """The indices at which values would be inserted into sorted numbers to keep their order.

    Args:
        sorted_sequence: of shape (..., length): the sorted numbers.
        input: of shape (..., values), or of any if there is one row of numbers; or a number.
        out_int32: return int32 instead of int64.
        right: insert after equal numbers instead of before them.
        side: "left" or "right", instead of `right`.
        sorter: the indices that sort the numbers.
    """
    row = sorted_sequence
    if not isinstance(input, Variable) and promotion.as_number(input) is None:
        raise promotion.refusal(input, "searchsorted", 2)
    promotion.check_device("searchsorted", row, input, sorter)
    xp = row._metadata.F.xp
    values = input._array if isinstance(input, Variable) else xp.asarray(input)
    check_dtype("searchsorted", row._metadata.dtype, f"{REAL}b")
    check_dtype("searchsorted", values.dtype, f"{REAL}b")
    order = None if sorter is None else sorter._array
    if row.ndim != 1 and values.shape[:-1] != row.shape[:-1]:
        raise unmet("searchsorted", "boundaries tensor should be 1 dimension or the first N-1 "
                    "dimensions of boundaries tensor and input value tensor must match",
                    sorted_sequence=row, input=input)  # fmt: skip
    if not isinstance(input, Variable):
        recording.note_constant(values)
    edge = "right" if right or side == "right" else "left"
    dtype = np.int32 if out_int32 else np.int64
    searched = functools.partial(row._metadata.device.launching(_searched), xp)
    return _made(row, recording.again(searched, row._array, values, order, edge, dtype))


def _searched(
    xp: Library, bounds: Array, values: Array, order: Array | None, edge: str, dtype: Any
) -> Any:
    bounds, values = sortable(bounds), sortable(values)
    if bounds.ndim == 1:
        found = xp.searchsorted(bounds, values, edge, sorter=order)
    else:
        found = xp.empty(values.shape, dtype=np.int64)
        for place in np.ndindex(*bounds.shape[:-1]):
            own = None if order is None else order[place]
            found[place] = xp.searchsorted(bounds[place], values[place], edge, sorter=own)
    return xp.asarray(found, dtype=dtype)


@writes_exactly
def bucketize(
    input: Tensor | Number, boundaries: Vector, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The indices of the intervals between sorted boundaries; see `searchsorted`."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _comparable(function: _F) -> _F:
    """Decorate a function of the slices along an axis, or of all elements."""
    checked = requires(
        "0 not in input.shape[:dim] + input.shape[dim + 1 :]  # There are 0 sized dimensions, and "
        "they aren't selected, so unique cannot be applied"
    )(function)
    some = requires(
        "dim is None or input.ndim > 0"
        "  # Dimension specified as {dim} but tensor has no dimensions",
        error=IndexError,
    )(checked)
    return requires(
        "not input.is_complex()  # not implemented for complex numbers", error=NotImplementedError
    )(some)


@_comparable
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: Axis | None = None,
) -> Any:  # fmt: skip
    """The distinct elements, or distinct slices along an axis, in order.

    Args:
        sorted: for PyTorch compatibility: they are always sorted.
        return_inverse: also return the index in the result of each element.
        return_counts: also return the number of occurrences of each.

    Raises:
        RuntimeError: if parts along an axis have no elements.
        NotImplementedError: in the backward pass: there is no derivative.
    """
    return _of_slices(input, _distinct, dim, return_inverse, return_counts, R.unique)


def _distinct(xp: Library, array: Array, dim: int | None) -> Any:
    found, inverse, counts = xp.unique(
        sortable(array), return_inverse=True, return_counts=True, axis=dim, equal_nan=False
    )
    return found.astype(array.dtype, copy=False), inverse, counts


@_comparable
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Axis | None = None,
) -> Any:
    """The elements, or slices along an axis, without those equal to the one before.

    Args:
        return_inverse: also return the index in the result of each element.
        return_counts: also return the length of each run.

    Raises:
        RuntimeError, NotImplementedError: as `unique`.
    """
    return _of_slices(input, _runs, dim, return_inverse, return_counts, R.unique_consecutive)


def _runs(xp: Library, array: Array, dim: int | None) -> Any:
    parts = array.reshape(-1) if dim is None else xp.moveaxis(array, dim, 0)
    begins = xp.ones(len(parts), dtype=bool)
    differ = parts[1:] != parts[:-1]
    begins[1:] = differ.any(tuple(range(1, parts.ndim))) if parts.ndim > 1 else differ
    found = parts[begins]
    starts = xp.nonzero(begins)[0]
    ends = xp.concatenate([starts[1:], xp.full(min(len(parts), 1), len(parts))])
    found = found if dim is None else xp.moveaxis(found, 0, dim)
    return found, xp.cumsum(begins) - 1, ends - starts


def _of_slices(
    x: Tensor, find: Callable[..., Any], dim: int | None, inverse: bool, counts: bool,
    function: Callable[..., Any],
) -> Any:  # fmt: skip
    """The distinct elements or slices, by a table's function, and what else is asked of them."""
    metadata = x._metadata
    found, places, numbers = metadata.device.launching(find)(metadata.F.xp, x._array, dim)
    made = [function(x, metadata.F.as_array(found))]
    if inverse:
        shape = metadata.shape if dim is None else (metadata.shape[dim],)
        made.append(_made(x, places.reshape(shape)))
    if counts:
        made.append(_made(x, numbers))
    return made[0] if len(made) == 1 else tuple(made)
