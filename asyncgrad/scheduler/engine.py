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
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from asyncgrad.core.graph_task import CHEAP_RUN, Outcome, State
from asyncgrad.core.modes import current, install
from asyncgrad.devices.quiet import hush, unhush
from asyncgrad.errors import AutogradError, PendingBackwardError
from asyncgrad.scheduler.blas import CORES, give_back, leave_a_core
from asyncgrad.scheduler.device_queue import DeviceQueue
from asyncgrad.scheduler.future import BackwardFuture

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


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """What an engine has done since it was made."""

    #: Passes started, and those that have not ended yet.
    passes: int
    in_flight: int
    #: Turns of passes on the loop, and segments of passes in threads.
    slices: int
    segments: int
    #: Passes that wait for a turn.
    queued: int


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
        self.passes = self.slices = self.segments = 0
        self._worker: asyncio.Task[None] | None = None
        #: Passes that a thread owns at the moment.
        self._away: set[GraphTask] = set()
        self._coroutines: dict[GraphTask, set[asyncio.Task[None]]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._turn_open = False
        self._turn_start = 0
        #: This turn's budget is used up: who awaits gives way, even for what is done.
        self.spent = False
        #: Those who gave way, in order.
        self._line: deque[asyncio.Future[None]] = deque()
        self._admitting = False
        self._admit_start = 0
        #: The mean time that they take when they are let in.
        self._visit_ns = SLICE_NS
        leave_a_core()
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
        for task in tuple(self._live):
            starter = task.future._starter
            if not task.ending and (starter is None or starter.done()):
                self.cancel(task)
        if self._live:
            self._emptied = self.loop.create_future()
            # Other generators may start passes in their clean-up; those run after `close`, too.
            # Cancelled here, the runner is in a hurry: threads end with their segments.
            await self._emptied
        if self._worker is not None:
            await asyncio.wait([self._worker])
        if self._threads is not None:
            await asyncio.to_thread(self._threads.shutdown)
        self.close()

    def close(self) -> None:
        """Let the threads go and give BLAS its cores back; a later pass runs on the loop."""
        if self.closed:
            return
        self.closed = True
        # Both lead to the loop.
        self._closer = self._emptied = None
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        give_back()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the engine."""
        loop = self._loop()
        if loop is None:
            raise AutogradError("the engine's event loop is gone")
        return loop

    @property
    def threads(self) -> ThreadPoolExecutor:
        """Where expensive segments and offloaded functions run."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(CORES, thread_name_prefix="asyncgrad")
        return self._threads

    # -- passes ---------------------------------------------------------

    def submit(self, task: GraphTask, loop: asyncio.AbstractEventLoop) -> BackwardFuture:
        """Start a pass; the caller runs its first slice if this turn of the loop has time left.

        A slice may overdraw the turn: a pass that ends so need not wait for another one, and its
        future gives the loop its turn when it is awaited.
        """
        future = task.future = BackwardFuture(self, loop, task, current_task(loop))
        left = 0 if loop.get_debug() else self._left(loop)
        if left > _OVERDRAFT_NS:
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

    def _expire(self, task: GraphTask) -> None:
        """A deadline has passed."""
        if task.ending or task.future is None:
            return
        task.inbox.append(partial(task.fail, deadline_error(task)))
        self._stop_nodes(task)
        self._hurry(task)

    def _stop_nodes(self, task: GraphTask) -> None:
        """Cancel the coroutine nodes of a pass, once."""
        for running in self._coroutines.pop(task, ()):
            running.cancel()

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
        if self._worker is None and not self.queue.empty():
            loop = self.loop
            self._serve(self._left(loop))
            if self._worker is None and not self.queue.empty():
                self._start_worker()

    def _serve(self, budget: int) -> None:
        """Give the pass whose turn it is a slice."""
        task = self.queue.next_turn()
        if task is None:
            return
        task.queued = False
        if task.future is None:
            return
        self._slice(task, budget)

    def _admit(self) -> None:
        """Wake as many of those in line as a slice has time for, by what the last ones took."""
        loop = self.loop
        line = self._line
        loop.call_soon(self._note_start)
        count = 0
        most = max(1, self.slice_ns // self._visit_ns)
        while line and count < most:
            first = line.popleft()
            if not first.done():
                first.set_result(None)
                count += 1
        # Runs when they have run: callbacks are served in order.
        loop.call_soon(self._admitted, count)

    def _note_start(self) -> None:
        self._admit_start = self.clock()

    def _admitted(self, count: int) -> None:
        """Those who were woken have had their turn."""
        if count:
            took = (self.clock() - self._admit_start) // count
            self._visit_ns = max(1_000, (self._visit_ns + took) // 2)
        if self._line:
            self._admit()
        else:
            self._admitting = False

    def overdrawn(self) -> bool:
        """Whether this turn of the loop has used up its budget, or others wait for the next."""
        return self._left(self.loop) <= 0 or bool(self._line)

    def next_in_line(self) -> asyncio.Future[None]:
        """What becomes done when it is the caller's turn."""
        loop = self.loop
        waiting = loop.create_future()
        self._line.append(waiting)
        if not self._admitting:
            self._admitting = True
            loop.call_soon(self._admit)
        return waiting

    def _slice(self, task: GraphTask, budget: int) -> None:
        """Run a pass for one slice, and see to what comes next."""
        if task.walk is not None and not task.start(budget // _WALK_NS + 1):
            self._enqueue(task)
            return
        self.slices += 1
        task.running = True
        token = hush()
        try:
            outcome = task.run(budget)
        finally:
            unhush(token)
        task.running = False
        if outcome is Outcome.FINISHED and not task.suspended:
            self._finish(task)
        else:
            # What the slice was worth, and not what the clock says: a collector's or the system's
            # pause in it is not the pass's doing.
            self.queue.charge(task, budget)
            self._after(task, outcome)

    def _abandon(self, error: Any) -> None:
        """Fail all passes, discard the engine and raise: the program is being stopped."""
        for task in tuple(self._live):
            if not task.ending:
                reason = AutogradError(f"the engine was stopped by {error!r}")
                task.inbox.append(partial(task.fail, reason))
                self._stop_nodes(task)
                self._hurry(task)
        self.close()
        forget(self)
        raise error

    def _after(self, task: GraphTask, outcome: Outcome) -> None:
        """Go on with a pass whose slice or segment has ended."""
        if task.state is State.DRAINING:
            self._stop_nodes(task)
            while task.suspended:
                suspended = task.suspended.pop()
                discard(suspended)
                task.resume(suspended.node, suspended.evaluation, None, None)
            outcome = task.outcome()
        elif task.suspended:
            self._await_nodes(task)
        if outcome is Outcome.FINISHED:
            self._finish(task)
        elif outcome is Outcome.MORE:
            self._enqueue(task)
        elif outcome is Outcome.HEAVY:
            self._send_away(task, partial(_run_segment, task))

    def _enqueue(self, task: GraphTask) -> None:
        """Let a pass wait for its turn."""
        if task.queued:
            return
        task.queued = True
        self.queue.enter(task)
        if self._worker is None and not self._turn_open:
            self._start_worker()

    def _start_worker(self) -> None:
        self._worker = self.loop.create_task(self._work(), name="asyncgrad worker")
        self._worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """A worker may be cancelled with its loop's other tasks: passes in clean-up code go on."""
        self._worker = None
        if not worker.cancelled():
            error = worker.exception()
            if error is not None:
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
        loop = self.loop
        if self.closed:
            # The loop is shutting down and this is the last of its clean-up.
            loop.call_soon(self._run_here, task, segment)
            return
        waiting = self.threads.submit(segment)
        waiting.add_done_callback(lambda done: _report(loop, self._returned, task, done))

    def _run_here(self, task: GraphTask, segment: Callable[[], Any]) -> None:
        """Run a segment on the loop."""
        done: Future[Any] = Future()
        try:
            done.set_result(segment())
        except BaseException as error:
            done.set_exception(error)
        self._returned(task, done)

    def _returned(self, task: GraphTask, done: Any) -> None:
        """A segment has ended: the loop owns the pass again."""
        self._away.discard(task)
        error = done.exception()
        if error is not None:
            task.fail(error)
        if task.ending:
            self._complete(task)
            return
        task.drain()
        if error is not None or task.state is not State.RUNNING:
            self._after(task, task.outcome())
        else:
            self._after(task, done.result())

    # -- coroutine nodes ---------------------------------------------------------

    def _await_nodes(self, task: GraphTask) -> None:
        """Await what suspended nodes wait for, each in an asyncio task of its own."""
        while task.suspended:
            suspended = task.suspended.pop()
            running = self.loop.create_task(
                wait_for_node(suspended.waiting),
                name=f"asyncgrad {suspended.node.name()}",
                context=None if task.context is None else task.context.copy(),
            )
            self._coroutines.setdefault(task, set()).add(running)
            running.add_done_callback(partial(self._node_ended, task, suspended))

    def _node_ended(
        self, task: GraphTask, suspended: Suspended, running: asyncio.Task[Any]
    ) -> None:
        """Report for a coroutine node; it may have been cancelled before it began."""
        node, evaluation, _ = suspended
        result: Any = None
        error: BaseException | None = None
        nodes = self._coroutines.get(task, set())
        if running.cancelled():
            discard(suspended)
            if running in nodes and running.cancelling():
                # Neither the node nor the engine did it: the loop is ending all its tasks.
                task.inbox.append(task.cancel)
            elif running in nodes:
                error = asyncio.CancelledError()
        else:
            error = running.exception()
            result = running.result() if error is None else None
        nodes.discard(running)
        if not nodes:
            self._coroutines.pop(task, None)
        task.inbox.append(partial(task.resume, node, evaluation, result, error))
        # The error's traceback will hold this frame.
        del suspended, running, nodes, node, evaluation, result, error
        self._hurry(task)

    # -- ending ---------------------------------------------------------

    def cancel(self, task: GraphTask) -> bool:
        """Ask a pass to drain; its future ends when nothing of it runs any more."""
        if not task.cancelling:
            task.cancelling = True
            task.inbox.append(task.cancel)
        self._stop_nodes(task)
        self._hurry(task)
        return True

    def _finish(self, task: GraphTask) -> None:
        """Commit a pass that has run, or tell its future why not."""
        if task.ending:
            return
        if task.state is not State.RUNNING:
            error, future = task.error, task.future
            self._complete(task)
            if error.__class__ is KeyboardInterrupt or error.__class__ is SystemExit:
                # Raised from here: nobody has to look into the future for it.
                future.exception()
                self._abandon(error)
            return
        task.ending = True
        size = 0
        for staged in task.staged:
            size += staged[0]._metadata.size
        if size > _COMMIT_SIZE or not end_pass(task, wait=False):
            self._send_away(task, partial(end_pass, task, wait=True))
        else:
            self._complete(task)

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
            future.finish_failed(as_failure(error))
        # The traceback may hold this frame: it must hold neither the pass nor the future.
        del error, future, task

    def statistics(self) -> EngineStatistics:
        """What the engine has done so far."""
        return EngineStatistics(
            passes=self.passes,
            in_flight=len(self._live),
            slices=self.slices,
            segments=self.segments,
            queued=self.queue.qsize(),
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


async def wait_for_node(awaitable: Any) -> Any:
    """Run a coroutine node, in its copy of the pass's context."""
    install(current().replace(in_node=False))
    return await awaitable


def discard(suspended: Suspended) -> None:
    """End what a suspended node would have waited for."""
    waiting = suspended.waiting
    end = getattr(waiting, "close", None) or getattr(waiting, "cancel", None)
    if end is not None:
        end()


def _report(
    loop: asyncio.AbstractEventLoop, returned: Callable[..., None], task: GraphTask, done: Any
) -> None:
    """Hand a segment's end to the loop, if there still is one."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(returned, task, done)


def _run_segment(task: GraphTask) -> Outcome:
    """Run a pass in a thread, from a heavy node to the next cheap ones."""
    token = hush()
    try:
        return task.run(CHEAP_RUN, thread=True)
    finally:
        unhush(token)


def end_pass(task: GraphTask, *, wait: bool) -> bool:
    """Commit the gradients of a pass that has run.

    Returns:
        False, with nothing changed, where another pass holds a leaf and `wait` is false.
    """
    try:
        if task.staged and not task.commit(wait=wait):
            return False
        task.succeed()
    except BaseException as error:
        task.fail_at_end(error)
    return True


def deadline_error(task: GraphTask) -> TimeoutError:
    """What a pass raises whose deadline has passed."""
    return TimeoutError(
        f"a backward pass with deadline {task.deadline} did not end in time; no .grad was touched. "
        f"Give it more time or a higher priority."
    )


def as_failure(error: BaseException) -> BaseException:
    """The error as the caller of a pass can be given it.

    Futures refuse StopIteration, and a node's own CancelledError is the node's failure and no
    cancellation of who awaits the pass.
    """
    if isinstance(error, (StopIteration, asyncio.CancelledError)):
        failure = AutogradError(f"a node raised {error!r}")
        failure.__cause__ = error
        return failure
    return error


# -- one for each loop ---------------------------------------------------------

_engines: dict[int, Engine] = {}
os.register_at_fork(after_in_child=_engines.clear) if hasattr(os, "register_at_fork") else None


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
