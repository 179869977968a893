"""The coroutine that gives one pass after the other a slice: there while passes wait, then gone."""

from __future__ import annotations

import asyncio
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any

from asyncgrad.scheduler.completion import is_stop

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncgrad.scheduler.engine import Engine

#: By how much nodes may be slower and faster than expected for it to count.
_SLOWEST, _FASTEST = 0.25, 4.0
#: Turns of the loop between two slices: what a timer or a socket wakes gets done in the meantime,
#: for that takes a turn to see the event, one for a future's callbacks, and one for their task.
#: One is enough where it has shown that there is nothing else to do.
_TURNS = 3


@coroutine
def _next_turn() -> Generator[None, None, None]:
    """Wait for the next turn of the loop, as `sleep(0)` does."""
    yield


class Worker:
    """The one of one engine."""

    __slots__ = ("_speed", "held_ns", "longest_hold_ns", "task")

    def __init__(self) -> None:
        """Nobody waits."""
        self.task: asyncio.Task[None] | None = None
        #: How many nanoseconds of nodes' expected cost one of the clock has been worth lately.
        self._speed = 1.0
        #: For how long slices that passes have waited for have held the loop.
        self.held_ns = self.longest_hold_ns = 0

    def serve(self, engine: Engine, budget: int) -> bool:
        """Give the pass whose turn it is a slice; False if that has time left for another one."""
        start = engine.clock()
        queue = engine.queue
        turn = queue.next_turn(start)
        if turn is None:
            return False
        task, waited = turn
        engine.tell(task, "runs a slice", start)
        if task.observer is not None:
            task.observer.waited(task, waited)
        walks = task.walk is not None
        worth = budget if walks else int(budget * self._speed)
        if worth > task.share_ns and (task.streams is not None or not queue.empty()):
            worth = task.share_ns
        engine.run_slice(task, worth)
        held = engine.clock() - start
        self.held_ns += held
        if held > self.longest_hold_ns:
            self.longest_hold_ns = held
        if not task.queued:
            return False
        if held and not walks:
            # It went on to the end of its slice. What was an accident of this one counts little.
            seen = min(max(worth / held, _SLOWEST), _FASTEST)
            self._speed += (seen - self._speed) / 4
        return True

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
        queue = engine.queue
        # What else the loop is about to do, where it lets that be seen.
        ready: Any = getattr(engine.loop, "_ready", True)
        turns = 1
        while True:
            # Everything may have changed here: passes come, end and are cancelled. Cancelled here,
            # the worker ends and `_ended` starts another for what still waits.
            start = engine.clock()
            for _ in range(turns):
                await _next_turn()
                if not ready or engine.clock() - start > engine.slice_ns:
                    break
            now = engine.clock()
            end = now + engine.slice_ns
            while not queue.empty():
                if self.serve(engine, end - now):
                    break
                now = engine.clock()
                if end - now < engine.slice_ns // 4:
                    break
            if queue.empty():
                return
            turns = _TURNS

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
