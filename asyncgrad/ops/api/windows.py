"""Matrices from diagonals, windows along an axis, and sums to a given shape."""

from __future__ import annotations

from math import prod

import numpy as np

from asyncgrad.ops.api.shape import diagonal
from asyncgrad.ops.api.strided import as_strided
from asyncgrad.ops.arguments import is_expandable, one_dim, one_shape
from asyncgrad.ops.batching import for_each
from asyncgrad.ops.converted import writes
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import rename
from asyncgrad.ops.promotion import as_tensor_operand, cast, category
from asyncgrad.types import Axis, Ints, Tensor

__all__ = ["diag_embed", "diagflat", "diagonal_scatter"]
METHODS = (*__all__, "sum_to_size", "unfold")

_INT64 = np.dtype("int64")


@writes
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last axis of a tensor on their diagonals.

    Args:
        input: of shape (..., n).
        offset: above the main diagonal if positive, below if negative.
        dim1: the axis of rows in the result.
        dim2: the axis of columns.
    """
    ndim = len(input._metadata.shape) + 1
    first, second = (one_dim("diag_embed", dim, ndim) for dim in (dim1, dim2))
    if first == second:
        raise RuntimeError(
            f"diagonal dimensions cannot be identical {dim1}, {dim2}. Name two different axes."
        )
    *lead, length = input._metadata.shape
    length += abs(offset)
    rest = iter(lead)
    shape = tuple(length if axis in {first, second} else next(rest) for axis in range(ndim))
    return R.put_diagonal(input, shape, offset, first, second)


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements of a tensor on its diagonal.

    Args:
        offset: above the main diagonal if positive, below if negative.
    """
    return diag_embed(R.reshape(input, (input._metadata.size,)), offset)


@writes
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of `input` with `src` on a diagonal.

    Args:
        src: of the shape of `diagonal(input, offset, dim1, dim2)`.
        offset: above the main diagonal if positive, below if negative.
        dim1: the axis of rows.
        dim2: the axis of columns.
    """
    out = for_each(R.clone(input), src)
    part = diagonal(out, offset, dim1, dim2)
    if part._metadata.shape != src._metadata.shape:
        raise RuntimeError(
            f"diagonal_scatter: expected src to have a size equal to the slice of self. src size = "
            f"{list(src._metadata.shape)}, slice size = {list(part._metadata.shape)}"
        )
    part.copy_(src)
    return out


def sum_to_size(input: Tensor, *sizes: Ints, size: Ints | None = None) -> Tensor:
    """Sum over axes to a shape that broadcasts to the tensor's: the adjoint of broadcasting.

    Args:
        sizes: the shape, as one sequence or as several numbers.
    """
    x = as_tensor_operand(input, "sum_to_size", 1)
    wanted, held = one_shape("sum_to_size", sizes if size is None else (size,)), x._metadata.shape
    if not is_expandable(wanted, held):
        raise RuntimeError(
            f"sum_to_size: size {list(wanted)} is not expandable to size {list(held)}."
        )
    if wanted == held and held:
        return x
    return R.sum_to(cast(x, _INT64) if category(x._metadata.dtype) < 2 else x, wanted)


def unfold(input: Tensor, dimension: Axis, size: int, step: int) -> Tensor:
    """A view of all windows along an axis, whose elements come last.

    Args:
        size: the length of a window.
        step: the distance between the starts of windows.
    """
    shape, strides = input._metadata.shape, input.stride()
    length = shape[dimension] if shape else 1
    if size < 0:
        raise RuntimeError(f"unfold: size is {size} but must be >= 0")
    if size > length:
        raise RuntimeError(
            f"unfold: maximum size for tensor at dimension {dimension} is {length} but size is "
            f"{size}"
        )
    if step <= 0:
        raise RuntimeError(f"unfold: step is {step} but must be > 0")
    if not shape:
        return R.reshape(input, (1,)) if size else R.narrow(R.reshape(input, (1,)), 0, 0, 0)
    windows = list(shape)
    windows[dimension] = (length - size) // step + 1
    steps = list(strides)
    steps[dimension] *= step
    if not prod(windows) * size:
        nothing = R.narrow(R.reshape(input, (input._metadata.size,)), 0, 0, 0)
        return R.reshape(nothing, (*windows, size))
    out = as_strided(input, (*windows, size), (*steps, strides[dimension]))
    rename(out._edge, "UnfoldBackward0")
    return out
