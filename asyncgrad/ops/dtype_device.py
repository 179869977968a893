"""Conversion and checks of `dtype=`, `device=`, `layout=` and `memory_format=` arguments."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from asyncgrad.devices import CPU, Device
from asyncgrad.devices.discovery import find
from asyncgrad.errors import class_of
from asyncgrad.ops.dtype import KNOWN, DType


def is_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether tensors can have a NumPy dtype."""
    return np.dtype(dtype.type) in KNOWN


def as_dtype(name: str, dtype: Any) -> Any:
    """The NumPy dtype of a dtype argument.

    Args:
        dtype: an asyncgrad dtype, its name, or Python's bool, int, float or complex.
    """
    if dtype.__class__ is DType:
        return dtype.dtype
    try:
        # By its type: a copied or unpickled dtype equals NumPy's, but is another object, and that
        # of another byte order is none that kernels read.
        found = np.dtype(np.dtype(dtype).type)
    except (TypeError, ValueError):
        # NumPy raises a ValueError for what has an attribute `dtype` that is none of its own.
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
    """The device of a device argument; None means the CPU."""
    if device is None or device is CPU or device in {"cpu", "cpu:0"}:
        return CPU
    if not isinstance(device, (Device, str, int)) or isinstance(device, bool):
        raise TypeError(f"{name}(): argument 'device' must be a device, not {class_of(device)}")
    return find(device)


class _Word(enum.Enum):
    def __repr__(self) -> str:
        return f"asyncgrad.{self.value}"

    __str__ = __repr__


class layout(_Word):
    """How elements are stored. Functions make strided arrays only."""

    strided = "strided"


class memory_format(_Word):
    """The order of elements in memory. Channels-last formats are only a hint."""

    contiguous_format = "contiguous_format"
    preserve_format = "preserve_format"
    channels_last = "channels_last"
    channels_last_3d = "channels_last_3d"


_RANKS = {"channels_last": 4, "channels_last_3d": 5}


def as_memory_format(name: str, memory_format: Any, ndim: int | None = None) -> int:
    """For how many axes a memory format wants the second, the channels, last in memory, or 0."""
    if memory_format is None:
        return 0
    word = str(memory_format).rpartition(".")[2]
    rank = _RANKS.get(word)
    if rank is None and word not in {"contiguous_format", "preserve_format"}:
        raise RuntimeError(f"{name}(): the memory format {memory_format} is not supported")
    if rank is not None and ndim is not None and ndim != rank:
        raise RuntimeError(
            f"{name}(): required rank {rank} tensor to use {word} format, but got {ndim} dimensions"
        )
    return rank or 0


def as_layout(name: str, given: Any) -> None:
    """Accept `strided` or None; raise for any other layout."""
    if given is None or given is layout.strided:
        return
    if not str(given).startswith(("asyncgrad.", "torch.")):
        raise TypeError(f"{name}(): argument 'layout' must be a layout, not {type(given).__name__}")
    if not str(given).endswith(".strided"):
        raise RuntimeError(f"{name}(): the layout {given} is not supported. Leave layout= away.")
