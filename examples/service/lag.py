"""How late the event loop is with what is due: what every request pays, whoever held the loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Self

#: Seconds between two looks.
INTERVAL = 0.02
#: So many looks are remembered: the last second's.
LOOKS = 50


class Lag:
    """Wants to be woken again and again. An asynchronous context manager: within it, it looks."""

    def __init__(self) -> None:
        self._late: deque[float] = deque([0.0], LOOKS)
        self._task: asyncio.Task[None] | None = None

    @property
    def worst(self) -> float:
        """Seconds by which it was woken too late, at worst within the last second."""
        return max(self._late)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._look(), name="lag")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + INTERVAL
            await asyncio.sleep(INTERVAL)
            # Clocks may wake too early.
            self._late.append(max(0.0, loop.time() - due))
