"""Ends passes of an event loop: commits them, tells participants, and resolves their futures."""

from __future__ import annotations

import asyncio
from functools import partial

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import DONE, DRAINING, ENDED, RUNNING, Outcome
from asyncgrad.errors import add_note
from asyncgrad.scheduler.completion import (
    as_failure,
    ask_to_end,
    begin_end,
    contained,
    end_in_thread,
    end_pass,
    is_stop,
    stopped_by,
)
from asyncgrad.scheduler.coroutines import CoroutineNodes
from asyncgrad.scheduler.future import resolve
from asyncgrad.scheduler.host import Host
from asyncgrad.scheduler.participants import conclude, deciding
from asyncgrad.scheduler.queues import Admission
from asyncgrad.scheduler.segments import ThreadSegments


class Resolution(Host):
    """How passes end; `RunningPasses` adds how they run."""

    admission: Admission
    nodes: CoroutineNodes
    thread_segments: ThreadSegments

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        #: For each pass with participants that is ending: what awaits them.
        self._concluding: dict[GraphTask, asyncio.Task[None]] = {}

    def _wind_down(self, task: GraphTask) -> None:
        """Make a pass end as its inbox says, after everything of it that still runs."""
        raise NotImplementedError

    def _arrange_next(self, task: GraphTask, outcome: Outcome) -> None:
        """Arrange what comes after a slice or segment of a pass."""
        raise NotImplementedError

    def admit(self) -> None:
        """Queue passes that the limit has held back, as far as it allows now."""
        raise NotImplementedError

    def fail_all(self, error: BaseException) -> None:
        """Fail all passes and drop the engine, because the program is being stopped."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop for good, because the program is being stopped."""
        raise NotImplementedError

    def _note_empty(self) -> None:
        """Note that no pass is left."""
        raise NotImplementedError

    def cancel(self, task: GraphTask) -> bool:
        """Ask a pass to drain; its future ends when nothing of it runs any more.

        False if it is too late, because a thread commits the pass.
        """
        if not task.cancelling:
            if not ask_to_end(task):
                return False
            task.cancelling = True
            self.log(task, "is cancelled")
        self._wind_down(task)
        return True

    def _commit(self, task: GraphTask) -> None:
        """Commit a pass that has run, or resolve its future if it has not succeeded."""
        if task.ending:
            return
        if task.state is not RUNNING:
            self._resolve(task)
            return
        decides = task.members and deciding(task)
        if decides or not (task.staged and task.is_large()):
            if not begin_end(task):
                self._arrange_next(task, task.outcome())
                return
            if decides:
                self._conclude(task)
                return
            if end_pass(task, False):
                self._resolve(task)
                return
            task.ending = False
        self.thread_segments.own(self, task, partial(end_in_thread, task))

    def _conclude(self, task: GraphTask) -> None:
        """Let participants decide on a pass and learn how it ends; then resolve its future."""
        # From here on the pass can't be cancelled.
        task.ending = True
        self.log(task, "concludes with its participants")
        run = partial(self.thread_segments.finish, self, task)
        # Not `create_task`: an eager task factory would call participants at once, in here.
        concluding = self._concluding[task] = asyncio.Task(
            conclude(task, self.nodes.grace, run), loop=self.loop, context=task.new_context()
        )
        concluding.add_done_callback(partial(self._concluded, task))

    def _concluded(self, task: GraphTask, concluding: asyncio.Task[None]) -> None:
        self._concluding.pop(task, None)
        # The pass ends even if the loop, which may cancel all its tasks, has cancelled this one.
        if not concluding.cancelled() and (error := concluding.exception()) is not None:
            task.later_errors += (error,)
        if task.members:
            # It was interrupted, or cancelled before it had begun.
            self._conclude(task)
        else:
            self._resolve(task)

    def _resolve(self, task: GraphTask) -> None:
        """Resolve the future of a pass, once its participants have been told how it has ended."""
        if task.timer is not None:
            task.timer.cancel()
        if task.error is not None:
            task.error = contained(task.error, task.context)
        if task.members and task.future is not None:
            # If the program is being stopped, the pass ends without waiting for them.
            stops = is_stop(task.error)
            self._conclude(task)
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
        task.drain()
        error, later = task.error, task.later_errors
        task.release()
        try:
            if error is None or (task.cancelling and not is_stop(error)):
                # A caller whose `cancel()` returned True relies on that, even if the pass failed
                # (in a thread, or by its deadline) before the request was read.
                future._finish_cancelled(later, error)
            elif is_stop(error):
                # The error is raised below, so the future gets another one, marked as retrieved.
                future._finish_failed(stopped_by(error))
                future.exception()
                self.fail_all(error)
                raise error
            else:
                error = as_failure(error)
                if task.event_log is not None:
                    add_note(error, str(task.event_log))
                future._finish_failed(error)
        finally:
            task.future = None
            # The traceback may hold this frame, which must hold neither the pass nor the future.
            del error, later, future, task

    def revive(self, task: GraphTask) -> None:
        """Take a pass's next step if an interrupt has cut off whoever was to take it.

        It is called when nothing of the pass is on the stack: the loop does not run, or shuts down.
        If the report of a node was lost, or the commit cut off before it began, the pass is
        cancelled.
        """
        concluding = self._concluding.get(task)
        if (concluding is not None and not concluding.done()) or not self.thread_segments.reclaim(
            task
        ):
            # Those go on with the pass.
            return
        task.running = False
        if task.state in ENDED:
            self._resolve(task)
            return
        stopped = not self.loop.is_running()
        lost = task.state is not DRAINING and self.nodes.forget_lost(task, stopped=stopped)
        if lost or task.ending:
            task.ending = False
            task.cancel()
        if task.walk is None or task.state is DRAINING:
            task.drain()
            self._arrange_next(task, task.outcome())
