"""Pinned host memory that is used again.

Memory that a device copies from and to by itself is slow to allocate, so a pool lends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices.pool import Lease, Pool

if TYPE_CHECKING:
    from collections.abc import Callable

#: Blocks are of these many bytes times a power of two.
_SMALLEST = 512


def _rounded(size: int) -> int:
    """The size of the block for so many bytes."""
    return max(_SMALLEST, 1 << (size - 1).bit_length())


def pinned_pool(allocate: Callable[[tuple[int], Any], Any]) -> Pool:
    """A pool of pinned memory.

    Args:
        allocate: makes such memory of a shape and dtype.
    """
    return Pool(allocate, _rounded, pinned=True)


def is_pinned(array: Any) -> bool:
    """Whether a host array lies in pinned memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, Lease) and array.pool.pinned
