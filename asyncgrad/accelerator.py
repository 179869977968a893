"""The accelerator, whichever there is: PyTorch's device-agnostic functions.

The current device and its current stream follow the asyncio task, like all that is ambient here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import Mode, current
from asyncgrad.devices.cpu import CPU
from asyncgrad.devices.discovery import accelerators, as_accelerator
from asyncgrad.devices.discovery import find as _find
from asyncgrad.devices.streams import Scope, Stream, current_device
from asyncgrad.devices.streams import current_stream as _current_stream
from asyncgrad.devices.streams import set_stream as _set_stream

if TYPE_CHECKING:
    from asyncgrad.devices import Device

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
    """How many devices the accelerator has."""
    return len(accelerators())


def current_accelerator(check_available: bool = False) -> Device | None:
    """The current device, None if there is no accelerator.

    Args:
        check_available: for PyTorch's programs; that is always looked at.
    """
    return _device(None) if accelerators() else None


def current_device_index() -> int:
    """The index of the current device.

    Raises:
        RuntimeError: if there is no accelerator.
    """
    return _device(None).index or 0


def set_device_index(device: Any) -> None:
    """Make a device the current one from here on, with its default stream."""
    _set_stream(_device(device).default_stream)


class device_index(Mode):
    """Make another device of the accelerator the current one within a block.

    Args:
        device: its index or itself; None changes nothing.
    """

    def __init__(self, device: Any, /) -> None:
        """Look nothing up before the block is entered."""
        super().__init__()
        self._index = device

    def __enter__(self) -> None:
        """The device's current stream becomes the innermost one."""
        scope = current().streams
        unchanged = self._index is None
        self._put({} if unchanged else {"streams": Scope(current_stream(self._index), scope)})

    def _again(self) -> device_index:
        return device_index(self._index)


def current_stream(device: Any = None) -> Stream:
    """The stream that work on a device is put into here.

    Raises:
        RuntimeError: if there is no accelerator.
    """
    return _current_stream(_device(device))


def set_stream(stream: Stream) -> None:
    """Make a stream the current one of its device from here on, in this task alone."""
    _set_stream(stream)


def synchronize(device: Any = None) -> None:
    """Block until all work that was put into any stream of a device is done.

    Raises:
        RuntimeError: for what has gone wrong on the device.
    """
    for stream in _device(device).streams():
        stream.synchronize()


async def synchronize_async(device: Any = None) -> None:
    """The same, without holding the event loop."""
    for stream in _device(device).streams():
        # Other work may come in meanwhile and is not waited for. Cancelled here, nothing changes.
        await stream.synchronize_async()


def memory_stats(device: Any = None) -> dict[str, int]:
    """What is allocated on a device, in bytes, by PyTorch's names."""
    return _device(device).memory_stats()


def memory_allocated(device: Any = None) -> int:
    """The bytes of arrays on a device."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of arrays there have been."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Any = None) -> int:
    """The bytes that are taken from a device, those kept for later among them."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that have been taken from a device."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start the peaks from what is allocated now."""
    _device(device).reset_peak_memory_stats()


def get_memory_info(device: Any = None) -> tuple[int, int]:
    """The bytes of a device that are free, and all."""
    return _device(device).memory_info()


def empty_cache() -> None:
    """Give memory back that is kept for later: the accelerator's and, here, the host's.

    Without an accelerator, where PyTorch raises, it is the host's alone.
    """
    for device in (CPU, *accelerators()):
        device.empty_cache()


def _device(device: Any) -> Device:
    """The device that is meant; None is the current one, a number one of the accelerator's."""
    if device is not None:
        return _find(device)
    return current_device() or as_accelerator(None)
