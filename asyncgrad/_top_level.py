"""Functions of the top namespace that ask other namespaces."""

from __future__ import annotations

from functools import wraps
from os import PathLike
from types import ModuleType
from typing import Any

from asyncgrad import accelerator, cpu, cuda, devices
from asyncgrad.devices import Device
from asyncgrad.devices.discovery import find
from asyncgrad.ops.api import rearrange
from asyncgrad.ops.tensors.new_tensors import place_of
from asyncgrad.tracing import trace_passes

__all__ = ["get_default_device", "get_device_module", "trace"]


def get_default_device() -> Device:
    """The device of new tensors in this context: see `set_default_device` and `with device:`."""
    return place_of("get_default_device")


def get_device_module(device: Device | str | None = None) -> ModuleType:
    """The module for a kind of device: `cpu`, `cuda`, or `accelerator` for any other.

    Args:
        device: a device or its name; None means the accelerator, or the CPU without one.
    """
    if device is None:
        found = accelerator.current_accelerator()
        kind = "cpu" if found is None else found.type
    elif isinstance(device, (str, devices.Device)):
        kind = getattr(device, "type", None) or str(device).partition(":")[0]
    else:
        raise RuntimeError(f"Invalid value of device '{device}', expect a device, str, or None")
    if kind not in devices.kinds():
        find(kind)  # Raises an error that lists the kinds there are.
    return {"cpu": cpu, "cuda": cuda}.get(kind, accelerator)


@wraps(rearrange.trace)
def trace(input: Any) -> Any:
    """The sum of a matrix's diagonal; given a path, the deprecated name of `trace_passes`."""
    if isinstance(input, str | PathLike):
        return trace_passes(input)
    return rearrange.trace(input)
