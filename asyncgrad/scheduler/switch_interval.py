"""A shorter switch interval while an engine's threads work, so that they get the GIL soon.

A thread releases the GIL in each larger array function. To get it back from a busy loop, the thread
waits for the switch interval, 5 ms by default, and then requests it. But whenever the loop releases
the GIL for a moment, the loop has it back before the thread has woken up, and the thread's wait
begins again. With a shorter interval the thread makes its request before that happens. The loop,
too, gets the GIL back sooner.
"""

from __future__ import annotations

import os
import sys

from asyncgrad.core.locks import lasting_lock

#: In seconds; Python's default is 0.005.
INTERVAL = 0.000_1

#: How many engines have working threads, and the interval before.
_holders = 0
_usual: float | None = None
_lock = lasting_lock()


class SwitchInterval:
    """The request of one engine for a short interval."""

    __slots__ = ("_closed", "_working")

    def __init__(self) -> None:
        self._working = 0
        self._closed = False

    def begin(self) -> None:
        """Note that a job was given to a thread."""
        if not self._closed:
            self._working += 1
            if self._working == 1:
                _hold()

    def end(self) -> None:
        """Note, on the loop, that a job has ended."""
        if not self._closed:
            self._working -= 1
            if not self._working:
                _let_go()

    def close(self) -> None:
        """Withdraw the request, even if threads still work."""
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
    """Restore the interval, if no other engine needs it short and the user has not changed it."""
    global _holders
    with _lock:
        _holders -= 1
        if not _holders:
            _restore()


def _restore() -> None:
    global _usual
    if _usual is not None and abs(sys.getswitchinterval() - INTERVAL) < 1e-6:
        # Python truncates to microseconds, so half of one is added against rounding errors.
        sys.setswitchinterval(_usual + 5e-7)
    _usual = None


def _after_fork() -> None:
    """Restore the interval in a child process: the working threads are the parent's."""
    global _holders
    _holders = 0
    _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
