"""The one loop that synchronous passes share, in its own thread, started when first needed."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, current_task
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from asyncgrad.aliases import Value
from asyncgrad.core.frames import value_of
from asyncgrad.core.locks import at_fork, lasting_lock
from asyncgrad.scheduler.coroutines import GRACE, report_late
from asyncgrad.scheduler.host import call_later

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task, TimerHandle
    from contextvars import Context

#: The shared loop, once it runs.
_loops: list[AbstractEventLoop] = []
_starting = lasting_lock()


def _shared_loop() -> AbstractEventLoop:
    """The loop of synchronous passes, which runs until the process ends."""
    with _starting:
        if not _loops:
            failed: SimpleQueue[BaseException | None] = SimpleQueue()
            # A daemon: the interpreter does not wait for it.
            Thread(target=_serve, args=(failed,), name="asyncgrad portal", daemon=True).start()
            value_of(None, failed.get())
        return _loops[0]


def _serve(failed: SimpleQueue[BaseException | None]) -> None:
    running: list[AbstractEventLoop] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        # A loop policy may have set an eager task factory.
        loop.set_task_factory(None)
        # Not by the thread that waits, which an interrupt may keep from it.
        running.append(loop)
        _loops.append(loop)
        failed.put(None)
        try:
            await loop.create_future()
        finally:
            # A task has raised SystemExit or KeyboardInterrupt: the next pass starts another loop.
            _loops.remove(loop)

    try:
        asyncio.run(main())
    except BaseException as error:
        if running:
            raise
        # No loop could be made, as when too many files are open: the thread that waits gets the
        # error, and the next one tries again.
        failed.put(error)


def is_shared(loop: AbstractEventLoop) -> bool:
    """Whether this is the loop of synchronous passes."""
    return loop in _loops


# A child process starts its own: the thread was not forked.
at_fork(_loops.clear)


class OnPortal:
    """A coroutine on the portal's loop, for a thread that waits for it.

    Like any asyncio task it is cancelled once, and its clean-up may await.
    """

    __slots__ = (
        "_context", "_coroutine", "_ended", "_loop", "_outcome", "_patience", "_task", "_told",
        "cancelled",
    )  # fmt: skip

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], context: Context,
        ended: Callable[[OnPortal], None] | None = None,
    ) -> None:  # fmt: skip
        """Prepare it; `ended` is called in the portal's thread when there is a result."""
        #: `cancel` was called.
        self.cancelled = False
        #: Until the coroutine has begun.
        self._coroutine: Coroutine[Any, Any, Any] | None = coroutine
        self._context = context
        self._ended = ended
        #: What the coroutine returned and what it raised; Nones once somebody has that.
        self._outcome: tuple[Any, BaseException | None] | None = None
        #: Gets an entry with the outcome. An interrupt may leave the lock of a `Future` taken, for
        #: which the portal's thread would wait for ever.
        self._told: SimpleQueue[None] = SimpleQueue()
        try:
            self._loop = _shared_loop()
        except BaseException:
            coroutine.close()
            raise
        self._task: Task[Any] | None = None
        #: The timer for the grace period of a cancelled coroutine.
        self._patience: TimerHandle | None = None

    def start(self) -> None:
        """Start the coroutine, unless it has begun.

        `__init__` does not start it: if an interrupt came before the caller has this object, nobody
        could cancel the coroutine.
        """
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            self._loop.create_task(self._run(coroutine), context=self._context)

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        # Set here and not by the caller: a task that is cancelled before it has begun would end
        # without an outcome.
        self._task = current_task()
        if self.cancelled:
            self._cancel()
        result, error = None, None
        try:
            # The coroutine and its pass handle what changes while this waits. A cancellation is
            # caught below.
            result = await coroutine
        except BaseException as caught:
            # Any error is caught, because the portal must survive it.
            error = caught
        if self._patience is not None:
            self._patience.cancel()
        self._task = None
        self._tell(result, error)
        del error, self  # See core.frames.

    def _tell(self, result: Value, error: BaseException | None) -> None:
        if self._outcome is None:
            self._outcome = result, error
            self._told.put(None)
            if self._ended is not None:
                self._ended(self)

    def result(self) -> tuple[Any, BaseException | None]:
        """What the coroutine returned and what it raised; blocks until then, and answers once."""
        while self._outcome is None:
            self._told.get()
        # A frame of the error's traceback may refer to this object. So this object must not keep
        # the error: that would be a cycle. No interrupt comes from here on until the caller has
        # the answer, or `end` would give another one.
        outcome, self._outcome = self._outcome, (None, None)
        return outcome

    def cancel(self) -> None:
        """Ask the coroutine to end; may be called in any thread."""
        self.cancelled = True
        # One that has not been started has to begin: otherwise there would never be a result.
        self.start()
        self._loop.call_soon_threadsafe(self._cancel)

    def end(self) -> None:
        """Cancel it, and wait until it has ended or its grace period is over."""
        self.cancel()
        self.result()

    def _cancel(self) -> None:
        """Cancel the task once; runs on its loop."""
        if self._task is not None and self._patience is None:
            self._patience = call_later(self._loop, GRACE, self._give_up)
            self._task.cancel()

    def _give_up(self) -> None:
        """Stop waiting for a coroutine that has not ended."""
        report_late(self._loop, "a synchronous pass", GRACE, self._task)
        self._tell(None, CancelledError())


def despite_interrupts(end: Callable[..., None], *args: object) -> None:
    """End what a caller has begun that was interrupted, and raises that.

    If more interrupts come, `end` is called again. But a portal whose thread is blocked does not
    notice the end of the grace period: so when twice that time has passed they are raised.
    """
    patience = 0.0
    while True:
        try:
            end(*args)
            return
        except (KeyboardInterrupt, SystemExit):
            # Not at the start: if an interrupt came in that call, `end` would never be called.
            patience = patience or monotonic() + 2 * GRACE
            if monotonic() > patience:
                raise


def call_on_portal(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine on the portal's loop; blocks meanwhile."""
    running = OnPortal(coroutine, copy_context())
    try:
        running.start()
        found = [running.result()]
    except BaseException:
        despite_interrupts(running.end)
        raise
    return value_of(*found.pop())
