"""Functions that change the shape of tensors, or join, split and pad them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from asyncgrad.choices import Indexing, PadMode
from asyncgrad.core.variable import Variable
from asyncgrad.core.versions import looks_into
from asyncgrad.errors import class_of
from asyncgrad.ops import arguments, promotion, split_nodes
from asyncgrad.ops.batching import bottom
from asyncgrad.ops.converted import converted, one_node, writes, writes_exactly
from asyncgrad.ops.dtype import DTYPES, REAL, DType, check_dtype
from asyncgrad.ops.dtype_device import as_memory_format, memory_format
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view, renamed
from asyncgrad.ops.requirements import broadcast_shape, requires, unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.table.shape import Named
from asyncgrad.types import AtLeast1D, AtLeast2D, Axis, DTypeLike, Ints, Number, Tensor

__all__ = [
    "broadcast_tensors", "broadcast_to", "cat", "chunk", "clone", "diag", "diagonal", "flatten",
    "flip", "meshgrid", "movedim", "narrow", "narrow_copy", "permute", "ravel", "reshape",
    "roll", "select", "split", "squeeze", "stack", "t", "tile", "transpose", "tril", "triu",
    "unbind", "unflatten", "unsqueeze",
]  # fmt: skip
_NO_METHODS = frozenset({"broadcast_tensors", "cat", "meshgrid", "stack"})
METHODS = (*sorted({*__all__} - _NO_METHODS), "expand", "repeat", "view")
IN_PLACE = ("tril", "triu")

#: The number of cached results of argument checks.
_CACHE_LIMIT = 1024


# -- the same elements in other axes --------------------------------------------------------------


def reshape(input: Tensor, *sizes: Ints, shape: Ints | None = None) -> Tensor:
    """The same elements in another shape, a view where the memory allows it."""
    x = promotion.as_tensor_operand(input, "reshape", 1)
    wanted = arguments.one_shape("reshape", sizes if shape is None else (shape,))
    return R.reshape(x, arguments.filled_shape("reshape", wanted, x._metadata.size))


def view(
    input: Tensor, *shape: Ints | DType | np.dtype[Any] | type[Any], size: Ints | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """A view of the memory in another shape; or, given a dtype, its bits as that dtype.

    Raises:
        RuntimeError: if the elements do not fit, or the memory has to be copied.
    """
    x = promotion.as_tensor_operand(input, "view", 1)
    if size is not None:
        shape = (size,)
    if len(shape) == 1 and isinstance(shape[0], DTYPES):
        dtype = shape[0]
    if dtype is not None:
        return _reinterpreted(x, np.dtype(dtype))
    sizes = arguments.filled_shape("view", arguments.one_shape("view", shape), x._metadata.size)
    out = R.reshape(x, sizes)
    made, viewed = (bottom(out), bottom(x)) if x._batched else (out, x)
    if not looks_into(made._array, viewed._array) and viewed._metadata.size:
        raise RuntimeError(
            f"view size is not compatible with input tensor's size and stride (at least one "
            f"dimension spans across two contiguous subspaces): shape {x._metadata.shape} with "
            f"strides {x.stride()} as {sizes}. Use .reshape(...) instead."
        )
    return out


def _reinterpreted(x: Tensor, dtype: np.dtype[Any]) -> Any:
    if dtype == x._metadata.dtype:
        return R.reshape(x, x._metadata.shape)
    try:
        array = x._array.view(dtype)
    except (ValueError, TypeError):
        held, shape = x._metadata.dtype, x._metadata.shape
        need, got = "stride(-1) must be 1", x.stride(-1) if shape else "no dimension"
        if got == 1:
            parts = dtype.itemsize // held.itemsize
            need, got = f"size(-1) must be divisible by {parts}", shape[-1]
        raise RuntimeError(
            f"view: self.{need} to view {held} as {dtype} (different element sizes), but got {got}"
        ) from None
    out = x.detach()
    out._array, out._metadata = array, x._metadata.F.metadata_of(array)
    return out


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the axes from `start_dim` to `end_dim` into one."""
    shape = input._metadata.shape
    if end_dim == -1 and len(shape) > 1 and start_dim == 0:
        return R.reshape(input, (input._metadata.size,))
    first = arguments.one_dim("flatten", start_dim, len(shape))
    last = arguments.one_dim("flatten", end_dim, len(shape))
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return R.reshape(input, (1,))
    if first == last:
        return input
    size = 1
    for n in shape[first : last + 1]:
        size *= n
    return R.reshape(input, (*shape[:first], size, *shape[last + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """Flatten the tensor to one axis, contiguous in memory."""
    out = R.reshape(input, (input._metadata.size,))
    return out if out._batched or out._array.flags.c_contiguous else R.clone(out, "C")


@converted
def unflatten(input: AtLeast1D, dim: Axis, sizes: Sequence[int]) -> Tensor:
    """Split the axis `dim` into several; one of `sizes` may be -1."""
    shape = input._metadata.shape
    wanted = arguments.one_shape("unflatten", (sizes,))
    if not wanted:
        raise RuntimeError("unflatten: sizes must be non-empty")
    try:
        inner = arguments.filled_shape("unflatten", wanted, shape[dim])
    except RuntimeError:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(wanted)} don't multiply up to the size of dim "
            f"{dim} ({shape[dim]}) in the input tensor"
        ) from None
    return R.reshape(input, (*shape[:dim], *inner, *shape[dim + 1 :]))


def permute(input: Tensor, *order: Ints, dims: Ints | None = None) -> Tensor:
    """The axes in another order."""
    x = promotion.as_tensor_operand(input, "permute", 1)
    ndim = len(x._metadata.shape)
    order = arguments.one_shape("permute", order if dims is None else (dims,))
    if len(order) != ndim:
        raise unmet("permute", "number of dimensions in the tensor input does not match the length "
                    "of the desired ordering of dimensions", input=x, dims=order)  # fmt: skip
    return R.permute(x, _permuted(order))


@lru_cache(_CACHE_LIMIT)
def _permuted(order: tuple[int, ...]) -> tuple[int, ...]:
    """An order of axes, with negative axes counted from the end."""
    axes = tuple([arguments.one_dim("permute", dim, len(order)) for dim in order])
    if len(set(axes)) < len(axes):
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {order}")
    return axes


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two axes; the result is a view."""
    return R.permute(input, _exchanged(len(input._metadata.shape), dim0, dim1))


@lru_cache(_CACHE_LIMIT)
def _exchanged(ndim: int, dim0: int, dim1: int) -> Named:
    first, second = (
        arguments.one_dim("transpose", dim0, ndim),
        arguments.one_dim("transpose", dim1, ndim),
    )
    order = list(range(ndim))
    if ndim:
        order[first], order[second] = order[second], order[first]
    return Named(order, "TransposeBackward0")


#: For 0, 1 and 2 axes, the order of axes after `t()`.
_TURNED = [Named(order, "TBackward0") for order in ((), (0,), (1, 0))]


@converted
@requires("input.ndim <= 2  # t() expects a tensor with <= 2 dimensions. Use .mT or permute()")
def t(input: Tensor) -> Tensor:
    """Transpose a matrix; tensors of fewer axes are not changed."""
    return R.permute(input, _TURNED[len(input._metadata.shape)])


def movedim(input: Tensor, source: Ints, destination: Ints) -> Tensor:
    """Move axes to other positions; the rest keep their order."""
    moved = _moved if source.__class__ is destination.__class__ is int else _moved.__wrapped__
    return R.permute(input, moved(len(input._metadata.shape), source, destination))


@lru_cache(_CACHE_LIMIT)
def _moved(ndim: int, source: Ints, destination: Ints) -> tuple[int, ...]:
    sources, targets = (
        [
            arguments.one_dim("movedim", dim, ndim)
            for dim in (dims if isinstance(dims, (tuple, list)) else (dims,))
        ]
        for dims in (source, destination)
    )
    if len(sources) != len(targets):
        raise unmet("movedim", f"Invalid source or destination dims: source ({sources} dims) "
                    "should contain the same number of dims as destination "
                    f"({targets} dims)")  # fmt: skip
    for what, dims in (("source", sources), ("destination", targets)):
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{what}` ({dims})")
    if not ndim:
        return ()
    order = [axis for axis in range(ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return tuple(order)


@converted
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Insert a new axis of length 1 at `dim`."""
    return R.unsqueeze(input, arguments.one_dim("unsqueeze", dim, len(input._metadata.shape) + 1))


@converted
def squeeze(input: Tensor, *dims: Ints, dim: Ints | None = None) -> Tensor:
    """Remove the axes of length 1, all of them or those in `dim`."""
    given: Any = dim
    if dims:
        given = dims[0] if len(dims) == 1 else dims
    dropped = _dropped if given.__class__ is int or given is None else _dropped.__wrapped__
    return R.squeeze(input, dropped(input._metadata.shape, given))


@lru_cache(_CACHE_LIMIT)
def _dropped(shape: tuple[int, ...], dim: Ints | None) -> Named:
    sequence = isinstance(dim, (tuple, list))
    chosen = () if sequence and not dim else arguments.many_dims("squeeze", dim, len(shape))
    node = f"SqueezeBackward{0 if dim is None else 1 + sequence}"
    return Named([i for i in chosen if shape[i] == 1], node)


def expand(input: Tensor, *sizes: Ints, size: Ints | None = None, implicit: bool = False) -> Tensor:
    """A view that repeats axes of length 1 and adds leading axes; -1 keeps a length."""
    x = promotion.as_tensor_operand(input, "expand", 1)
    wanted = arguments.one_shape("expand", sizes if size is None else (size,))
    return R.expand(x, _expanded(x._metadata.shape, wanted))


@lru_cache(_CACHE_LIMIT)
def _expanded(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    lead = len(wanted) - len(shape)
    full = tuple([shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(wanted)])
    if not arguments.is_expandable(shape, full) or any(n < 0 for n in full):
        raise RuntimeError(f"expand: {_mismatch(shape, wanted)}")
    return full


def _mismatch(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The error for shapes that do not expand; it names the last axis that does not fit."""
    lead = len(wanted) - len(shape)
    if lead < 0:
        return (
            f"the number of sizes provided ({len(wanted)}) must be greater or equal to the number "
            f"of dimensions in the tensor ({len(shape)})"
        )
    for axis in range(len(wanted) - 1, lead - 1, -1):
        n, size = wanted[axis], shape[axis - lead]
        if n != size and n != -1 and (size != 1 or n < 0):
            return (
                f"The expanded size of the tensor ({n}) must match the existing size ({size}) at "
                f"non-singleton dimension {axis}. Target sizes: {list(wanted)}. Tensor sizes: "
                f"{list(shape)}"
            )
    axis = max(axis for axis in range(lead) if wanted[axis] < 0)
    return (
        f"The expanded size of the tensor ({wanted[axis]}) isn't allowed in a leading, "
        f"non-existing dimension {axis}"
    )


def broadcast_to(input: Tensor, *sizes: Ints, size: Ints | None = None) -> Tensor:
    """The tensor repeated to a shape, given as `expand` takes it."""
    return expand(input, *sizes, size=size)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors expanded to the shape that they are broadcast to; themselves if they have it."""
    parts = promotion.tensor_operands("broadcast_tensors", *tensors)
    shape = broadcast_shape("broadcast_tensors", parts)
    return tuple([x if x._metadata.shape == shape else R.expand(x, shape) for x in parts])


@converted
def meshgrid(
    *tensors: Tensor | Sequence[Tensor], indexing: Indexing | None = None
) -> tuple[Tensor, ...]:
    """The coordinates of all points of a grid, one tensor for each axis.

    Args:
        tensors: the coordinates along each axis, with at most one axis; or one sequence of them.
        indexing: "ij" (the default) numbers the axes as the tensors, "xy" exchanges the first two.
    """
    given = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Variable) else tensors
    parts = promotion.tensor_operands("meshgrid", *given)
    if not parts:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in parts:
        if len(x._metadata.shape) > 1:
            raise unmet("meshgrid", "Expected 0D or 1D tensor in the tensor list", tensor=x)
        if x._metadata.dtype != parts[0]._metadata.dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    promotion.check_device("meshgrid", *parts)
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[:2] = 1, 0
    sizes = tuple([parts[i]._metadata.size for i in order])
    out = []
    for i, x in enumerate(parts):
        line = [1] * len(parts)
        line[order.index(i)] = -1
        out.append(R.expand(reshape(x, line), sizes))
    return tuple(out)


# -- parts ----------------------------------------------------------------------------------------


@converted
@requires("length >= 0  # length must be non-negative")
def narrow(input: AtLeast1D, dim: Axis, start: Tensor | int, length: int) -> Tensor:
    """A view of `length` elements of an axis, from `start`."""
    if isinstance(start, Variable) and (
        start._metadata.shape or start._metadata.dtype.kind not in "iu"
    ):
        raise RuntimeError("narrow(): start must be an 0-dim integral Tensor.")
    size = input._metadata.shape[dim]
    first = arguments.one_int("narrow", "start", start)
    if not -size <= first <= size:
        raise unmet("narrow", f"start out of range (expected to be in range of [-{size}, {size}], "
                    f"but got {first})", IndexError)  # fmt: skip
    if first < 0:
        first += size
    if first + length > size:
        raise unmet(
            "narrow", f"start ({first}) + length ({length}) exceeds dimension size ({size})"
        )
    return R.narrow(input, dim, first, length)


@one_node("NarrowCopyBackward0", writes_exactly)
def narrow_copy(input: Tensor, dim: int, start: Tensor | int, length: int) -> Tensor:
    """A copy of `length` elements of an axis, from `start`."""
    return R.clone(narrow(input, dim, start, length))


@converted
@requires("input.ndim > 0  # select() cannot be applied to a 0-dim tensor", error=IndexError)
def select(input: Tensor, dim: Axis, index: Tensor | int) -> Tensor:
    """A view of the slice at `index` along an axis, without that axis."""
    shape = input._metadata.shape
    place = arguments.one_int("select", "index", index)
    if not -shape[dim] <= place < shape[dim]:
        raise unmet("select", f"index {place} out of range for tensor of size {list(shape)} at "
                    f"dimension {dim}", IndexError)  # fmt: skip
    return R.getitem(input, (slice(None),) * dim + (place, Ellipsis))


_SIZES = dict.fromkeys(("split_size", "split_sizes"), "split_size_or_sections")


@partial(converted, others={"axis": "dim", "input": "tensor", **_SIZES})
def split(tensor: AtLeast1D, split_size_or_sections: Ints, dim: Axis = 0) -> tuple[Tensor, ...]:
    """Split an axis into consecutive views.

    Args:
        split_size_or_sections: the length of each view (the last may be shorter), or a sequence
            of all lengths.
    """
    size = tensor._metadata.shape[dim]
    if isinstance(split_size_or_sections, (tuple, list)):
        lengths = [arguments.one_int("split", "split_size", n) for n in split_size_or_sections]
        if any(n < 0 for n in lengths) or sum(lengths) != size:
            raise unmet("split", "split_with_sizes expects split_sizes have only non-negative "
                        f"entries and to sum exactly to {size} (input tensor's size at dimension "
                        f"{dim})", split_sizes=lengths)  # fmt: skip
        return _in_turn(tensor, dim, lengths, split_nodes.SplitWithSizesBackward0)
    each = arguments.one_int("split", "split_size", split_size_or_sections)
    if each < 0 or (each == 0 and size):
        raise unmet("split", "split expects split_size be non-negative, and 0 only if dimension "
                    "size is 0", split_size=each, size=size)  # fmt: skip
    lengths = [min(each, size - at) for at in range(0, size, each)] if size else [0]
    return _in_turn(tensor, dim, lengths)


def _in_turn(
    x: Tensor, axis: int, lengths: list[int], kind: type[Any] = split_nodes.SplitBackward0
) -> tuple[Any, ...]:
    """Consecutive views of given lengths along an axis."""
    places = []
    start = 0
    for length in lengths:
        places.append((axis, start, length))
        start += length
    return split_nodes.several(x, "narrow", places, kind, axis)


@converted
@requires("chunks > 0  # chunk expects `chunks` to be greater than 0")
def chunk(input: AtLeast1D, chunks: int, dim: Axis = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal length along an axis; the last may be shorter."""
    size = input._metadata.shape[dim]
    if not size:
        return _in_turn(input, dim, [0] * chunks)
    each = -(-size // chunks)
    return _in_turn(input, dim, [min(each, size - at) for at in range(0, size, each)])


@converted
@requires("input.ndim > 0  # tensor has no dimensions", error=IndexError)
def unbind(input: Tensor, dim: Axis = 0) -> tuple[Tensor, ...]:
    """Views of all slices along an axis, without that axis."""
    shape = input._metadata.shape
    before = (slice(None),) * dim
    places = [((*before, i, Ellipsis),) for i in range(shape[dim])]
    return split_nodes.several(input, "getitem", places, split_nodes.UnbindBackward0, dim)


@requires("dim1 != dim2  # diagonal dimensions cannot be identical. Name two different axes")
def diagonal(input: Tensor, offset: int = 0, dim1: Axis = 0, dim2: Axis = 1) -> Tensor:
    """A view of the diagonal of two axes, as the last axis.

    Args:
        input: the tensor, of two axes or more.
        offset: above the main diagonal if positive, below if negative.
        dim1: the axis of rows.
        dim2: the axis of columns.
    """
    return R.diagonal(input, offset, dim1, dim2)


@writes_exactly
@requires("input.ndim in {1, 2}  # Supports 1D or 2D tensors. Use diagonal()")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A copy of a matrix's diagonal, or a matrix with a vector on its diagonal."""
    shape = input._metadata.shape
    if len(shape) == 2:
        return R.clone(R.diagonal(input, diagonal, 0, 1))
    n = shape[0] + abs(diagonal)
    return R.put_diagonal(input, (n, n), diagonal, 0, 1)


@writes_exactly
def tril(input: AtLeast2D, diagonal: int = 0) -> Tensor:
    """The elements of matrices on and below a diagonal, zeros above."""
    return R.tril(input, diagonal)


@writes_exactly
def triu(input: AtLeast2D, diagonal: int = 0) -> Tensor:
    """The elements of matrices on and above a diagonal, zeros below."""
    return R.triu(input, diagonal)


# -- joined, repeated, turned ---------------------------------------------------------------------


@writes
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along an existing axis."""
    parts = _joined("cat", tensors)
    shapes = [part._metadata.shape for part in parts]
    kept = [shape for shape in shapes if shape != (0,)]
    for place, shape in enumerate(shapes):
        if not shape:
            raise unmet("cat", f"zero-dimensional tensor (at position {place}) cannot be "
                        "concatenated. Use stack()")  # fmt: skip
    first = kept[0] if kept else (0,)
    axis = arguments.one_dim("cat", dim, len(first)) if kept else 0
    for place, shape in enumerate(shapes):
        if shape == first or shape == (0,):
            continue
        if len(shape) != len(first) or any(
            m != n for i, (m, n) in enumerate(zip(shape, first, strict=True)) if i != axis
        ):
            raise RuntimeError(
                f"cat: Sizes of tensors must match except in dimension {axis}. Tensor {place} has "
                f"shape {shape}, the first {first}."
            )
    if len(first) > 1 and (0,) in shapes:
        # As in PyTorch, tensors of shape (0,) are skipped, for historical reasons.
        nothing = (*first[:axis], 0, *first[axis + 1 :])
        parts = [x if x._metadata.shape != (0,) else R.reshape(x, nothing) for x in parts]
    return R.cat(parts, axis)


def several_tensors(name: str, tensors: Sequence[Tensor]) -> list[Any]:
    """The tensors of a sequence."""
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
            f"{class_of(tensors)}"
        )
    return [promotion.as_tensor_operand(x, name, i + 1) for i, x in enumerate(tensors)]


def _joined(name: str, tensors: Sequence[Tensor]) -> list[Any]:
    """The tensors of a sequence, converted to one dtype."""
    parts = several_tensors(name, tensors)
    if not parts:
        error = ValueError if name == "cat" else RuntimeError
        raise error(f"{name}(): expected a non-empty list of Tensors")
    found = parts[0]._metadata.dtype
    dtype = found
    for part in parts:
        if part._metadata.dtype is not found:
            dtype = promotion.promote_dtypes(dtype, part._metadata.dtype)
            found = None
    return parts if found is not None else [promotion.cast(part, dtype) for part in parts]


@writes
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    parts = _joined("stack", tensors)
    first = parts[0]._metadata.shape
    axis = arguments.one_dim("stack", dim, len(first) + 1)
    for place, part in enumerate(parts):
        if part._metadata.shape != first:
            raise unmet("stack", "stack expects each tensor to be equal size, but "
                        f"got {list(first)} at entry 0 and {list(part.shape)} at "
                        f"entry {place}")  # fmt: skip
    return R.stack(parts, axis)


def tile(input: Tensor, *repeats: Ints, dims: Ints | None = None) -> Tensor:
    """Repeat the tensor along its axes; `dims` is aligned to the last axis."""
    x = promotion.as_tensor_operand(input, "tile", 1)
    counts = arguments.one_shape("tile", repeats if dims is None else (dims,))
    return repeat(x, (1,) * (len(x._metadata.shape) - len(counts)) + counts)


def repeat(input: Tensor, *counts: Ints, repeats: Ints | None = None) -> Tensor:
    """Repeat the tensor along each axis, and along new leading axes."""
    x = promotion.as_tensor_operand(input, "repeat", 1)
    counts = arguments.one_shape("repeat", counts if repeats is None else (repeats,))
    if len(counts) < len(x._metadata.shape):
        raise unmet("repeat", "Number of dimensions of repeat dims can not be smaller than number "
                    "of dimensions of tensor", repeats=counts, input=x)  # fmt: skip
    if any(n < 0 for n in counts):
        raise RuntimeError(f"repeat: Trying to create tensor with negative dimension: {counts}")
    return R.repeat(x, counts)


def flip(input: Tensor, *axes: Ints, dims: Ints | None = None) -> Tensor:
    """A copy with some axes reversed."""
    x = promotion.as_tensor_operand(input, "flip", 1)
    wanted = arguments.one_shape("flip", axes if dims is None else (dims,))
    return R.flip(x, arguments.many_dims("flip", wanted, len(x._metadata.shape)) if wanted else ())


def roll(input: Tensor, shifts: Ints, dims: Ints | None = None) -> Tensor:
    """A copy with elements shifted cyclically along axes.

    Args:
        shifts: the distance for each axis in `dims`.
        dims: the axes; None for the flattened tensor.
    """
    steps = arguments.one_shape("roll", (shifts,))
    axes = () if dims is None else arguments.one_shape("roll", (dims,))
    if not steps:
        raise RuntimeError("`shifts` required")
    if len(axes) != len(steps) and (axes or len(steps) != 1):
        raise unmet(
            "roll", f"shifts and dimensions must align. shifts: {len(steps)}, dims: {len(axes)}"
        )
    shape = input._metadata.shape
    if not axes:
        flat = R.reshape(input, (input._metadata.size,))
        return no_view(R.reshape(R.roll(flat, steps, (0,)), shape))
    if not shape:
        raise IndexError("roll: Dimension specified as 0 but tensor has no dimensions")
    return R.roll(input, steps, tuple([arguments.one_dim("roll", dim, len(shape)) for dim in axes]))


# -- the frame ------------------------------------------------------------------------------------


def pad(
    input: Tensor, pad: Sequence[int], mode: PadMode = "constant", value: float | None = None
) -> Tensor:
    """Pad the last axes.

    Args:
        pad: the widths before and after the last axis, then the one before it, and so on; negative
            widths cut elements off.
        mode: "constant", "reflect", "replicate" or "circular".
        value: the value of constant padding, 0 if None.

    Raises:
        NotImplementedError: if the mode does not support this number of axes.
    """
    widths, shape, count = widths_of(input, pad), input._metadata.shape, len(pad) // 2
    if mode == "constant":
        return constant_pad(input, widths, 0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if count not in {1, 2, 3} or len(shape) not in {count + 1, count + 2}:
        raise unmet("pad", f"Padding size {2 * count} is not supported for {len(shape)}D input "
                    "tensor: 1 to 3 axes are padded of one or two more",
                    NotImplementedError, pad=pad, input=input)  # fmt: skip
    if mode != "circular":
        check_dtype(f"{mode} padding", input._metadata.dtype, f"{REAL}c")
        if 0 in shape[-count - 1 :]:
            raise unmet("pad", f"Expected {count + 1}D or {count + 2}D (batch mode) tensor with "
                        "possibly 0 batch size and other non-zero dimensions for input",
                        input=input)  # fmt: skip
    _check_frame(mode, shape, widths)
    cut = tuple((min(before, 0), min(after, 0)) for before, after in widths)
    wider = tuple((max(before, 0), max(after, 0)) for before, after in widths)
    is_cut = any(map(any, cut))
    # Elements that are cut off may be repeated at the other end, but not by circular padding.
    if is_cut and mode == "circular":
        input = R.pad(input, cut, 0)
    framed = R.frame(input, wider, mode)
    if is_cut and mode != "circular":
        framed = R.pad(framed, cut, 0)
    return renamed(framed, _PAD_NODES[mode].format(count), saves=True)


def widths_of(x: Tensor, pad: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The widths before and after each axis."""
    ndim, numbers = len(x._metadata.shape), arguments.one_shape("pad", (pad,))
    if len(numbers) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {list(numbers)}")
    if len(numbers) > 2 * ndim:
        raise unmet("pad", "Padding length should be less than or equal to two times the input "
                    "dimension", pad=numbers, input=x)  # fmt: skip
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))[::-1]
    return ((0, 0),) * (ndim - len(pairs)) + pairs


def constant_pad(x: Tensor, widths: tuple[tuple[int, int], ...], value: Number) -> Any:
    """Pad with a number; negative widths cut elements off."""
    shape = x._metadata.shape
    for n, (before, after) in zip(shape, widths, strict=True):
        if n + before + after < 0 or -before > n or -after > n:
            raise unmet("pad", f"The input size {n}, plus negative padding {before} and {after} "
                        "resulted in a negative output size", **{"input.shape": shape})  # fmt: skip
    return R.pad(x, widths, fitted("pad", value, x._metadata.dtype))


#: PyTorch's node for each mode; circular padding is copied piece by piece there.
_PAD_NODES = {
    "reflect": "ReflectionPad{}DBackward0",
    "replicate": "ReplicationPad{}DBackward0",
    "circular": "CopySlices",
}


def _check_frame(
    mode: PadMode, shape: tuple[int, ...], widths: tuple[tuple[int, int], ...]
) -> None:
    """Raise if an axis is too short for its padding."""
    for axis, (before, after) in enumerate(widths):
        n = shape[axis]
        if not before and not after:
            continue
        if n == 0 or n + before + after < (mode != "circular"):
            raise unmet("pad", f"input is too small: axis {axis} with ({before}, {after}) more "
                        "has no element left, or none to repeat",
                        **{"input.shape": shape}, mode=mode)  # fmt: skip
        if mode == "reflect" and max(before, after) >= n:
            raise unmet("pad", "Argument #4: Padding size should be less than the corresponding "
                        f"input dimension, but got: padding ({before}, {after}) at dimension "
                        f"{axis} of input {list(shape)}")  # fmt: skip
        if mode == "circular" and max(before, after) > n + min(before, 0) + min(after, 0):
            raise unmet("pad", f"Padding value causes wrapping around more than once: ({before}, "
                        f"{after}) at dimension {axis} of input {list(shape)}")  # fmt: skip


def clone(input: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """A recorded copy with the tensor's memory layout."""
    if memory_format is not None:
        as_memory_format("clone", memory_format, len(input._metadata.shape))
    return R.clone(input)
