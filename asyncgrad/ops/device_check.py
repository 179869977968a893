"""Refuse operands on different devices with PyTorch's message.

On a device arguments are checked first: its library might take a host array, or another device's,
for its own. On the CPU, where calls are short, only NumPy's error is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from asyncgrad.devices import CPU, Device
from asyncgrad.ops.op import Op

#: All devices whose arrays can be recognised.
_known: list[Device] = [CPU]


def device_mismatch(name: str, first: Device, second: Device) -> RuntimeError:
    """The error for operands on two devices."""
    return RuntimeError(
        f"{name}: Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}! Move one with .to()."
    )


def register_device(device: Device) -> None:
    """Register a device, so that its arrays can be recognised."""
    if device not in _known:
        _known.append(device)


def device_of(array: Any) -> Device | None:
    """The device with streams that an array is on; None for others, and for what is no array."""
    if isinstance(array, (np.ndarray, np.generic)):
        return None
    for device in _known:
        if device.streamed and device.owns(array):
            return device
    return None


def on_one_device(op: Op, function: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """Wrap a raw function to refuse arrays of other devices, but for indices on the host."""
    name = op.name
    welcome = (device, CPU) if op.host_indices else (device,)
    kind, owns = device.array_type, device.owns

    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in args:
            if value.__class__ is kind and owns(value):
                continue
            for place in _places(device, (value,)):
                if place not in welcome:
                    raise device_mismatch(name, device, place)
        return function(*args, **kwargs)

    return checked


def error_of(name: str, device: Device, error: Exception, *arguments: Any) -> Exception:
    """The error to raise when a raw function failed: operands on two devices, or its own error."""
    places = list(dict.fromkeys(_places(device, arguments)))
    return device_mismatch(name, *places[:2]) if len(places) > 1 else error


def _places(here: Device, values: Iterable[Any]) -> Iterator[Device]:
    """The devices of the arrays among some values, including those in nested sequences."""
    for value in values:
        if value.__class__ is tuple or value.__class__ is list:
            yield from _places(here, value)
        elif hasattr(value, "dtype"):
            for device in (here, *_known):
                if device.owns(value):
                    yield device
                    break
