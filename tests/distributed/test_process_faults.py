"""Processes of Dask killed, stopped and woken at each message: all or nothing, nothing is left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from asyncgrad import distributed as dist

pytest.importorskip("distributed", reason="Dask distributed is not installed")

from clusters import cluster
from process_faults import (
    AFTER,
    BEFORE,
    Model,
    killed,
    left_by_the_deadline,
    names,
    not_confirmed,
    woken,
)

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


def run(what: Callable[..., Any], *args: Any, grace: float) -> None:
    async def main() -> None:
        async with cluster(2, processes=True) as client, dist.connect(client, grace=grace) as world:
            await what(Model(world, DaskEngine, DaskPeers), *args)

    asyncio.run(asyncio.wait_for(main(), 120))


@pytest.mark.parametrize("at", BEFORE + AFTER, ids=names)
def test_a_process_killed_at_each_message_commits_all_or_nothing(at: tuple[int, str, int]) -> None:
    run(killed, at, grace=1.0)


def test_a_process_stopped_at_each_message_is_left_by_the_deadline() -> None:
    run(left_by_the_deadline, grace=1.0)


def test_a_process_woken_again_goes_on_where_it_was() -> None:
    run(woken, grace=20.0)


@pytest.mark.parametrize("at", AFTER, ids=names)
def test_a_process_that_does_not_confirm_a_commit_is_lost(at: tuple[int, str, int]) -> None:
    run(not_confirmed, at, grace=0.3)
