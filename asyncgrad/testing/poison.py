"""Memory that is NaN unless somebody has set it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from asyncgrad.devices.pool import POOL, Pool
from asyncgrad.ops.namespace import forget_records

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Functions may return an element of so many bytes as a scalar, which has no memory.
_SCALAR = 8


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Find reads of memory that belongs to nobody: a tool for tests, for the whole process.

    Memory that is lent is NaN until it is set, -1 in integers, and NaN again as soon as the last
    array in it is gone. Results of small tensors that are made within this context lie there, too.

    Example:
        >>> import asyncgrad as ag
        >>> from asyncgrad.testing import poisoned_memory
        >>> with poisoned_memory():
        ...     pairs = (ag.ones(3) * 2).unfold(0, 2, 1)
        ...     pairs.tolist()
        [[2.0, 2.0], [2.0, 2.0]]
    """
    before = Pool.large, Pool.poison
    Pool.large, Pool.poison = _SCALAR + 1, True
    forget_records()
    POOL.shrink(0)
    try:
        yield
    finally:
        Pool.large, Pool.poison = before
        forget_records()
