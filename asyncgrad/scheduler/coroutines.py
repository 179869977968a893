"""Coroutine nodes: each is awaited in its own asyncio task, while other nodes run."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable
from functools import partial
from typing import Any

from asyncgrad.core.commit_turns import when_free
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.node import name_of
from asyncgrad.core.states import Suspended
from asyncgrad.devices.waiting import settle, tell_loop
from asyncgrad.scheduler.completion import for_another, raised_by_node
from asyncgrad.scheduler.future import BackwardFuture
from asyncgrad.scheduler.host import Host, call_later

#: The default limit of coroutine nodes of one pass that wait at the same time.
LIMIT = 128
#: The default time, in seconds, that a cancelled coroutine node has to end.
GRACE = 5.0
#: A pass warns after this many seconds if the limit is reached and none of its nodes has ended.
STALLED = 10.0


class CoroutineNodes:
    """The coroutine nodes that wait on one engine's loop."""

    def __init__(self) -> None:
        self.limit = LIMIT
        self.grace = GRACE
        #: The asyncio tasks of each pass. A pass that is ending has been removed.
        self._running: dict[GraphTask, dict[asyncio.Task[Any], Suspended]] = {}
        #: For each pass at its limit: the timer of its warning.
        self._full: dict[GraphTask, asyncio.TimerHandle] = {}

    def launch(self, host: Host, task: GraphTask) -> None:
        """Start the coroutines of a pass's suspended nodes, as far as the limit allows."""
        running = self._running.setdefault(task, {})
        while task.suspended and len(running) < self.limit:
            # The node leaves the list only below, so that no interrupt in between loses it.
            suspended = task.suspended[0]
            # Not `create_task`: an eager task factory would run the node at once, in here.
            waiting = asyncio.Task(
                wait_for_node(suspended.waiting),
                loop=host.loop,
                name=f"asyncgrad {name_of(suspended.node)}",
                context=suspended.context,
            )
            waiting.add_done_callback(partial(self._ended, host, task, suspended))
            running[waiting] = suspended
            del task.suspended[0]
            host.log(task, f"awaits {name_of(suspended.node)}")
        if task.suspended and task not in self._full:
            self._full[task] = call_later(host.loop, STALLED, self._warn, task)

    def stop_warnings(self) -> tuple[GraphTask, ...]:
        """Stop all warnings; returns the passes, which may start more nodes by a new limit."""
        tasks = tuple(self._running)
        for task in tasks:
            self._stop_warning(task)
        return tasks

    def _warn(self, task: GraphTask) -> None:
        del self._full[task]
        warn_of_stall(task, self.limit)

    def _stop_warning(self, task: GraphTask) -> None:
        """Stop the timer of a pass's warning, because a node has ended."""
        timer = self._full.pop(task, None)
        if timer is not None:
            timer.cancel()

    def waits_for_caller(self, task: GraphTask) -> bool:
        """Whether a pass can't end before the current asyncio task goes on.

        So it is where one of its coroutine nodes is that task or waits for it: directly, by
        `gather`, or by another pass. Other ways to wait, as that of `asyncio.wait`, can't be seen.
        """
        caller = asyncio.current_task()
        found: list[Any] = list(self._running.get(task, ()))
        seen: set[Any] = set()
        while found:
            future = found.pop()
            if future is caller and caller is not None:
                return True
            if future is None or future in seen:
                continue
            seen.add(future)
            if isinstance(future, asyncio.Task):
                found.append(future._fut_waiter)  # type: ignore[attr-defined]
            elif isinstance(future, BackwardFuture):
                found += self._running.get(future._task, ())  # type: ignore[arg-type]
            else:
                found += getattr(future, "_children", ())
        return False

    def _ended(
        self, host: Host, task: GraphTask, suspended: Suspended, waiting: asyncio.Task[Any]
    ) -> None:
        """Report the end of a coroutine node, which may have been cancelled before it began."""
        running = self._running.get(task, {})
        known = running.pop(waiting, None) is not None
        self._stop_warning(task)
        if known and not running:
            del self._running[task]
        result: Any = None
        error: BaseException | None = None
        cancels = False
        if waiting.cancelled():
            discard(suspended)
            # By the engine, as the pass is ending, or by a loop that cancels all its tasks.
            cancels = not known or waiting.cancelling() > 0
            if not cancels:
                error = asyncio.CancelledError()
        else:
            error = waiting.exception()
            result = waiting.result() if error is None else None
        if suspended.node not in task.launched:
            # The pass has ended without it.
            return
        if cancels:
            task.inbox.append(task.cancel)
        try:
            host.node_ended(task, suspended, result, error)
        finally:
            del result, error, waiting, suspended, running  # See core.frames.

    def stop(self, host: Host, task: GraphTask) -> None:
        """Cancel the coroutine nodes of a pass, once; those that ignore it are given up later."""
        running = self._running.pop(task, None)
        self._stop_warning(task)
        if not running:
            return
        for waiting in running:
            waiting.cancel()
        if task.timer is not None:
            # The timer was the deadline's, which does not matter any more: the pass is ending.
            task.timer.cancel()
        task.timer = call_later(host.loop, self.grace, self._give_up, host, task, running)

    def forget_lost(self, task: GraphTask, *, stopped: bool) -> bool:
        """Forget the launched nodes of a pass that will not report; whether there are any.

        While the loop is not `stopped`, a node that has ended may still report.
        """
        running = self._running.get(task, {})
        awaited = [one for waiting, one in running.items() if not (stopped and waiting.done())]
        lost = task.launched.keys() - {one.node for one in (*awaited, *task.suspended)}
        for node in lost:
            del task.launched[node]
        return bool(lost)

    def _give_up(
        self, host: Host, task: GraphTask, running: dict[asyncio.Task[Any], Suspended]
    ) -> None:
        """End the pass without those nodes that have ignored their cancellation."""
        for waiting, suspended in running.items():
            if waiting.done():
                # Its report has been read, unless an interrupt has cut that off.
                self._ended(host, task, suspended, waiting)
                continue
            report_late(host.loop, name_of(suspended.node), self.grace, waiting)
            host.log(task, f"gave {name_of(suspended.node)} up")
            host.node_ended(task, suspended, None, None)


async def wait_for_node(awaitable: Awaitable[Any]) -> Any:
    """Run a coroutine node, in its copy of the pass's context."""
    # While this waits, the owner of the pass handles changes of the pass. Cancelling this wait ends
    # the node.
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:
        if for_another.get():
            raise raised_by_node(error) from error
        raise


def report_late(
    loop: asyncio.AbstractEventLoop, of: str, grace: float, task: asyncio.Task[Any] | None
) -> None:
    """Tell the loop's exception handler of a coroutine that ignores its cancellation."""
    message = (
        f"a coroutine of {of} has not ended {grace} s after it was cancelled: its pass ends "
        f"without it. Let it raise CancelledError on, or shorten its clean-up."
    )
    loop.call_exception_handler({"message": message, "task": task})


async def until_free() -> None:
    """Wait until no pass commits, in any thread; another may have begun when this returns."""
    loop = asyncio.get_running_loop()
    free = loop.create_future()
    when_free(partial(tell_loop, loop, settle, free))
    # To cancel this wait is harmless: nothing has been committed, and `settle` ignores a future
    # that is done.
    await free


def discard(suspended: Suspended) -> None:
    """Close or cancel the awaitable of a suspended node, which was never awaited."""
    waiting = suspended.waiting
    end = getattr(waiting, "close", None) or getattr(waiting, "cancel", None)
    if end is not None:
        end()


def discard_all(task: GraphTask) -> None:
    """Give up the suspended nodes of a pass that is ending, whose coroutines have not begun."""
    while task.suspended:
        suspended = task.suspended.pop()
        discard(suspended)
        task.resume(suspended.node, suspended.steps, None, None)


def warn_of_stall(task: GraphTask, limit: int) -> None:
    """Warn that a pass may wait for ever."""
    warnings.warn(
        f"{limit} coroutine nodes or hooks of the pass started at {task.freed} have waited for "
        f"{STALLED} s, and none has ended: {len(task.suspended)} more begin only when one does. If "
        f"they wait for these, they wait for ever: await the pass on a loop with a higher "
        f"asyncgrad.engine().limit(coroutine_nodes=)",
        RuntimeWarning,
        stacklevel=1,
    )
