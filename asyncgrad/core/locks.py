"""Locks, all that the graph needs of `threading`; and how to acquire one if signals may arrive.

While a thread holds a lock, the garbage collector may call `__del__` of any object in that thread,
at each allocation, and so may a signal call its handler. If that code needs the same lock, it
can't wait for it. So locks are re-entrant, and code that holds one may be interrupted anywhere by
a call of the same code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock, RLock, get_ident
from typing import Any

__all__ = [
    "Lock", "RLock", "Shared", "acquiring", "at_fork", "get_ident", "is_held_here", "lasting_lock",
]  # fmt: skip


def at_fork(call: Callable[[], object]) -> None:
    """Have each child process call a function first, where processes can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def lasting_lock() -> Any:
    """A lock for as long as the process lives; a forked child reinitializes it as free.

    The thread that held it does not exist in the child, and so could never release it.
    """
    lock = RLock()
    # The standard library does the same with its own locks.
    at_fork(lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


class Shared:
    """A setting of the process that is in force while somebody needs it; a fork ends it."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Keep how to set it, and how to set what was before; nobody needs it yet."""
        self._begin, self._end = begin, end
        #: Those that have called `hold`, and not yet `drop`.
        self.holders: set[Any] = set()
        self._in_force = self._is_changing = False
        self.lock = lasting_lock()
        at_fork(self.after_fork)

    def hold(self, holder: Any) -> None:
        """Set it, if nobody else has."""
        with self.lock:
            self.holders.add(holder)
            self._change()

    def drop(self, holder: Any) -> None:
        """Set what was before, if nobody else needs it; the holder may not have called `hold`."""
        with self.lock:
            try:
                self.holders.discard(holder)
                self._change()
            except BaseException:
                # An interrupt, perhaps in the midst of `end`: nobody would call that again.
                self._change()
                raise

    def _change(self) -> None:
        """Set it, or what was before, as the holders need it now."""
        if self._is_changing:
            # The call that this one interrupts will see what is needed. If `begin` were called in
            # the midst of `end`, it would take the setting itself for what was before.
            return
        self._is_changing = True
        try:
            while self._in_force != bool(self.holders):
                if self._in_force:
                    self._end()
                    self._in_force = False
                else:
                    self._in_force = True
                    self._begin()
        finally:
            self._is_changing = False

    def after_fork(self) -> None:
        """Set what was before: those who needed it are the parent's."""
        self.holders.clear()
        self._in_force = self._is_changing = False
        self._end()


def is_held_here(lock: Any) -> bool:
    """Whether this thread holds a re-entrant lock."""
    return bool(lock._is_owned())


def acquiring(lock: Any, wait: bool) -> Iterator[bool]:
    """An endless iterator that tries to acquire the lock each time it is advanced.

    Python handles signals after a call: if a handler raises when `acquire` has just returned, the
    lock is never released. After a step of a `for` loop Python handles none, so a `try` at the
    start of the body is in time. `with` is safe, too, but always blocks.

    Yields:
        True each time the lock was acquired; without `wait` False where another thread has it.
    """
    # `iter` stops at its second argument, which `acquire` never returns here: so it is endless.
    return iter(lock.acquire, False) if wait else iter(partial(lock.acquire, False), None)
