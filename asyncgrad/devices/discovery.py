"""Find devices by name, and list the devices there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from asyncgrad._unbound import unbound
from asyncgrad.aliases import Value
from asyncgrad.devices.base import Device
from asyncgrad.devices.cpu import CPU
from asyncgrad.errors import DeviceUnavailableError

#: The modules that make the devices of each type, imported when a device is requested.
_HOMES = {"cuda": "asyncgrad.devices.cuda", "sim": "asyncgrad.devices.simulated"}
_NAME = re.compile(r"([a-z]+)(?::(0|[1-9]\d*))?")
#: The imported modules.
_loaded: dict[str, ModuleType] = {}
#: Returns the current device of a type, if one was chosen; set in `asyncgrad/_wiring.py`.
chosen_device: Callable[[str], Device | None] = unbound


def find(type: Any = None, index: int | None = None) -> Device:
    """Find a device by its name.

    Args:
        type: a device, a type (`"cuda"`), a type with an index (`"cuda:1"`), or the index of an
            accelerator.
        index: the index, if the name has none. Without any it is that of the type's current device:
            of the innermost `with stream:` or `accelerator.device_index`, else the first.
    """
    if isinstance(type, Device):
        return type
    if isinstance(type, int) and not isinstance(type, bool):
        return find(as_accelerator(None).type, type)
    counts = index is None or (isinstance(index, int) and not isinstance(index, bool))
    if not isinstance(type, str) or not counts:
        given = ", ".join(repr(v.__class__.__name__) for v in (type, index) if v is not None)
        raise TypeError(
            f"device() received an invalid combination of arguments - got ({given}); expected a "
            f"device, or a type such as 'cuda' or 'cuda:1' and an index"
        )
    name = _NAME.fullmatch(type)
    if name is None:
        raise RuntimeError(f"Invalid device string: '{type}'. Write 'cpu', 'cuda' or 'cuda:1'.")
    kind, number = name.groups()
    if kind not in kinds():
        raise RuntimeError(
            f"Expected one of {', '.join(kinds())} device type at start of device string: {type}"
        )
    if number is not None and index is not None:
        raise RuntimeError(
            f"type (string) must not include an index because index was passed explicitly: {type}"
        )
    place = int(number) if number is not None else index
    if place is not None and place < 0:
        raise RuntimeError(f"Device index must not be negative, got {place}")
    if kind == "cpu":
        return CPU
    chosen = chosen_device(kind) if place is None else None
    device: Device = _home(kind).find(place or 0) if chosen is None else chosen
    return device


def kinds() -> tuple[str, ...]:
    """The types of devices that can be found."""
    return "cpu", *_HOMES


def register(type: str, home: str) -> None:
    """Register another type of devices, to be found by name.

    Args:
        type: the type, in small letters: `"toy"` for `device("toy:1")`.
        home: the module that makes them, imported on first use. Its `find(index)` returns the one
            device of an index or raises RuntimeError; its `present()` returns all there are.

    Raises:
        ValueError: if the type is taken, or is no valid name.
    """
    if type in kinds() or _NAME.fullmatch(type) is None or ":" in type:
        raise ValueError(f"register: {type!r} is taken, or is no name made of small letters alone")
    _HOMES[type] = home


def _home(kind: str) -> ModuleType:
    home = _loaded.get(kind)
    if home is None:
        home = _loaded[kind] = import_module(_HOMES[kind])
    return home


def available() -> tuple[Device, ...]:
    """All devices: the CPU, CUDA's if CuPy sees any, and simulated ones once in use."""
    found: list[Device] = [CPU]
    for kind in _HOMES:
        if kind == "cuda" or kind in _loaded:
            found += _home(kind).present()
    return tuple(found)


def accelerators() -> tuple[Device, ...]:
    """The accelerator's devices: CUDA's, or simulated ones if there are none."""
    devices = available()[1:]
    return tuple(device for device in devices if device.type == devices[0].type)


def as_accelerator(device: Value) -> Device:
    """The device of an argument; None is the current accelerator."""
    if device is not None:
        return find(device)
    found = accelerators()
    if not found:
        raise DeviceUnavailableError(
            "Cannot access accelerator device when none is available. Name a device: 'cpu', or "
            "'sim:0' for a simulated one."
        )
    return chosen_device(found[0].type) or found[0]
