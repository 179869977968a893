"""The CPU: NumPy arrays, computed by the calling thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.devices.base import Device
from asyncgrad.devices.half_products import half_numpy
from asyncgrad.devices.plain_numpy import COMPILED, plain_numpy
from asyncgrad.devices.pool import POOL, pooled_numpy


class CpuDevice(Device):
    """NumPy arrays in host memory. Work is done when the call returns, so there are no streams."""

    __slots__ = ()

    xp: Any = plain_numpy()
    #: NumPy that keeps large results in memory from a pool.
    pooled_xp: Any = pooled_numpy()
    #: NumPy that multiplies matrices of half precision in float32, and rounds the products.
    half_xp: Any = half_numpy()
    compiled = COMPILED
    array_type = np.ndarray
    element_cost = 1.0

    @property
    def cache_limit(self) -> int:
        """The most bytes that are kept for the next large arrays; 256 MiB unless it is set."""
        return POOL.limit

    @cache_limit.setter
    def cache_limit(self, value: int) -> None:
        if value < 0:
            raise ValueError(f"cache_limit: expected a number of bytes, not {value}")
        POOL.limit = value
        POOL.shrink(value)

    def empty_cache(self) -> None:
        """Free the memory that is kept for the next large arrays."""
        POOL.shrink(0)


CPU = CpuDevice("cpu")
