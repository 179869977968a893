"""While threads work for an engine, they get the interpreter within a tenth of a millisecond.

A thread that has let go of the interpreter's lock (each larger array function does) waits for it
beside a busy loop, by default for 5 ms, and begins to wait anew whenever the loop lets go of it for
a moment: then the loop is back before the thread has woken up. With a shorter interval it asks for
the lock before that happens. The loop itself gets it back sooner, too.
"""

from __future__ import annotations

import os
import sys

from asyncgrad.core.locks import lasting_lock

#: Seconds; what is usual is 0.005.
INTERVAL = 0.000_1

#: How many engines have threads that work, and what the interval was before.
_holders = 0
_usual: float | None = None
_lock = lasting_lock()


class SwitchInterval:
    """What one engine wants."""

    __slots__ = ("_closed", "_working")

    def __init__(self) -> None:
        """Nobody works."""
        self._working = 0
        self._closed = False

    def begin(self) -> None:
        """A job is given to a thread."""
        if not self._closed:
            self._working += 1
            if self._working == 1:
                _hold()

    def end(self) -> None:
        """The loop has been told of its end."""
        if not self._closed:
            self._working -= 1
            if not self._working:
                _let_go()

    def close(self) -> None:
        """What still works does so as it can."""
        if self._working and not self._closed:
            _let_go()
        self._closed = True


def _hold() -> None:
    """Shorten the interval, unless the user's is as short."""
    global _holders, _usual
    with _lock:
        _holders += 1
        if _holders == 1:
            _usual = sys.getswitchinterval()
            if _usual > INTERVAL:
                sys.setswitchinterval(INTERVAL)


def _let_go() -> None:
    """Put it back, if nobody else wants it short and nobody has changed it meanwhile."""
    global _holders
    with _lock:
        _holders -= 1
        if not _holders:
            _restore()


def _restore() -> None:
    global _usual
    if _usual is not None and abs(sys.getswitchinterval() - INTERVAL) < 1e-6:
        # Python cuts what is less than a microsecond off, which may be an error of rounding.
        sys.setswitchinterval(_usual + 5e-7)
    _usual = None


def _after_fork() -> None:
    """The threads that worked are the parent's."""
    global _holders
    _holders = 0
    _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
