"""The one loop that synchronous passes share, in a thread of its own, started when first needed."""

from __future__ import annotations

import os
from asyncio import CancelledError, current_task
from asyncio.events import get_running_loop
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Any

from asyncgrad.core.locks import lasting_lock
from asyncgrad.scheduler.coroutines import GRACE

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task, TimerHandle
    from collections.abc import Callable, Coroutine
    from contextvars import Context

_portal: list[Any] = []
_portal_lock = lasting_lock()
#: Held while the portal's thread imports.
_importing = lasting_lock()


def portal() -> Any:
    """The portal to that loop."""
    with _portal_lock:
        if not _portal:
            started: Future[Any] = Future()
            # A thread of our own: anyio's would have to be stopped before the interpreter ends.
            Thread(target=_serve, args=(started,), name="asyncgrad portal", daemon=True).start()
            _portal.append(started.result())
        return _portal[0]


class OnPortal:
    """A coroutine that runs on the portal's loop, for a thread that waits for it.

    It is cancelled as any asyncio task is, once: its clean-up may await.
    """

    __slots__ = ("_ended", "_loop", "_outcome", "_patience", "_task", "cancelled")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        context: Context,
        ended: Callable[[OnPortal], None] | None = None,
    ) -> None:
        """Begin.

        Args:
            coroutine: what runs.
            context: what it runs in.
            ended: told, on the portal's thread, that there is a result.
        """
        #: Somebody has asked it to end.
        self.cancelled = False
        self._ended = ended
        self._outcome: Future[tuple[Any, BaseException | None]] = Future()
        self._loop: AbstractEventLoop | None = None
        self._task: Task[Any] | None = None
        #: Runs out when the coroutine has taken too long to end.
        self._patience: TimerHandle | None = None
        context.run(portal().start_task_soon, self._run, coroutine)

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        # In this order: who cancels sets the flag and looks for the loop afterwards.
        self._loop, self._task = get_running_loop(), current_task()
        if self.cancelled:
            self._cancel()
        result, error = None, None
        try:
            # What changes meanwhile is its own and the pass's business.
            result = await coroutine
        except BaseException as caught:
            # The portal must outlive whatever that is.
            error = caught
        if self._patience is not None:
            self._patience.cancel()
        self._task = None
        self._tell(result, error)
        # The traceback holds this frame: it must hold neither itself nor whom it was told.
        del error, self

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if not self._outcome.done():
            self._outcome.set_result((result, error))
            if self._ended is not None:
                self._ended(self)

    def result(self) -> tuple[Any, BaseException | None]:
        """What the coroutine returned and what it raised, once; blocks until then."""
        result = self._outcome.result()
        # Who keeps this, as a frame of the error's traceback may, must not keep the error.
        self._outcome = Future()
        self._outcome.set_result((None, None))
        return result

    def cancel(self) -> None:
        """Ask it to end, from any thread."""
        self.cancelled = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel)

    def end(self) -> None:
        """Cancel it, and wait until it has ended or its time for that is over."""
        self.cancel()
        self.result()

    def _cancel(self) -> None:
        """Cancel it once, on its loop."""
        if self._task is not None and self._patience is None:
            assert self._loop is not None
            self._patience = self._loop.call_later(GRACE, self._give_up)
            self._task.cancel()

    def _give_up(self) -> None:
        """Let nobody wait any longer."""
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
        # A fifth of the time that importing asyncgrad takes, and never on an event loop.
        from anyio import run, sleep
        from anyio.from_thread import BlockingPortal

        # What that imports late itself.
        run(sleep, 0)

    async def main() -> None:
        # The host's policy may have given it one: anyio's scopes bear no eager tasks of others.
        get_running_loop().set_task_factory(None)
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    run(main)


def _after_fork() -> None:
    """The thread was not forked: let the child start its own."""
    _portal.clear()


if hasattr(os, "register_at_fork"):
    # A child in which a module is half imported could never import it.
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_after_fork,
    )
