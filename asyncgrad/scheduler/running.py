"""Runs the passes of an event loop: accepts them, and gives them turns.

The caller of a pass runs its first slice, so that a small pass is finished at once. All callers
share one budget for each turn of the loop. What is left of a pass goes to the device's queue, from
which a worker coroutine takes one pass after the other and runs a slice of each. If the slice has
no time left for an expensive node, a thread takes the pass over until cheap nodes follow.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from functools import partial
from typing import Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.node import name_of
from asyncgrad.core.states import (
    DRAINING,
    FINISHED,
    HEAVY,
    MORE,
    WAITING,
    Ended,
    Outcome,
    Suspended,
)
from asyncgrad.devices import pieces
from asyncgrad.devices.fp_errors import fp_errors_ignored, restore_fp_errors
from asyncgrad.scheduler.completion import deadline_error, is_stop, stopped_by
from asyncgrad.scheduler.coroutines import CoroutineNodes, discard_all
from asyncgrad.scheduler.future import BackwardFuture
from asyncgrad.scheduler.host import call_at
from asyncgrad.scheduler.queues import Admission, DeviceQueue
from asyncgrad.scheduler.resolution import Resolution
from asyncgrad.scheduler.segments import ThreadSegments, retrieve
from asyncgrad.scheduler.walk_budget import LONG, SHORT_NS, WALK_NS, cost_of, share_of, steps_of
from asyncgrad.scheduler.worker import Worker

#: How much a caller's first slice may overdraw the rest of a turn. A turn's budget is less than a
#: slice by this much.
_OVERDRAFT_NS = 100_000
#: If only one pass waits, and the slice that has just run was more than this many times as long as
#: the rest of the pass, the rest runs at once: a new turn would cost more than it brings.
_REST = 3


class RunningPasses(Resolution):
    """The passes of one event loop; `Engine` adds how it begins and ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.queue = DeviceQueue()
        self.passes = self.slices = self.node_count = 0
        self.longest_turn_ns = 0
        self.worker = Worker(self.queue)
        self.admission = Admission(self.live)
        self.thread_segments = ThreadSegments(self.queue)
        # Products on the loop's own thread are shared, too.
        pieces.here.lender = self.thread_segments.threads
        self.nodes = CoroutineNodes()
        self._turn_open = False
        self._turn_start = 0

    # -- passes ---------------------------------------------------------

    def submit(self, task: GraphTask, loop: asyncio.AbstractEventLoop) -> BackwardFuture[Any]:
        """Start a pass; the caller runs its first slice if this turn of the loop has time left.

        A slice may overdraw the turn, so that a pass that is nearly done need not wait for another
        turn; its future then yields to the loop when it is awaited.
        """
        future = task.future = BackwardFuture(self, loop, task, current_task(loop))
        left = self._budget_left(loop)
        if loop.get_debug():
            left = 0
        self.passes += 1
        if self.admission.limit is not None and self.admission.is_full(task):
            self.admission.hold_back(task)
            self.log(task, "waits for other passes to end")
        elif left > _OVERDRAFT_NS:
            self.run_slice(task, left)
        elif left > 0:
            self.spent = True
            self.run_slice(task, _OVERDRAFT_NS)
        else:
            self.enqueue(task)
        if task.future is not None:
            self.live.add(task)
            if task.deadline is not None:
                task.timer = call_at(loop, task.deadline, self._expire, task)
        try:
            return future
        finally:
            # The error refers to a failed node's frame, that frame to this one, and the future to
            # the error. If this frame kept the future, that cycle would keep the graph alive.
            del future

    def _expire(self, task: GraphTask) -> None:
        """End a pass whose deadline has passed."""
        if task.ending or task.future is None:
            return
        self.log(task, "its deadline has passed")
        task.inbox.append(partial(task.fail, deadline_error(task)))
        self._wind_down(task)

    def _wind_down(self, task: GraphTask) -> None:
        """Make a pass end as its inbox says, after everything of it that still runs."""
        self.nodes.stop(self, task)
        if not task.ending:
            self.thread_segments.recall(task)
        self.read_inbox(task)

    def read_inbox(self, task: GraphTask) -> None:
        """Read a pass's inbox now, unless its owner is about to."""
        if task not in self.thread_segments.tasks and not task.running:
            task.drain()
            self._arrange_next(task, task.outcome())

    def _budget_left(self, loop: asyncio.AbstractEventLoop) -> int:
        """The rest of this turn's budget; opens the turn if none is open."""
        now = self.clock()
        budget = self.slice_ns - _OVERDRAFT_NS
        if self._turn_open:
            return budget - (now - self._turn_start)
        self._turn_start = now
        loop.call_soon(self._end_turn)
        # This is set last, so that no interrupt in between leaves a turn open that nothing ends.
        self._turn_open = True
        return budget

    def _end_turn(self) -> None:
        """End a turn of the loop, and start the worker if passes wait."""
        self._turn_open = self.spent = False
        self.longest_turn_ns = max(self.longest_turn_ns, self.clock() - self._turn_start)
        if not self.queue.empty():
            self.worker.start(self)

    def runs_at_once(self, nanoseconds: int) -> bool:
        """Whether a caller may run a pass of this cost itself, now; counts it.

        It may if this turn of the loop has so much of its budget left and nothing limits passes.
        """
        loop = self.loop
        if self.admission.limit is not None or loop.get_debug():
            return False
        if self._budget_left(loop) < nanoseconds:
            return False
        self.passes += 1
        return True

    def overdrawn(self) -> bool:
        """Whether this turn of the loop has used up its budget."""
        return self._budget_left(self.loop) <= 0

    def run_slice(self, task: GraphTask, budget: int) -> None:
        """Run one slice of a pass, and arrange what comes next."""
        self.slices += 1
        waiting = len(task.dependencies)
        if task.walk is not None:
            known = waiting
            if not task.start(steps_of(known, budget) if known else budget // WALK_NS + 1):
                self.enqueue(task)
                return
            waiting = len(task.dependencies)
            self.node_count += waiting + 1
            if waiting > LONG:
                # Charge this slice for the nodes that it walked; some walks start over, hence max.
                budget -= max(0, waiting - known) * WALK_NS
                cost = cost_of(task)
                if cost > SHORT_NS:
                    # In the first slice, too: other passes may be about to start.
                    task.share_ns = share_of(cost)
                    budget = min(budget, task.share_ns)
        task.running = True
        # `without_fp_errors` written out, whose call costs 1 % of a small pass.
        for token in fp_errors_ignored:
            try:
                outcome = task.run(budget)
                if outcome is MORE and self.queue.empty():
                    left = len(task.dependencies)
                    if left * _REST < waiting - left:
                        outcome = task.run(budget // _REST)
            except BaseException as error:
                # `run` handles errors of nodes, so this is an interrupt between two nodes.
                task.fail(error)
                outcome = task.outcome()
            finally:
                restore_fp_errors(token)
                del token
            break
        task.running = False
        if outcome is FINISHED and not task.suspended:
            self._commit(task)
        else:
            # Charge the budget, not the time by the clock, which may include pauses of the garbage
            # collector or the system.
            self.queue.charge(task, budget)
            self._arrange_next(task, outcome)

    def fail_all(self, error: BaseException) -> None:
        """Fail all passes and drop the engine, because the program is being stopped."""
        for task in tuple(self.live):
            if not task.ending:
                if task.future is not None:
                    # Retrieve the error, or asyncio would log it if the future is never awaited.
                    task.future.add_done_callback(retrieve)
                task.inbox.append(partial(task.fail, stopped_by(error)))
                self._wind_down(task)
        self.stop()

    def _arrange_next(self, task: GraphTask, outcome: Outcome) -> None:
        """Arrange what comes after a slice or segment of a pass."""
        if task.state is DRAINING:
            self.nodes.stop(self, task)
            discard_all(task)
            outcome = task.outcome()
        elif task.suspended:
            self.nodes.launch(self, task)
        if outcome is FINISHED:
            self._commit(task)
        elif outcome is MORE:
            self.enqueue(task)
        elif outcome is HEAVY:
            self.thread_segments.send(self, task)

    def admit(self) -> None:
        """Queue passes that the limit has held back, as far as it allows now."""
        for task in self.admission.admitted():
            self.enqueue(task)

    def enqueue(self, task: GraphTask) -> None:
        """Put a pass in the queue, unless it is there."""
        if task.queued:
            return
        task.queued = True
        self.queue.enter(task, self.clock())
        if not self._turn_open:
            self.worker.start(self)

    # -- threads ---------------------------------------------------------

    def returned(
        self, task: GraphTask, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Take a pass back from a thread."""
        self.log(task, "comes back from the thread")
        if error is not None:
            task.fail(error)
        if task.ending:
            self._resolve(task)
            return
        task.drain()
        if outcome is None or outcome is WAITING:
            # Reports that it waited for may have come since the segment ended.
            outcome = task.outcome()
        self._arrange_next(task, outcome)

    # -- coroutine nodes ---------------------------------------------------------

    def node_ended(self, task: GraphTask, suspended: Suspended, ended: Ended) -> None:
        """Take the report of a coroutine node."""
        node, steps, *_ = suspended
        if ended.error is not None and is_stop(ended.error):
            # asyncio has raised the error from the loop. What is left is to end the passes.
            self.fail_all(ended.error)
            ended = Ended(error=stopped_by(ended.error))
        if ended.cancelled:
            task.inbox.append(task.cancel)
        task.inbox.append(partial(task.resume, node, steps, ended.result, ended.error))
        self.log(task, f"{name_of(node)} has ended")
        # The error's traceback will hold this frame, which must not hold the error.
        del suspended, ended, node, steps
        self.read_inbox(task)
