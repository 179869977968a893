"""Locks, all that the graph needs of `threading`; and how to acquire one if signals may arrive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from threading import Lock

__all__ = ["Lock", "acquiring", "lasting_lock"]


def lasting_lock() -> Lock:
    """A lock for as long as the process lives; a forked child reinitializes it as free.

    The thread that held it does not exist in the child, and so could never release it.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):
        # The standard library does the same with its own locks.
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


def acquiring(lock: Lock, wait: bool) -> Iterator[bool]:
    """An endless iterator that tries to acquire the lock each time it is advanced.

    Python handles signals after a call: if a handler raises when `acquire` has just returned, the
    lock is never released. After a step of a `for` loop Python handles none, so a `try` at the
    start of the body is in time. `with` is safe, too, but always blocks.

    Yields:
        True each time the lock was acquired; without `wait` False where another thread has it.
    """
    # `iter` stops at its second argument, which `acquire` never returns here: so it is endless.
    return iter(lock.acquire, False) if wait else iter(partial(lock.acquire, False), None)
