"""The one loop that synchronous passes share, in its own thread, started when first needed."""

from __future__ import annotations

import os
from asyncio import CancelledError, current_task
from asyncio.events import get_running_loop
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Any

from asyncgrad.core.locks import lasting_lock
from asyncgrad.scheduler.coroutines import GRACE
from asyncgrad.scheduler.host import call_later

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task, TimerHandle
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from asyncgrad.aliases import Value

_portal: list[Any] = []
_portal_lock = lasting_lock()
#: The shared loop, once it runs.
_loops: list[AbstractEventLoop] = []
#: Held while the portal's thread imports anyio.
_importing = lasting_lock()


def portal() -> Any:
    """The anyio portal to the shared loop."""
    with _portal_lock:
        if not _portal:
            started: Future[Any] = Future()
            # Not anyio's thread, which would have to be stopped before the interpreter ends.
            Thread(target=_serve, args=(started,), name="asyncgrad portal", daemon=True).start()
            _portal.append(started.result())
        return _portal[0]


def is_shared(loop: AbstractEventLoop) -> bool:
    """Whether this is the loop of synchronous passes."""
    return loop in _loops


class OnPortal:
    """A coroutine on the portal's loop, for a thread that waits for it.

    Like any asyncio task it is cancelled once, and its clean-up may await.
    """

    __slots__ = ("_ended", "_loop", "_outcome", "_patience", "_task", "cancelled")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        context: Context,
        ended: Callable[[OnPortal], None] | None = None,
    ) -> None:
        """Start the coroutine; `ended` is called in the portal's thread when there is a result."""
        #: `cancel` was called.
        self.cancelled = False
        self._ended = ended
        self._outcome: Future[tuple[Any, BaseException | None]] = Future()
        self._loop: AbstractEventLoop | None = None
        self._task: Task[Any] | None = None
        #: The timer for the grace period of a cancelled coroutine.
        self._patience: TimerHandle | None = None
        context.run(portal().start_task_soon, self._run, coroutine)

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        # `_loop` is set first, then the flag is read. `cancel` sets the flag first and then reads
        # `_loop`. So at least one of the two sees the other.
        self._loop, self._task = get_running_loop(), current_task()
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
        # The traceback holds this frame, which must hold neither the error nor this object.
        del error, self

    def _tell(self, result: Value, error: BaseException | None) -> None:
        if not self._outcome.done():
            self._outcome.set_result((result, error))
            if self._ended is not None:
                self._ended(self)

    def result(self) -> tuple[Any, BaseException | None]:
        """What the coroutine returned and what it raised; blocks until then, and answers once."""
        result = self._outcome.result()
        # A frame of the error's traceback may refer to this object. So this object must not keep
        # the error: that would be a cycle.
        self._outcome = Future()
        self._outcome.set_result((None, None))
        return result

    def cancel(self) -> None:
        """Ask the coroutine to end; may be called in any thread."""
        self.cancelled = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel)

    def end(self) -> None:
        """Cancel it, and wait until it has ended or its grace period is over."""
        self.cancel()
        self.result()

    def _cancel(self) -> None:
        """Cancel the task once; runs on its loop."""
        if self._task is not None and self._patience is None:
            assert self._loop is not None
            self._patience = call_later(self._loop, GRACE, self._give_up)
            self._task.cancel()

    def _give_up(self) -> None:
        """Stop waiting for a coroutine that has not ended."""
        assert self._loop is not None
        self._loop.call_exception_handler(
            {
                "message": f"a coroutine of a synchronous pass has not ended {GRACE} s after it "
                f"was cancelled: its pass ends without it. Let it raise CancelledError on, or "
                f"shorten its clean-up.",
                "task": self._task,
            }
        )
        self._tell(None, CancelledError())


def _serve(started: Future[Any]) -> None:
    """Run the portal's loop, until the process ends."""
    with _importing:
        # Takes a fifth of asyncgrad's import time, so it is imported late, where no loop runs yet.
        from anyio import run, sleep
        from anyio.from_thread import BlockingPortal

        # Makes anyio import now what it imports on its first run.
        run(sleep, 0)

    async def main() -> None:
        # A loop policy may have set an eager task factory, on which anyio's cancel scopes fail.
        loop = get_running_loop()
        loop.set_task_factory(None)
        _loops.append(loop)
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    run(main)


def _after_fork() -> None:
    """Let a child process start its own portal: the thread was not forked."""
    _portal.clear()
    _loops.clear()


if hasattr(os, "register_at_fork"):
    # A child that is forked during an import could never import that module.
    os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_after_fork
    )
