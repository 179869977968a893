"""Those who give way to all others: one goes on in each turn in which the loop has nothing to do.

A loop does not say how much it has to do, but a turn without other callbacks ends at once. Looking
at one after the other costs nobody anything: a loop that is busy turns anyway, and the first turn
that is not ends the wait.
"""

from __future__ import annotations

from asyncio import Future
from asyncio.events import _get_running_loop
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine

#: A turn in which something else happened takes longer: that is a few small callbacks.
_NOTHING_NS = 50_000
#: The longest wait on a loop that never rests, in slices: then one in so many is theirs.
_PATIENCE = 20


class IdleQueue:
    """What one engine knows of its loop's rest."""

    def __init__(self) -> None:
        """Nobody waits."""
        self.waiting: deque[Future[None]] = deque()
        self._looking = False
        #: When it looked last, and when somebody went on last.
        self._last = self._since = 0

    def join(self, engine: Engine) -> Future[None]:
        """What becomes done when it is the caller's turn."""
        waiting: Future[None] = Future(loop=_get_running_loop())
        self.waiting.append(waiting)
        if not self._looking:
            self._looking = True
            engine.loop.call_soon(self._look, engine)
            self._last = self._since = engine.clock()
        return waiting

    def _look(self, engine: Engine) -> None:
        """Let one go on if nothing has happened since the last turn, or for too long."""
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
        # What has just been woken runs before that does, and counts as what happened however brief
        # it is: anyio cancels who waits, not who has been woken, and must find it waiting.
        # Not `now`: in debug mode the line above takes as long as a callback does.
        self._last = now - _NOTHING_NS if goes_on else engine.clock()
