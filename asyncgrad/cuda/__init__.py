"""CUDA devices by PyTorch's names, for programs that know no others.

What is here is also in `accelerator`, which is the same on any kind of device.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from asyncgrad import accelerator, random
from asyncgrad import devices as _devices
from asyncgrad.cuda import amp
from asyncgrad.devices import Device
from asyncgrad.devices.discovery import available, find
from asyncgrad.devices.streams import set_stream
from asyncgrad.errors import OutOfMemoryError

__all__ = [
    "Event", "OutOfMemoryError", "Stream", "amp", "current_device", "current_stream",
    "default_stream", "device", "device_count", "empty_cache", "get_device_capability",
    "get_device_name", "get_device_properties", "init", "is_available", "is_bf16_supported",
    "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_device", "set_stream", "stream", "synchronize",
]  # fmt: skip


class _OnGPU(type):
    """All streams and events of GPUs are instances of the classes here."""

    def __instancecheck__(cls, instance: Any) -> bool:
        """Whether it is one of the class above, on a GPU."""
        above: Any = cls.__base__
        return isinstance(instance, above) and instance.device.type == "cuda"


class Stream(_devices.Stream, metaclass=_OnGPU):
    """A queue of work on a GPU, which is done in order.

    Args:
        device: which one, the current one if None.
        priority: smaller is more urgent.
    """

    __slots__ = ()

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        super().__init__(_gpu(device), priority=priority)


class Event(_devices.Event, metaclass=_OnGPU):
    """A mark in a stream of a GPU.

    Args:
        enable_timing: the event notes when it happens, for `elapsed_time`.
        blocking: accepted for PyTorch's sake, without effect.
        interprocess: likewise.
    """

    __slots__ = ()

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        """Make an event that has not been recorded."""
        super().__init__(
            _gpu(None), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def is_available() -> bool:
    """Whether CuPy is installed and sees a GPU."""
    return device_count() > 0


def device_count() -> int:
    """How many GPUs there are."""
    return sum(device.type == "cuda" for device in available())


def init() -> None:
    """Find the GPUs, which is done anyway when one is asked for.

    Raises:
        RuntimeError: if there is none.
    """
    _gpu(None)


def is_initialized() -> bool:
    """Whether there is a GPU: those that are found are ready."""
    return is_available()


def manual_seed(seed: int) -> None:
    """Seed the numbers drawn on a GPU: they come from the one generator of all devices."""
    if is_available():
        random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Do what `manual_seed` does: GPUs have no generators of their own."""
    manual_seed(seed)


def device(device: Any) -> accelerator.device_index:
    """Make another GPU the current device within a block; a negative index changes nothing."""
    unchanged = isinstance(device, int) and device < 0
    return accelerator.device_index(None if unchanged else _gpu(device))


def set_device(device: Any) -> None:
    """Make a GPU the current device from now on; `accelerator.device_index` does it for a block."""
    accelerator.set_device_index(_gpu(device))


def current_device() -> int:
    """The index of the current GPU."""
    return _gpu(None).index or 0


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """A GPU's `name`, `major`, `minor`, `total_memory` and `multi_processor_count`."""
    gpu: Any = _gpu(device)
    found = gpu.properties()
    return SimpleNamespace(
        name=found["name"].decode(),
        major=found["major"],
        minor=found["minor"],
        total_memory=found["totalGlobalMem"],
        multi_processor_count=found["multiProcessorCount"],
    )


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    name: str = get_device_properties(device).name
    return name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0)."""
    found = get_device_properties(device)
    return found.major, found.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU computes with bfloat16, by itself or, as older ones do, in float32."""
    return is_available() and (including_emulation or get_device_capability() >= (8, 0))


def current_stream(device: Any = None) -> _devices.Stream:
    """The stream that work on a GPU is put into here."""
    return accelerator.current_stream(_gpu(device))


def default_stream(device: Any = None) -> _devices.Stream:
    """The stream of all work that is given no other."""
    stream: Stream = _gpu(device).default_stream
    return stream


def stream(stream: _devices.Stream | None) -> AbstractContextManager[Any]:
    """The stream itself, to be entered; None changes nothing."""
    return nullcontext() if stream is None else stream


def synchronize(device: Any = None) -> None:
    """Block until all work on a GPU is done; `accelerator.synchronize_async` awaits it."""
    accelerator.synchronize(_gpu(device))


def memory_stats(device: Any = None) -> dict[str, int]:
    """What is allocated on a GPU, in bytes, by PyTorch's names; nothing without one."""
    return accelerator.memory_stats(_gpu(device)) if is_available() else {}


def memory_allocated(device: Any = None) -> int:
    """The bytes of arrays on a GPU."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of arrays there have been."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Any = None) -> int:
    """The bytes that are taken from a GPU, those kept for later among them."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that have been taken from a GPU."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start the peaks from what is allocated now."""
    accelerator.reset_peak_memory_stats(_gpu(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The bytes of a GPU that are free, and all."""
    return accelerator.get_memory_info(_gpu(device))


def empty_cache() -> None:
    """Give memory back that is kept for later; without a GPU there is none."""
    if is_available():
        accelerator.empty_cache()


def _gpu(device: Any) -> Device:
    """The GPU that is meant: by index, by name, or the current one."""
    if device is None:
        return find("cuda")
    found = find("cuda", device) if isinstance(device, int) else find(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return found
