"""The one thing of `threading` that the graph needs, and how no signal leaves it taken."""

from __future__ import annotations

import os
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Lock", "acquiring", "lasting_lock"]


def lasting_lock() -> Lock:
    """A lock for as long as the process lives; in a forked child nobody holds it.

    The thread that held it was not forked, and would never give it back.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):
        # What the standard library does with its own.
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


def acquiring(lock: Lock, wait: bool) -> Iterator[bool]:
    """What takes a lock whenever it is asked for its next value, without an end.

    After a call Python looks for signals: a handler that raises just when `acquire` has returned
    leaves a lock that nobody gives back. After the step of a `for` it does not, so that a `try`
    that begins there is in time. `with` is, too, but always waits.

    Returns:
        True each time it was taken; without `wait` False where another thread has it.
    """
    # Each is asked until the lock answers with the second, which it never does.
    return iter(lock.acquire, False) if wait else iter(partial(lock.acquire, False), None)
