"""How late the event loop is with what is due: what every request pays, whoever held the loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Self

#: Seconds between two looks.
INTERVAL = 0.02
#: For so many seconds a look is remembered.
MEMORY = 1.0


class Lag:
    """Wants to be woken again and again. An asynchronous context manager: within it, it looks."""

    def __init__(self) -> None:
        #: When it was woken, and by how many seconds too late.
        self._looks: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self._task: asyncio.Task[None] | None = None

    @property
    def worst(self) -> float:
        """Seconds by which it was woken too late, at worst within the last second."""
        return max(late for _, late in tuple(self._looks))

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
            now = loop.time()
            # Clocks may wake too early.
            self.note(now, max(0.0, now - due))

    def note(self, now: float, late: float) -> None:
        """Remember a look, and forget old ones: by time, since late ones are few."""
        self._looks.append((now, late))
        while self._looks[0][0] < now - MEMORY:
            self._looks.popleft()
