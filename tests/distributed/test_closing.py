"""A world that is left while it works: what runs ends at once, and nothing stays on workers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from deterministic import Engine, world_of
from models import Affine, train

import asyncgrad as ag


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
        assert error is None or isinstance(error, RuntimeError)
        for host in engine.hosts:
            kept = host._parts, host._entries, host._staged, host._requests, host.runs
            assert [len(one) for one in kept] == [0] * 5
