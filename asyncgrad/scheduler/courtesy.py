"""A busy loop lets threads have the interpreter now and then.

A loop that always has something to do lets go of the interpreter's lock in each of its turns, but
so briefly that a thread which waits for it mostly comes too late, and its wait begins anew: seconds
can pass. So while threads work for an engine and its loop is busy, the loop stops for a moment, in
which one that waits gets its turn.
"""

from __future__ import annotations

# Bound here: it is no oversight that this blocks.
from time import perf_counter, sleep, thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine

#: Seconds between two moments while the loop is busy, and between two looks whether it is.
_OFTEN = 0.000_5
_SELDOM = 0.004
#: How long a thread needs to wake up.
_MOMENT = 0.000_05
#: The part of its time that a busy loop computes.
_BUSY = 0.5


class Courtesy:
    """The one of one engine."""

    def __init__(self) -> None:
        """Nobody works."""
        self._active = False
        self._wall = self._used = 0.0

    def begin(self, engine: Engine) -> None:
        """A thread begins to work."""
        if not self._active:
            self._active = True
            self._note()
            engine.loop.call_later(_SELDOM, self._look, engine)

    def _note(self) -> None:
        self._wall, self._used = perf_counter(), thread_time()

    def _look(self, engine: Engine) -> None:
        """Give way if the loop is busy, until no thread works any more."""
        if engine.closed or not engine.away.threads.busy():
            self._active = False
            return
        wall, used = self._wall, self._used
        self._note()
        busy = self._used - used > _BUSY * (self._wall - wall)
        if busy:
            sleep(_MOMENT)
        engine.loop.call_later(_OFTEN if busy else _SELDOM, self._look, engine)
