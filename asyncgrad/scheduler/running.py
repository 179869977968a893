"""Runs the passes of an event loop: gives them turns, commits them, and resolves their futures.

The caller of a pass runs its first slice, so that a small pass is finished at once. What is left of
a pass goes to the device's queue, from which a worker coroutine takes one pass after the other and
runs a slice of each. If the slice has no time left for an expensive node, a thread takes the pass
over until cheap nodes follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from asyncgrad.aliases import Value
from asyncgrad.core.commit_turns import Place, leave_line, line_up, when_free
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.node import name_of
from asyncgrad.core.states import (
    DONE,
    DRAINING,
    ENDED,
    FINISHED,
    HEAVY,
    MORE,
    WAITING,
    Outcome,
    Suspended,
)
from asyncgrad.devices import pieces
from asyncgrad.devices.fp_errors import fp_errors_ignored, restore_fp_errors
from asyncgrad.devices.waiting import tell_loop
from asyncgrad.errors import add_note, is_stop
from asyncgrad.scheduler.completion import (
    as_failure,
    ask_to_end,
    contained,
    expire,
    finish,
    stopped_by,
)
from asyncgrad.scheduler.coroutines import CoroutineNodes, discard_all
from asyncgrad.scheduler.future import resolve
from asyncgrad.scheduler.host import Host
from asyncgrad.scheduler.participants import conclude
from asyncgrad.scheduler.queues import Admission, PassQueue
from asyncgrad.scheduler.segments import ThreadSegments, retrieve
from asyncgrad.scheduler.walk_budget import LONG, WALK_NS, share_of, steps_of
from asyncgrad.scheduler.worker import Worker

#: If only one pass waits, and the slice that has just run was more than this many times as long as
#: the rest of the pass, the rest runs at once: a new turn would cost more than it brings.
_REST = 3


class RunningPasses(Host):
    """The passes of one event loop; `Engine` adds how they begin, and its own begin and end."""

    #: Passes may start in this turn of the loop, and share its budget. When it ends, the worker
    #: starts if passes wait.
    turn_open = False
    #: Stops for good, because the program is being stopped.
    stop: Callable[[], None]
    #: Notes that no pass is left.
    _note_empty: Callable[[], None]

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.queue = PassQueue()
        self.worker = Worker(self.queue)
        self.admission = Admission(self.live)
        self.thread_segments = ThreadSegments(self.queue)
        # Products on the loop's own thread are shared, too.
        pieces.here.lender = self.thread_segments.threads
        self.coroutine_nodes = CoroutineNodes()
        #: The places in line to commit of passes that have found another pass at it.
        self._places: dict[GraphTask, Place] = {}
        #: For each pass with participants that is ending: what awaits them.
        self._concluding: dict[GraphTask, asyncio.Task[None]] = {}

    # -- turns ---------------------------------------------------------

    def read_inbox(self, task: GraphTask) -> None:
        """Read a pass's inbox now, unless its owner is about to."""
        if task not in self.thread_segments.tasks and not task.running:
            task.read_inbox()
            self._arrange_next(task, task.take_last_steps())

    def run_slice(self, task: GraphTask, budget: int) -> None:
        """Run one slice of a pass, and arrange what comes next."""
        self.counts["slices"] += 1
        waiting = len(task.dependencies)
        if task.walk is not None:
            known = waiting
            try:
                walked = task.start(steps_of(known, budget) if known else budget // WALK_NS + 1)
            except BaseException as error:
                # An interrupt. The walk can't go on, because it may have lost a node.
                task.fail(error)
                self._arrange_next(task, MORE)
                return
            if not walked:
                self.enqueue(task)
                return
            waiting = len(task.dependencies)
            self.counts["nodes"] += waiting + 1
            if waiting > LONG:
                # Charge this slice for the nodes that it walked; some walks start over, hence max.
                budget -= max(0, waiting - known) * WALK_NS
                share = share_of(task)
                if share:
                    # In the first slice, too: other passes may be about to start.
                    task.share_ns = share
                    budget = min(budget, share)
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
                outcome = task.take_last_steps()
            finally:
                restore_fp_errors(token)
                del token
            break
        task.running = False
        if outcome is FINISHED:
            self._finish(task)
        else:
            # Charge the budget, not the time by the clock, which may include pauses of the garbage
            # collector or the system.
            self.queue.charge(task, budget)
            self._arrange_next(task, outcome)

    def _arrange_next(self, task: GraphTask, outcome: Outcome) -> None:
        """Arrange what comes after a slice or segment of a pass."""
        if task.state is DRAINING:
            self.coroutine_nodes.stop(self, task)
            discard_all(task)
            outcome = task.take_last_steps()
        elif task.suspended:
            self.coroutine_nodes.launch(self, task)
        if outcome is FINISHED:
            self._finish(task)
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
        if task not in self.queue:
            self.queue.enter(task, self.clock())
            if not self.turn_open:
                self.worker.start(self)

    # -- ending ---------------------------------------------------------

    def _expire(self, task: GraphTask) -> None:
        """End a pass whose deadline has passed."""
        if task.ending:
            # It has ended, or is about to.
            return
        self.log(task, "its deadline has passed")
        expire(task)
        self._end_early(task)

    def cancel(self, task: GraphTask) -> bool:
        """Ask a pass to drain; its future ends when nothing of it runs any more.

        False if it is too late, because a thread commits the pass.
        """
        if not task.cancelling:
            if not ask_to_end(task):
                return False
            task.cancelling = True
            self.log(task, "is cancelled")
        self._end_early(task)
        return True

    def _end_early(self, task: GraphTask) -> None:
        """Make a pass end as its inbox says, after everything of it that still runs."""
        self.coroutine_nodes.stop(self, task)
        if not task.ending:
            self.thread_segments.withdraw(task)
        self.read_inbox(task)

    def _finish(self, task: GraphTask) -> None:
        """End a pass that has run, and resolve its future; or arrange what has to come before."""
        if task.ending:
            return
        outcome = finish(task, False)
        if outcome is FINISHED:
            self._resolve(task)
        elif outcome is WAITING:
            self._places[task] = line_up(self._places.get(task))
            when_free(partial(tell_loop, self.loop, self.read_inbox, task))
        else:
            self._arrange_next(task, outcome)

    def _start_conclusion(self, task: GraphTask) -> None:
        """Let participants decide on a pass and learn how it ends; then resolve its future."""
        # From here on the pass can't be cancelled.
        task.ending = True
        self.log(task, "concludes with its participants")
        # Not `create_task`: an eager task factory would call participants at once, in here.
        coroutine = self._run_conclusion(task)
        concluding = asyncio.Task(coroutine, loop=self.loop, context=task.new_context())
        concluding.add_done_callback(partial(self._conclusion_ended, task))
        self._concluding[task] = concluding

    async def _run_conclusion(self, task: GraphTask) -> None:
        # If an interrupt has cut `_start_conclusion` off before it noted this asyncio task, it is
        # called again, and the asyncio task that it makes then does this.
        if self._concluding.get(task) is asyncio.current_task():
            segments = self.thread_segments
            # Nothing follows, so neither a change nor a cancellation matters here.
            await segments.outlast_finish(task)
            await conclude(task, self.coroutine_nodes.grace, partial(segments.finish, self, task))

    def _conclusion_ended(self, task: GraphTask, concluding: asyncio.Task[None]) -> None:
        if self._concluding.get(task) is not concluding:
            return
        del self._concluding[task]
        # The pass ends even if the loop, which may cancel all its tasks, has cancelled this one.
        if not concluding.cancelled() and (error := concluding.exception()) is not None:
            task.later_errors += (error,)
        if task.members:
            # It was interrupted, or cancelled before it had begun.
            self._start_conclusion(task)
        else:
            self._resolve(task)

    def _resolve(self, task: GraphTask) -> None:
        """Resolve the future of a pass, once its participants have been told how it has ended."""
        if task.timer is not None:
            task.timer.cancel()
        place = self._places.pop(task, None)
        if place is not None:
            leave_line(place)
        if task.error is not None:
            task.error = contained(task.error, task.context)
        if task.members and task.future is not None:
            # If the program is being stopped, the pass ends without waiting for them.
            stops = is_stop(task.error)
            self._start_conclusion(task)
            if not stops:
                return
        # An interrupt may end this anywhere, and `revive` call it again: so `task.future` stays
        # until the future is done.
        future = task.future
        if future is None or future.done():
            return
        live = self.live
        if live:
            live.discard(task)
            if self.admission.held:
                self.admission.note_end(task)
                self.admit()
            if not live:
                self._note_empty()
        if task.state is DONE:
            resolve(future, task.result)
            task.future = future._task = task.context = None
            if task.stepping is not None:
                task.drop_graph()
            return
        # From here on `ask_to_end` tells other threads that it is too late; grant earlier requests.
        task.ending = True
        task.read_inbox()
        error, later = task.error, task.later_errors
        task.release()
        try:
            if error is None or (task.cancelling and not is_stop(error)):
                # A caller whose `cancel()` returned True relies on that, even if the pass failed
                # (in a thread, or by its deadline) before the request was read.
                future._resolve_cancelled(later, error)
            elif is_stop(error):
                # The error is raised below, so the future gets another one, marked as retrieved.
                future._resolve_failed(stopped_by(error))
                future.exception()
                self.fail_all(error)
                raise error
            else:
                error = as_failure(error)
                if task.event_log is not None:
                    add_note(error, str(task.event_log))
                future._resolve_failed(error)
        finally:
            task.future = None
            del error, later, future, task  # See core.frames.

    def fail_all(self, error: BaseException) -> None:
        """Fail all passes and drop the engine, because the program is being stopped."""
        for task in tuple(self.live):
            if not task.ending:
                if task.future is not None:
                    # Retrieve the error, or asyncio would log it if the future is never awaited.
                    task.future.add_done_callback(retrieve)
                task.inbox.append(partial(task.fail, stopped_by(error)))
                self._end_early(task)
        self.stop()

    def revive(self, task: GraphTask) -> None:
        """Take a pass's next step if an interrupt has cut off whoever was to take it.

        It is called when nothing of the pass is on the stack: the loop does not run, or shuts down.
        If the report of a node was lost, or the commit cut off before it began, the pass is
        cancelled.
        """
        concluding = self._concluding.get(task)
        if concluding is not None and not concluding.done():
            # Its participants' task goes on with the pass.
            return
        if self.thread_segments.will_return(task):
            return
        task.running = False
        if self.thread_segments.finishes(task):
            self._start_conclusion(task)
            return
        if task.state in ENDED:
            self._resolve(task)
            return
        stopped = not self.loop.is_running()
        lost = task.state is not DRAINING and self.coroutine_nodes.forget_lost(
            task, stopped=stopped
        )
        if lost or task.ending:
            task.ending = False
            task.cancel()
        if task.walk is None or task.state is DRAINING:
            task.read_inbox()
            self._arrange_next(task, task.take_last_steps())

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
        task.read_inbox()
        if outcome is None or outcome is WAITING:
            # Reports that it waited for may have come since the segment ended.
            outcome = task.take_last_steps()
        self._arrange_next(task, outcome)

    # -- coroutine nodes ---------------------------------------------------------

    def node_ended(
        self, task: GraphTask, suspended: Suspended, result: Value, error: BaseException | None
    ) -> None:
        """Take the report of a coroutine node."""
        node, steps, *_ = suspended
        if error is not None and is_stop(error):
            # asyncio has raised the error from the loop. What is left is to end the passes.
            self.fail_all(error)
            error = stopped_by(error)
        task.inbox.append(partial(task.resume, node, steps, result, error))
        self.log(task, f"{name_of(node)} has ended")
        del suspended, result, error, node, steps  # See core.frames.
        self.read_inbox(task)
