"""Views of a tensor's memory with other strides, diagonals, and changes of axes in place."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.history import rebase_history, replace_edge
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.recording import unrepeatable
from asyncgrad.core.variable import (
    autograd_meta,
    bump_version,
    counter_of,
    is_inference,
    requires_grad,
    view_of,
)
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api import rearrange, shape
from asyncgrad.ops.api.scatter import replaced
from asyncgrad.ops.api.shape import diagonal
from asyncgrad.ops.arguments import is_expandable, one_dim, one_shape
from asyncgrad.ops.batching import level_of
from asyncgrad.ops.converted import converted, writes
from asyncgrad.ops.dtype_device import as_memory_format, memory_format
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import rename
from asyncgrad.ops.promotion import as_tensor_operand, cast, category, check_device
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import Postponed, named, of_method
from asyncgrad.ops.table.strided import Strides, strides_of
from asyncgrad.ops.tensors import in_place
from asyncgrad.types import Array, Axis, Ints, Library, Tensor

__all__ = ["as_strided", "as_strided_scatter", "diag_embed", "diagflat", "diagonal_scatter"]
METHODS = (
    *__all__, "as_strided_", "resize_", "resize_as_", "squeeze_", "sum_to_size", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unfold", "unsqueeze_",
)  # fmt: skip

_INT64 = np.dtype("int64")


def as_strided(
    input: Tensor, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """A view, with any strides, of a tensor's or its base's memory, such as a signal's windows.

    Several elements may share memory; their gradients add up. Elements of the base that `input`
    does not contain get no gradient. Tensors outside of host memory are copied.

    Args:
        size: the shape of the view.
        stride: for each axis, the distance of neighbours, in elements.
        storage_offset: the number of the first element in memory; None for that of `input`.

    Raises:
        RuntimeError: if an element would be outside of the memory, strides are negative, or their
            number is not that of the axes.

    Example:
        >>> ag.as_strided(ag.arange(5), (3, 3), (1, 1))
        tensor([[0, 1, 2],
                [1, 2, 3],
                [2, 3, 4]])
    """
    wanted, layout = _places("as_strided", input, size, stride, storage_offset)
    out = R.as_strided(input, wanted.shape, wanted.steps, storage_offset, layout)
    view = None if out._batched else view_of(out)
    if view is not None:
        # Regenerated views start from the base, so elements outside `input` get gradients then.
        given = (wanted.shape, wanted.steps, wanted.start + layout[1])
        view.path = (None, "as_strided", (*given, (strides_of(view.base._array), 0)))
    return out


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """A copy of `input` with `src` written to the elements of `as_strided`.

    Args:
        src: the values, of the shape `size`.
        size, stride, storage_offset: as in `as_strided`.
    """
    check_device("as_strided_scatter", input, src)
    wanted, (steps, _) = _places("as_strided_scatter", input, size, stride, storage_offset)
    if src._metadata.shape != wanted.shape:
        raise unmet("as_strided_scatter", "expected src to have a size equal to the slice of self",
                    AutogradError, src=src, **{"slice.shape": wanted.shape})  # fmt: skip
    held = Strides(input._metadata.shape, steps)
    return R.as_strided_scatter(input, cast(src, input._metadata.dtype), held, wanted)


def resize_(input: Tensor, *sizes: Ints, memory_format: memory_format | None = None) -> Tensor:
    """Change a tensor's shape in place; elements keep their order in memory.

    If there are more elements than before, new memory is allocated and the added ones are zero. A
    resize to the present shape does nothing.

    Args:
        input: the tensor, which must not require grad, except in inference mode.
        sizes: the shape, as integers or one sequence of them.
        memory_format: for PyTorch compatibility: the rows are always the last axis.

    Raises:
        RuntimeError: outside of inference mode if the tensor requires grad; for a negative length.
    """
    x = as_tensor_operand(input, "resize_", 1)
    shape = one_shape("resize_", sizes)
    as_memory_format("resize_", memory_format, len(shape))
    if requires_grad(x) and not current().inference:
        raise AutogradError("resize_: cannot resize variables that require grad. Use reshape().")
    if min(shape, default=0) < 0:
        raise AutogradError(f"resize_: a length can't be negative, got size {list(shape)}")
    if shape == x._metadata.shape:
        return x
    unrepeatable("resizes a tensor")
    F = x._metadata.F
    array = x._metadata.device.launching(_resized)(F.xp, x._array, shape)
    bump_version(x)
    x._array, x._metadata = array, F.metadata_of(array)
    return x


def resize_as_(
    input: Tensor, the_template: Tensor, *, memory_format: memory_format | None = None
) -> Tensor:
    """Give a tensor the shape of another, in place: see `resize_`."""
    return resize_(input, the_template._metadata.shape, memory_format=memory_format)


def _resized(xp: Library, array: Array, shape: tuple[int, ...]) -> Any:
    count = prod(shape)
    whole = array.base
    if (
        count > array.size
        and isinstance(whole, type(array))
        and whole.dtype == array.dtype
        and whole.flags.c_contiguous
        and whole.ctypes.data == array.ctypes.data
    ):
        # The tensor was shrunk before, so its memory has more elements.
        array = whole
    flat = array.ravel(order="K")
    if count > array.size:
        flat = xp.concatenate([flat, xp.zeros(count - array.size, array.dtype)])
    return flat[:count].reshape(shape)


def _places(
    name: str, x: Tensor, size: Any, stride: Any, storage_offset: int | None
) -> tuple[Strides, tuple[tuple[int, ...], int]]:
    """The wanted strides from the first element, and the tensor's own strides and offset."""
    sizes, steps = (
        one_shape(name, (_sequence(name, what, given),))
        for what, given in (("size", size), ("stride", stride))
    )
    if len(sizes) != len(steps):
        raise unmet(
            name, "mismatch in length of strides and shape", AutogradError, size=sizes, stride=steps
        )
    if min(steps, default=0) < 0:
        raise unmet(
            name, "Negative strides are not supported at the moment", AutogradError, stride=steps
        )
    if min(sizes, default=0) < 0:
        raise AutogradError(f"{name}: a length can't be negative, got size {list(sizes)}")
    if storage_offset is not None and storage_offset < 0:
        raise AutogradError(f"{name}: Tensor: invalid storage offset {storage_offset}")
    origin = x.storage_offset()
    start = 0 if storage_offset is None else storage_offset - origin
    wanted = Strides(sizes, steps, start)
    own = tuple(x.stride())
    if prod(sizes):
        low, high = _memory(x, own, origin)
        first, last = wanted.reach
        if first < low or last > high:
            raise unmet(name, f"setStorage: sizes {list(sizes)}, strides {list(steps)}, storage "
                        f"offset {start + origin} are out of bounds: the last element would be "
                        f"number {last - 1 + origin} of {high + origin}",
                        AutogradError)  # fmt: skip
    return wanted, (own, origin)


def _sequence(name: str, what: str, given: object) -> Any:
    if not isinstance(given, (tuple, list)):
        raise unmet(
            name, f"argument '{what}' must be tuple of ints, not {type(given).__name__}", TypeError
        )
    return given


def _memory(x: Tensor, own: tuple[int, ...], origin: int) -> tuple[int, int]:
    """The range of the memory, counted from the tensor's first element."""
    shape = x._metadata.shape
    if level_of((x,)) is not None:
        return Strides(shape, own).reach if prod(shape) else (0, 0)
    view, array = view_of(x), x._array
    base, start = (array, 0) if view is None else (view.base._array, origin)
    beneath = getattr(array, "base", None)
    if view is None and isinstance(beneath, np.ndarray) and beneath.dtype == array.dtype:
        # A tensor detached from a view has no base, but still shares the base's memory.
        base, start = beneath, (x.data_ptr() - beneath.ctypes.data) // array.itemsize
    return Strides(base.shape, strides_of(base), -start).reach if base.size else (0, 0)


# -- diagonals, windows, sums ---------------------------------------------------------------------


@writes
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last axis of a tensor on their diagonals.

    Args:
        input: of shape (..., n).
        offset, dim1, dim2: as in `diagonal`, of the result.
    """
    ndim = len(input._metadata.shape) + 1
    first, second = (one_dim("diag_embed", dim, ndim) for dim in (dim1, dim2))
    if first == second:
        raise unmet("diag_embed", "diagonal dimensions cannot be identical. Name two different "
                    "axes", dim1=dim1, dim2=dim2)  # fmt: skip
    *lead, length = input._metadata.shape
    length += abs(offset)
    rest = iter(lead)
    shape = tuple(length if axis in {first, second} else next(rest) for axis in range(ndim))
    return R.put_diagonal(input, shape, offset, first, second)


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements of a tensor on its diagonal; see `diag_embed`."""
    return diag_embed(R.reshape(input, (input._metadata.size,)), offset)


@writes
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of `input` with `src` on a diagonal.

    Args:
        src: of the shape of `diagonal(input, offset, dim1, dim2)`.
        offset, dim1, dim2: as in `diagonal`.
    """
    return replaced("diagonal_scatter", input, src, diagonal, offset, dim1, dim2)


def sum_to_size(input: Tensor, *sizes: Ints, size: Ints | None = None) -> Tensor:
    """Sum over axes to a shape that broadcasts to the tensor's: the adjoint of broadcasting.

    Args:
        sizes: the shape, as one sequence or as several numbers.
    """
    x = as_tensor_operand(input, "sum_to_size", 1)
    wanted, held = one_shape("sum_to_size", sizes if size is None else (size,)), x._metadata.shape
    if not is_expandable(wanted, held):
        raise unmet("sum_to_size", f"size {list(wanted)} is not expandable to size {list(held)}")
    if wanted == held and held:
        return x
    return R.sum_to(cast(x, _INT64) if category(x._metadata.dtype) < 2 else x, wanted)


@requires(
    "0 <= size  # size must be >= 0",
    "step > 0  # step must be > 0",
    "size <= (input.shape[dimension] if input.ndim else 1)  # maximum size for tensor at dimension "
    "{dimension} is {input.shape[dimension] if input.ndim else 1}",
)
def unfold(input: Tensor, dimension: Axis, size: int, step: int) -> Tensor:
    """A view of all windows along an axis, whose elements come last.

    Args:
        size: the length of a window.
        step: the distance between the starts of windows.
    """
    shape, strides = input._metadata.shape, input.stride()
    if not shape:
        return R.reshape(input, (1,)) if size else R.narrow(R.reshape(input, (1,)), 0, 0, 0)
    windows = list(shape)
    windows[dimension] = (shape[dimension] - size) // step + 1
    steps = list(strides)
    steps[dimension] *= step
    if not prod(windows) * size:
        nothing = R.narrow(R.reshape(input, (input._metadata.size,)), 0, 0, 0)
        return R.reshape(nothing, (*windows, size))
    out = as_strided(input, (*windows, size), (*steps, strides[dimension]))
    rename(out._edge, "UnfoldBackward0")
    return out


# -- other axes in place: shape and strides change, the memory does not ---------------------------


def _turning(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if current().grad or input._edge is None or view_of(input) is not None:
            return _become(input, function(input, *args, **kwargs), name)
        # The change is recorded even in no-grad mode, as the tensor's node expects the old axes.
        with Mode(grad=True, inference=False):
            out = function(input, *args, **kwargs)
        return _become(input, out, name)

    method.__signature__ = Postponed(of_method, function)  # type: ignore[attr-defined]
    return named(method, name, f"`{name[:-1]}`, in place: the same tensor with other axes.")


def _become(tensor: Any, out: Any, name: str) -> Any:
    """Make a tensor take over the shape, strides and edge of `out`, a view of it."""
    if tensor._batched:
        # Under `vmap` only this example's axes change, not those of the batch.
        tensor._value, tensor._metadata = out._value, out._metadata
        return tensor
    recorded = out._edge is not None or (current().grad and requires_grad(tensor))
    in_place.check_history(tensor, name, recorded=recorded)
    unrepeatable("changes the axes of a tensor in place")
    if is_inference(tensor):
        tensor._array, tensor._metadata = out._array, out._metadata
        return tensor
    seen, counter = view_of(tensor), counter_of(tensor)
    if seen is None:
        # Existing views are defined relative to the base's old axes.
        views: list[Any] = [reference() for reference in counter.views or ()]
        known = [view_of(x) for x in views if x is not None and x is not out]
        if any(how is not None and how.base is tensor for how in known):
            raise AutogradError(
                f"{name}: the axes of a tensor can't be changed in place while there are views of "
                f"it. Use the form that is not in place."
            )
    edge, found = out._edge, view_of(out)
    tensor._array, tensor._metadata = out._array, out._metadata
    bump_version(tensor)
    if seen is None:
        autograd_meta(tensor).transposed_at = counter.value
        out._edge = None
        if recorded:
            rebase_history(tensor, edge)
    else:
        assert found is not None
        found.creation_meta = seen.creation_meta
        if recorded:
            found.version = counter.value
        if tensor._autograd is seen:
            tensor._autograd = found
        else:
            tensor._autograd.view = found
        # If `edge` is None, the view's edge is recomputed from the base when it is needed.
        replace_edge(tensor, edge)
        if edge is not None:
            counter.register(tensor)
    return tensor


as_strided_ = _turning("as_strided_", as_strided)
squeeze_ = _turning("squeeze_", shape.squeeze)
swapaxes_ = _turning("swapaxes_", rearrange.swapaxes)
swapdims_ = _turning("swapdims_", shape.transpose)
t_ = _turning("t_", converted(shape.t))
transpose_ = _turning("transpose_", shape.transpose)
unsqueeze_ = _turning("unsqueeze_", shape.unsqueeze)
