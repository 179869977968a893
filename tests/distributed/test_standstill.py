"""Ranks that wait for one another, because they do the same in another order, all raise."""

from __future__ import annotations

import asyncio
import random
import re
from itertools import chain
from typing import Any

import pytest
from deterministic import Engine, world_of
from models import Affine

import asyncgrad as ag
from asyncgrad import distributed as dist

DDP = dist.nn.parallel.DistributedDataParallel


def rows() -> Any:
    return ag.ones(2, 3, dtype=ag.float64)


async def steps_of(orders: list[str]) -> list[str]:
    """Make the steps of this rank, one after another; say how each has ended."""
    first, second = await DDP(Affine()), await DDP(Affine(0.5))
    optimizer = dist.optim.ZeroRedundancyOptimizer(first.parameters(), ag.optim.SGD, lr=0.1)

    async def step(word: str) -> None:
        if word == "reduce":
            await dist.all_reduce(rows())
        elif word == "optimize":
            await optimizer.step_async()
        elif word == "both":
            await (first(rows()) + second(rows())).sum().backward()
        elif word == "side by side":
            await asyncio.gather(step("second"), step("first"))
        elif word == "started":
            running = [model(rows()).sum().backward() for model in (second, first)]
            for one in running:
                await one
        else:
            await {"first": first, "second": second}[word](rows()).sum().backward()

    found = []
    for word in orders[dist.get_rank()].split(", "):
        try:
            await step(word)
        except RuntimeError as error:
            found.append(str(error))
        else:
            found.append("done")
    return found


FIRST, SECOND = r"one pass of model 0 \(Affine\)", r"one pass of model 1 \(Affine\)"
REDUCE, OPTIMIZE = r"all_reduce\(sum of .*\)", r"ZeroRedundancyOptimizer\.step_async"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("orders", "awaited"),
    [
        (["first, second", "second, first"], [FIRST, SECOND]),
        (["first, second", "second, first", "first, second"], [FIRST, SECOND]),
        (["first, reduce", "reduce, first"], [FIRST, REDUCE]),
        (["first, reduce", "reduce, first", "reduce, first"], [FIRST, REDUCE]),
        (["first, optimize", "optimize, first"], [FIRST, OPTIMIZE]),
        (["both", "second, first", "first, second"], [f"{FIRST} and model 1.*", SECOND, FIRST]),
    ],
)
async def test_ranks_that_wait_for_one_another_all_raise(
    orders: list[str], awaited: list[str]
) -> None:
    """The error says what two of them wait for; they can't go on, as they are out of step."""
    rng = random.Random(0)
    async with world_of(Engine(len(orders), lambda most: rng.randint(0, most))) as world:
        found = await world.run(steps_of, orders)
    one = f"({'|'.join(awaited)})"
    for end in chain.from_iterable(found):
        assert re.search(
            f"ranks . and . wait for one another: rank . in {one}, rank . in {one}", end
        )


@pytest.mark.asyncio
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("place", [0, 1])
async def test_ranks_that_put_unlike_models_into_a_pass_raise(ranks: int, place: int) -> None:
    orders = ["first, second"] * ranks
    orders[place] = "both"
    async with world_of(Engine(ranks)) as world:
        found = await world.run(steps_of, orders)
    both = "one pass of model 0 (Affine) and model 1 (Affine)"
    for rank, (first, *rest) in enumerate(found):
        own = both if rank == place else "one pass of model 0 (Affine)"
        assert f"where this rank, {rank}, has called {own}:" in first
        assert all(f"rank {place} has given this pass up" in end for end in rest)


@pytest.mark.asyncio
@pytest.mark.parametrize("other", ["side by side", "started"])
async def test_passes_that_run_beside_one_another_have_no_order(other: str) -> None:
    async with world_of(Engine(3)) as world:
        found = await world.run(steps_of, ["first, second", other, other])
    assert [set(ends) for ends in found] == [{"done"}] * 3
