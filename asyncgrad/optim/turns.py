"""Whose turn it is: steps of one optimiser that several tasks begin follow one another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock

#: Guards who is last, since tasks may run on the loops of several threads.
_LOCK = Lock()


class Turns:
    """The steps of an optimiser that other tasks may meet; a base class of `Optimizer` only."""

    #: Done at the end of the last step that runs in a thread or awaits its closure, or waits for
    #: its turn to do so; None if there is none.
    _stepping: Future[None] | None = None

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Wait for the steps that were begun before, and have later ones wait."""
        own: Future[None] = Future()
        # So that the cancellation of a step that waits for this one does not cancel the future.
        own.set_running_or_notify_cancel()
        with _LOCK:
            before, self._stepping = self._stepping, own
        try:
            if before is not None:
                await asyncio.wrap_future(before)
            yield
        finally:
            # A step that is cancelled while it waits leaves its place to those behind it.
            if before is None:
                self._pass_on(own)
            else:
                before.add_done_callback(lambda _: self._pass_on(own))

    def _pass_on(self, own: Future[None]) -> None:
        with _LOCK:
            if self._stepping is own:
                self._stepping = None
        own.set_result(None)

    def _not_alone(self) -> RuntimeError:
        """The error of a step that blocks while another one is not complete."""
        return RuntimeError(
            f"{type(self).__name__}.step: another task's step_async() is not complete, and this "
            f"call can't wait for it. Write `await optimizer.step_async()`."
        )
