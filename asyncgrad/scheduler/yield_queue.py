"""Those who give way: they come back in order, in each turn as many as its budget holds."""

from __future__ import annotations

from asyncio import Future
from asyncio.events import _get_running_loop
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine

#: One turn in so many lets nobody in. anyio cancels who waits and leaves alone who has been woken:
#: it may look in each turn just after that, and would never find a short line waiting.
_PAUSE = 16


class YieldQueue:
    """The line before one engine."""

    def __init__(self, visit_ns: int) -> None:
        """Start empty.

        Args:
            visit_ns: a first guess of the time that somebody takes who is let in.
        """
        self.waiting: deque[Future[None]] = deque()
        self._visit_ns = visit_ns
        self._admitting = False
        self._turns = 0
        #: When visitors were last let in, and when the first of them had its turn.
        self._admitted_at = self._start = 0

    def join(self, engine: Engine) -> Future[None]:
        """What becomes done when it is the caller's turn."""
        waiting: Future[None] = Future(loop=_get_running_loop())
        self.waiting.append(waiting)
        if not self._admitting:
            engine.loop.call_soon(self._admit, engine)
            self._admitting = True
        return waiting

    def _admit(self, engine: Engine) -> None:
        """Wake as many as a turn has time for, by what the last ones took, and everybody else."""
        loop = engine.loop
        line = self.waiting
        others, self._admitted_at = self._start - self._admitted_at, engine.clock()
        # A timer's task waits for three of these turns. However busy others are, half of each is
        # for those who give way.
        budget = engine.slice_ns * 5 // 8
        budget -= min(max(0, others), budget // 2)
        loop.call_soon(self._note_start, engine)
        count = 0
        # To the nearest: a turn may last half a visit longer, and is rarely half empty.
        most = max(1, (budget + self._visit_ns // 2) // self._visit_ns)
        while line and count < most:
            first = line.popleft()
            if not first.done():
                first.set_result(None)
                count += 1
        # Runs when they have run: callbacks are served in order.
        loop.call_soon(partial(self._admitted, engine, count))

    def _note_start(self, engine: Engine) -> None:
        self._start = engine.clock()

    def _admitted(self, engine: Engine, count: int) -> None:
        """Those who were woken have had their turn."""
        if count:
            took = (engine.clock() - self._start) // count
            self._visit_ns = max(1_000, (self._visit_ns + took) // 2)
        if self.waiting:
            self._turns += 1
            if self._turns % _PAUSE:
                self._admit(engine)
            else:
                engine.loop.call_soon(self._admit, engine)
        else:
            self._admitting = False
