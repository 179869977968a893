"""How `vmap` computes each op of the table: where its rule puts the batch axis.

A rule `rule(call, inputs..., attributes...)` gets the tensors that hold the batches. It computes
with the recorded functions of the table. `call.flags` says which inputs have the batch as their
first axis. The rows of the table name their rules; an op without one is computed one example at a
time.
"""

from __future__ import annotations

from math import prod
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


# -- small parts ----------------------------------------------------------------------------------


def in_front(x: Any, size: int) -> Any:
    """An unbatched tensor, repeated along a new first axis of the batch's length."""
    shape = x.shape
    return R.expand(R.reshape(x, (1, *shape)), (size, *shape))


def _full(call: Call, values: tuple[Any, ...]) -> list[Any]:
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


def _merged(x: Any) -> Any:
    """Merge the batch axis with the first axis of the examples."""
    return R.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _parted(x: Any, size: int) -> Any:
    return R.reshape(x, (size, x.shape[0] // size, *x.shape[1:]))


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
        out = function(*inputs, *[[] if isinstance(a, list) else a for a in attributes])
        parts.append(R.reshape(out, (1, *out.shape)))
    return R.cat(parts, 0)


# -- elementwise ----------------------------------------------------------------------------------


def same(call: Call, x: Any, *attributes: Any) -> Any:
    return getattr(R, call.name)(x, *attributes)


def broadcast(call: Call, *arguments: Any) -> Any:
    count = len(call.flags)
    return getattr(R, call.name)(*_aligned(call, arguments[:count]), *arguments[count:])


def alike(call: Call, *arguments: Any) -> Any:
    count = len(call.flags)
    # The condition may have fewer axes than the other inputs: all are aligned, batched or not.
    whole = Call(call.name, call.size, (True,) * count)
    inputs = _aligned(whole, tuple(_full(call, arguments[:count])))
    return getattr(R, call.name)(*inputs, *arguments[count:])


# -- axes -----------------------------------------------------------------------------------------


def reduction(call: Call, x: Any, *attributes: Any) -> Any:
    """Shift the `dims` attribute, which is the last but one, by the batch axis."""
    *before, dims, last = attributes
    if call.name in {"var", "std"}:
        dims, correction, keepdim = attributes
        return getattr(R, call.name)(x, _shifted(dims), correction, keepdim)
    return getattr(R, call.name)(x, *before, _shifted(dims), last)


def extremum(call: Call, x: Any) -> Any:
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


def recurrence(call: Call, x: Any, y: Any, dim: int) -> Any:
    return R.recurrence(*_full(call, (x, y)), dim + 1)


def over_dims(call: Call, x: Any, dims: tuple[int, ...]) -> Any:
    """Shift an op's axes by the batch axis."""
    return getattr(R, call.name)(x, _shifted(dims))


def over_dim(call: Call, x: Any, dim: int, *attributes: Any) -> Any:
    """Shift an op's axis by the batch axis."""
    return getattr(R, call.name)(x, dim + 1, *attributes)


def reshape(call: Call, x: Any, shape: tuple[int, ...]) -> Any:
    """Keep the batch axis before the new ones."""
    return R.reshape(x, (call.size, *shape))


def permute(call: Call, x: Any, order: tuple[int, ...]) -> Any:
    """Keep the batch axis in front."""
    return R.permute(x, (0, *_shifted(order)))


def pad_zeros(call: Call, x: Any, shape: tuple[int, ...], dim: int, start: int) -> Any:
    """Put each example into zeros."""
    return R.pad_zeros(x, (call.size, *shape), dim + 1, start)


def diagonal(call: Call, x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The examples' diagonals."""
    return R.diagonal(x, offset, dim1 + 1, dim2 + 1)


def put_diagonal(
    call: Call, x: Any, shape: tuple[int, ...], offset: int, dim1: int, dim2: int
) -> Any:
    """Zeros with a diagonal in each example."""
    return R.put_diagonal(x, (call.size, *shape), offset, dim1 + 1, dim2 + 1)


def pad(call: Call, x: Any, widths: tuple[tuple[int, int], ...], value: Any) -> Any:
    """Pad the examples' axes, not that of the batch."""
    return R.pad(x, ((0, 0), *widths), value)


def spread(call: Call, x: Any, shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> Any:
    """Repeat each example over the axes that were reduced."""
    return R.spread(x, (call.size, *shape), _shifted(dims), keepdim)


def repeat(call: Call, x: Any, repeats: tuple[int, ...]) -> Any:
    lead = (1,) * (len(repeats) - len(x.shape) + 1)
    return R.repeat(R.reshape(x, (call.size, *lead, *x.shape[1:])), (1, *repeats))


def roll(call: Call, x: Any, shifts: Any, dims: Any) -> Any:
    return R.roll(x, shifts, _shifted(dims))


# -- indices --------------------------------------------------------------------------------------


def _apart(index: tuple[Any, ...]) -> int:
    """How many picked axes come first because an index's arrays are not adjacent, or 0."""
    places = [
        i for i, part in enumerate(index) if not (isinstance(part, slice) or part is Ellipsis)
    ]
    if not places or places[-1] - places[0] == len(places) - 1:
        return 0
    arrays = [index[i] for i in places if not isinstance(index[i], int)]
    return max([1 if x.dtype.kind == "b" else x.ndim for x in arrays], default=0)


def _to_back(x: Any, first: int) -> Any:
    """Move the batch behind the picked axes, where an index with non-adjacent arrays expects it."""
    return R.permute(x, (*range(1, first + 1), 0, *range(first + 1, len(x.shape))))


def index(call: Call, x: Any, index: tuple[Any, ...]) -> Any:
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
    x, value = _full(call, (x, value))
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


# -- products -------------------------------------------------------------------------------------


def mm(call: Call, x: Any, y: Any) -> Any:
    size = call.size
    if call.flags == (True, True):
        return R.bmm(x, y)
    if call.flags[0]:
        return _parted(R.mm(_merged(x), y), size)
    k, n = y.shape[1:]
    wide = R.reshape(R.permute(y, (1, 0, 2)), (k, size * n))
    return R.permute(R.reshape(R.mm(x, wide), (x.shape[0], size, n)), (1, 0, 2))


def mv(call: Call, x: Any, y: Any) -> Any:
    out = mm(call, x, R.reshape(y, (*y.shape, 1)))
    return R.reshape(out, out.shape[:-1])


def dot(call: Call, x: Any, y: Any) -> Any:
    product = broadcast(call._replace(name="mul"), x, y)
    return R.sum(product, (1,), False)


def outer(call: Call, x: Any, y: Any) -> Any:
    return broadcast(call._replace(name="mul"), R.reshape(x, (*x.shape, 1)), _before_last(y))


def _before_last(y: Any) -> Any:
    """Insert an axis of length 1 before the last."""
    return R.reshape(y, (*y.shape[:-1], 1, y.shape[-1]))


def bmm(call: Call, x: Any, y: Any) -> Any:
    x, y = _full(call, (x, y))
    return _parted(R.bmm(_merged(x), _merged(y)), call.size)


def distances(call: Call, x: Any, y: Any) -> Any:
    return R.euclidean_distances(*_full(call, (x, y)))


def linear(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    flags = call.flags
    if not flags[1]:
        out = R.linear(x, weight) if flags[0] else None
        if out is None:
            # Only the bias is batched.
            out = in_front(R.linear(x, weight), call.size)
    else:
        shape = x.shape[flags[0] :]
        inner = shape[-1]
        rows = (prod(shape[:-1]), inner)
        x = R.reshape(x, (call.size, *rows) if flags[0] else rows)
        turned = R.permute(weight, (0, 2, 1))
        out = mm(Call("mm", call.size, (flags[0], True)), x, turned)
        out = R.reshape(out, (call.size, *shape[:-1], weight.shape[1]))
    if bias is None:
        return out
    return broadcast(Call("add", call.size, (True, flags[2])), out, bias)


def addmm(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    product = (
        mm(Call("mm", call.size, call.flags[1:]), x, y)
        if any(call.flags[1:])
        else in_front(R.mm(x, y), call.size)
    )
    if alpha != 1:
        product = R.mul_scalar(product, alpha)
    if beta == 0:
        return product
    if beta != 1:
        bias = R.mul_scalar(bias, beta)
    return broadcast(Call("add", call.size, (True, call.flags[0])), product, bias)


def contract(call: Call, x: Any, y: Any, x_labels: Any, y_labels: Any, out_labels: Any) -> Any:
    # An outer level may have added its own label already: the count makes this one unique.
    batch = f"batch {len({*x_labels, *y_labels})}"
    x_labels, y_labels = (
        (batch, *own) if flag else own
        for own, flag in zip((x_labels, y_labels), call.flags, strict=True)
    )
    return R.contract(x, y, x_labels, y_labels, (batch, *out_labels))


# -- images ---------------------------------------------------------------------------------------


def convolution(call: Call, x: Any, weight: Any, *rest: Any) -> Any:
    *biases, geometry = rest
    flags = call.flags
    if flags[1]:
        x, weight = _full(Call("", call.size, flags[:2]), (x, weight))
        size, count, channels, *image = x.shape
        # Merge the examples' channels into one axis, with separate groups for each example.
        wide = R.permute(x, (1, 0, *range(2, len(x.shape))))
        wide = R.reshape(wide, (count, size * channels, *image))
        grouped = geometry._replace(groups=size * geometry.groups)
        out = R.convolution(wide, _merged(weight), grouped)
        out = R.reshape(out, (count, size, weight.shape[1], *out.shape[2:]))
        out = R.permute(out, (1, 0, *range(2, len(out.shape))))
    elif flags[0]:
        out = _parted(R.convolution(_merged(x), weight, geometry), call.size)
    else:
        out = in_front(R.convolution(x, weight, geometry), call.size)
    for bias in biases:
        flag = flags[2]
        ones = (1,) * (len(out.shape) - 3)
        lead = (call.size, 1) if flag else ()
        out = R.add(out, R.reshape(bias, (*lead, bias.shape[-1], *ones)))
    return out


def convolution_input(call: Call, y: Any, weight: Any, shape: Any, geometry: Any) -> Any:
    if call.flags[1]:
        return by_example(call, y, weight, shape, geometry)
    whole = (call.size * shape[0], *shape[1:])
    return _parted(R.convolution_input(_merged(y), weight, whole, geometry), call.size)


def images(call: Call, *arguments: Any) -> Any:
    count = len(call.flags)
    inputs = [_merged(x) for x in _full(call, arguments[:count])]
    return _parted(getattr(R, call.name)(*inputs, *arguments[count:]), call.size)


def batch_norm(call: Call, x: Any, weight: Any, bias: Any, eps: float, kept: Any) -> Any:
    """Merge the examples' channels into one axis: they are normalised independently."""
    x, weight, bias = _full(call, (x, weight, bias))
    size, count, channels, *image = x.shape
    order = (1, 0, *range(2, len(x.shape)))
    wide = R.reshape(R.permute(x, order), (count, size * channels, *image))
    out = R.batch_norm(wide, _merged(weight), _merged(bias), eps, [])
    return R.permute(R.reshape(out, (count, size, channels, *image)), order)


def attention(call: Call, *arguments: Any) -> Any:
    q, k, v = _full(call, arguments[:3])
    mask, causal, scale, _ = arguments[3:]
    return R.attention(q, k, v, mask, causal, scale, [])


# -- losses and norms -----------------------------------------------------------------------------


def loss(call: Call, x: Any, y: Any, parameter: Any, scale: Any, each: bool) -> Any:
    x, y = _full(call, (x, y))
    out = getattr(R, call.name)(x, y, parameter, scale, True)
    if each:
        return out
    return R.mul_scalar(R.sum(out, tuple(range(1, len(out.shape))), False), scale)


def cosine_similarity(call: Call, x: Any, y: Any, dim: int, eps: float) -> Any:
    x, y = _full(call, (x, y))
    return R.cosine_similarity(x, y, dim + 1, eps)


def over_last(call: Call, x: Any, count: int, eps: float, kept: Any) -> Any:
    return getattr(R, call.name)(x, count, eps, [])


def layer_norm(call: Call, x: Any, *arguments: Any) -> Any:
    *affine, count, eps, _ = arguments
    plain = "normalise" if call.name == "layer_norm" else "root_mean_square"
    if not any(call.flags[1:]):
        return getattr(R, call.name)(x, *affine, count, eps, [])
    out = getattr(R, plain)(x if call.flags[0] else in_front(x, call.size), count, eps, [])
    for name, part, flag in zip(("mul", "add"), affine, call.flags[1:], strict=False):
        out = broadcast(Call(name, call.size, (True, flag)), out, part)
    return out
