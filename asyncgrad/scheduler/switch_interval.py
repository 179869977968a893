"""A shorter switch interval while an engine's threads work, so that they get the GIL soon.

A thread releases the GIL in each larger array function. To get it back from a busy loop, the thread
waits for the switch interval, 5 ms by default, and then requests it. But whenever the loop releases
the GIL for a moment, the loop has it back before the thread has woken up, and the thread's wait
begins again. With a shorter interval the thread makes its request before that happens. The loop,
too, gets the GIL back sooner.
"""

from __future__ import annotations

import sys

from asyncgrad.core.locks import Shared

#: In seconds; Python's default is 0.005.
INTERVAL = 0.000_1

#: The interval before it was shortened.
_usual: float | None = None


def _shorten() -> None:
    """Shorten the interval, unless the user's is as short."""
    global _usual
    _usual = sys.getswitchinterval()
    if _usual > INTERVAL:
        sys.setswitchinterval(INTERVAL)


def _restore() -> None:
    """Restore the interval, unless the user has changed it."""
    global _usual
    if _usual is not None and abs(sys.getswitchinterval() - INTERVAL) < 1e-6:
        # Python truncates to microseconds, so half of one is added against rounding errors.
        sys.setswitchinterval(_usual + 5e-7)
    _usual = None


#: An engine shortens the interval while its threads work.
short = Shared(_shorten, _restore)
