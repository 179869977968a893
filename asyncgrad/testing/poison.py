"""`poisoned_memory`: finds reads of uninitialised and freed memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asyncgrad.devices.pool import POOL, Pool
from asyncgrad.ops.namespace import forget_records

#: NumPy may return results of up to this many bytes as scalars, which own no memory.
_SCALAR = 8


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Find reads of uninitialised and freed memory in tests; it affects the whole process.

    Memory from the pool is filled with NaN, or -1 for integers, before its first use and as soon as
    the last array in it is freed. Within this context, results of small tensors use the pool, too.

    Example:
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
