"""A pool of pinned host memory.

Pinned memory, which a device reads and writes directly, is slow to allocate, so it is reused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.aliases import Array
from asyncgrad.devices.pool import Lease, Pool

#: Block sizes are this many bytes times a power of two.
_SMALLEST = 512


def _rounded(size: int) -> int:
    """The size of the block for a number of bytes."""
    return max(_SMALLEST, 1 << (size - 1).bit_length())


def pinned_pool(allocate: Callable[[tuple[int], Any], Any]) -> Pool:
    """Make a pool of pinned memory, which `allocate` makes of a shape and dtype."""
    return Pool(allocate, _rounded, pinned=True)


def is_pinned(array: Array) -> bool:
    """Whether a host array is in pinned memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, Lease) and array.pool.pinned
