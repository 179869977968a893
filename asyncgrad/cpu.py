"""The host under PyTorch's device functions: it has no streams, and work is done at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from asyncgrad.devices import CPU, Event, Stream

__all__ = [
    "Event", "Stream", "current_device", "current_stream", "device_count", "is_available",
    "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Always True: the host is always there."""
    return True


def is_initialized() -> bool:
    """Always True: the host needs no initialization."""
    return True


def device_count() -> int:
    """Always 1: there is one host."""
    return 1


def current_device() -> str:
    """The name of the host's device."""
    return "cpu"


def set_device(device: Any) -> None:
    """Accepted for device-agnostic programs, without effect: there is only one host."""


def current_stream(device: Any = None) -> Stream:
    """The host's stream; its work is done when a call returns."""
    stream: Stream = CPU.default_stream
    return stream


def stream(stream: Stream | None) -> AbstractContextManager[Any]:
    """A context manager for a stream; None changes nothing."""
    return nullcontext() if stream is None else stream


def synchronize(device: Any = None) -> None:
    """Return at once: no work is pending on the host."""
