"""Tests of the scheduler fail when the package blocks the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from blockbuster import blockbuster_ctx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blockbuster import BlockBuster


@pytest.fixture(autouse=True)
def blockbuster(request: pytest.FixtureRequest) -> Iterator[BlockBuster]:
    """Raise BlockingError in a blocking call that the package makes on a running loop."""
    measured = request.config.pluginmanager.hasplugin("_cov")
    with blockbuster_ctx("asyncgrad") as active:
        for name in ("threading.Lock.acquire", "threading.Lock.acquire_lock"):
            if name not in active.functions:
                continue
            if measured:
                # Coverage's tracer takes a lock in C, in a frame of ours. Tests on other loops,
                # which are not measured, check the same calls.
                active.functions[name].deactivate()
            # The standard library's executor, asyncio's own too, holds its locks for microseconds.
            active.functions[name].can_block_in(
                "concurrent/futures/thread.py", {"submit", "shutdown", "_adjust_thread_count"}
            )
        yield active
