"""What runs in an engine's threads: passes, for one segment each, and functions."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncgrad.scheduler import blas
from asyncgrad.scheduler.helpers import Helpers, run_segment
from asyncgrad.scheduler.switch_interval import SwitchInterval
from asyncgrad.scheduler.threads import Threads

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.scheduler.device_queue import Urgency
    from asyncgrad.scheduler.engine import Engine


class ThreadSegments:
    """That of one engine."""

    def __init__(self) -> None:
        """Start the threads."""
        #: Passes that a thread owns at the moment, or is to own when one is free.
        self.tasks: dict[GraphTask, ThreadJob] = {}
        self.threads = Threads(blas.CORES, "asyncgrad")
        self._switching = SwitchInterval()
        self.segments = self.offloads = 0

    def send(self, engine: Engine, task: GraphTask) -> None:
        """Make a thread the owner of a pass until cheap nodes follow, or another is due."""
        helpers = Helpers(self.threads, engine.queue.urgency(task), len(task.suspended))
        self.own(engine, task, partial(run_segment, task, helpers), helpers)

    def own(
        self,
        engine: Engine,
        task: GraphTask,
        segment: Callable[[], Any],
        helpers: Helpers | None = None,
    ) -> None:
        """Make a thread the owner of a pass for one segment, and charge the pass for it."""
        self.segments += 1
        engine.tell(task, "goes to a thread")
        report = partial(self._returned, engine, task, helpers)
        self.tasks[task] = self._run(engine, segment, report, engine.queue.urgency(task))

    def recall(self, task: GraphTask) -> None:
        """Give a pass back to the loop if no thread has begun with it."""
        thread_job = self.tasks.get(task)
        if thread_job is not None and thread_job.withdraw():
            del self.tasks[task]

    def offload(
        self,
        engine: Engine,
        job: Callable[[], Any],
        report: Callable[[Any, BaseException | None], None],
    ) -> ThreadJob:
        """Run a function in a thread, and report on the loop what it returned or raised."""
        self.offloads += 1
        return self._run(engine, job, report, engine.queue.urgency_here())

    def _run(
        self,
        engine: Engine,
        job: Callable[[], Any],
        report: Callable[..., None],
        urgency: Urgency,
    ) -> ThreadJob:
        loop = engine.loop
        thread_job = ThreadJob(job, report, self._switching.end)
        if engine.closed or self.threads.closed:
            # The loop is shutting down and this is the last of its clean-up, or no thread can be
            # had, as when the interpreter ends.
            loop.call_soon(thread_job.run, thread_job.report)
        else:
            self._switching.begin()
            self.threads.submit(
                partial(thread_job.run, partial(tell_loop, loop, thread_job.report)), urgency
            )
        return thread_job

    def close(self, ended: Callable[[], None] | None = None) -> None:
        """Let the threads go; `ended` is called in the last of them, at its end."""
        self._switching.close()
        self.threads.close(ended)

    def _returned(
        self,
        engine: Engine,
        task: GraphTask,
        helpers: Helpers | None,
        outcome: Any,
        error: BaseException | None,
    ) -> None:
        """A segment has ended: the loop owns the pass again."""
        del self.tasks[task]
        if helpers is not None:
            engine.queue.charge(task, helpers.spent)
        try:
            engine.returned(task, outcome, error)
        finally:
            # The error's traceback may hold this frame.
            del task, error


class ThreadJob:
    """What a thread does, and what the loop does with what came of it.

    It lets go of each as it begins: the loop may have been told, and have ended a pass, before the
    thread gets as far as to forget the job.
    """

    __slots__ = ("_ended", "_error", "_job", "_outcome", "_report")

    def __init__(
        self,
        job: Callable[[], Any],
        report: Callable[[Any, BaseException | None], None],
        ended: Callable[[], None],
    ) -> None:
        """Wait for a thread.

        Args:
            job: what to do.
            report: told on the loop what came of it, unless it is withdrawn.
            ended: called on the loop in any case, once.
        """
        #: Taking what is in here is beginning with it.
        self._job = [job]
        self._ended = ended
        self._report: Callable[[Any, BaseException | None], None] | None = report
        self._outcome: Any = None
        self._error: BaseException | None = None

    def withdraw(self) -> bool:
        """Forget it, on the loop; False if a thread has begun with it."""
        try:
            self._job.pop()
        except IndexError:
            return False
        self._report = None
        self._ended()
        return True

    def run(self, tell: Callable[[], None]) -> None:
        """Do it, unless it was withdrawn, and tell somebody."""
        try:
            job = self._job.pop()
        except IndexError:
            tell()
            return
        try:
            self._outcome = job()
        except BaseException as error:
            self._error = error
        finally:
            del job
        tell()

    def report(self) -> None:
        """Report what came of it."""
        report, self._report = self._report, None
        if report is None:
            return
        self._ended()
        outcome, self._outcome = self._outcome, None
        error, self._error = self._error, None
        try:
            report(outcome, error)
        finally:
            # The error's traceback may hold this frame.
            del report, outcome, error


def tell_loop(loop: asyncio.AbstractEventLoop, report: Callable[..., Any], *facts: Any) -> None:
    """Hand something to the loop from another thread, if there still is one."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(report, *facts)


def settle(waiting: asyncio.Future[None]) -> None:
    """Let nobody wait for a future any more."""
    if not waiting.done():
        waiting.set_result(None)
