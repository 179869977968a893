"""Idle threads help the thread that owns a pass.

The owner never waits for a thread that has not begun. If the owner needs the result of such work,
it does the work itself. So any number of owners can share the threads without a deadlock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import CHEAP_RUN_NS, FINISHED, Outcome
from asyncgrad.devices import pieces
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.scheduler.completion import finish
from asyncgrad.scheduler.queues import Urgency
from asyncgrad.scheduler.threads import Threads

#: How long a pass may keep its thread while another of the same urgency waits: the expected cost of
#: its nodes. It is many times the cost of moving to the loop and back.
_SEGMENT_NS = 4_000_000


class Helpers:
    """The threads that help with one segment of a pass."""

    def __init__(self, threads: Threads, urgency: Urgency, suspended: int) -> None:
        self._threads = threads
        self._urgency = urgency
        #: How many nodes of the pass were already waiting for room among coroutine nodes.
        self._suspended = suspended
        #: Nanoseconds of expected cost of the expensive nodes that the owner has run.
        self.spent = 0
        #: Lent calls that no thread has taken; popping one claims it.
        self._open: deque[Callable[[], None]] = deque()
        #: One entry for each lent call that has ended, and how many `join` has to wait for.
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._lent = 0
        #: One entry for each thread that helps, or will.
        self._helping: list[None] = []

    def gives_way(self, cost: int, suspended: int) -> bool:
        """Whether the owner should leave its thread to the loop or another pass before a node."""
        if suspended > self._suspended:
            return True
        if self.spent:
            if self._threads.closed:
                # The end of the process waits for the thread, or the loop has to run the segment.
                return True
            waiting = self._threads.most_urgent()
            if waiting is not None:
                theirs, ours = waiting[:2], self._urgency[:2]
                if theirs < ours or (theirs == ours and self.spent >= _SEGMENT_NS):
                    return True
        self.spent += cost
        return False

    def room(self) -> int:
        """How many calls may be lent: one for each idle thread, and one ahead for each helper."""
        return max(0, self._threads.idle() + len(self._helping) - len(self._open))

    def splits(self) -> bool:
        """Whether the parts of one node may go to different threads, too."""
        return pieces.threads > 1 and bool(self._helping or self._threads.spare())

    def lend(self, call: Callable[[], None], *, part: bool = False) -> None:
        """Run a call, which must not raise, in another thread; `join` waits for it.

        If more calls wait than there are helpers, this thread makes the oldest of them at once.
        """
        self._lent += 1
        self._open.append(call)
        if self._threads.spare() if part else self._threads.idle():
            self._helping.append(None)
            self._threads.submit(self._help, self._urgency)
        while len(self._open) > len(self._helping) > 0:
            self._make_next()

    @without_fp_errors
    def _help(self) -> None:
        """Make lent calls in another thread, until none is left or other work waits for it."""
        while self._make_next() and self._threads.most_urgent() is None:
            pass
        self._helping.pop()

    def _make_next(self) -> bool:
        """Make the next lent call; False if there is none."""
        try:
            call = self._open.popleft()
        except IndexError:
            return False
        call()
        # The owner may continue before this thread does, so drop all references first.
        del call
        self._ended.put(None)
        return True

    def join(self) -> bool:
        """Wait until a lent call has ended; False if there is none."""
        if not self._lent:
            return False
        self._make_next()
        self._ended.get()
        self._lent -= 1
        return True


@without_fp_errors
def run_segment(task: GraphTask, helpers: Helpers) -> Outcome:
    """Run a pass in this thread, from an expensive node to the next cheap ones, or to its end.

    It ends earlier if another pass is due. When it returns, no other thread works on the pass.
    """
    while True:
        outcome = task.run(CHEAP_RUN_NS, helpers)
        if not helpers.join():
            break
    if outcome is FINISHED and (task.revoke is not None or task.is_large()):
        # Commit a large pass here: the loop would only send it back to a thread. Where gradients
        # have been added before callbacks, others may add to the same leaves before the loop ends
        # the pass: if it was cancelled by then, the leaves could not be made as before.
        outcome = finish(task, True)
    return outcome
