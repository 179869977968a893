"""The coroutine that gives waiting passes a slice each; it exists only while passes wait."""

from __future__ import annotations

import asyncio
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any

from asyncgrad.scheduler.completion import is_stop

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncgrad.scheduler.engine import Engine

#: Limits of a slice's speed as measured by `serve`, relative to what is expected.
_SLOWEST, _FASTEST = 0.25, 4.0
#: Turns of the loop between two slices, in which tasks woken by timers or sockets run. They need a
#: turn to see the event, one for the future's callbacks, and one for the task. A single turn is
#: enough if it shows that the loop has nothing else to do.
_TURNS = 3


@coroutine
def _next_turn() -> Generator[None, None, None]:
    """Wait for the next turn of the loop, as `sleep(0)` does."""
    yield


class Worker:
    """The worker of one engine."""

    __slots__ = ("_speed", "held_ns", "longest_hold_ns", "task")

    def __init__(self) -> None:
        """Start idle."""
        self.task: asyncio.Task[None] | None = None
        #: Recent speed: nanoseconds of expected cost per nanosecond of the clock.
        self._speed = 1.0
        #: How long slices of queued passes have held the loop: total and longest.
        self.held_ns = self.longest_hold_ns = 0

    def serve(self, engine: Engine, budget: int) -> bool:
        """Run a slice of the next pass; False if there is time left for another one."""
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
            # It used its whole slice. The average limits the effect of one accidental pause.
            seen = min(max(worth / held, _SLOWEST), _FASTEST)
            self._speed += (seen - self._speed) / 4
        return True

    def start(self, engine: Engine) -> None:
        """Start the coroutine, unless it is running."""
        if self.task is None:
            work = self._work(engine)
            # Run it up to its first await, so that Python does not warn of a coroutine that was
            # never awaited if the loop is closed before the worker's first turn.
            work.send(None)
            # Not `create_task`: an eager task factory would run a slice at once, in here.
            self.task = asyncio.Task(work, loop=engine.loop, name="asyncgrad worker")
            self.task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.task.add_done_callback(partial(self._ended, engine))

    async def _work(self, engine: Engine) -> None:
        """Give one pass after the other a slice until none waits."""
        queue = engine.queue
        # The loop's queue of callbacks that are ready, if it exposes one.
        ready: Any = getattr(engine.loop, "_ready", True)
        turns = 1
        while True:
            # Any change is possible here: passes come, end and are cancelled. If cancelled here,
            # the worker ends, and `_ended` starts another for passes that still wait.
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
        """Restart a worker that was cancelled with the loop's other tasks, if passes wait."""
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
