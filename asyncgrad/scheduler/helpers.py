"""Threads that have nothing to do help the one which owns a pass.

Nobody waits for a thread that has not begun: what is still to be done when the owner needs it, the
owner does itself. So it does not matter how many owners there are.
"""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from asyncgrad.core.states import CHEAP_RUN_NS, FINISHED, RUNNING
from asyncgrad.devices.fp_errors import fp_errors_ignored, restore_fp_errors, without_fp_errors
from asyncgrad.scheduler import blas
from asyncgrad.scheduler.completion import end_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.core.states import Outcome
    from asyncgrad.scheduler.device_queue import Urgency
    from asyncgrad.scheduler.threads import Threads

#: For how long a pass may keep a thread that another of the same urgency waits for, by what its
#: nodes are expected to cost. It is many times what going away and coming back takes.
_SEGMENT_NS = 4_000_000


class _Job:
    """Something that is done once, by whoever is first."""

    __slots__ = ("_call", "_done", "_error", "_open", "_result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call: Callable[[], Any] | None = call
        #: Taking what is in here is taking the job.
        self._open = [None]
        self._done: SimpleQueue[None] = SimpleQueue()
        self._result: Any = None
        self._error: BaseException | None = None

    def try_run(self) -> None:
        """Do it, if nobody has begun."""
        try:
            self._open.pop()
        except IndexError:
            return
        call, self._call = self._call, None
        assert call is not None
        for token in fp_errors_ignored:
            try:
                self._result = call()
            except BaseException as error:
                self._error = error
            finally:
                restore_fp_errors(token)
                # Who is told may be faster than this thread, which is to hold nothing then.
                del token, call
            break
        self._done.put(None)

    def result(self) -> Any:
        """What came of it; here it is done if nobody has begun."""
        self.try_run()
        self._done.get()
        result, self._result = self._result, None
        error, self._error = self._error, None
        if error is None:
            return result
        try:
            raise error
        finally:
            del error


class Helpers:
    """Those who help with one segment of a pass."""

    def __init__(self, threads: Threads, urgency: Urgency, suspended: int) -> None:
        """Nobody helps yet.

        Args:
            threads: who may.
            urgency: that of the pass.
            suspended: how many of its nodes the loop knows of that have no room to wait.
        """
        self._threads = threads
        self._urgency = urgency
        self._suspended = suspended
        #: What the expensive nodes cost that the owner has run, in nanoseconds.
        self.spent = 0
        self.splits = blas.single()
        self._lent: deque[_Job] = deque()

    def gives_way(self, cost: int, suspended: int) -> bool:
        """Whether the owner is to leave its thread to the loop or another pass before a node.

        Args:
            cost: the node's.
            suspended: how many nodes of the pass have to be awaited, which the loop alone can do.
        """
        if suspended > self._suspended:
            return True
        waiting = self._threads.most_urgent()
        if waiting is not None and self.spent:
            theirs, ours = waiting[:2], self._urgency[:2]
            if theirs < ours or (theirs == ours and self.spent >= _SEGMENT_NS):
                return True
        self.spent += cost
        return False

    def room(self) -> int:
        """How many threads have nothing to do."""
        return self._threads.idle()

    def lend(self, call: Callable[[], None]) -> None:
        """Have a call run beside the owner."""
        self._lent.append(self._begin(call))

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run calls side by side, the first here, and wait for all."""
        others = [self._begin(call) for call in calls[1:]]
        try:
            first = calls[0]()
        finally:
            # Nothing runs any more when this returns, however it does.
            results = [other.result() for other in others]
        return [first, *results]

    def _begin(self, call: Callable[[], Any]) -> _Job:
        job = _Job(call)
        self._threads.submit(job.try_run, self._urgency)
        return job

    def join(self) -> bool:
        """Wait until the first of what was lent has been done; False if nothing was."""
        if not self._lent:
            return False
        self._lent.popleft().result()
        return True


@without_fp_errors
def run_segment(task: GraphTask, helpers: Helpers) -> Outcome:
    """Run a pass in this thread, from an expensive node to the next cheap ones, or to its end.

    It ends before where another pass is due. When it returns, no other thread has anything to do
    with the pass any more.
    """
    while True:
        outcome = task.run(CHEAP_RUN_NS, thread=True, helpers=helpers)
        if not helpers.join():
            break
    if outcome is FINISHED and task.state is RUNNING and task.is_large():
        # Here and now, and not back on the loop only to come here again.
        end_in_thread(task)
    return outcome
