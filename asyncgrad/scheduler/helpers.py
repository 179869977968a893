"""Idle threads help the thread that owns a pass.

The owner never waits for a thread that has not begun: it does the work itself if it is still to be
done when needed. So any number of owners can share the threads without a deadlock.
"""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from asyncgrad.core.states import CHEAP_RUN_NS, FINISHED, RUNNING
from asyncgrad.devices import pieces
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.scheduler.completion import end_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.core.states import Outcome
    from asyncgrad.scheduler.device_queue import Urgency
    from asyncgrad.scheduler.threads import Threads

#: How long a pass may keep its thread while another of the same urgency waits: the expected cost of
#: its nodes. It is many times the cost of moving to the loop and back.
_SEGMENT_NS = 4_000_000


class _Job:
    """A call that is made once, by the thread that claims it first."""

    __slots__ = ("_call", "_done", "_error", "_open", "_result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call: Callable[[], Any] | None = without_fp_errors(call)
        #: Popping the entry claims the job.
        self._open = [None]
        self._done: SimpleQueue[None] = SimpleQueue()
        self._result: Any = None
        self._error: BaseException | None = None

    def try_run(self) -> None:
        """Make the call, unless it is claimed."""
        try:
            self._open.pop()
        except IndexError:
            return
        call, self._call = self._call, None
        assert call is not None
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        finally:
            # The owner may continue before this thread does, so drop all references first.
            del call
        self._done.put(None)

    def result(self) -> Any:
        """The outcome of the call; makes it here if it is unclaimed."""
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
    """The threads that help with one segment of a pass."""

    def __init__(self, threads: Threads, urgency: Urgency, suspended: int) -> None:
        """Start with none.

        Args:
            threads: the engine's threads.
            urgency: the urgency of the pass.
            suspended: how many of its nodes were already waiting for room among coroutine nodes.
        """
        self._threads = threads
        self._urgency = urgency
        self._suspended = suspended
        #: Nanoseconds of expected cost of the expensive nodes that the owner has run.
        self.spent = 0
        self._lent: deque[_Job] = deque()

    def gives_way(self, cost: int, suspended: int) -> bool:
        """Whether the owner should leave its thread to the loop or another pass before a node.

        Args:
            cost: the node's expected cost.
            suspended: how many nodes of the pass have to be awaited, which only the loop can do.
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
        """How many threads are idle."""
        return self._threads.idle()

    def splits(self) -> bool:
        """Whether the parts of one node may go to different threads, too."""
        return pieces.threads > 1 and self._threads.spare() > 0

    def lend(self, call: Callable[[], None]) -> None:
        """Run a call in another thread; `join` waits for it."""
        self._lent.append(self._begin(call))

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run calls in parallel, the first in this thread, and wait for all."""
        others = [self._begin(call) for call in calls[1:]]
        try:
            first = calls[0]()
        finally:
            # Also if the first call raises: no call may still run when this returns.
            results = [other.result() for other in others]
        return [first, *results]

    def _begin(self, call: Callable[[], Any]) -> _Job:
        job = _Job(call)
        self._threads.submit(job.try_run, self._urgency)
        return job

    def join(self) -> bool:
        """Wait until the first of the lent calls is done; False if there is none."""
        if not self._lent:
            return False
        self._lent.popleft().result()
        return True


@without_fp_errors
def run_segment(task: GraphTask, helpers: Helpers) -> Outcome:
    """Run a pass in this thread, from an expensive node to the next cheap ones, or to its end.

    It ends earlier if another pass is due. When it returns, no other thread works on the pass.
    """
    while True:
        outcome = task.run(CHEAP_RUN_NS, thread=True, helpers=helpers)
        if not helpers.join():
            break
    if outcome is FINISHED and task.state is RUNNING and task.is_large():
        # Commit here at once: the loop would only send the pass back to a thread for it.
        end_in_thread(task)
    return outcome
