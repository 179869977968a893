"""Tasks that yield to everything else: one resumes in each turn in which the loop is idle.

A loop does not say how much it has to do, but a turn without other callbacks ends at once. Checking
every turn costs others nothing: a busy loop turns anyway, and the first idle turn ends the wait.
"""

from __future__ import annotations

from asyncio import Future
from asyncio.events import _get_running_loop
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine

#: A turn that takes longer, about the time of a few small callbacks, was not idle.
_NOTHING_NS = 50_000
#: On a loop that is never idle, one task resumes after this many slices.
_PATIENCE = 20


class IdleQueue:
    """The tasks that wait for one engine's loop to be idle."""

    def __init__(self) -> None:
        """Start empty."""
        self.waiting: deque[Future[None]] = deque()
        self._looking = False
        #: When `_look` ran last, and when a task resumed last.
        self._last = self._since = 0

    def join(self, engine: Engine) -> Future[None]:
        """A future that is done when it is the caller's turn."""
        waiting: Future[None] = Future(loop=_get_running_loop())
        self.waiting.append(waiting)
        if not self._looking:
            self._looking = True
            engine.loop.call_soon(self._look, engine)
            self._last = self._since = engine.clock()
        return waiting

    def _look(self, engine: Engine) -> None:
        """Resume one task if the last turn was idle, or if all have waited too long."""
        now = engine.clock()
        waiting = self.waiting
        while waiting and waiting[0].done():
            waiting.popleft()
        if not waiting:
            self._looking = False
            return
        patience = _PATIENCE * engine.slice_ns
        goes_on = now - self._last < _NOTHING_NS or now - self._since > patience
        if goes_on:
            waiting.popleft().set_result(None)
            self._since = now
        engine.loop.call_soon(self._look, engine)
        # The resumed task runs before the next `_look`, and must count as activity even if it is
        # brief: anyio cancels only waiting tasks, and must find one that soon waits again.
        # Not `now`: in debug mode `call_soon` above takes as long as a callback does.
        self._last = now - _NOTHING_NS if goes_on else engine.clock()
