"""The training API on a cluster: a worker that dies costs its tenants one step that is retried."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from deterministic import Engine

pytest.importorskip("fastapi", reason="FastAPI is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from asyncgrad.distributed.world import open_world  # noqa: E402
from examples.training_api import cluster  # noqa: E402
from examples.training_api.app import create_app  # noqa: E402
from examples.training_api.client import TrainingClient, TrainingError  # noqa: E402
from examples.training_api.cluster import connected  # noqa: E402
from examples.training_api.tenants import Plan  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TOKENS = {"ann": "a" * 20, "bob": "b" * 20}
PLANS = {name: Plan(token=token) for name, token in TOKENS.items()}


@asynccontextmanager
async def clients(open_world: Any = None) -> AsyncIterator[tuple[TrainingClient, TrainingClient]]:
    app = create_app(PLANS, open_world=open_world)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        TrainingClient("http://test", TOKENS["ann"], transport=transport, retries=0) as ann,
        TrainingClient("http://test", TOKENS["bob"], transport=transport, retries=0) as bob,
    ):
        yield ann, bob


def batch(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.random((8, 64), np.float32), rng.integers(0, 10, 8)


async def trained(client: TrainingClient) -> list[Any]:
    """What a tenant hears in three steps of two batches each, and in the end."""
    heard: list[Any] = []
    for step in range(3):
        heard += [await client.forward_backward(*batch(2 * step + half)) for half in range(2)]
        heard.append(await client.optim_step(lr=0.05))
    return [*heard, await client.predict(batch(0)[0]), await client.status()]


async def alone() -> tuple[list[Any], list[Any]]:
    async with clients() as (ann, bob):
        return await trained(ann), await trained(bob)


def world_of(engine: Engine) -> Callable[[], Any]:
    return partial(open_world, engine, 5.0)


@pytest.mark.parametrize("method", ["remote", "forward", "backward", "prepare", "commit", "apply"])
def test_a_workers_death_costs_its_tenants_one_retried_step(method: str) -> None:
    asyncio.run(die_at(method))


async def die_at(method: str) -> None:
    expected = await alone()
    for nth in range(4):
        engine = Engine(2)
        seen = 0

        def die(rank: int, message: Any, nth: int = nth, engine: Engine = engine) -> None:
            nonlocal seen
            if rank == 0 and message.method == method:
                seen += 1
                if seen == nth + 1:
                    engine.kill(0)

        engine.on_message = die
        async with clients(world_of(engine)) as (ann, bob):
            # Each has the worker with the fewest tenants: ann that of rank 0, bob the other.
            found = await asyncio.gather(trained(ann), trained(bob))
        assert found == list(expected)
        killed = 0 in engine.dead
        assert killed == (seen > nth)
        # One more trainer was made, and of ann's batches those of one step were computed again.
        sent = [(name, rank) for sender, name, rank in engine.log if sender == -1]
        assert sum(name == "remote" for name, _ in sent) == 2 + killed
        assert 12 <= sum(name == "forward" for name, _ in sent) <= 12 + 3 * killed
        assert sum(name == "apply" for name, _ in sent) <= 8 + killed


@pytest.mark.parametrize("method", ["remote", "forward", "backward", "prepare", "commit", "apply"])
def test_a_worker_that_hangs_costs_its_tenants_no_more_than_a_dead_one(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of its would wait for half a minute, fail, and so would the next."""
    monkeypatch.setattr(cluster, "PATIENCE", 0.0)
    asyncio.run(hang_at(method))


async def hang_at(method: str) -> None:
    expected = await alone()
    engine = Engine(2)

    def hang(rank: int, message: Any) -> None:
        if (rank, message.method) == (0, method) and not engine.stopped:
            engine.stop(0)

    engine.on_message = hang
    async with clients(partial(open_world, engine, 0.05)) as (ann, bob):
        assert await asyncio.gather(trained(ann), trained(bob)) == list(expected)
        engine.on_message = lambda rank, message: None
        engine.wake(0)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_worker_that_wakes_works_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.0)
    engine = Engine(1)
    async with clients(partial(open_world, engine, 0.05)) as (ann, _):
        await ann.forward_backward(*batch(0))
        engine.stop(0)
        with pytest.raises(TrainingError, match="no worker is left"):
            await ann.predict(batch(0)[0])
        engine.wake(0)
        async with clients() as (alone, _):
            await alone.forward_backward(*batch(0))
            assert await ann.optim_step(lr=0.05) == await alone.optim_step(lr=0.05)
            assert await ann.forward_backward(*batch(1)) == await alone.forward_backward(*batch(1))


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_many_batches_without_a_step_are_not_all_kept() -> None:
    """Otherwise a tenant could fill the front's memory, and a lost worker cost a long time."""
    async with clients() as (ann, _):
        expected = [await ann.forward_backward(*batch(seed)) for seed in range(40)]
        expected += [await ann.optim_step(lr=0.05), await ann.forward_backward(*batch(41))]
    for last in (15, 16, 37):
        engine = Engine(2)
        async with clients(world_of(engine)) as (ann, _):
            found = [await ann.forward_backward(*batch(seed)) for seed in range(last)]
            engine.kill(0)
            found += [await ann.forward_backward(*batch(seed)) for seed in range(last, 40)]
            found += [await ann.optim_step(lr=0.05), await ann.forward_backward(*batch(41))]
        assert found == expected
        forwards = [name for sender, name, _ in engine.log if (sender, name) == (-1, "forward")]
        assert len(forwards) <= 41 + 16


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_worker_that_dies_while_its_state_is_asked_for_costs_no_batch() -> None:
    engine = Engine(2)

    def die(rank: int, message: Any) -> None:
        if message.method == "apply":
            engine.kill(0)

    engine.on_message = die
    async with clients() as (alone, _), clients(world_of(engine)) as (ann, _):
        for client in (alone, ann):
            for seed in range(20):
                await client.forward_backward(*batch(seed))
        assert 0 in engine.dead
        engine.on_message = lambda rank, message: None
        assert await ann.optim_step(lr=0.05) == await alone.optim_step(lr=0.05)
        assert await ann.forward_backward(*batch(1)) == await alone.forward_backward(*batch(1))


@pytest.mark.asyncio
async def test_without_a_worker_it_says_so_and_a_reset_begins_anew() -> None:
    engine = Engine(2)
    async with clients(world_of(engine)) as (ann, bob):
        first = await ann.predict(batch(0)[0])
        await ann.forward_backward(*batch(1))
        await ann.optim_step(lr=0.5)
        assert await ann.predict(batch(0)[0]) != first
        await ann.reset()
        assert await ann.predict(batch(0)[0]) == first
        engine.kill(0)
        engine.kill(1)
        for request in (ann.forward_backward(*batch(0)), bob.predict(batch(0)[0])):
            with pytest.raises(TrainingError, match="no worker is left") as caught:
                await request
            assert caught.value.status == 503


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_step_that_may_have_been_taken_is_taken_from_where_it_began() -> None:
    (expected, _), engine = await alone(), Engine(1)
    async with clients(world_of(engine)) as (ann, _):
        first = [await ann.forward_backward(*batch(half)) for half in range(2)]
        answers = 0

        async def fail(rank: int, message: Any) -> None:
            nonlocal answers
            if message.method == "apply":
                answers += 1
                if answers == 1:
                    await engine.hosts[0].take(message)
                    raise RuntimeError("the answer is lost")

        engine.on_message = fail
        with pytest.raises(RuntimeError, match="the answer is lost"):
            await ann.optim_step(lr=0.05)
        assert [*first, await ann.optim_step(lr=0.05)] == expected[:3]
        assert await ann.forward_backward(*batch(2)) == expected[3]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_process_of_a_dask_cluster_is_killed() -> None:
    pytest.importorskip("distributed", reason="Dask distributed is not installed")
    asyncio.run(kill_a_process())


async def kill_a_process() -> None:
    from distributed import LocalCluster

    expected = await alone()
    async with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=":0",
        asynchronous=True,
        silence_logs=60,
    ) as local:
        pids = [worker.process.pid for worker in local.workers.values()]
        async with clients(partial(connected, local.scheduler_address)) as (ann, bob):
            found = asyncio.gather(trained(ann), trained(bob))
            await ann.status()
            os.kill(pids[0], signal.SIGKILL)
            assert await found == list(expected)
