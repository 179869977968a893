"""What `dtype=` and `device=` mean, wherever they are arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.devices import CPU, Device
from asyncgrad.devices.discovery import find
from asyncgrad.ops.namespace import is_known
from asyncgrad.ops.table import add_device


def as_dtype(name: str, dtype: Any) -> Any:
    """A dtype of tensors.

    Args:
        name: the function that was given it, for errors.
        dtype: one of asyncgrad's, its name, or Python's bool, int, float or complex.

    Raises:
        TypeError: if it is none.
    """
    if isinstance(dtype, np.dtype):
        found = dtype
    else:
        try:
            found = np.dtype(dtype)
        except TypeError:
            found = None
        if found is None or dtype is None:
            raise TypeError(
                f"{name}(): argument 'dtype' must be a dtype such as asyncgrad.float32, not "
                f"{dtype!r}"
            )
    assert found is not None
    if found.kind not in "biufc" and found.name != "bfloat16":
        raise TypeError(
            f"{name}(): tensors can't have the dtype {found}. The supported kinds are bool, "
            f"integer, floating and complex."
        )
    return found


def as_device(name: str, device: Any) -> Device:
    """A device; None is the CPU.

    Raises:
        RuntimeError: if there is no such device.
        TypeError: if it is no device at all.
    """
    if device is None or device is CPU or device in {"cpu", "cpu:0"}:
        return CPU
    if not isinstance(device, (Device, str, int)) or isinstance(device, bool):
        raise TypeError(
            f"{name}(): argument 'device' must be a device, not {type(device).__name__}"
        )
    found = find(device)
    if not is_known(found):
        add_device(found)
    return found


def as_memory_format(name: str, memory_format: Any) -> None:
    """Accept what is always so: elements in a row, or as they were.

    Raises:
        RuntimeError: for another layout.
    """
    word = str(memory_format).rpartition(".")[2]
    if word not in {"None", "contiguous_format", "preserve_format"}:
        raise RuntimeError(f"{name}(): the memory format {memory_format} is not supported")
