"""The coroutine that gives one pass after the other a slice: there while passes wait, then gone."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from asyncgrad.scheduler.ending import is_stop

if TYPE_CHECKING:
    from asyncgrad.scheduler.engine import Engine

#: How many passes that have ended while they waited are passed over in one turn of the loop.
_PASSED_OVER = 64


class Worker:
    """The one of one engine."""

    __slots__ = ("held_ns", "longest_hold_ns", "task")

    def __init__(self) -> None:
        """Nobody waits."""
        self.task: asyncio.Task[None] | None = None
        #: For how long slices that passes have waited for have held the loop.
        self.held_ns = self.longest_hold_ns = 0

    def serve(self, engine: Engine, budget: int) -> None:
        """Give the pass whose turn it is a slice."""
        start = engine.clock()
        for _ in range(_PASSED_OVER):
            turn = engine.queue.next_turn(start)
            if turn is None:
                return
            task, waited = turn
            task.queued = False
            if task.future is not None:
                break
        else:
            return
        engine.tell(task, "runs a slice")
        if task.observer is not None:
            task.observer.waited(task, waited)
        engine.run_slice(task, budget)
        held = engine.clock() - start
        self.held_ns += held
        self.longest_hold_ns = max(self.longest_hold_ns, held)

    def start(self, engine: Engine) -> None:
        """Begin, unless that has been done."""
        if self.task is None:
            work = self._work(engine)
            # Up to its first wait: a loop may be closed before the worker's first turn, which is
            # nothing that anybody has to be told.
            work.send(None)
            # Not `create_task`: an eager task factory would run a slice here and now.
            self.task = asyncio.Task(work, loop=engine.loop, name="asyncgrad worker")
            self.task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.task.add_done_callback(partial(self._ended, engine))

    async def _work(self, engine: Engine) -> None:
        """Give one pass after the other a slice until none waits."""
        while True:
            # Everything may have changed here: passes come, end and are cancelled. Cancelled here,
            # the worker ends and `_ended` starts another for what still waits.
            await asyncio.sleep(0)
            if engine.queue.empty():
                return
            self.serve(engine, engine.slice_ns)
            if engine.queue.empty():
                return

    def _ended(self, engine: Engine, worker: asyncio.Task[None]) -> None:
        """A worker may be cancelled with its loop's other tasks: passes in clean-up code go on."""
        self.task = None
        loop = engine.loop
        if not worker.cancelled():
            error = worker.exception()
            if error is not None and not is_stop(error):
                loop.call_exception_handler(
                    {"message": "asyncgrad's worker failed", "exception": error}
                )
        if not engine.queue.empty() and not loop.is_closed():
            self.start(engine)
