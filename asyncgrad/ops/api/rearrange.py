"""Further ways to join, split and flip tensors, composed of the functions in `shape`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from asyncgrad.core.size import Size
from asyncgrad.core.variable import Variable
from asyncgrad.errors import class_of
from asyncgrad.ops.api.data import tensor
from asyncgrad.ops.api.index import index_select
from asyncgrad.ops.api.shape import (
    cat,
    chunk,
    constant_pad,
    diagonal,
    expand,
    flip,
    movedim,
    narrow,
    reshape,
    several_tensors,
    split,
    transpose,
    view,
    widths_of,
)
from asyncgrad.ops.arguments import one_dim, one_int
from asyncgrad.ops.batching import by_parts, level_of
from asyncgrad.ops.converted import converted, one_node, writes
from asyncgrad.ops.dtype import REAL, check_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.promotion import as_tensor_operand, cast, result_dtype
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.transfer import on_host
from asyncgrad.types import AtLeast1D, AtLeast2D, Axis, Ints, Matrix, Number, Tensor

__all__ = [
    "adjoint", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes",
    "column_stack", "concat", "concatenate", "constant_pad_nd", "dsplit", "dstack", "fliplr",
    "flipud", "hsplit", "hstack", "moveaxis", "repeat_interleave", "rot90", "row_stack",
    "split_with_sizes", "swapaxes", "swapdims", "tensor_split", "trace", "unsafe_chunk",
    "unsafe_split", "unsafe_split_with_sizes", "vsplit", "vstack",
]  # fmt: skip
METHODS = (
    "adjoint", "dsplit", "expand_as", "fliplr", "flipud", "hsplit", "moveaxis", "repeat_interleave",
    "reshape_as", "rot90", "split_with_sizes", "swapaxes", "swapdims", "tensor_split", "trace",
    "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "view_as", "vsplit",
)  # fmt: skip


# -- like others ----------------------------------------------------------------------------------


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`expand` to the shape of another tensor."""
    return expand(input, other._metadata.shape)


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`view` in the shape of another tensor."""
    return view(input, other._metadata.shape)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of another tensor."""
    return reshape(input, other._metadata.shape)


def broadcast_shapes(*shapes: Ints) -> Size:
    """The shape that tensors of some shapes are broadcast to."""
    if any(n < 0 for shape in shapes for n in ([shape] if isinstance(shape, int) else shape)):
        raise ValueError(
            f"broadcast_shapes: Attempting to broadcast a dimension with negative length! {shapes}"
        )
    try:
        return Size(np.broadcast_shapes(*shapes))
    except ValueError:
        raise RuntimeError(
            f"broadcast_shapes: Shape mismatch: {shapes} cannot be broadcast to a single shape"
        ) from None


# -- turned ---------------------------------------------------------------------------------------


@requires(
    "input.ndim != 1  # tensor.adjoint() is only supported on matrices or batches of matrices"
)
def adjoint(input: Tensor) -> Tensor:
    """Exchange the last two axes and conjugate complex numbers."""
    ndim = len(input._metadata.shape)
    turned = transpose(input, -2, -1) if ndim else input
    return R.conj(turned) if input._metadata.is_complex else turned


@one_node("TraceBackward0")
def trace(input: Matrix) -> Tensor:
    """The sum of the diagonal of a matrix, not of booleans."""
    check_dtype("trace", input._metadata.dtype, f"{REAL}c")
    return diagonal(input).sum()


def fliplr(input: AtLeast2D) -> Tensor:
    """Reverse the second axis."""
    return flip(input, (1,))


def flipud(input: AtLeast1D) -> Tensor:
    """Reverse the first axis.

    Raises:
        RuntimeError: for a tensor without axes.
    """
    return flip(input, (0,))


@requires("len(dims) == 2  # expected total rotation dims == 2")
def rot90(input: AtLeast2D, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate by 90 degrees `k` times, from the first of two axes towards the second."""
    first, second = (one_dim("rot90", dim, input.ndim) for dim in dims)
    if first == second:
        raise RuntimeError(f"rot90: expected rotation dims to be different, but got {tuple(dims)}")
    turns = k % 4
    if turns == 0:
        return R.clone(input)
    if turns == 2:
        return flip(input, (first, second))
    if turns == 1:
        return no_view(transpose(flip(input, (second,)), first, second))
    return flip(transpose(input, first, second), (second,))


# -- joined ---------------------------------------------------------------------------------------


def _at_least(name: str, ndim: int, places: tuple[tuple[int, ...], ...]) -> Callable[..., Any]:
    def one(x: Tensor) -> Any:
        x = as_tensor_operand(x, name, 1)
        if x.ndim >= ndim:
            return x
        shape: list[int] = [1] * ndim
        for place, n in zip(places[x.ndim], x.shape, strict=True):
            shape[place] = n
        return reshape(x, tuple(shape))

    def function(*tensors: Any) -> Tensor | tuple[Tensor, ...]:
        if len(tensors) == 1 and not isinstance(tensors[0], (tuple, list)):
            return one(tensors[0])
        return tuple(map(one, tensors[0] if len(tensors) == 1 else tensors))

    return named(
        function, name, f"Each tensor with at least {ndim} axes, of which new ones have length 1."
    )


atleast_1d = _at_least("atleast_1d", 1, ((),))
atleast_2d = _at_least("atleast_2d", 2, ((), (1,)))
atleast_3d = _at_least("atleast_3d", 3, ((), (1,), (0, 1)))


def _some(name: str, tensors: Sequence[Tensor]) -> list[Any]:
    found = several_tensors(name, tensors)
    if not found:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return found


@writes
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors along the second axis, or along the first if they have only one."""
    parts = atleast_1d(_some("hstack", tensors))
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@writes
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors, extended to at least two axes, along the first."""
    return cat(atleast_2d(_some("vstack", tensors)), 0)


@writes
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors, extended to at least three axes, along the third."""
    return cat(atleast_3d(_some("dstack", tensors)), 2)


@writes
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors along the second axis; those of fewer than two axes become columns."""
    parts = _some("column_stack", tensors)
    return hstack([reshape(x, (x.numel(), 1)) if x.ndim < 2 else x for x in parts])


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the tensors, of at most two axes, along its diagonal."""
    parts = list(atleast_2d(list(tensors))) if tensors else [tensor([[]])]
    if any(x.ndim > 2 for x in parts):
        raise unmet("block_diag", "Input tensors must have 2 or fewer dimensions", tensors=parts)
    dtype = result_dtype(*tensors or parts)
    parts = [cast(x, dtype) for x in parts]
    width = sum(x.shape[1] for x in parts)
    rows, before = [], 0
    for x in parts:
        height, own = x.shape
        zeros = [x.new_zeros((height, n)) for n in (before, width - before - own)]
        rows.append(cat([zeros[0], x, zeros[1]], 1))
        before += own
    return cat(rows, 0)


@converted
def repeat_interleave(
    input: Tensor, repeats: Tensor | int | None = None, dim: Axis | None = None, *,
    output_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Repeat each element, or each slice along an axis.

    Args:
        input: the tensor; without `repeats`, the counts, and the result repeats their indices.
        repeats: the number of repetitions: a number, or a tensor with one for each slice.
        dim: the axis; None flattens the tensor first.
        output_size: the expected length of the result; another length raises.
    """
    given = input if repeats is None else repeats
    if level_of((given,)) is not None:
        return by_parts(repeat_interleave, input, repeats, dim, output_size=output_size)
    if isinstance(given, Variable):
        counts = np.asarray(on_host(given))
    else:
        counts = np.asarray(one_int("repeat_interleave", "repeats", given), np.int64)
    if repeats is None:
        check_dtype("repeat_interleave", counts.dtype, "iu")
        if counts.ndim != 1:
            raise unmet("repeat_interleave", "repeat_interleave only accept 1D vector as repeat",
                        input=input)  # fmt: skip
        input, dim = input.new_tensor(np.arange(len(counts)), dtype="int64"), 0
    elif counts.ndim > 1:
        raise unmet("repeat_interleave", "repeats must be 0-dim or 1-dim tensor", repeats=given)
    if dim is None:
        input, dim = reshape(input, (-1,)), 0
    elif not input.ndim:
        raise unmet("repeat_interleave", f"Dimension specified as {dim} but tensor has no "
                    "dimensions", IndexError)  # fmt: skip
    length = input.shape[dim]
    if counts.size not in {1, length}:
        raise unmet("repeat_interleave", "repeats must have the same size as input along dim",
                    **{"repeats.shape": counts.shape}, input=input, dim=dim)  # fmt: skip
    check_dtype("repeat_interleave", counts.dtype, "iu")
    if counts.size and counts.min() < 0:
        raise unmet("repeat_interleave", "repeats can not be negative", repeats=counts)
    places = np.repeat(np.arange(length), counts if counts.ndim else int(counts))
    if output_size is not None and operator.index(output_size) != len(places):
        raise unmet("repeat_interleave", f"Invalid output_size, expected {len(places)}",
                    output_size=output_size)  # fmt: skip
    return index_select(input, dim, tensor(places, dtype="int64", device=input.device))


# -- split ----------------------------------------------------------------------------------------


def _placed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Accept PyTorch's other names for places to split at, one for each kind of them."""
    name, names = "indices_or_sections", ("indices", "sections", "tensor_indices_or_sections")
    return converted(function, others={"axis": "dim", **dict.fromkeys(names, name)})


@_placed
def tensor_split(
    input: AtLeast1D, indices_or_sections: Tensor | Ints, dim: Axis = 0
) -> tuple[Tensor, ...]:
    """Split an axis into nearly equal views, or at given indices.

    Args:
        indices_or_sections: the number of views, or the indices to split at; tensors are read.
    """
    given = indices_or_sections
    if isinstance(given, Variable):
        if given.dtype != np.int64:
            raise RuntimeError(
                f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                f"{given.dtype}"
            )
        if given.ndim > 1:
            raise RuntimeError(
                f"tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                f"one-dimensional tensor, but got a tensor with {given.ndim} dims"
            )
        given = given.tolist()
    length = input.shape[dim]
    if isinstance(given, (int, np.integer)):
        given = one_int("tensor_split", "indices_or_sections", given)
        if given < 1:
            raise unmet("tensor_split", "number of sections must be larger than 0",
                        indices_or_sections=given)  # fmt: skip
        least, longer = divmod(length, given)
        given = [place * least + min(place, longer) for place in range(1, given)]
    elif not isinstance(given, (list, tuple)):
        raise TypeError(
            f"tensor_split(): argument 'indices_or_sections' must be int, tuple of ints or Tensor, "
            f"not {class_of(given)}"
        )
    bounds = [0, *(slice(None, at).indices(length)[1] for at in given), length]
    return tuple([narrow(input, dim, at, max(0, end - at)) for at, end in pairwise(bounds)])


def _splitter(name: str, axis: int, least: int) -> Callable[..., Any]:
    @requires(f"input.ndim >= {least}  # {name} requires a tensor with at least {least} dimension")
    def function(input: Tensor, indices_or_sections: Ints, *more: int) -> tuple[Tensor, ...]:
        along = 0 if input.ndim == 1 else axis
        given: Any = (indices_or_sections, *more) if more else indices_or_sections
        if hasattr(given, "__index__") and not getattr(given, "ndim", 0):
            given = one_int(name, "sections", given)
        if isinstance(given, int) and (given < 1 or input.shape[along] % given):
            raise unmet(name, f"{name} attempted to split along dimension {along}, but the size of "
                        f"the dimension {input.shape[along]} is not divisible by the split_size "
                        f"{given}")  # fmt: skip
        return tensor_split(input, given, along)

    doc = f"`tensor_split` along axis {axis}, in parts that have to be equal."
    return _placed(named(function, name, doc))


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Number = 0) -> Tensor:
    """Pad the last axes with a number, as `nn.functional.pad` does."""
    return constant_pad(input, widths_of(input, pad), value)


def _unwatched(part: Any) -> Any:
    """A part that is no view and has a version of its own."""
    part = no_view(part)
    if not part._batched:
        part._counter = None
    return part


@converted
def unsafe_split(input: Tensor, split_size: Ints, dim: int = 0) -> tuple[Tensor, ...]:
    """`split` in parts that autograd does not treat as views, so they can be changed in place.

    Changes of a part also change the input's values, but gradients ignore that.
    """
    return tuple(map(_unwatched, split(input, split_size, dim)))


@converted
def unsafe_split_with_sizes(input: Tensor, split_sizes: Ints, dim: int = 0) -> tuple[Tensor, ...]:
    """`unsafe_split` with the lengths of the parts."""
    return unsafe_split(input, split_sizes, dim)


@converted
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk` in parts that autograd does not treat as views: they can be changed in place."""
    return tuple(map(_unwatched, chunk(input, chunks, dim)))


hsplit = _splitter("hsplit", 1, 1)
vsplit = _splitter("vsplit", 0, 2)
dsplit = _splitter("dsplit", 2, 3)


# Aliases that PyTorch has.
concat = concatenate = cat
row_stack = vstack
moveaxis = movedim
split_with_sizes = split


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose` by NumPy's name: a view with two axes exchanged."""
    return transpose(input, axis0, axis1)


swapdims = transpose
