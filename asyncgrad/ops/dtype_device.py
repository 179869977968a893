"""What `dtype=` and `device=` mean, wherever they are arguments."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from asyncgrad.devices import CPU, Device
from asyncgrad.devices.discovery import find
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.namespace import is_known
from asyncgrad.ops.registry import add_device


def is_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether tensors can have a dtype of NumPy's."""
    if dtype.kind not in "biufc":
        return dtype.name == "bfloat16"
    # The long ones differ from platform to platform, and PyTorch has none.
    return dtype.char not in "gG"


def as_dtype(name: str, dtype: Any) -> Any:
    """A dtype of tensors.

    Args:
        name: the function that was given it, for errors.
        dtype: one of asyncgrad's, its name, or Python's bool, int, float or complex.

    Raises:
        TypeError: if it is none.
    """
    if dtype.__class__ is DType:
        return dtype.dtype
    try:
        # A copy of one, or one that a pickle has held, is equal and not the same.
        found = np.dtype(dtype.type if isinstance(dtype, np.dtype) else dtype)
    except TypeError:
        found = None
    if found is None or dtype is None:
        raise TypeError(
            f"{name}(): argument 'dtype' must be a dtype such as asyncgrad.float32, not {dtype!r}"
        )
    if not is_dtype(found):
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


class _Word(enum.Enum):
    """One of some names of the package."""

    def __repr__(self) -> str:
        """As it is written."""
        return f"asyncgrad.{self.value}"

    __str__ = __repr__


class layout(_Word):
    """How elements are held: strided arrays are the only ones that functions make."""

    strided = "strided"


class memory_format(_Word):
    """In which order elements lie in memory; channels-last ones are taken as a hint."""

    contiguous_format = "contiguous_format"
    preserve_format = "preserve_format"
    channels_last = "channels_last"
    channels_last_3d = "channels_last_3d"


_RANKS = {"channels_last": 4, "channels_last_3d": 5}


def as_memory_format(name: str, memory_format: Any, ndim: int | None = None) -> bool:
    """Accept what changes no values: elements stay in a row, or as they were.

    Args:
        name: the function that was given it, for errors.
        memory_format: one of asyncgrad's, or None.
        ndim: how many axes the tensor has, where that is known.

    Returns:
        Whether the channels, the second axis, are to be last in memory.

    Raises:
        RuntimeError: for what is none, or one of tensors with another number of axes.
    """
    if memory_format is None:
        return False
    word = str(memory_format).rpartition(".")[2]
    rank = _RANKS.get(word)
    if rank is None and word not in {"contiguous_format", "preserve_format"}:
        raise RuntimeError(f"{name}(): the memory format {memory_format} is not supported")
    if rank is not None and ndim is not None and ndim != rank:
        raise RuntimeError(
            f"{name}(): required rank {rank} tensor to use {word} format, but got {ndim} dimensions"
        )
    return rank is not None


def as_layout(name: str, given: Any) -> None:
    """Accept the layout that all tensors have.

    Raises:
        TypeError: for what is no layout.
        RuntimeError: for another one.
    """
    if given is None or given is layout.strided:
        return
    if not str(given).startswith(("asyncgrad.", "torch.")):
        raise TypeError(f"{name}(): argument 'layout' must be a layout, not {type(given).__name__}")
    if not str(given).endswith(".strided"):
        raise RuntimeError(f"{name}(): the layout {given} is not supported. Leave layout= away.")
