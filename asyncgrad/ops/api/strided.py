"""Views of a tensor's memory with arbitrary strides, and resizing in place."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.modes import current
from asyncgrad.core.recording import unrepeatable
from asyncgrad.core.variable import bump_version, requires_grad, view_of
from asyncgrad.errors import AutogradError
from asyncgrad.ops.arguments import one_shape
from asyncgrad.ops.batching import level_of
from asyncgrad.ops.dtype_device import as_memory_format, memory_format
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand, cast, check_device
from asyncgrad.ops.table.strided import Strides, strides_of
from asyncgrad.types import Array, Ints, Library, Tensor

__all__ = ["as_strided", "as_strided_scatter"]
METHODS = ("as_strided", "as_strided_scatter", "resize_", "resize_as_")


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
        raise AutogradError(
            f"as_strided_scatter: expected src to have a size equal to the slice of self. src size "
            f"= {list(src._metadata.shape)}, slice size = {list(wanted.shape)}"
        )
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
    as_memory_format("resize_", memory_format)
    x = as_tensor_operand(input, "resize_", 1)
    shape = one_shape("resize_", sizes)
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
    flat = array.reshape(-1)
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
        raise AutogradError(
            f"{name}: mismatch in length of strides and shape: {list(steps)} and {list(sizes)}"
        )
    if min(steps, default=0) < 0:
        raise AutogradError(
            f"{name}: Negative strides are not supported at the moment, got strides: {list(steps)}"
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
            raise AutogradError(
                f"{name}: setStorage: sizes {list(sizes)}, strides {list(steps)}, storage offset "
                f"{start + origin} are out of bounds: the last element would be number "
                f"{last - 1 + origin} of {high + origin}."
            )
    return wanted, (own, origin)


def _sequence(name: str, what: str, given: object) -> Any:
    if not isinstance(given, (tuple, list)):
        raise TypeError(
            f"{name}(): argument '{what}' must be tuple of ints, not {type(given).__name__}"
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
