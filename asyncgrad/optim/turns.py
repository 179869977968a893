"""Whose turn it is: steps of one optimiser that several tasks begin follow one another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock

#: Guards who is last, since tasks may run on the loops of several threads.
_LOCK = Lock()


class _Turn(Future[None]):
    """Done at the end of a step."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        # So that the cancellation of a step that waits for this one does not cancel the future.
        self.set_running_or_notify_cancel()

    def is_lost(self) -> bool:
        """Whether the loop was closed before the step could end."""
        return self._loop.is_closed()


class Turns:
    """The steps of an optimiser that other tasks may meet; a base class of `Optimizer` only."""

    #: The turn of the last step that runs in a thread or awaits its closure, or waits to do so;
    #: None if there is none.
    _stepping: _Turn | None = None
    #: Whether a thread changes the state: then others may neither copy nor replace it.
    _in_thread = False

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Wait for the steps that were begun before, and have later ones wait."""
        own = _Turn()
        with _LOCK:
            before, self._stepping = self._stepping, own
        if before is not None and before.is_lost():
            before = None
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

    def _pass_on(self, own: _Turn) -> None:
        with _LOCK:
            if self._stepping is own:
                self._stepping = None
        own.set_result(None)

    def _is_stepping(self) -> bool:
        return self._stepping is not None and not self._stepping.is_lost()

    def _refuse_to_meet(self) -> None:
        """Raise if another step, for which a step that blocks can't wait, is not complete."""
        if self._is_stepping():
            raise RuntimeError(
                f"{type(self).__name__}.step: another task's step_async() is not complete, and "
                f"this call can't wait for it. Write `await optimizer.step_async()`."
            )

    def _check_state_is_whole(self, method: str) -> None:
        """Raise while a thread changes the state."""
        if self._in_thread and self._is_stepping():
            raise RuntimeError(
                f"{type(self).__name__}.{method}: another task's step_async() changes the state in "
                f"a thread. Await it before, or call this in a hook after the step."
            )
