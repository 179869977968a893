"""A ticker: how late does the event loop wake a task that asked to sleep for a millisecond?"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INTERVAL = 0.001


@asynccontextmanager
async def ticker() -> AsyncIterator[list[float]]:
    """Collect the delays, in seconds, of a 1 ms ticker on the running loop."""
    delays: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + INTERVAL
            await asyncio.sleep(INTERVAL)
            delays.append(time.perf_counter() - due)

    task = asyncio.create_task(tick())
    await asyncio.sleep(0)  # it must be waiting before anything can hold the loop
    try:
        yield delays
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
