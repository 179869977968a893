"""The tests' own promise: every asynchronous test runs on each event loop."""

from __future__ import annotations

import asyncio

import pytest


@pytest.mark.asyncio
async def test_an_async_test_runs_on_the_loop_its_id_names(request: pytest.FixtureRequest) -> None:
    """Else the debug and uvloop variants would be three runs of the same thing."""
    loop = asyncio.get_running_loop()
    kind = request.node.callspec.id
    assert kind in {"asyncio", "asyncio-debug", "uvloop"}
    assert type(loop).__module__.startswith("uvloop") == (kind == "uvloop")
    assert loop.get_debug() == (kind == "asyncio-debug")
