"""The coroutine that gives waiting passes a slice each; it exists only while passes wait."""

from __future__ import annotations

import asyncio
from contextvars import Context
from functools import partial
from typing import Any

from asyncgrad.core.streams import next_turn
from asyncgrad.errors import is_stop
from asyncgrad.scheduler.host import Host
from asyncgrad.scheduler.queues import PassQueue

#: Limits of a slice's speed as measured by `serve`, relative to what is expected.
_SLOWEST, _FASTEST = 0.25, 4.0
#: Turns of the loop between two slices, in which tasks woken by timers or sockets run. They need a
#: turn to see the event, one for the future's callbacks, and one for the task. A single turn is
#: enough if it shows that the loop has nothing else to do.
_TURNS = 3


class Worker:
    """Runs slices of the passes in a host's queue, in a task that ends when the queue is empty."""

    __slots__ = ("_queue", "_speed", "task")

    def __init__(self, queue: PassQueue) -> None:
        self._queue = queue
        self.task: asyncio.Task[None] | None = None
        #: Recent speed: nanoseconds of expected cost per nanosecond of the clock.
        self._speed = 1.0

    def serve(self, host: Host, budget: int) -> bool:
        """Run a slice of the next pass; whether it was used up, so that no time is left."""
        start = host.clock()
        queue = self._queue
        turn = queue.next_turn(start)
        if turn is None:
            return False
        task, waited = turn
        counts = host.counts
        counts["queue_waits"] += 1
        counts["queue_wait"] += waited
        if waited > counts["longest_queue_wait"]:
            counts["longest_queue_wait"] = waited
        host.log(task, "runs a slice", start)
        if task.observer is not None:
            task.observer.waited(task, waited)
        walks = task.walk is not None
        worth = budget if walks else int(budget * self._speed)
        if worth > task.share_ns and (task.streams is not None or not queue.empty()):
            worth = task.share_ns
        host.run_slice(task, worth)
        held = host.clock() - start
        counts["loop_held"] += held
        if held > counts["longest_hold"]:
            counts["longest_hold"] = held
        if task not in queue:
            return False
        if held and not walks:
            # The pass has used its whole slice. The average limits what one accidental pause does.
            seen = min(max(worth / held, _SLOWEST), _FASTEST)
            self._speed += (seen - self._speed) / 4
        return True

    def start(self, host: Host) -> None:
        """Start the coroutine, unless it is running."""
        if self.task is None:
            work = self._work(host)
            # Run it up to its first await, so that Python does not warn of a coroutine that was
            # never awaited if the loop is closed before the worker's first turn.
            work.send(None)
            # Not `create_task`: an eager task factory would run a slice at once, in here. While
            # passes wait it lives on, so it must not keep what the caller's context leads to.
            empty = Context()
            self.task = asyncio.Task(work, loop=host.loop, name="asyncgrad worker", context=empty)
            self.task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.task.add_done_callback(partial(self._ended, host), context=empty)

    async def _work(self, host: Host) -> None:
        """Give one pass after the other a slice until none waits."""
        queue = self._queue
        # The loop's queue of callbacks that are ready, if it exposes one.
        ready: Any = getattr(host.loop, "_ready", True)
        turns = 1
        while True:
            # While this waits, passes start, end and are cancelled. If this wait is cancelled, the
            # worker ends, and `_ended` starts another one if passes still wait.
            start = host.clock()
            for _ in range(turns):
                await next_turn()
                if not ready or host.clock() - start > host.slice_ns:
                    break
            now = host.clock()
            end = now + host.slice_ns
            while not queue.empty():
                if self.serve(host, end - now):
                    break
                now = host.clock()
                if end - now < host.slice_ns // 4:
                    break
            if queue.empty():
                return
            turns = _TURNS

    def _ended(self, host: Host, worker: asyncio.Task[None]) -> None:
        """Restart a worker that was cancelled with the loop's other tasks, if passes wait."""
        self.task = None
        loop = host.loop
        if not worker.cancelled():
            error = worker.exception()
            if error is not None and not is_stop(error):
                loop.call_exception_handler(
                    {"message": "asyncgrad's worker failed", "exception": error}
                )
        if not self._queue.empty() and not loop.is_closed():
            self.start(host)
