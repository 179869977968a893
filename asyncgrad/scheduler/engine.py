"""One engine for each event loop: how it and its passes begin, what limits it, and how it ends."""

from __future__ import annotations

import asyncio
import sys
import weakref
from asyncio import current_task
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from operator import index
from typing import Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.devices.pool import POOL
from asyncgrad.devices.waiting import settle, tell_loop
from asyncgrad.scheduler import blas, loop_thread
from asyncgrad.scheduler.completion import time_left
from asyncgrad.scheduler.coroutines import GRACE, LIMIT
from asyncgrad.scheduler.future import BackwardFuture
from asyncgrad.scheduler.host import SLICE_NS, call_later
from asyncgrad.scheduler.portal import is_shared
from asyncgrad.scheduler.running import RunningPasses
from asyncgrad.scheduler.statistics import Collections, EngineStatistics
from asyncgrad.scheduler.yielding import IdleQueue, YieldQueue

#: Unused memory is returned to the system when no large array was made for this many seconds.
IDLE_S = 10.0
#: How much a caller's first slice may overdraw the rest of a turn. A turn's budget is less than a
#: slice by this much.
_OVERDRAFT_NS = 100_000

#: What users call; other members serve the engine's parts.
FOR_USERS = ("limit", "loop", "statistics")


class Engine(RunningPasses):
    """Runs the passes of one event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, forget: Callable[[Engine], None],
        after_collection: Callable[[], None],
    ) -> None:  # fmt: skip
        """Make the engine of a loop; `forget` is called when it must not be used any more."""
        super().__init__(loop)
        self._forget = forget
        #: When the present or last turn of the loop began that passes share.
        self._turn_start = 0
        self.collections = Collections(self.counts, after_collection)
        #: Tasks that have yielded, in order.
        self.yield_queue = YieldQueue(SLICE_NS)
        #: Tasks that yield until the loop is idle.
        self.idle_queue = IdleQueue()
        #: Not on the loop that synchronous passes share: it lasts as long as the process, and their
        #: products are computed by BLAS's own threads.
        self._limits_blas = not is_shared(loop)
        #: A timer will check whether the process is idle.
        self._watches_idle = False
        #: A future during shut-down: done when no pass is left.
        self.emptied: asyncio.Future[None] | None = None
        self._closer: AsyncGenerator[None, None] | None = None
        try:
            self.thread_segments.threads.start()
            self.collections.watch()
            if loop_thread.shorten_slice(self):
                # The loop's thread gets a core as soon as it wakes, so none is left idle for it.
                self.thread_segments.threads.kept = 0
            if self._limits_blas:
                blas.one_thread.hold(self)
            self._closer = _end_with(weakref.WeakMethod(self.shut_down), loop)
        except BaseException:
            # An interrupt: nobody will close this engine.
            self.close()
            raise
        if self._closer is None:
            self.close()

    # -- passes ---------------------------------------------------------

    def submit(self, task: GraphTask, loop: asyncio.AbstractEventLoop) -> BackwardFuture[Any]:
        """Start a pass; the caller runs its first slice if this turn of the loop has time left.

        A slice may overdraw the turn, so that a pass that is nearly done need not wait for another
        turn; its future then yields to the loop when it is awaited.
        """
        future = task.future = BackwardFuture(self, loop, task, current_task(loop))
        try:
            left = self.budget_left(loop)
            if loop.get_debug():
                left = 0
            self.counts["passes"] += 1
            if self.admission.limit is not None and self.admission.must_wait(task):
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
                    task.timer = call_later(loop, time_left(task), self._expire, task)
            return future
        except BaseException:
            if not (task.future is None or future.done()):
                # An interrupt: nobody gets the future, and the pass must not go on.
                self.live.add(task)
                task.running = False
                if not self.cancel(task):
                    self.revive(task)
            raise
        finally:
            # The error refers to a failed node's frame, that frame to this one, and the future to
            # the error. If this frame kept the future, that cycle would keep the graph alive.
            del future

    def budget_left(self, loop: asyncio.AbstractEventLoop) -> int:
        """The rest of this turn's budget; opens the turn if none is open."""
        now = self.clock()
        budget = self.slice_ns - _OVERDRAFT_NS
        if self.turn_open:
            return budget - (now - self._turn_start)
        self._turn_start = now
        loop.call_soon(self._end_turn)
        # This is set last, so that no interrupt in between leaves a turn open that nothing ends.
        self.turn_open = True
        return budget

    def _end_turn(self) -> None:
        """End a turn of the loop, and start the worker if passes wait."""
        self.turn_open = self.spent = False
        took = self.clock() - self._turn_start
        self.counts["longest_turn"] = max(self.counts["longest_turn"], took)
        if not self.queue.empty():
            self.worker.start(self)

    def runs_at_once(self, nanoseconds: int) -> bool:
        """Whether a caller may run a pass of this cost itself, now; counts it.

        It may if this turn of the loop has so much of its budget left and nothing limits passes.
        """
        loop = self.loop
        if self.admission.limit is not None or loop.get_debug():
            return False
        if self.budget_left(loop) < nanoseconds:
            return False
        self.counts["passes"] += 1
        return True

    # -- life ---------------------------------------------------------

    async def shut_down(self) -> None:
        """Cancel passes that no task awaits, wait until no pass is left, and close."""
        if self.closed:
            return
        for task in tuple(self.live):
            # To cancel one pass may end others, which its coroutines have awaited.
            if task.future is not None and not task.ending and task.future._is_abandoned():
                self.cancel(task)
            else:
                self.revive(task)
        loop = self.loop
        if self.live:
            self.emptied = loop.create_future()
            # While this waits, other generators may start passes. Passes that start after `close`
            # run on the loop. A runner that does not want to wait cancels this: each thread then
            # ends after its present segment.
            await self.emptied
        worker = self.worker.task
        if worker is not None:
            # No pass waits for a turn any more. If this wait is cancelled, the loop ends the worker
            # with its other tasks.
            await asyncio.wait([worker])
        gone = loop.create_future()
        self.close(partial(tell_loop, loop, settle, gone))
        # The threads finish offloaded functions, even if this wait is cancelled.
        await gone
        while self.thread_segments.threads.alive():  # noqa: ASYNC110  there is no notification
            # The last thread has called `ended`, and needs some microseconds to end.
            await asyncio.sleep(0)

    def __repr__(self) -> str:
        passes, in_flight = self.counts["passes"], len(self.live)
        return f"<Engine of {self._loop()!r}: {passes} passes, {in_flight} in flight>"

    def __dir__(self) -> list[str]:
        """The names that interactive completion offers."""
        return [*FOR_USERS, *(name for name in super().__dir__() if name.startswith("__"))]

    def close(self, ended: Callable[[], None] | None = None) -> None:
        """Stop the threads, the last of which calls `ended`; later passes run on the loop.

        It may be called again, as when an interrupt has cut it short.
        """
        self.closed = True
        # Both refer to the loop, which would keep the loop and the engine alive together.
        self._closer = self.emptied = None
        self.thread_segments.close(ended)
        self.collections.unwatch()
        if self._limits_blas:
            blas.one_thread.drop(self)
        loop_thread.restore_slice(self)

    def drop(self) -> None:
        """Drop the engine in a forked child: its threads and its loop are the parent's."""
        self.closed = True
        self.collections.unwatch()

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
        try:
            passes = None if passes is None else index(passes)
            coroutine_nodes = index(coroutine_nodes)
            possible = (passes is None or passes > 0) and coroutine_nodes > 0 and grace >= 0
        except TypeError:
            raise TypeError(
                f"limit: passes={passes!r}, coroutine_nodes={coroutine_nodes!r}, grace={grace!r}: "
                f"how many run at once is an int, or None for any number of passes, and seconds "
                f"are a number"
            ) from None
        if not possible:
            raise ValueError(
                f"limit: passes={passes}, coroutine_nodes={coroutine_nodes}, grace={grace}: at "
                f"least one pass and one coroutine have to run, and no time is negative"
            )
        self.admission.set_limit(passes)
        self.coroutine_nodes.limit = coroutine_nodes
        self.coroutine_nodes.grace = grace
        self.admit()
        for task in self.coroutine_nodes.stop_warnings():
            self.read_inbox(task)

    # -- the end of passes ------------------------------------------------

    def stop(self) -> None:
        """Close the engine for good."""
        self.close()
        self._forget(self)

    def _note_empty(self) -> None:
        """Note that no pass is left."""
        self._watch_idle()
        if self.emptied is not None and not self.emptied.done():
            self.emptied.set_result(None)

    def _watch_idle(self) -> None:
        """Set a timer that returns unused memory if the process is idle by then."""
        if not self._watches_idle and not self.closed:
            self._watches_idle = True
            call_later(self.loop, IDLE_S, self._trim, POOL.lent)

    def _trim(self, lent: int) -> None:
        """Return unused memory to the system if none has been lent since."""
        self._watches_idle = False
        if POOL.lent == lent:
            POOL.shrink(0)
        elif not self.live:
            self._watch_idle()

    # -- statistics ---------------------------------------------------------

    def statistics(self) -> EngineStatistics:
        """What the engine has done so far."""
        held = len(self.admission.held)
        counts = self.counts | {
            "in_flight": len(self.live) - held,
            "held_back": held,
            "queued": self.queue.waiting(),
            "bytes_held": POOL.unused,
        }
        kinds = EngineStatistics.__annotations__
        return EngineStatistics(
            *(counts[name] / 1e9 if kinds[name] == "float" else counts[name] for name in kinds)  # type: ignore[arg-type]
        )


def _end_with(
    shut_down: weakref.WeakMethod[Callable[[], Awaitable[None]]], loop: asyncio.AbstractEventLoop
) -> AsyncGenerator[None, None] | None:
    """Make an engine shut down with its loop's asynchronous generators, as every runner does.

    Returns:
        A generator that must live as long as the engine; None if the loop has shut down already.
    """
    if getattr(loop, "_asyncgens_shutdown_called", False):
        return None

    async def until_shutdown() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            end = shut_down()
            if end is not None:
                # Nothing follows, so neither a change nor a cancellation matters here.
                await end()

    closer = until_shutdown()
    finalizer = sys.get_asyncgen_hooks().finalizer
    # The generator keeps the finalizer hook that is set when it starts, and the hook refers to the
    # loop. With the hook, a loop that is never closed would leak, so there is none for a moment.
    sys.set_asyncgen_hooks(finalizer=None)
    try:
        step = closer.__anext__()
    except ResourceWarning:
        # The generators of a uvloop are shut down already. It only warns of that, and the warning
        # is raised here if warnings are errors.
        return None
    finally:
        sys.set_asyncgen_hooks(finalizer=finalizer)
    with suppress(StopIteration):
        step.send(None)
    return closer
