"""The CPU: NumPy arrays, computed by the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.aliases import Array
from asyncgrad.devices.base import Device
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.devices.plain_numpy import COMPILED, plain_numpy
from asyncgrad.devices.pool import POOL, dot, pooled_numpy


def _in_float32(product: Callable[..., Any]) -> Callable[..., Any]:
    """A product of arrays; those of half precision are multiplied in float32, and it is rounded.

    NumPy adds up such products one by one: that takes some hundred times as long as BLAS.
    """

    # A number that is too large for the dtype becomes infinite without a warning.
    @without_fp_errors
    def rounded(x: Array, y: Array, out: Array | None) -> Any:
        made = product(x.astype(np.float32), y.astype(np.float32))
        if out is None:
            return made.astype(x.dtype)
        out[...] = made
        return out

    def call(x: Array, y: Array, out: Array | None = None) -> Any:
        dtype = x.dtype
        if dtype == y.dtype and dtype.itemsize == 2 and dtype.kind in "fV":
            return rounded(x, y, out)
        return product(x, y) if out is None else product(x, y, out)

    return call


class CpuDevice(Device):
    """NumPy arrays in host memory. Work is done when the call returns, so there are no streams."""

    __slots__ = ()

    xp: Any = plain_numpy()
    #: NumPy that keeps large results in memory from a pool.
    pooled_xp: Any = pooled_numpy()
    half_xp: Any = plain_numpy(dot=_in_float32(dot), matmul=_in_float32(np.matmul))
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
