"""Processes of Dask killed, stopped and woken at each message: all or nothing, nothing is left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from asyncgrad import distributed as dist

pytest.importorskip("distributed", reason="Dask distributed is not installed")

from clusters import cluster
from process_faults import AtEachMessage, Model

from asyncgrad.distributed.dask_engine import DaskEngine, DaskPeers

if TYPE_CHECKING:
    from collections.abc import Callable

# Dask's own, at the end of processes that were killed.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _untrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traps are taken away after each test."""
    monkeypatch.setattr(DaskEngine, "call", DaskEngine.call)


class TestDask(AtEachMessage):
    def run(self, what: Callable[..., Any], *args: Any, workers: int = 2) -> None:
        async def main() -> None:
            async with (
                cluster(workers, processes=True) as client,
                dist.connect(client, grace=self.grace) as world,
            ):
                await what(Model(world, DaskEngine, DaskPeers), *args)

        asyncio.run(asyncio.wait_for(main(), 120))
