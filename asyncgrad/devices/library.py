"""Array libraries whose functions run on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from asyncgrad.aliases import Device


class Function:
    """Wraps a function of an array library for one device."""

    __slots__ = ("_device", "_function", "_name")

    def __init__(self, device: Device, name: str, function: Callable[..., Any]) -> None:
        self._device = device
        self._name = name
        self._function = function

    def __getattr__(self, name: str) -> Any:
        """Methods such as `reduce` and `at` are wrapped, too."""
        value = getattr(self._function, name)
        return type(self)(self._device, name, value) if callable(value) else value


class Library:
    """The base of libraries: wraps an array library, or a module of it, for one device."""

    #: It computes in the host's memory, as NumPy does.
    on_host = False

    def __init__(self, device: Device, module: ModuleType) -> None:
        self._device = device
        self._module = module
        #: Kernels that replace those of `ops.fused`.
        self.compiled: Mapping[str, Any] = {}

    def _bound(self, name: str, function: Callable[..., Any]) -> Any:
        """Make a function of the module one on the device."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """A constant or class, or a function or module for the device; cached."""
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            value = type(self)(self._device, value)
        elif callable(value) and not isinstance(value, type):
            value = self._bound(name, value)
        setattr(self, name, value)
        return value
