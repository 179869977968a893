"""Tests of the scheduler fail when the package blocks the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from blockbuster import blockbuster_ctx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blockbuster import BlockBuster


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Raise BlockingError in a blocking call that the package makes on a running loop."""
    with blockbuster_ctx("asyncgrad") as active:
        # The standard library's executor, asyncio's own too, holds its locks for microseconds, and
        # so does the measurement of coverage.
        for name in ("threading.Lock.acquire", "threading.Lock.acquire_lock"):
            if name in active.functions:
                active.functions[name].can_block_in(
                    "concurrent/futures/thread.py", {"submit", "shutdown", "_adjust_thread_count"}
                ).can_block_in("coverage/collector.py", {"lock_data"})
        yield active
