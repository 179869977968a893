"""The host by PyTorch's names of a device: it has no streams, and all work is done at once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from asyncgrad.devices import CPU, Event, Stream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = [
    "Event", "Stream", "current_device", "current_stream", "device_count", "is_available",
    "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """One."""
    return 1


def current_device() -> str:
    """Its name."""
    return "cpu"


def set_device(device: Any) -> None:
    """Accepted for programs that are the same on any device; there is but one."""


def current_stream(device: Any = None) -> Stream:
    """A stream in which all work is done when the call returns."""
    return CPU.default_stream


def stream(stream: Stream | None) -> AbstractContextManager[Any]:
    """The stream itself, to be entered; None changes nothing."""
    return nullcontext() if stream is None else stream


def synchronize(device: Any = None) -> None:
    """Return at once: there is nothing to wait for."""
