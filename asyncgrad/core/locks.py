"""The one thing of `threading` that the graph needs."""

from __future__ import annotations

import os
from threading import Lock

__all__ = ["Lock", "lasting_lock"]


def lasting_lock() -> Lock:
    """A lock for as long as the process lives; in a forked child nobody holds it.

    The thread that held it was not forked, and would never give it back.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):
        # What the standard library does with its own.
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock
