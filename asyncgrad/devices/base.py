"""What the rest asks of a device: an array library, and how long its work takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from asyncgrad.devices.pool import LARGE


class Device(ABC):
    """A place where arrays live.

    Devices are compared by identity: there is one object for each place.
    """

    __slots__ = ("index", "type")

    def __init__(self, type: str, index: int | None = None) -> None:
        """Name the device as PyTorch does: a type, and an index where there are several."""
        self.type = type
        self.index = index

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array library: NumPy, CuPy or one that looks like them."""

    @property
    def pooled_xp(self) -> Any:
        """The library for large real arrays, whose memory is worth keeping."""
        return self.xp

    @property
    def large(self) -> int:
        """The bytes from which an array is large."""
        return LARGE

    @property
    @abstractmethod
    def array_type(self) -> type:
        """The class of the device's arrays."""

    @property
    @abstractmethod
    def element_cost(self) -> float:
        """Expected nanoseconds for one element to pass through one elementwise function."""

    def __str__(self) -> str:
        """The name, as `ag.device()` takes it."""
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        """PyTorch's form."""
        if self.index is None:
            return f"device(type={self.type!r})"
        return f"device(type={self.type!r}, index={self.index})"
