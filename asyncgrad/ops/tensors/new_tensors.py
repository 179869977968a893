"""New tensors that no op has computed: their device, shape and `requires_grad`."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.modes import current
from asyncgrad.core.recording import note_constant
from asyncgrad.core.variable import autograd_meta, wrap
from asyncgrad.devices import CPU, Device
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.ops.arguments import check_bool, one_shape
from asyncgrad.ops.dtype_device import as_device
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.promotion import category
from asyncgrad.ops.scalar_cast import overflow


def place_of(name: str, device: Any = None, like: Any = None) -> Device:
    """A new tensor's device: the given one, that of `like`, or the default device."""
    if device is not None:
        return as_device(name, device)
    if like is not None:
        return like._metadata.device  # type: ignore[no-any-return]
    default = current().device
    return CPU if default is None else default.device


def leaf(name: str, array: Any, device: Device, requires_grad: bool = False) -> Any:
    """Make a leaf of an array that is already on its device."""
    if requires_grad:
        check_bool(name, "requires_grad", requires_grad)
        if category(array.dtype) < 2:
            raise RuntimeError(
                f"{name}: Only Tensors of floating point and complex dtype can require gradients, "
                f"got {array.dtype}. Pass dtype=asyncgrad.float32."
            )
    out = wrap(array, metadata_of(array, device))
    if requires_grad:
        autograd_meta(out).requires_grad = True
    modes = current()
    if modes.inference:
        autograd_meta(out).inference = True
    if modes.recorder is not None:
        modes.recorder.created(name, array)
    return out


def new_beside(name: str, x: Any, make: str, *arguments: Any, dtype: Any = None) -> Any:
    """Make a leaf by the library's function `make`, on a tensor's device and of its dtype."""
    metadata = x._metadata
    dtype = metadata.dtype if dtype is None else dtype
    array = getattr(metadata.F.xp, make)(*arguments, dtype=dtype)
    note_constant(array)
    return leaf(name, array, metadata.device)


def from_host(name: str, array: Any, device: Device, requires_grad: bool = False) -> Any:
    """Make a leaf of an array, which is copied to the device if it is on the host."""
    if device is not CPU and isinstance(array, np.ndarray):
        array = device.from_host(array, pinned=False)
    return leaf(name, array, device, requires_grad)


def new_shape(name: str, sizes: tuple[Any, ...], size: Any = None) -> tuple[int, ...]:
    """The shape of a new tensor, given as one sequence, as several numbers or as `size=`."""
    if size is not None:
        if sizes:
            raise TypeError(f"{name}() got multiple values for argument 'size'")
        sizes = (size,)
    shape = one_shape(name, sizes)
    if shape and min(shape) < 0:
        raise RuntimeError(
            f"{name}: Trying to create tensor with negative dimension {min(shape)}: {list(shape)}"
        )
    return shape


def sequence_shape(name: str, size: Any) -> tuple[int, ...]:
    """The shape of a new tensor, for functions that accept it only as a sequence."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'size' must be tuple of ints, not {type(size).__name__}"
        )
    return new_shape(name, (size,))


def fitting(name: str, values: Any, dtype: Any) -> Any:
    """Convert an array of Python numbers to a dtype."""
    if values.dtype == dtype:
        return values
    if values.dtype.kind == "c" and category(dtype) < 3:
        fits = not np.any(values.imag)
        values = values.real
    else:
        fits = True
    if fits and category(dtype) == 1 and values.size and values.dtype.kind != "b":
        limits = np.iinfo(dtype)
        # A negative number down to `-max` wraps around to an unsigned integer.
        lowest = limits.min or -limits.max
        fits = bool(np.all((values >= lowest) & (values <= limits.max)))
    if not fits:
        raise overflow(name, values.ravel(), dtype)
    return call_without_fp_errors(values.astype, dtype)
