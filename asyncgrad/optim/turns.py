"""Whose turn it is: steps of one optimiser that several tasks begin follow one another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """The steps of an optimiser that other tasks may meet; a base class of `Optimizer` only."""

    #: Set at the end of the step that runs in a thread or awaits its closure; None between steps.
    _stepping: asyncio.Event | None = None

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Wait until no other step uses the state, and have other steps wait."""
        # Another task may have begun a step meanwhile. A cancellation here leaves no trace.
        while self._stepping is not None:
            await self._stepping.wait()
        ended = self._stepping = asyncio.Event()
        try:
            yield
        finally:
            self._stepping = None
            ended.set()

    def _not_alone(self) -> RuntimeError:
        """The error of a step that blocks while another one is not complete."""
        return RuntimeError(
            f"{type(self).__name__}.step: another task's step_async() is not complete, and this "
            f"call can't wait for it. Write `await optimizer.step_async()`."
        )
