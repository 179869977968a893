"""Pinned host memory that is used again.

Memory that a device copies from and to by itself is slow to allocate. The pool lends blocks of it;
a block comes back when the last array that looks at it is gone.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

#: Blocks are of these many bytes times a power of two.
_SMALLEST = 512


class PinnedBlock(np.ndarray[Any, Any]):
    """Pinned memory. A class of its own, so that NumPy keeps leases between it and arrays."""


class _Lease(np.ndarray[Any, Any]):
    """A view of a block; the arrays made on it keep it alive, and it gives the block back."""

    pool: PinnedPool | None = None

    def __del__(self) -> None:
        """No array looks at the block any more."""
        if self.pool is not None:
            self.pool.give_back(self.base)


class PinnedPool:
    """Pinned blocks by size.

    Args:
        allocate: makes pinned memory of a shape and dtype.
        limit: so many unused bytes are kept at most.
    """

    def __init__(
        self, allocate: Callable[[tuple[int, ...], Any], Any], limit: int = 256 * 1024 * 1024
    ) -> None:
        """Start empty."""
        self._allocate = allocate
        self.limit = limit
        #: Bytes of unused blocks, and how many blocks have been made.
        self.unused = self.made = 0
        self._blocks: dict[int, list[Any]] = {}

    def take(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An array in pinned memory whose elements are not set."""
        dtype = np.dtype(dtype)
        size = max(_SMALLEST, 1 << (prod(shape) * dtype.itemsize - 1).bit_length())
        try:
            block = self._blocks[size].pop()
            self.unused -= size
        except (KeyError, IndexError):
            block = self._allocate((size,), np.uint8).view(PinnedBlock)
            self.made += 1
        lease = block.view(_Lease)
        lease.pool = self
        return np.ndarray(shape, dtype, lease)

    def give_back(self, block: Any) -> None:
        """Keep a block for later, if there is room."""
        if self.unused + block.nbytes <= self.limit:
            self.unused += block.nbytes
            self._blocks.setdefault(block.nbytes, []).append(block)


def is_pinned(array: Any) -> bool:
    """Whether a host array lies in pinned memory."""
    while array is not None:
        if isinstance(array, PinnedBlock):
            return True
        array = getattr(array, "base", None)
    return False
