"""PyTorch's device-agnostic functions for the accelerator, of whatever kind it is.

The current device and stream belong to the asyncio task, like all ambient state of asyncgrad.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.core.modes import Mode, current
from asyncgrad.devices import Device
from asyncgrad.devices.cpu import CPU
from asyncgrad.devices.discovery import accelerators, as_accelerator
from asyncgrad.devices.discovery import find as _find
from asyncgrad.devices.streams import Scope, Stream, current_device, set_stream
from asyncgrad.devices.streams import current_stream as _current_stream

__all__ = [
    "current_accelerator", "current_device_index", "current_stream", "device_count", "device_index",
    "empty_cache", "get_memory_info", "is_available", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_device_index", "set_stream", "synchronize",
    "synchronize_async",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is an accelerator."""
    return bool(accelerators())


def device_count() -> int:
    """The number of devices."""
    return len(accelerators())


def current_accelerator(check_available: bool = False) -> Device | None:
    """The current device, or None without an accelerator.

    Args:
        check_available: ignored, for PyTorch's programs; availability is always checked.
    """
    return _device(None) if accelerators() else None


def current_device_index() -> int:
    """The index of the current device."""
    return _device(None).index or 0


def set_device_index(device: Any) -> None:
    """Make a device current in this context, with its default stream."""
    set_stream(_device(device).default_stream)


class device_index(Mode):
    """Make another device current within a block.

    Args:
        device: the index or the device; None changes nothing.
    """

    def __init__(self, device: Any, /) -> None:
        super().__init__()
        self._index = device

    def __enter__(self) -> None:  # type: ignore[override]
        """Make the device's current stream the innermost one."""
        scope = current().streams
        unchanged = self._index is None
        self._put({} if unchanged else {"streams": Scope(current_stream(self._index), scope)})


def current_stream(device: Any = None) -> Stream:
    """The stream that gets this context's work on a device."""
    return _current_stream(_device(device))


def synchronize(device: Any = None) -> None:
    """Block until all work queued in any stream of a device is done.

    Raises:
        RuntimeError: for an error on the device.
    """
    for stream in _device(device).streams():
        stream.synchronize()


async def synchronize_async(device: Any = None) -> None:
    """Wait as `synchronize` does, without blocking the event loop."""
    for stream in _device(device).streams():
        # Work queued meanwhile is not waited for. A cancellation here changes nothing.
        await stream.synchronize_async()


def memory_stats(device: Any = None) -> dict[str, int]:
    """A device's memory statistics in bytes, under PyTorch's names."""
    return _device(device).memory_stats()


def memory_allocated(device: Any = None) -> int:
    """The bytes of the arrays on a device."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The greatest value of `memory_allocated` so far."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Any = None) -> int:
    """The bytes reserved on a device, including memory cached for later."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Any = None) -> int:
    """The greatest value of `memory_reserved` so far."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peaks to the current values."""
    _device(device).reset_peak_memory_stats()


def get_memory_info(device: Any = None) -> tuple[int, int]:
    """The free bytes and the total bytes of a device."""
    return _device(device).memory_info()


def empty_cache() -> None:
    """Release cached memory, of the accelerator and of the host.

    Without an accelerator, where PyTorch raises, it releases the host's only.
    """
    for device in (CPU, *accelerators()):
        device.empty_cache()


def _device(device: Any) -> Device:
    """A device by index, name or object; None is the current one."""
    if device is not None:
        return _find(device)
    return current_device() or as_accelerator(None)
