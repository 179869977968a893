"""How `vmap` computes each op of the table: where its rule puts the batch axis.

A rule `rule(call, inputs..., attributes...)` gets the tensors that hold the batches. It computes
with the recorded functions of the table. `call.flags` says which inputs have the batch as their
first axis. The rows of the table name their rules; an op without one is computed one example at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.ops.recorded import RECORDED as R
from asyncgrad.records import NamedTuple

_ALL = slice(None)


class Call(NamedTuple):
    """The op that a rule computes, and which of its inputs are batched."""

    name: str
    #: The length of the batch.
    size: int
    #: For each input, whether its first axis is the batch.
    flags: tuple[bool, ...]
    #: The names of the op's attributes.
    attributes: tuple[str, ...] = ()


# -- small parts ----------------------------------------------------------------------------------


def in_front(x: Any, size: int) -> Any:
    """An unbatched tensor, repeated along a new first axis of the batch's length."""
    shape = x.shape
    return R.expand(R.reshape(x, (1, *shape)), (size, *shape))


def full(call: Call, values: tuple[Any, ...]) -> list[Any]:
    """All inputs with the batch as their first axis; unbatched ones are repeated."""
    return [
        x if flag else in_front(x, call.size) for x, flag in zip(values, call.flags, strict=True)
    ]


def _aligned(call: Call, values: tuple[Any, ...]) -> list[Any]:
    """Pad examples with axes of length 1, so that they broadcast against one another."""
    ndims = [len(x.shape) - flag for x, flag in zip(values, call.flags, strict=True)]
    ndim = max(ndims)
    return [
        R.reshape(x, (call.size, *(1,) * (ndim - n), *x.shape[1:])) if flag and n < ndim else x
        for x, n, flag in zip(values, ndims, call.flags, strict=True)
    ]


def _shifted(dims: Any) -> tuple[int, ...]:
    return tuple(dim + 1 for dim in dims)


def by_example(call: Call, *arguments: Any) -> Any:
    """Compute an op one example at a time and stack the results."""
    function = getattr(R, call.name)
    count = len(call.flags)
    # An op appends what it saves to a list attribute, so each example gets a list of its own.
    attributes = arguments[count:]
    parts = []
    for i in range(call.size):
        inputs = [
            R.getitem(x, (i, Ellipsis)) if flag else x
            for x, flag in zip(arguments[:count], call.flags, strict=True)
        ]
        parts.append(function(*inputs, *[[] if isinstance(a, list) else a for a in attributes]))
    return R.stack(parts, 0)


# -- elementwise ----------------------------------------------------------------------------------


def same(call: Call, x: Any, *attributes: Any) -> Any:
    """Compute the batch as one example: the op looks at no axes."""
    return getattr(R, call.name)(x, *attributes)


def broadcast(call: Call, *arguments: Any) -> Any:
    """Align the axes of batched examples, against which unbatched inputs are broadcast."""
    count = len(call.flags)
    return getattr(R, call.name)(*_aligned(call, arguments[:count]), *arguments[count:])


def alike(call: Call, *arguments: Any) -> Any:
    """Like `broadcast`, with unbatched inputs repeated: any may have fewer axes than others."""
    count = len(call.flags)
    whole = Call(call.name, call.size, (True,) * count)
    inputs = _aligned(whole, tuple(full(call, arguments[:count])))
    return getattr(R, call.name)(*inputs, *arguments[count:])


# -- axes -----------------------------------------------------------------------------------------

#: What attributes that name axes of an example are for the batch, by their names in the rows:
#: `change(value, size)`.
_FOR_BATCH: dict[str, Callable[[Any, int], Any]] = {
    "dim": lambda dim, size: dim + 1,
    "dim1": lambda dim, size: dim + 1,
    "dim2": lambda dim, size: dim + 1,
    "dims": lambda dims, size: _shifted(dims),
    "order": lambda order, size: (0, *_shifted(order)),
    "shape": lambda shape, size: (size, *shape),
    "widths": lambda widths, size: ((0, 0), *widths),
}


#: Attributes that have the same value for the batch as for one example.
_UNCHANGED = frozenset({
    "correction", "count", "eps", "forward", "keepdim", "length", "mode", "n", "offset", "ord",
    "scale", "shifts", "start", "value",
})  # fmt: skip


def by_attributes(names: tuple[str, ...]) -> Callable[..., Any] | None:
    """`over_axes` for an op whose attributes name axes, and nothing unknown; None for others."""
    known = all(name in _FOR_BATCH or name in _UNCHANGED for name in names)
    return over_axes if known and not _FOR_BATCH.keys().isdisjoint(names) else None


def over_axes(call: Call, *arguments: Any) -> Any:
    """Leave the batch axis in front, and shift the axes that attributes name, if any do."""
    count = len(call.flags)
    attributes = [
        _FOR_BATCH[name](value, call.size)
        if name in _FOR_BATCH
        else ([] if name == "kept" else value)
        for name, value in zip(call.attributes, arguments[count:], strict=True)
    ]
    return getattr(R, call.name)(*full(call, arguments[:count]), *attributes)


def extremum(call: Call, x: Any) -> Any:
    """The extremum of each whole example, by the function over axes: `amax` or `amin`."""
    return getattr(R, "a" + call.name)(x, tuple(range(1, len(x.shape))), False)


def sum_to(call: Call, x: Any, shape: tuple[int, ...]) -> Any:
    lead = len(x.shape) - 1 - len(shape)
    narrow = [i + lead + 1 for i, n in enumerate(shape) if n == 1 != x.shape[i + lead + 1]]
    dims = (*range(1, lead + 1), *narrow)
    out = R.sum(x, dims, True) if dims else x
    return R.reshape(out, (call.size, *shape))


def expand(call: Call, x: Any, shape: tuple[int, ...]) -> Any:
    inner = x.shape[1:]
    lead = (1,) * (len(shape) - len(inner))
    return R.expand(R.reshape(x, (call.size, *lead, *inner)), (call.size, *shape))


def line(call: Call, x: Any, dim: int) -> Any:
    """Apply an op along one axis; an example without axes is treated as one of one element."""
    if len(x.shape) == 1:
        return R.reshape(getattr(R, call.name)(R.reshape(x, (call.size, 1)), 1), x.shape)
    return getattr(R, call.name)(x, dim + 1)


def repeat(call: Call, x: Any, repeats: tuple[int, ...]) -> Any:
    lead = (1,) * (len(repeats) - len(x.shape) + 1)
    return R.repeat(R.reshape(x, (call.size, *lead, *x.shape[1:])), (1, *repeats))


# -- indices --------------------------------------------------------------------------------------


def _apart(index: tuple[Any, ...]) -> int:
    """How many picked axes come first because an index's arrays are not adjacent, or 0."""
    places = [
        i
        for i, part in enumerate(index)
        if not (part is None or part is Ellipsis or isinstance(part, slice))
    ]
    if not places or places[-1] - places[0] == len(places) - 1:
        return 0
    arrays = [index[i] for i in places if not isinstance(index[i], int)]
    return max([1 if x.dtype.kind == "b" else x.ndim for x in arrays], default=0)


def _to_back(x: Any, first: int) -> Any:
    """Move the batch behind the picked axes, where an index with non-adjacent arrays expects it."""
    return R.permute(x, (*range(1, first + 1), 0, *range(first + 1, len(x.shape))))


def index(call: Call, x: Any, index: tuple[Any, ...]) -> Any:
    """Index the examples; the batch comes to the front again where picked axes went there."""
    out = getattr(R, call.name)(x, (_ALL, *index))
    first = _apart(index)
    if call.name == "index" and first:
        out = R.permute(out, (first, *range(first), *range(first + 1, len(out.shape))))
    return out


def from_index(call: Call, x: Any, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """Zeros with values put at an index."""
    first = _apart(index) if call.name != "zeros_with" else 0
    if first:
        x = _to_back(x, first)
    return getattr(R, call.name)(x, (call.size, *shape), (_ALL, *index))


def put(call: Call, x: Any, value: Any, index: tuple[Any, ...], *attributes: Any) -> Any:
    """Put values of the batch at an index of all examples."""
    x, value = full(call, (x, value))
    first = _apart(index)
    if first:
        value = _to_back(value, first)
    return getattr(R, call.name)(x, value, (_ALL, *index), *attributes)


def as_strided(call: Call, x: Any, size: Any, stride: Any, storage_offset: Any, layout: Any) -> Any:
    step, *steps = x.stride()
    if tuple(steps) != layout[0]:
        return by_example(call, x, size, stride, storage_offset, layout)
    layout = ((step, *steps), layout[1])
    return R.as_strided(x, (call.size, *size), (step, *stride), storage_offset, layout)


# -- losses and norms -----------------------------------------------------------------------------


def loss(call: Call, x: Any, y: Any, parameter: Any, scale: Any, each: bool) -> Any:
    x, y = full(call, (x, y))
    out = getattr(R, call.name)(x, y, parameter, scale, True)
    if each:
        return out
    return R.mul_scalar(R.sum(out, tuple(range(1, len(out.shape))), False), scale)


def layer_norm(call: Call, x: Any, *arguments: Any) -> Any:
    *affine, count, eps, _ = arguments
    plain = "normalise" if call.name == "layer_norm" else "root_mean_square"
    if not any(call.flags[1:]):
        return getattr(R, call.name)(x, *affine, count, eps, [])
    out = getattr(R, plain)(x if call.flags[0] else in_front(x, call.size), count, eps, [])
    for name, part, flag in zip(("mul", "add"), affine, call.flags[1:], strict=False):
        out = broadcast(Call(name, call.size, (True, flag)), out, part)
    return out
