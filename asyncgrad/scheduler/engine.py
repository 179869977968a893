"""One engine for each event loop: takes passes in, gives them turns, and ends their futures.

The caller of a pass runs its first slice, so that a small one comes back finished; all callers
draw on one budget for each turn of the loop. What is left goes to the device's queue, from which a
worker coroutine takes one pass after the other for a slice each. Nodes that cost more than a slice
run in a thread, with all that becomes ready there, until cheap ones follow one another again.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from asyncio import current_task
from asyncio.events import _get_running_loop
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from asyncgrad.core.graph_task import Outcome, State
from asyncgrad.core.modes import current
from asyncgrad.devices.pool import POOL
from asyncgrad.devices.quiet import hush, unhush
from asyncgrad.errors import AutogradError, PendingBackwardError
from asyncgrad.scheduler import blas
from asyncgrad.scheduler.coroutines import GRACE, LIMIT, CoroutineNodes, Ended, discard
from asyncgrad.scheduler.courtesy import Courtesy
from asyncgrad.scheduler.crew import run_segment
from asyncgrad.scheduler.device_queue import DeviceQueue
from asyncgrad.scheduler.ending import as_failure, deadline_error, end_pass, is_stop, stopped_by
from asyncgrad.scheduler.future import BackwardFuture
from asyncgrad.scheduler.line import Line
from asyncgrad.scheduler.statistics import Collections, EngineStatistics
from asyncgrad.scheduler.story import Story
from asyncgrad.scheduler.threads import Threads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from asyncgrad.core.graph_task import GraphTask, Suspended

#: How long a slice may last.
SLICE_NS = 250_000
#: By how much a caller's first slice may overdraw what is left of a turn.
_OVERDRAFT_NS = 100_000
#: Expected nanoseconds for a walk to look at a node.
_WALK_NS = 250
#: Elements that are added to leaves on the loop; more are in a thread.
_COMMIT_SIZE = 50_000


class Engine:
    """What runs the passes of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to a loop; nothing runs yet."""
        self._loop = weakref.ref(loop)
        self.slice_ns = SLICE_NS
        self.queue = DeviceQueue()
        self.clock: Callable[[], int] = perf_counter_ns
        #: Passes started by a task that nobody has looked at, and those whose futures are gone.
        self.unobserved: dict[Any, int] = {}
        self._lost: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        #: Passes that were not finished by their first slice.
        self._live: set[GraphTask] = set()
        #: How many passes run at once, None for any number, and those that wait for others to end,
        #: as a heap (minus the priority, order, pass) and as a set: some of the heap have ended.
        self._limit: int | None = None
        self._held_back: list[tuple[int, int, GraphTask]] = []
        self._held: set[GraphTask] = set()
        self.passes = self.slices = self.segments = self.node_count = self.offloads = 0
        self._held_ns = self._longest_hold_ns = self._longest_turn_ns = 0
        self._collections = Collections()
        self._collections.watch()
        self._worker: asyncio.Task[None] | None = None
        #: Passes that a thread owns at the moment.
        self._away: set[GraphTask] = set()
        self.nodes = CoroutineNodes()
        self.threads = Threads(blas.CORES, "asyncgrad")
        self._courtesy = Courtesy()
        self._turn_open = False
        self._turn_start = 0
        #: This turn's budget is used up: who awaits gives way, even for what is done.
        self.spent = False
        #: Those who gave way, in order.
        self.line = Line(SLICE_NS)
        blas.leave_a_core()
        self._closer: AsyncGenerator[None, None] | None = None
        #: Done when no pass is left, while the engine shuts down.
        self._emptied: asyncio.Future[None] | None = None
        self.closed = False
        self._register(loop)

    # -- life ---------------------------------------------------------

    def _register(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be told when the loop shuts its asynchronous generators down, which every runner does."""
        reference = weakref.ref(self)

        async def until_shutdown() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                engine = reference()
                if engine is not None:
                    await engine.shut_down()

        self._closer = until_shutdown()
        step = self._closer.__anext__()
        with suppress(StopIteration):
            step.send(None)

    async def shut_down(self) -> None:
        """Cancel what nobody awaits any more, wait until no pass is left, and close."""
        if self.closed:
            return
        for task in tuple(self._live):
            starter = task.future._starter
            if not task.ending and (starter is None or starter.done()):
                self.cancel(task)
        loop = self.loop
        if self._live:
            self._emptied = loop.create_future()
            # Other generators may start passes in their clean-up; those run after `close`, too.
            # Cancelled here, the runner is in a hurry: threads end with their segments.
            await self._emptied
        if self._worker is not None:
            # Nothing waits for a turn any more; cancelled here, the loop ends the worker.
            await asyncio.wait([self._worker])
        gone = loop.create_future()
        self.close(partial(_tell_loop, loop, _set, gone))
        # They run what was offloaded to its end. Cancelled here, they do so all the same.
        await gone
        while self.threads.alive():  # noqa: ASYNC110  nobody announces it
            # The last one has taken its leave, and needs some microseconds to go.
            await asyncio.sleep(0)

    def close(self, ended: Callable[[], None] | None = None) -> None:
        """Let the threads go and give BLAS its cores back; a later pass runs on the loop.

        Args:
            ended: called in the last of the threads, at its end.
        """
        if self.closed:
            return
        self.closed = True
        # Both lead to the loop.
        self._closer = self._emptied = None
        self.threads.close(ended)
        self._collections.unwatch()
        blas.give_back()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the engine."""
        loop = self._loop()
        if loop is None:
            raise AutogradError("the engine's event loop is gone")
        return loop

    def limit(
        self, *, passes: int | None = None, coroutine_nodes: int = LIMIT, grace: float = GRACE
    ) -> None:
        """Set how much happens at the same time on this loop.

        Args:
            passes: how many passes run at once; the others wait in order of priority. None for any
                number. Nested passes are not counted: their parents wait for them.
            coroutine_nodes: how many coroutine nodes and hooks of one pass wait at once.
            grace: the seconds that such a coroutine has to end when its pass is cancelled or has
                failed, before the pass ends without it.

        Raises:
            ValueError: if nothing could run.
        """
        if (passes is not None and passes < 1) or coroutine_nodes < 1 or grace < 0:
            raise ValueError(
                f"limit: passes={passes}, coroutine_nodes={coroutine_nodes}, grace={grace}: at "
                f"least one pass and one coroutine have to run, and no time is negative"
            )
        self._limit = passes
        self.nodes.limit = coroutine_nodes
        self.nodes.grace = grace
        self._let_in()

    # -- passes ---------------------------------------------------------

    def submit(self, task: GraphTask, loop: asyncio.AbstractEventLoop) -> BackwardFuture:
        """Start a pass; the caller runs its first slice if this turn of the loop has time left.

        A slice may overdraw the turn: a pass that ends so need not wait for another one, and its
        future gives the loop its turn when it is awaited.
        """
        future = task.future = BackwardFuture(self, loop, task, current_task(loop))
        left = 0 if loop.get_debug() else self._left(loop)
        if self._limit is not None and self._is_full(task):
            self._hold_back(task)
        elif left > _OVERDRAFT_NS:
            self._slice(task, left)
        elif left > 0:
            self.spent = True
            self._slice(task, _OVERDRAFT_NS)
        else:
            self._enqueue(task)
        self.passes += 1
        if task.future is not None:
            self._live.add(task)
            if task.deadline is not None:
                task.timer = loop.call_at(task.deadline, self._expire, task)
        try:
            return future
        finally:
            # The frame of a node that has failed leads back to this one, and the future to the
            # error: a cycle, which would hold the graph.
            del future

    def _is_full(self, task: GraphTask) -> bool:
        """Whether a new pass has to wait for others to end. One nested in others never does."""
        assert self._limit is not None
        return task.parent is None and len(self._live) - len(self._held) >= self._limit

    def _hold_back(self, task: GraphTask) -> None:
        """Let a new pass wait for others to end."""
        self._held.add(task)
        heappush(self._held_back, (-task.priority, self.passes, task))
        self.tell(task, "waits for other passes to end")

    def _let_in(self) -> None:
        """Start the most urgent of those that wait for others to end."""
        while self._held_back and (
            self._limit is None or len(self._live) - len(self._held) < self._limit
        ):
            task = heappop(self._held_back)[2]
            if task in self._held:
                self._held.discard(task)
                self._enqueue(task)

    def _expire(self, task: GraphTask) -> None:
        """A deadline has passed."""
        if task.ending or task.future is None:
            return
        self.tell(task, "its deadline has passed")
        task.inbox.append(partial(task.fail, deadline_error(task)))
        self.nodes.stop(self, task)
        self._hurry(task)

    def tell(self, task: GraphTask, what: str) -> None:
        """Add to the story of a pass."""
        now = self.clock()
        if task.story is None:
            task.story = Story(now)
        task.story.add(now, what)

    def _hurry(self, task: GraphTask) -> None:
        """Have the reports in a pass's inbox read, unless its owner is about to."""
        if task not in self._away and not task.running:
            task.drain()
            self._after(task, task.outcome())

    def _left(self, loop: asyncio.AbstractEventLoop) -> int:
        """What is left of this turn's budget."""
        now = self.clock()
        if self._turn_open:
            return self.slice_ns - (now - self._turn_start)
        self._turn_open = True
        self._turn_start = now
        loop.call_soon(self._end_turn)
        return self.slice_ns

    def _end_turn(self) -> None:
        """A turn of the loop has ended: the pass that had no time in it goes first in the next."""
        self._turn_open = self.spent = False
        self._longest_turn_ns = max(self._longest_turn_ns, self.clock() - self._turn_start)
        if self._worker is None and not self.queue.empty():
            loop = self.loop
            self._serve(self._left(loop))
            if self._worker is None and not self.queue.empty():
                self._start_worker()

    def _serve(self, budget: int) -> None:
        """Give the pass whose turn it is a slice."""
        start = self.clock()
        turn = self.queue.next_turn(start)
        if turn is None:
            return
        task, waited = turn
        task.queued = False
        if task.future is None:
            return
        self.tell(task, "runs a slice")
        if task.observer is not None:
            task.observer.waited(task, waited)
        self._slice(task, budget)
        held = self.clock() - start
        self._held_ns += held
        self._longest_hold_ns = max(self._longest_hold_ns, held)

    def overdrawn(self) -> bool:
        """Whether this turn of the loop has used up its budget."""
        return self._left(self.loop) <= 0

    def _slice(self, task: GraphTask, budget: int) -> None:
        """Run a pass for one slice, and see to what comes next."""
        if task.walk is not None:
            if not task.start(budget // _WALK_NS + 1):
                self._enqueue(task)
                return
            self.node_count += len(task.dependencies) + 1
        self.slices += 1
        task.running = True
        token = hush()
        try:
            outcome = task.run(budget)
        except BaseException as error:
            # Nodes' errors are the pass's; this is an interrupt between two of them.
            task.fail(error)
            outcome = task.outcome()
        finally:
            unhush(token)
            del token
        task.running = False
        if outcome is Outcome.FINISHED and not task.suspended:
            self._finish(task)
        else:
            # What the slice was worth, and not what the clock says: a collector's or the system's
            # pause in it is not the pass's doing.
            self.queue.charge(task, budget)
            self._after(task, outcome)

    def fail_all(self, error: BaseException) -> None:
        """Fail all passes and discard the engine: the program is being stopped."""
        for task in tuple(self._live):
            if not task.ending:
                if task.future is not None:
                    # Nobody has to look into the future for it.
                    task.future.add_done_callback(_retrieve)
                task.inbox.append(partial(task.fail, stopped_by(error)))
                self.nodes.stop(self, task)
                self._hurry(task)
        self.close()
        forget(self)

    def _after(self, task: GraphTask, outcome: Outcome) -> None:
        """Go on with a pass whose slice or segment has ended."""
        if task.state is State.DRAINING:
            self.nodes.stop(self, task)
            while task.suspended:
                suspended = task.suspended.pop()
                discard(suspended)
                task.resume(suspended.node, suspended.evaluation, None, None)
            outcome = task.outcome()
        elif task.suspended:
            self.nodes.launch(self, task)
        if outcome is Outcome.FINISHED:
            self._finish(task)
        elif outcome is Outcome.MORE:
            self._enqueue(task)
        elif outcome is Outcome.HEAVY:
            self._send_away(task, partial(run_segment, task, self.threads))

    def _enqueue(self, task: GraphTask) -> None:
        """Let a pass wait for its turn."""
        if task.queued:
            return
        task.queued = True
        self.queue.enter(task, self.clock())
        if self._worker is None and not self._turn_open:
            self._start_worker()

    def _start_worker(self) -> None:
        # Not `create_task`: an eager task factory would run a slice here and now.
        self._worker = asyncio.Task(self._work(), loop=self.loop, name="asyncgrad worker")
        self._worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """A worker may be cancelled with its loop's other tasks: passes in clean-up code go on."""
        self._worker = None
        if not worker.cancelled():
            error = worker.exception()
            if error is not None and not is_stop(error):
                self.loop.call_exception_handler(
                    {"message": "asyncgrad's worker failed", "exception": error}
                )
        if not self.queue.empty() and not self.loop.is_closed():
            self._start_worker()

    async def _work(self) -> None:
        """Give one pass after the other a slice until none waits."""
        while not self.queue.empty():
            self._serve(self.slice_ns)
            if self.queue.empty():
                return
            # Everything may have changed here: passes come, end and are cancelled. Cancelled here,
            # the worker ends and `_worker_ended` starts another for what still waits.
            await asyncio.sleep(0)

    # -- threads ---------------------------------------------------------

    def _send_away(self, task: GraphTask, segment: Callable[[], Any]) -> None:
        """Make a thread the owner of a pass for one segment."""
        self._away.add(task)
        self.segments += 1
        self.tell(task, "goes to a thread")
        loop = self.loop
        if self.closed:
            # The loop is shutting down and this is the last of its clean-up.
            loop.call_soon(_run_segment, segment, partial(self._returned, task))
        else:
            self._courtesy.begin(self)
            self.threads.submit(
                partial(_run_segment, segment, partial(_tell_loop, loop, self._returned, task))
            )

    def offload(
        self, job: Callable[[], Any], report: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Run a function in a thread, and report on the loop what it returned or raised."""
        self.offloads += 1
        loop = self.loop
        if self.closed:
            loop.call_soon(_run_segment, job, report)
        else:
            self._courtesy.begin(self)
            self.threads.submit(partial(_run_segment, job, partial(_tell_loop, loop, report)))

    def _returned(self, task: GraphTask, outcome: Any, error: BaseException | None) -> None:
        """A segment has ended: the loop owns the pass again."""
        self._away.discard(task)
        self.tell(task, "comes back from the thread")
        if error is not None:
            task.fail(error)
        if task.ending:
            self._complete(task)
            return
        task.drain()
        if error is not None or task.state is not State.RUNNING:
            self._after(task, task.outcome())
        else:
            self._after(task, outcome)

    # -- coroutine nodes ---------------------------------------------------------

    def node_ended(self, task: GraphTask, suspended: Suspended, ended: Ended) -> None:
        """Take the report for a coroutine node."""
        node, evaluation, _ = suspended
        self.tell(task, f"{node.name()} has ended")
        if ended.cancelled:
            task.inbox.append(task.cancel)
        task.inbox.append(partial(task.resume, node, evaluation, ended.result, ended.error))
        # The error's traceback will hold this frame.
        del suspended, ended, node, evaluation
        self._hurry(task)

    # -- ending ---------------------------------------------------------

    def cancel(self, task: GraphTask) -> bool:
        """Ask a pass to drain; its future ends when nothing of it runs any more."""
        if not task.cancelling:
            task.cancelling = True
            task.inbox.append(task.cancel)
            self.tell(task, "is cancelled")
        self.nodes.stop(self, task)
        self._hurry(task)
        return True

    def _finish(self, task: GraphTask) -> None:
        """Commit a pass that has run, or tell its future why not."""
        if task.ending:
            return
        if task.state is not State.RUNNING:
            error = task.error
            if error is None or not is_stop(error):
                self._complete(task)
                return
            # Raised from here, and not again from the future.
            task.error = stopped_by(error)
            future = task.future
            self._complete(task)
            future.exception()
            self.fail_all(error)
            raise error
        task.ending = True
        if task.inbox and not self._goes_on(task):
            # A thread has cancelled the pass at the last moment, and was told that it could.
            task.ending = False
            self._after(task, task.outcome())
            return
        size = 0
        for staged in task.staged:
            size += staged[0]._metadata.size
        if size > _COMMIT_SIZE or not end_pass(task, wait=False):
            self._send_away(task, partial(end_pass, task, wait=True))
        else:
            self._complete(task)

    @staticmethod
    def _goes_on(task: GraphTask) -> bool:
        """Whether a pass is still to succeed when the last reports have been read."""
        task.drain()
        return task.state is State.RUNNING

    def _complete(self, task: GraphTask) -> None:
        """End the future of a pass."""
        future, task.future = task.future, None
        if future is None:
            return
        if task.timer is not None:
            task.timer.cancel()
        live = self._live
        if live:
            live.discard(task)
            if self._held_back:
                self._held.discard(task)
                self._let_in()
            if self._emptied is not None and not live and not self._emptied.done():
                self._emptied.set_result(None)
        state = task.state
        if state is State.DONE:
            future._task = None
            future.set_result(task.result)
            task.context = None
            return
        error = task.error
        task.release()
        if state is State.CANCELLED:
            future.finish_cancelled()
        else:
            assert error is not None
            error = as_failure(error)
            if task.story is not None:
                error.add_note(str(task.story))
            future.finish_failed(error)
        # The traceback may hold this frame: it must hold neither the pass nor the future.
        del error, future, task

    def statistics(self) -> EngineStatistics:
        """What the engine has done so far."""
        queue, collections = self.queue, self._collections
        return EngineStatistics(
            passes=self.passes,
            in_flight=len(self._live) - len(self._held),
            held_back=len(self._held),
            nodes=self.node_count,
            slices=self.slices,
            segments=self.segments,
            queued=queue.qsize(),
            queue_waits=queue.waits,
            queue_wait=queue.waited_ns / 1e9,
            longest_queue_wait=queue.longest_ns / 1e9,
            offloads=self.offloads,
            collections=collections.count,
            collector_pause=collections.total_ns / 1e9,
            longest_collector_pause=collections.longest_ns / 1e9,
            bytes_held=POOL.unused,
            loop_held=self._held_ns / 1e9,
            longest_hold=self._longest_hold_ns / 1e9,
            longest_turn=self._longest_turn_ns / 1e9,
        )

    # -- who has awaited what ---------------------------------------------------------

    def observed(self, starter: Any) -> None:
        """A pass of a task has been looked at."""
        left = self.unobserved[starter] - 1
        if left:
            self.unobserved[starter] = left
        else:
            del self.unobserved[starter]

    def lost(self, starter: Any) -> None:
        """The future of a pass is gone, and nobody has looked at it."""
        self.observed(starter)
        if starter is not None and not starter.done():
            self._lost[starter] = self._lost.get(starter, 0) + 1

    def check_awaited(self, name: str) -> None:
        """Raise if the current task has started a pass that it has not awaited."""
        starter = current_task()
        if current().graph_task is not None:
            # A hook, maybe in the first slice of the pass that its own task has just started.
            return
        if (
            starter in self.unobserved
            or (starter is not None and self._lost.pop(starter, 0))
            or any(task.future._starter is starter for task in self._live if task.future)
        ):
            raise PendingBackwardError(
                f"{name}: this task has started a backward pass that it has not awaited. Write "
                f"`await loss.backward()` before it."
            )


def _run_segment(segment: Callable[[], Any], report: Callable[[Any, Any], None]) -> None:
    """Run a segment, and report what came of it."""
    outcome = error = None
    try:
        outcome = segment()
    except BaseException as caught:
        error = caught
    try:
        report(outcome, error)
    finally:
        # The traceback holds this frame, and this frame the pass.
        del segment, report, error


def _tell_loop(loop: asyncio.AbstractEventLoop, report: Callable[..., None], *facts: Any) -> None:
    """Hand something to the loop from another thread, if there still is one."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(report, *facts)


def _set(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


# -- one for each loop ---------------------------------------------------------

_engines: dict[int, Engine] = {}
#: In a forked child: the parent's. If they died, their loops, which are shared, would be told.
_inherited: list[Engine] = []


def _after_fork() -> None:
    """A child starts afresh: the threads were not forked."""
    _inherited.extend(_engines.values())
    _engines.clear()
    blas.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def engine_of(loop: asyncio.AbstractEventLoop) -> Engine:
    """The engine of a loop, made on first use."""
    engine = _engines.get(id(loop))
    if engine is None or engine._loop() is not loop:
        for key, other in list(_engines.items()):
            gone = other._loop()
            if (gone is None or gone.is_closed()) and _engines.pop(key, None) is other:
                other.close()
        engine = _engines[id(loop)] = Engine(loop)
    return engine


def forget(engine: Engine) -> None:
    """Let go of a closed engine."""
    for key, other in list(_engines.items()):
        if other is engine:
            del _engines[key]


def engine() -> Engine:
    """The engine of the running event loop.

    Raises:
        RuntimeError: if no loop is running.
    """
    loop = _get_running_loop()
    if loop is None:
        raise RuntimeError("engine(): no running event loop. Call it from a coroutine.")
    return engine_of(loop)
