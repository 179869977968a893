"""What runs in an engine's threads: segments of passes, and offloaded functions."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import Outcome
from asyncgrad.devices.waiting import settle, tell_loop
from asyncgrad.scheduler import blas, switch_interval
from asyncgrad.scheduler.helpers import Helpers, run_segment
from asyncgrad.scheduler.host import Host, call_later
from asyncgrad.scheduler.queues import PassQueue, Urgency, take
from asyncgrad.scheduler.threads import Threads

#: Offloaded functions that keep all threads for so many seconds, while a pass waits, cause a
#: warning.
STALLED = 10.0


class ThreadSegments:
    """The jobs in the threads of one engine."""

    def __init__(self, queue: PassQueue) -> None:
        """Make the threads, which the engine starts."""
        self._queue = queue
        #: Passes that a thread owns, or will own when one is free.
        self.tasks: dict[GraphTask, ThreadJob] = {}
        self.threads = Threads(blas.CORES, kept=1)
        #: For each pass whose end is a thread's job: that job, and a future that is done once the
        #: job has ended.
        self._finishing: dict[GraphTask, tuple[ThreadJob, asyncio.Future[None]]] = {}
        #: How many jobs the threads have: while they have any, the switch interval is short.
        self._working = 0
        #: How many jobs have ended, and the timer that looks whether any has.
        self._done = 0
        self._timer: asyncio.TimerHandle | None = None

    def send(self, host: Host, task: GraphTask) -> None:
        """Make a thread the owner of a pass until cheap nodes follow, or another is due."""
        host.counts["segments"] += 1
        host.log(task, "goes to a thread")
        urgency = self._queue.urgency(task)
        helpers = Helpers(self.threads, urgency, len(task.suspended))
        report = partial(self._returned, host, task, helpers)
        self.tasks[task] = self._run(host, partial(run_segment, task, helpers), report, urgency)

    async def finish(self, host: Host, task: GraphTask, job: Callable[[], None]) -> None:
        """Run the end of a pass in a thread, and wait for it, even if this wait is cancelled."""
        host.counts["segments"] += 1
        ended = host.loop.create_future()
        thread_job = ThreadJob(job, lambda *facts: settle(ended), self._job_ended)
        # Noted before the start, so that an interrupt in between can't make the job start twice.
        self._finishing[task] = thread_job, ended
        self._start(host, thread_job, self._queue.urgency(task))
        await outlast(ended)
        del self._finishing[task]

    async def outlast_finish(self, task: GraphTask) -> None:
        """Wait for the job of a `finish` that an interrupt has cut off, or withdraw it."""
        if self.finishes(task):
            thread_job, ended = self._finishing[task]
            if not thread_job.withdraw():
                await outlast(ended)
        self._finishing.pop(task, None)

    def finishes(self, task: GraphTask) -> bool:
        """Whether `finish` has a job for a pass that is still to report."""
        return task in self._finishing and self._finishing[task][0].reports()

    def withdraw(self, task: GraphTask) -> None:
        """Return a pass to the loop if no thread has begun with it."""
        thread_job = self.tasks.get(task)
        if thread_job is not None and thread_job.withdraw():
            del self.tasks[task]

    def will_return(self, task: GraphTask) -> bool:
        """Whether a thread has still to return a pass; otherwise the loop owns it from here on."""
        thread_job = self.tasks.get(task)
        if thread_job is not None and thread_job.reports():
            return True
        self.tasks.pop(task, None)
        return False

    def offload(
        self, host: Host, job: Callable[[], Any],
        report: Callable[[Any, BaseException | None], None],
    ) -> ThreadJob:  # fmt: skip
        """Run a function in a thread, and report its result or error on the loop."""
        host.counts["offloads"] += 1
        thread_job = self._run(host, job, report, self._queue.urgency_here())
        self._watch(host)
        return thread_job

    def _watch(self, host: Host) -> None:
        """While all threads are busy, look from time to time whether a job ends."""
        if self._timer is None and not (self.threads.closed or self.threads.idle()):
            self._timer = call_later(host.loop, STALLED, self._look, host, self._done)

    def _look(self, host: Host, done: int) -> None:
        """Warn if a pass waits for a thread, and no more than `done` jobs have ended."""
        self._timer = None
        waiting = [task for task, job in self.tasks.items() if job.waits()]
        if waiting and done == self._done:
            warnings.warn(
                f"the pass started at {waiting[0].freed} waits for a thread, but for {STALLED} s "
                f"functions of offload() have had all {blas.CORES} of them. If they wait for that "
                f"pass, both wait for ever: run functions that wait with asyncio.to_thread()",
                RuntimeWarning,
                stacklevel=1,
            )
        else:
            self._watch(host)

    def _run(
        self, host: Host, job: Callable[[], Any], report: Callable[..., None], urgency: Urgency,
    ) -> ThreadJob:  # fmt: skip
        thread_job = ThreadJob(job, report, self._job_ended)
        self._start(host, thread_job, urgency)
        return thread_job

    def _start(self, host: Host, thread_job: ThreadJob, urgency: Urgency) -> None:
        loop = host.loop
        if host.closed or self.threads.closed:
            # The loop is at the end of its shut-down, or there are no threads, as when the
            # interpreter ends: run the job on the loop.
            loop.call_soon(thread_job.run)
            loop.call_soon(thread_job.report)
        else:
            self._working += 1
            if self._working == 1:
                switch_interval.short.hold(self)
            tell = partial(tell_loop, loop, thread_job.report)
            self.threads.submit(thread_job.run, urgency, tell)

    def close(self, ended: Callable[[], None] | None = None) -> None:
        """Stop the threads after their jobs; `ended` is called at the end of the last one."""
        # Several threads may close it.
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._working:
            # Threads may still work, but nothing reports when they have ended.
            self._working = 0
            switch_interval.short.drop(self)
        self.threads.close(ended)

    def _job_ended(self) -> None:
        self._done += 1
        if self._working:
            self._working -= 1
            if not self._working:
                switch_interval.short.drop(self)

    def _returned(
        self, host: Host, task: GraphTask, helpers: Helpers, outcome: Outcome | None,
        error: BaseException | None,
    ) -> None:  # fmt: skip
        """Return a pass to the loop after a segment, and charge the pass for it."""
        # The entry is missing if an interrupt came before `send` made it.
        self.tasks.pop(task, None)
        self._queue.charge(task, helpers.spent)
        try:
            host.returned(task, outcome, error)
        finally:
            del task, error  # See core.frames.


class ThreadJob:
    """A job for a thread, and the report on the loop that follows it.

    Job and report drop their references when they begin. Otherwise the thread could still refer to
    the pass when the loop, which it has notified, has ended that pass.
    """

    __slots__ = ("_ended", "_error", "_job", "_outcome", "_report")

    def __init__(
        self, job: Callable[[], Any], report: Callable[[Any, BaseException | None], None],
        ended: Callable[[], None],
    ) -> None:  # fmt: skip
        """Make a job; the loop calls `report`, unless it is withdrawn, and `ended`, in any case."""
        #: Popping the entry claims the job.
        self._job = [job]
        self._ended = ended
        self._report: Callable[[Any, BaseException | None], None] | None = report
        self._outcome: Any = None
        self._error: BaseException | None = None

    def withdraw(self) -> bool:
        """Drop the job, on the loop; False if a thread has begun with it."""
        if take(self._job) is None:
            return False
        self._report = None
        self._ended()
        return True

    def waits(self) -> bool:
        """Whether no thread has begun with the job, and it was not withdrawn."""
        return bool(self._job)

    def reports(self) -> bool:
        """Whether its report has not begun."""
        return self._report is not None

    def run(self) -> None:
        """Run the job, unless it was withdrawn."""
        job = take(self._job)
        if job is None:
            return
        try:
            self._outcome = job()
        except BaseException as error:
            self._error = error
        finally:
            del job

    def report(self) -> None:
        """Report the outcome, on the loop."""
        report, self._report = self._report, None
        if report is None:
            return
        outcome, self._outcome = self._outcome, None
        error, self._error = self._error, None
        try:
            report(outcome, error)
        finally:
            self._ended()
            del report, outcome, error  # See core.frames.


async def outlast(*futures: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until futures are done, for so many seconds at most, even if this wait is cancelled."""
    loop = asyncio.get_running_loop()
    late = loop.create_future()
    timer = None if seconds is None else call_later(loop, seconds, settle, late)
    # By `done`, because a wait may never end without a cancellation: anyio cancels in every turn of
    # the loop.
    while not late.done() and (waiting := [one for one in futures if not one.done()]):
        with suppress(asyncio.CancelledError):
            # The caller relies on nothing that changes meanwhile.
            await asyncio.wait((*waiting, late), return_when=asyncio.FIRST_COMPLETED)
    if timer is not None:
        timer.cancel()


def retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the error of a future as retrieved, because it is reported in another way."""
    if not future.cancelled():
        future.exception()
