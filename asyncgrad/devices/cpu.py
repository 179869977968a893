"""The CPU: NumPy arrays, computed by the calling thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.devices.base import Device
from asyncgrad.devices.plain_numpy import plain_numpy
from asyncgrad.devices.pool import pooled_numpy

_PLAIN, _POOLED = plain_numpy(), pooled_numpy()


class CpuDevice(Device):
    """NumPy in host memory. Work is done when the call returns, so there are no streams."""

    __slots__ = ()

    @property
    def xp(self) -> Any:
        """NumPy."""
        return _PLAIN

    @property
    def pooled_xp(self) -> Any:
        """NumPy with large results in memory that is used again."""
        return _POOLED

    @property
    def array_type(self) -> type:
        """`numpy.ndarray`."""
        return np.ndarray

    @property
    def element_cost(self) -> float:
        """About a nanosecond: three memory streams at a few GB/s."""
        return 1.0


CPU = CpuDevice("cpu")
