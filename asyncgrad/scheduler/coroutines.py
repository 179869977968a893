"""Coroutine nodes: each waits in an asyncio task of its own, beside all else that is ready."""

from __future__ import annotations

import asyncio
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncgrad.core.commit import when_free
from asyncgrad.core.modes import current, install
from asyncgrad.records import NamedTuple
from asyncgrad.scheduler.completion import is_stop, stopped_by
from asyncgrad.scheduler.segments import settle, tell_loop

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.core.states import Suspended
    from asyncgrad.scheduler.engine import Engine

#: How many coroutine nodes of one pass wait at the same time, unless the engine is told otherwise.
LIMIT = 128
#: Seconds that a cancelled coroutine node has to end, unless the engine is told otherwise.
GRACE = 5.0
#: Seconds after which a pass whose coroutine nodes all wait, while more could begin, says so.
STALLED = 10.0


class Ended(NamedTuple):
    """How a coroutine node ended: it returned or raised, or its wait was cancelled by the loop."""

    result: Any = None
    error: BaseException | None = None
    #: The loop is ending all its tasks.
    cancelled: bool = False


class CoroutineNodes:
    """Those of one engine."""

    def __init__(self) -> None:
        """None runs."""
        self.limit = LIMIT
        self.grace = GRACE
        #: What runs for each pass. A pass that is ending is not in here any more.
        self._running: dict[GraphTask, dict[asyncio.Task[Any], Suspended]] = {}
        #: For each pass that has more than may run: runs out when none has ended for long.
        self._full: dict[GraphTask, asyncio.TimerHandle] = {}

    def launch(self, engine: Engine, task: GraphTask) -> None:
        """Begin what suspended nodes of a pass wait for, as far as the limit allows."""
        running = self._running.setdefault(task, {})
        while task.suspended and len(running) < self.limit:
            # It leaves the list last: an interrupt that comes in between must not lose it.
            suspended = task.suspended[0]
            # Not `create_task`: an eager task factory would run the node here and now.
            waiting = asyncio.Task(
                wait_for_node(suspended.waiting),
                loop=engine.loop,
                name=f"asyncgrad {suspended.node.name()}",
                context=None if task.context is None else task.context.copy(),
            )
            waiting.add_done_callback(partial(self._ended, engine, task, suspended))
            running[waiting] = suspended
            del task.suspended[0]
            engine.tell(task, f"awaits {suspended.node.name()}")
        if task.suspended and task not in self._full:
            self._full[task] = engine.loop.call_later(STALLED, self._warn, task)

    def go_on(self, engine: Engine) -> None:
        """Have passes begin what a new limit allows."""
        for task in tuple(self._running):
            self._moves(task)
            engine.hurry(task)

    def _warn(self, task: GraphTask) -> None:
        del self._full[task]
        warn_of_stall(task, self.limit)

    def _moves(self, task: GraphTask) -> None:
        """Something has ended: a pass does not stand still."""
        timer = self._full.pop(task, None)
        if timer is not None:
            timer.cancel()

    def is_one_of(self, task: GraphTask) -> bool:
        """Whether the current asyncio task is a coroutine node of a pass."""
        running = self._running.get(task)
        return running is not None and asyncio.current_task() in running

    def _ended(
        self, engine: Engine, task: GraphTask, suspended: Suspended, waiting: asyncio.Task[Any]
    ) -> None:
        """Report for a coroutine node; it may have been cancelled before it began."""
        running = self._running.get(task, {})
        known = running.pop(waiting, None) is not None
        self._moves(task)
        if known and not running:
            del self._running[task]
        if waiting.cancelled():
            discard(suspended)
            if known and not waiting.cancelling():
                ended = Ended(error=asyncio.CancelledError())
            else:
                # Where neither the node nor the engine did it, the loop is ending all its tasks.
                ended = Ended(cancelled=known)
        else:
            ended = Ended(error=waiting.exception())
            if ended.error is None:
                ended = Ended(waiting.result())
        if suspended.node not in task.launched:
            # The pass did not wait for it.
            return
        if ended.error is not None and is_stop(ended.error):
            # The loop has raised it already.
            engine.fail_all(ended.error)
            ended = Ended(error=stopped_by(ended.error))
        try:
            engine.node_ended(task, suspended, ended)
        finally:
            # The error's traceback may hold this frame.
            del ended, waiting, suspended

    def stop(self, engine: Engine, task: GraphTask) -> None:
        """Cancel the coroutine nodes of a pass, once."""
        running = self._running.pop(task, None)
        self._moves(task)
        if not running:
            return
        for waiting in running:
            waiting.cancel()
        if task.timer is not None:
            # The deadline's: the pass is ending as it is.
            task.timer.cancel()
        task.timer = engine.loop.call_later(self.grace, self._give_up, engine, task, running)

    def _give_up(
        self, engine: Engine, task: GraphTask, running: dict[asyncio.Task[Any], Suspended]
    ) -> None:
        """Go on without the nodes that have ignored their cancellation."""
        for waiting, suspended in running.items():
            if waiting.done():
                continue
            engine.loop.call_exception_handler(
                {
                    "message": f"a coroutine of {suspended.node.name()} has not ended "
                    f"{self.grace} s after it was cancelled: its pass ends without it. Let it "
                    f"raise CancelledError on, or shorten its clean-up.",
                    "task": waiting,
                }
            )
            engine.tell(task, f"gave {suspended.node.name()} up")
            engine.node_ended(task, suspended, Ended())


async def wait_for_node(awaitable: Any) -> Any:
    """Run a coroutine node, in its copy of the pass's context."""
    install(current().replace(in_node=False))
    # What happens to the pass meanwhile is its owner's to see; cancelled here, the node is.
    return await awaitable


async def until_free() -> None:
    """Wait until no pass commits, in any thread; another one may by the time that this is known."""
    loop = asyncio.get_running_loop()
    free = loop.create_future()
    when_free(partial(tell_loop, loop, settle, free))
    # Cancelled here, nothing has been committed; who calls finds the future done and leaves it so.
    await free


def discard(suspended: Suspended) -> None:
    """End what a suspended node would have waited for."""
    waiting = suspended.waiting
    end = getattr(waiting, "close", None) or getattr(waiting, "cancel", None)
    if end is not None:
        end()


def warn_of_stall(task: GraphTask, limit: int) -> None:
    """Say that a pass may wait for ever."""
    warnings.warn(
        f"{limit} coroutine nodes or hooks of the pass started at {task.freed} have waited for "
        f"{STALLED} s, and none has ended: {len(task.suspended)} more begin only when one does. If "
        f"they wait for these, they wait for ever: await the pass on a loop with a higher "
        f"asyncgrad.engine().limit(coroutine_nodes=)",
        RuntimeWarning,
        stacklevel=1,
    )
