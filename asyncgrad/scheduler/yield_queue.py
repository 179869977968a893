"""Tasks that yield to the loop: they resume in order, in each turn as many as its budget holds."""

from __future__ import annotations

from asyncio import Future
from asyncio.events import _get_running_loop
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine

#: In one turn in `_PAUSE` no task resumes. anyio cancels waiting tasks but not ones just woken. If
#: it checks in each turn right after the wake-up, it would never find a task of a short queue.
_PAUSE = 16


class YieldQueue:
    """The tasks that have yielded on one engine's loop."""

    def __init__(self, visit_ns: int) -> None:
        """Start empty.

        Args:
            visit_ns: a first guess of the time that a resumed task takes.
        """
        self.waiting: deque[Future[None]] = deque()
        self._visit_ns = visit_ns
        self._admitting = False
        self._turns = 0
        #: When tasks were last woken, and when the first of them ran.
        self._admitted_at = self._start = 0

    def join(self, engine: Engine) -> Future[None]:
        """A future that is done when it is the caller's turn."""
        waiting: Future[None] = Future(loop=_get_running_loop())
        self.waiting.append(waiting)
        if not self._admitting:
            engine.loop.call_soon(self._admit, engine)
            self._admitting = True
        return waiting

    def _admit(self, engine: Engine) -> None:
        """Wake as many tasks as a turn has time for, judging by the time that recent ones took."""
        loop = engine.loop
        line = self.waiting
        others, self._admitted_at = self._start - self._admitted_at, engine.clock()
        # Less than a slice, as a task woken by a timer waits for three of these turns. The time of
        # other callbacks is deducted, but however busy they are, half of the budget remains.
        budget = engine.slice_ns * 5 // 8
        budget -= min(max(0, others), budget // 2)
        loop.call_soon(self._note_start, engine)
        count = 0
        # Rounded: a turn may be half a visit too long, and is rarely half empty.
        most = max(1, (budget + self._visit_ns // 2) // self._visit_ns)
        while line and count < most:
            first = line.popleft()
            if not first.done():
                first.set_result(None)
                count += 1
        # Callbacks run in order, so this one runs after the tasks just woken.
        loop.call_soon(partial(self._admitted, engine, count))

    def _note_start(self, engine: Engine) -> None:
        self._start = engine.clock()

    def _admitted(self, engine: Engine, count: int) -> None:
        """Update the time per task, and go on if more tasks wait."""
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
