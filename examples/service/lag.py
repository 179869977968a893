"""The lag of the event loop: how late it does what is due, whichever task has held it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Self

#: Seconds between two measurements.
INTERVAL = 0.02
#: The seconds that a measurement is remembered.
MEMORY = 1.0


class Lag:
    """Measures how late a sleeping task is woken, within its asynchronous context."""

    def __init__(self) -> None:
        #: When the task was woken, and by how many seconds too late.
        self._looks: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self._task: asyncio.Task[None] | None = None

    @property
    def worst(self) -> float:
        """The longest delay within the last second, in seconds."""
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
        """Remember a measurement, and forget those older than `MEMORY`."""
        self._looks.append((now, late))
        while self._looks[0][0] < now - MEMORY:
            self._looks.popleft()
