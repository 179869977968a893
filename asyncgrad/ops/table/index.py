"""Functions that pick elements by index, and their adjoints, which put them back.

`api.index` normalises an index. A *basic* index (numbers, slices, None, one Ellipsis) selects a
view. An index with arrays selects a copy in which an element may occur several times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.ops import batch_rules
from asyncgrad.ops.arguments import greatest
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.op import Op, Refused, linear, operation
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.table.strided import CHANGED_AT, add_at, change_at
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.types import Array, Library, Namespace, Shape, Value

#: Below this number of elements the library's own indexing is the fastest.
_FEW = 2048
#: Rows of at least this many elements are added one by one, others so many elements at a time.
_LONG, _SOME = 256, 1 << 16


#: NumPy's words for a wrong index, and PyTorch's.
_PHRASES = (
    ("cannot do a non-empty take .*", "index is out of bounds for dimension with size 0"),
    ("for axis", "for dimension"),
    (
        r"boolean index .* along axis (\d+); size of axis is (\d+) but .* is (\d+)",
        r"The shape of the mask [\3] does not match the shape of the indexed tensor [\2] at \1",
    ),
    ("too many indices for array: array is 0-dimensional", "invalid index of a 0-dim tensor"),
)


def refused_index(shape: tuple[int, ...], error: IndexError) -> IndexError:
    """The error of an index that does not fit a tensor of a shape."""
    said = str(error)
    for numpys, pytorchs in _PHRASES:
        said = re.sub(numpys, pytorchs, said)
    return IndexError(f"index of a tensor of shape {shape}: {said}")


def _pick(xp: Library, x: Array, index: tuple[Any, ...]) -> Any:
    """Copy the elements at an index of arrays and full slices; the result is contiguous."""
    try:
        numbers = _flat_numbers(x, index)
        if numbers is not None:
            return x.reshape(-1).take(numbers)
        if index[0].__class__ is slice and _in_memory_order(x):
            axis = next(axis for axis, part in enumerate(index) if part.__class__ is not slice)
            classes = {part.__class__ for part in index[axis + 1 :]}
            if index[axis].dtype.kind != "b" and classes <= {slice}:
                return x.take(index[axis], axis)
        out = x[index]
    except IndexError as error:
        raise refused_index(x.shape, error) from None
    # NumPy puts the indexed axes first in memory; PyTorch leaves them in place.
    return in_order(out)


def _flat_numbers(x: Array, index: tuple[Any, ...]) -> Any:
    """The flat numbers of the indexed elements, because one array of indices is faster.

    None if it is not, or if the index has slices, negative numbers, or masks besides one for all.
    """
    shape = x.shape
    if x.size < _FEW or not _in_memory_order(x):
        return None
    if index[0].__class__ is not slice and index[0].dtype == bool and index[0].shape == shape:
        return np.flatnonzero(index[0])
    if len(index) < len(shape) or len(shape) < 2:
        return None
    numbers: Any = 0
    step = x.size
    for part, n in zip(index, shape, strict=True):
        if part.__class__ is slice or part.dtype.kind != "i" or not part.size:
            return None
        if greatest(part.view(f"u{part.itemsize}")) >= n:
            return None
        step //= n
        numbers = numbers + (part if step == 1 else np.multiply(part, step, dtype=np.int64))
    return numbers


def _in_memory_order(x: Array) -> bool:
    return x.__class__ is np.ndarray and bool(x.flags.c_contiguous)


def _zeros_with(xp: Library, g: Array, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """Zeros of `shape` with `g` at a basic index."""
    if g.size >= _FEW and index and index[0].__class__ is slice:
        start, stop, step = index[0].indices(shape[0])
        if step == 1 and g.size == (stop - start) * prod(shape[1:]):
            # Whole rows that follow one another: only the others are zeros.
            out = xp.empty(shape, g.dtype)
            out[:start] = 0
            out[stop:] = 0
            out[index] = g
            return out
    out = xp.zeros(shape, dtype=g.dtype)
    out[index] = g
    return out


def _zeros_plus(xp: Library, g: Array, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """Zeros of `shape` with `g` added at an index; repeated indices add up."""
    out = xp.zeros(shape, dtype=g.dtype)
    if _are_distinct(out, index, g):
        return _put(xp, out, g, index)
    _add_at(xp, out, index, g)
    return out


def _are_distinct(out: Array, index: tuple[Any, ...], g: Array) -> bool:
    """Whether many elements go to different places of a host array, and are simply copied."""
    if g.size < _FEW or len(index) > 1 or out.__class__ is not np.ndarray:
        return False
    places = index[0]
    if places.dtype == bool:
        return True
    found = np.zeros(len(out), bool)
    found[places] = True
    return bool(np.count_nonzero(found) == places.size)


def _add_at(xp: Library, out: Array, index: tuple[Any, ...], g: Array) -> None:
    """Add at an index of arrays and full slices, in place, in float32 to half precision.

    Repeated indices add up.
    """
    if is_half(out.dtype):
        wide = out.astype(xp.float32)
        _add_at(xp, wide, index, g.astype(xp.float32))
        out[...] = wide
        return
    if all(part.__class__ is slice or part.dtype == bool for part in index):
        out[index] += g
    elif g.size < _FEW or not out.flags.c_contiguous:
        add_at(xp, out, index, g)
    elif (
        len(index) == 1 == index[0].ndim
        and out.__class__ is np.ndarray
        and g.shape[1:] == out.shape[1:]
        and g.size >= _LONG * len(g)
    ):
        for place, row in zip(index[0].tolist(), g, strict=True):
            out[place] += row
    elif len(index) == 1:
        _add_rows(xp, out, index[0].reshape(-1), g)
    else:
        _add_flat(xp, out, index, g)


def _add_rows(xp: Library, out: Array, places: Array, g: Array) -> None:
    """Add rows at places, some of them at a time: the elements' numbers take twice their memory."""
    rows = g.reshape(len(places), *out.shape[1:])
    # Also those of negative places.
    numbers = xp.arange(len(out))
    length = prod(out.shape[1:])
    within = xp.arange(length) if out.ndim > 1 else None
    step = len(places)
    if xp.ndarray is np.ndarray:
        step = max(1, _SOME * step // g.size)
    for start in range(0, len(places), step):
        some = slice(start, start + step)
        these = numbers[places[some]]
        if within is not None:
            these = (these[:, None] * length + within).reshape(-1)
        add_at(xp, out.reshape(-1), these, rows[some].reshape(-1))


def _add_flat(xp: Library, out: Array, index: tuple[Any, ...], g: Array) -> None:
    """Add at flat numbers: for one axis, they are 2 to 5 times as fast as several index arrays."""
    numbers = _flat_numbers(out, index)
    if numbers is None:
        numbers = _numbers(xp, out.shape, index)
    add_at(xp, out.reshape(-1), numbers.reshape(-1), g.reshape(-1))


def _numbers(xp: Library, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """The flat numbers of the elements that an index selects."""
    while index[-1].__class__ is slice:
        index = index[:-1]
    axes = sum(1 if p.__class__ is slice or p.dtype != bool else p.ndim for p in index)
    lead = shape[:axes]
    rows = xp.arange(prod(lead)).reshape(lead)[index]
    length = prod(shape[axes:])
    return rows if axes == len(shape) else rows[..., None] * length + xp.arange(length)


def _put(xp: Library, x: Array, value: Array | float, index: tuple[Any, ...]) -> Any:
    """Replace the elements at an index, in place."""
    try:
        numbers = _flat_numbers(x, index)
        if numbers is None:
            x[index] = value
        else:
            x.reshape(-1)[numbers] = value
    except IndexError as error:
        raise refused_index(x.shape, error) from None
    return x


def _put_add(xp: Library, x: Array, value: Array, index: tuple[Any, ...]) -> Any:
    try:
        if len(index) == 1 and x.__class__ is np.ndarray and value.size >= _FEW:
            # Rows are added in parts: an index that does not fit raises before the first one.
            np.broadcast_to(False, x.shape)[index]
        _add_at(xp, x, index, value)
    except IndexError as error:
        raise refused_index(x.shape, error) from None
    return x


def _changed_at(xp: Library, name: str, x: Array, y: Array, index: tuple[Any, ...]) -> Any:
    """A copy to which a function of pairs is applied at an index, once for each repetition."""
    if xp.ndarray is not np.ndarray and (name == "multiply" or x.dtype.char not in CHANGED_AT):
        # CuPy can't; this is computed on the host, as its speed does not matter.
        there = _to_host(x), _to_host(y), tuple(map(_to_host, index))
        return xp.asarray(_changed_at(np, name, *there))
    function, out = getattr(xp, name), x.copy()
    numbers = _flat_numbers(out, index)
    if numbers is None:
        change_at(function, out, index, y)
    else:
        y = np.broadcast_to(y, numbers.shape).reshape(-1)
        change_at(function, out.reshape(-1), numbers.reshape(-1), y)
    return out


def _factors(F: Namespace, x: Value, y: Value, index: tuple[Any, ...]) -> Any:
    return F.scatter_multiply(F.add_scalar(F.zero(x), 1), y, index)


def _other_factors(F: Namespace, x: Value, y: Value, index: tuple[Any, ...]) -> Any:
    """For each factor the product of its element and that element's other factors.

    The product is divided by the factor, or recomputed without it if it is 0. Only the first two
    zeros of an element are handled: others matter for third derivatives only.
    """
    ranks = F.zero_ranks(y, x.shape, index)
    nothing = F.zero(y)
    one = F.add_scalar(nothing, 1)
    is_zero = F.eq(y, nothing)
    product = F.index(F.scatter_multiply(x, y, index), index)
    out = F.where(is_zero, nothing, F.div(product, F.where(is_zero, one, y)))
    for rank in range(2):
        own = F.eq(ranks, F.add_scalar(F.zero(ranks), rank))
        others = F.scatter_multiply(x, F.where(own, one, y), index)
        out = F.where(own, F.index(others, index), out)
    return out


def _zero_ranks(xp: Library, y: Array, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """How many zeros precede each zero factor of the same element; -1 for nonzero factors."""
    zero = (y == 0).reshape(-1)
    places = xp.arange(prod(shape)).reshape(shape)[index].reshape(-1)[zero]
    order = xp.argsort(places)
    places = places[order]
    ranks = xp.empty(places.shape, np.int64)
    ranks[order] = xp.arange(len(places)) - xp.searchsorted(places, places)
    out = xp.full(zero.shape, -1)
    out[zero] = ranks
    return out.reshape(y.shape)


def _extreme_at(
    xp: Library, x: Array, y: Array, index: tuple[Any, ...], greatest: bool, included: bool
) -> Any:
    """A copy with the greatest, or least, of each element and the values at its index.

    Unless elements are `included`, they were replaced by the least, or greatest, of all numbers.
    """
    return _changed_at(xp, "maximum" if greatest else "minimum", x, y, index)


def _candidates(
    F: Namespace, x: Value, y: Value, out: Value, index: tuple[Any, ...], included: bool
) -> tuple[Any, Any, Any]:
    """Masks of the extreme elements among both inputs, and their number for each element."""
    own, others = F.hits(x, out), F.hits(y, F.index(out, index))
    if not included:
        own = F.zero_at(own, index)
    return own, others, F.add(own, F.zeros_plus(others, x.shape, index))


def _extreme_by_x(
    F: Namespace, g: Value, x: Value, y: Value, out: Value, index: Any, included: bool
) -> Any:
    own, _, count = _candidates(F, x, y, out, index, included)
    return F.div(F.mul(g, own), count)


def _extreme_by_y(
    F: Namespace, g: Value, x: Value, y: Value, out: Value, index: Any, included: bool
) -> Any:
    _, others, count = _candidates(F, x, y, out, index, included)
    return F.mul(F.index(F.div(g, count), index), others)


def _extreme_from_y(
    F: Namespace, t: Value, x: Value, y: Value, out: Value, index: Any, included: bool
) -> Any:
    _, others, count = _candidates(F, x, y, out, index, included)
    return F.div(F.zeros_plus(F.mul(t, others), x.shape, index), count)


def _to_host(value: Array) -> Any:
    return value.get() if hasattr(value, "get") else value


def _lookup_adjoint(
    F: Namespace, g: Value, x_shape: Shape, index: Value, padding: int | None
) -> Any:
    if padding is not None:
        kept = index != padding
        g, index = F.index(g, (kept,)), index[kept]
    return F.rows(g, x_shape, index)


def _last_step(index: tuple[Any, ...]) -> str:
    """PyTorch's node name for the last step of a basic index."""
    for part in reversed(index):
        if part is None:
            return "UnsqueezeBackward0"
        if part is not Ellipsis and part.__class__ is not slice:
            return "SelectBackward0"
        if part.__class__ is slice and part != _WHOLE:
            return "SliceBackward0"
    return "SliceBackward0" if index.count(_WHOLE) == 1 else "AliasBackward0"


_WHOLE = slice(None)


def _into_zeros(name: str, forward: Callable[..., Any]) -> Op:
    return linear(
        name,
        forward,
        lambda F, g, index: F.index(g, index),
        attributes="shape index",
        batch=batch_rules.from_index,
        host_indices=True,
    )


def _into(
    name: str, forward: Callable[..., Any], kept: Callable[..., Any], adjoint: str, **more: Any
) -> Op:
    """An op that puts values at an index of an array.

    `kept` gives the part of a gradient, or of a tangent, that the array itself has; the op
    `adjoint` puts a tangent of the values into zeros.
    """

    def push(F: Namespace, t: Value, out_shape: Shape, index: Any) -> Any:
        return getattr(F, adjoint)(t, out_shape, index)

    return operation(
        name,
        without_fp_errors(forward),
        "x value",
        "index",
        cost=lambda x, value, index: x._metadata.cost + 5 * value._metadata.cost,
        pulls={"x": kept, "value": lambda F, g, index: F.index(g, index)},
        pushes={"x": kept, "value": push},
        node="IndexPutBackward0",
        batch=batch_rules.put,
        host_indices=True,
        raises=True,
        **more,
    )


OPS = (
    linear(
        "getitem",
        lambda xp, x, index: x[index],
        lambda F, g, x_shape, index: F.zeros_with(g, x_shape, index),
        view=True,
        variant=("index", _last_step),
        batch=batch_rules.index,
        host_indices=True,
    ),
    linear(
        "zeros_with",
        _zeros_with,
        lambda F, g, index: F.getitem(g, index),
        attributes="shape index",
        fresh=False,
        batch=batch_rules.from_index,
        host_indices=True,
    ),
    linear(
        "index",
        _pick,
        lambda F, g, x_shape, index: F.zeros_plus(g, x_shape, index),
        cost=7,
        batch=batch_rules.index,
        host_indices=True,
        raises=True,
    ),
    _into_zeros("zeros_plus", _zeros_plus),
    # The gradient of `lookup` holds only the rows that were looked up, and no zeros.
    linear(
        "lookup",
        lambda xp, x, index, padding: x[index],
        _lookup_adjoint,
        node="EmbeddingBackward0",
        repeats=False,
    ),
    linear(
        "rows",
        lambda xp, g, shape, index: Rows(
            index.reshape(-1).copy(), g.reshape(index.size, *shape[1:]), shape
        ),
        lambda F, g, index: F.index(F.to_dense(g), (index,)),
        attributes="shape index",
        fresh=False,
        repeats=False,
    ),
    linear(
        "to_dense",
        lambda xp, x: x.dense() if isinstance(x, Rows) else x.copy(),
        lambda F, g: g,
        passes=True,
        repeats=False,
    ),
    linear(
        "zero_at",
        lambda xp, x, index: _put(xp, x.copy(), 0, index),
        lambda F, g, index: F.zero_at(g, index),
        batch=batch_rules.index,
        host_indices=True,
    ),
    _into_zeros(
        "zeros_put",
        lambda xp, value, shape, index: _put(xp, xp.zeros(shape, value.dtype), value, index),
    ),
    # Ops that change their first input in place; their second has the shape of the indexed part.
    _into("put", _put, lambda F, g, index: F.zero_at(g, index), "zeros_put"),
    _into("put_add", _put_add, lambda F, g: g, "zeros_plus", fresh=False),
    # The result of `scatter` with a reduction, for which PyTorch has no derivative.
    operation(
        "scattered",
        lambda xp, x: x.copy(),
        pulls={"x": Refused("scatter")},
        node="NotImplemented",
        batch=batch_rules.same,
    ),
    operation(
        "scatter_multiply",
        lambda xp, x, y, index: _changed_at(xp, "multiply", x, y, index),
        "x y",
        pulls={
            "x": lambda F, g, x, y, index: F.chain(g, _factors(F, x, y, index)),
            "y": lambda F, g, x, y, index: F.chain(
                F.index(g, index), _other_factors(F, x, y, index)
            ),
        },
        pushes={
            "x": lambda F, t, x, y, index: F.mul(t, _factors(F, x, y, index)),
            "y": lambda F, t, x, y, x_shape, index: F.zeros_plus(
                F.mul(t, _other_factors(F, x, y, index)), x_shape, index
            ),
        },
        cost=lambda x, y, index: x._metadata.cost + 30 * y._metadata.cost,
        node="ScatterBackward0",
        batch=batch_rules.put,
        host_indices=True,
    ),
    operation("zero_ranks", _zero_ranks, "y", host_indices=True),
    operation(
        "extreme_at",
        _extreme_at,
        "x y",
        pulls={"x": _extreme_by_x, "y": _extreme_by_y},
        pushes={"x": _extreme_by_x, "y": _extreme_from_y},
        node="ScatterReduceBackward0",
        cost=lambda x, y, *rest: x._metadata.cost + 10 * y._metadata.cost,
        batch=batch_rules.put,
        host_indices=True,
    ),
    operation(
        "scale_gradient",
        lambda xp, x, y, pads: x,
        "x y",
        "pads",
        # A factor is 0 for padding, whose gradient is left out whatever it is.
        pulls={"x": lambda F, g, y, pads: F.mask(F.mul(g, y), y != 0) if pads else F.mul(g, y)},
        pushes={"x": lambda F, t: t},
        node="EmbeddingBackward0",
        batch=batch_rules.alike,
    ),
)
