"""Tasks that yield to the loop, or to everything else on it.

A loop does not say how much it has to do, but a turn without other callbacks ends at once. Checking
every turn costs others nothing: a busy loop turns anyway, and the first idle turn ends the wait.
"""

from __future__ import annotations

from asyncio import Future
from asyncio.events import _get_running_loop
from collections import deque
from functools import partial

from asyncgrad.scheduler.host import Host

#: In one turn out of so many no task resumes. anyio cancels tasks that wait, but not those just
#: woken. A task of a short queue is woken in every turn, so if anyio always looks right after that,
#: it would never find the task waiting.
_PAUSE = 16
#: A turn that takes longer, about the time of a few small callbacks, was not idle.
_NOTHING_NS = 50_000
#: On a loop that is never idle, one task resumes after this many slices.
_PATIENCE = 20


class _Waiting:
    """Tasks that wait, in order."""

    def __init__(self) -> None:
        #: For each task, what is done when it may resume.
        self.waiting: deque[Future[None]] = deque()
        #: Whether a callback is scheduled that will resume tasks.
        self._scheduled = False

    def _schedule(self, host: Host) -> None:
        """Schedule that callback."""
        raise NotImplementedError

    def join(self, host: Host) -> Future[None]:
        """A future that is done when it is the caller's turn."""
        if not self._scheduled:
            self._schedule(host)
            self._scheduled = True
        waiting: Future[None] = Future(loop=_get_running_loop())
        self.waiting.append(waiting)
        return waiting

    def _resume(self) -> bool:
        """Resume the next task that was not cancelled; False if there is none."""
        while self.waiting:
            first = self.waiting.popleft()
            if not first.done():
                first.set_result(None)
                return True
        return False


class YieldQueue(_Waiting):
    """Tasks that yield to the loop resume in order, in each turn as many as its budget holds."""

    def __init__(self, visit_ns: int) -> None:
        """Start empty, with a first guess of the time that a resumed task takes."""
        super().__init__()
        self._visit_ns = visit_ns
        self._turns = 0
        #: When tasks were last woken, and when the first of them ran.
        self._admitted_at = self._start = 0

    def _schedule(self, host: Host) -> None:
        host.loop.call_soon(self._admit, host)

    def _admit(self, host: Host) -> None:
        """Wake as many tasks as a turn has time for, judging by the time that recent ones took."""
        loop = host.loop
        others, self._admitted_at = self._start - self._admitted_at, host.clock()
        # Less than a slice, as a task woken by a timer waits for three of these turns. The time of
        # other callbacks is deducted, but however busy they are, half of the budget remains.
        budget = host.slice_ns * 5 // 8
        budget -= min(max(0, others), budget // 2)
        loop.call_soon(self._note_start, host)
        count = 0
        # Rounded to the nearest number: a turn may then be too long by the time of half a task.
        most = max(1, (budget + self._visit_ns // 2) // self._visit_ns)
        while count < most and self._resume():
            count += 1
        # Callbacks run in order, so this one runs after the tasks just woken.
        loop.call_soon(partial(self._admitted, host, count))

    def _note_start(self, host: Host) -> None:
        self._start = host.clock()

    def _admitted(self, host: Host, count: int) -> None:
        """Update the time per task, and go on if more tasks wait."""
        if count:
            took = (host.clock() - self._start) // count
            self._visit_ns = max(1_000, (self._visit_ns + took) // 2)
        if self.waiting:
            self._turns += 1
            if self._turns % _PAUSE:
                self._admit(host)
            else:
                host.loop.call_soon(self._admit, host)
        else:
            self._scheduled = False


class IdleQueue(_Waiting):
    """Tasks that yield to everything else: whenever the loop is idle, one of them resumes."""

    def __init__(self) -> None:
        super().__init__()
        #: When `_look` ran last, and when a task resumed last.
        self._last = self._since = 0

    def _schedule(self, host: Host) -> None:
        host.loop.call_soon(self._look, host)
        self._last = self._since = host.clock()

    def _look(self, host: Host) -> None:
        """Resume one task if the last turn was idle, or if all have waited too long."""
        now = host.clock()
        idle = now - self._last < _NOTHING_NS
        resumed = False
        if idle or now - self._since > _PATIENCE * host.slice_ns:
            resumed = self._resume()
            self._since = now
        if not resumed and not self.waiting:
            self._scheduled = False
            return
        host.loop.call_soon(self._look, host)
        # The resumed task runs before the next `_look`. The turn must not count as idle then, even
        # if the task is brief. Otherwise a task that soon waits again would be woken in each turn,
        # and anyio, which cancels only tasks that wait, would never find it waiting.
        # The clock is read again, as in debug mode `call_soon` above takes as long as a callback.
        self._last = now - _NOTHING_NS if resumed else host.clock()
