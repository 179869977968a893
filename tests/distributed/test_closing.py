"""A world that is left while it works: what runs ends at once, and nothing stays on workers."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from contextvars import ContextVar
from typing import Any

import pytest
from deterministic import Engine, world_of
from models import Affine, gradients, train

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.distributed.errors import limited
from asyncgrad.distributed.sums import Staged


async def passes(world: Any) -> None:
    first, second = await world.remote(0, Affine), await world.remote(1, Affine)
    x = ag.ones(3, dtype=ag.float64, requires_grad=True)
    await (await second(first(x))).sum().backward()


async def runs(world: Any) -> None:
    await world.run(train, 2)


async def closed_amid(work: Any, turns: int) -> tuple[Engine, Any]:
    """Leave a world while something works in it: how that has ended."""
    rng = random.Random(turns)
    engine = Engine(2, lambda most: rng.randint(0, most))
    # Nobody waits for the grace: a closed world that did would end much later than the test.
    async with asyncio.timeout(60), world_of(engine, grace=1e6) as world:
        working = asyncio.ensure_future(work(world))
        for _ in range(turns):
            await asyncio.sleep(0)
    (error,) = await asyncio.gather(working, return_exceptions=True)
    return engine, error


@pytest.mark.asyncio
@pytest.mark.parametrize("work", [passes, runs])
async def test_a_world_left_at_any_turn_ends_what_runs_and_keeps_nothing(work: Any) -> None:
    """What comes late is refused, ranks that have voted wait no longer, and nobody is cancelled."""
    for turns in range(0, 160, 9):
        engine, error = await closed_amid(work, turns)
        # The work may have been done by then.
        assert error is None or "the world can't be used any more" in str(error)
        for host in engine.hosts:
            kept = host._parts, host._entries, host._staged, host._requests, host.runs.groups
            assert [len(one) for one in kept] == [0] * 5


@pytest.mark.asyncio
async def test_a_call_that_a_worker_does_not_end_ends_with_its_world() -> None:
    """The worker is not lost: nobody waits for it any more."""
    engine = Engine(1)
    async with world_of(engine, grace=0.01) as world:
        part = await world.remote(0, Affine)
        engine.stop(0)
        call = asyncio.ensure_future(part.apply(gradients))
        await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="can't be used any more: its block"):
        await call


@pytest.mark.asyncio
async def test_a_world_whose_leaving_is_cancelled_ends_all_the_same() -> None:
    engine, closes = Engine(1), asyncio.Event()

    async def hold(rank: int, message: Any) -> None:
        if message.method == "close":
            closes.set()
        if message.method in {"apply", "close"}:
            await asyncio.Event().wait()

    engine.on_message = hold
    calls: list[asyncio.Task[Any]] = []

    async def leaves() -> None:
        async with world_of(engine, grace=1e6) as world:
            part = await world.remote(0, Affine)
            calls.append(asyncio.ensure_future(part.apply(gradients)))
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        leaving = asyncio.ensure_future(leaves())
        await closes.wait()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        with pytest.raises(RuntimeError, match="can't be used any more: its block"):
            await calls[0]


@pytest.mark.asyncio
async def test_a_context_that_commits_when_its_world_is_left_has_succeeded() -> None:
    """Nobody has cancelled the task that waits until the workers know it."""
    engine, commits = Engine(1), asyncio.Event()

    async def hold(rank: int, message: Any) -> None:
        if message.method == "commit":
            commits.set()
            await asyncio.Event().wait()

    engine.on_message = hold
    x = ag.ones(3, dtype=ag.float64, requires_grad=True)

    async def passes_in_a_context(part: Any) -> None:
        async with dist.autograd.context():
            await (await part(x)).sum().backward()

    async with asyncio.timeout(60):
        async with world_of(engine, grace=1e6) as world:
            working = asyncio.ensure_future(passes_in_a_context(await world.remote(0, Affine)))
            await commits.wait()
        await working
    assert x.grad is not None


async def sleeps_in_vain() -> None:
    """Its timer is kept by asyncio's loop when it has been cancelled."""
    sleeping = asyncio.ensure_future(asyncio.sleep(1e6))
    await asyncio.sleep(0)
    sleeping.cancel()


@pytest.mark.asyncio
async def test_what_was_on_workers_waits_neither_for_timers_nor_for_the_garbage_collector() -> None:
    """Cancelled timers, which asyncio keeps until their time, have contexts that lead there."""
    engine = Engine(2)
    # Without one that comes earlier, the loop drops a cancelled timer at once.
    earlier = asyncio.get_running_loop().call_later(1e3, print)
    gc.collect()
    gc.disable()
    try:
        async with world_of(engine, grace=1e6) as world:
            await passes(world)
            await runs(world)
            await world.run(sleeps_in_vain)
        alive = [weakref.ref(host) for host in engine.hosts]
        engine.hosts.clear()
        for _ in range(50):
            await asyncio.sleep(0)
        assert [host() for host in alive] == [None] * 2
    finally:
        gc.enable()
        earlier.cancel()


class Waits(Affine):
    """Its backward waits in vain."""

    def forward(self, x: Any) -> Any:
        y = super().forward(x)

        async def wait(gradient: Any) -> None:
            await sleeps_in_vain()

        y.register_hook(wait)
        return y


@pytest.mark.asyncio
async def test_a_timer_of_a_hook_does_not_keep_the_gradients_of_its_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: list[Any] = []
    total = Staged.total

    def noted(self: Staged) -> Any:
        found = total(self)
        alive.extend(weakref.ref(gradient) for gradient in found.values())
        return found

    monkeypatch.setattr(Staged, "total", noted)
    # Without one that comes earlier, the loop drops a cancelled timer at once.
    earlier = asyncio.get_running_loop().call_later(1e3, print)
    async with world_of(Engine(1)) as world:
        part = await world.remote(0, Waits)
        x = ag.ones(3, dtype=ag.float64, requires_grad=True)
        await (await part(x)).sum().backward()
        await part.apply(ag.nn.Module.zero_grad)
        gc.collect()
        assert [gradient() for gradient in alive] == [None] * 2
    earlier.cancel()


class Kept:
    """Something of the user's."""


_kept: ContextVar[Kept] = ContextVar("kept")


async def opened() -> None:
    async with world_of(Engine(1), grace=1e6) as world:
        await world.run(sleeps_in_vain)


async def in_time() -> None:
    async with limited("a call", asyncio.get_running_loop().time() + 1e6):
        await asyncio.sleep(0)


@pytest.mark.asyncio
@pytest.mark.parametrize("work", [opened, in_time])
async def test_what_has_ended_in_time_keeps_nothing_of_its_context(work: Any) -> None:
    async def within() -> weakref.ref[Kept]:
        kept = Kept()
        _kept.set(kept)
        await work()
        return weakref.ref(kept)

    # Without one that comes earlier, the loop drops a cancelled timer at once.
    earlier = asyncio.get_running_loop().call_later(1e3, print)
    alive = await asyncio.create_task(within())
    for _ in range(50):
        await asyncio.sleep(0)
    gc.collect()
    assert alive() is None
    earlier.cancel()
