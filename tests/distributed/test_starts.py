"""Passes that fail before they come to a data parallel model end on all ranks, and at once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from deterministic import Engine, world_of
from models import Affine

import asyncgrad as ag
from asyncgrad import distributed as dist

DDP = dist.nn.parallel.DistributedDataParallel
ENDED, FAILED = "PassEndedError", "ValueError"


def rows() -> Any:
    return ag.ones(2, 3, dtype=ag.float64)


def refuse(gradient: Any) -> None:
    raise ValueError("planned")


async def outcome(running: Any) -> str:
    """How a pass has ended."""
    await asyncio.wait([running])
    if running.cancelled():
        return "cancelled"
    error = running.exception()
    return "done" if error is None else type(error).__name__


async def fails_early(how: str) -> list[str]:
    """Rank 1's second pass of four fails before the model's first gradient."""
    model = await DDP(Affine())
    found = []
    for step in range(4):
        loss = model(rows()).sum()
        faulty = step == 1 and dist.get_rank() == 1
        deadline, begun = None, asyncio.Event()
        if faulty and how == "error":
            loss.register_hook(refuse)
        elif faulty:

            async def hang(gradient: Any, begun: asyncio.Event = begun) -> None:
                begun.set()
                await asyncio.Event().wait()

            loss.register_hook(hang)
        if faulty and how == "deadline":
            deadline = asyncio.get_running_loop().time() + 0.02
        running = loss.backward(deadline=deadline)
        if faulty and how == "cancel":
            await begun.wait()
        if faulty and how in {"cancel", "cancel at once"}:
            running.cancel()
        found.append(await outcome(running))
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["error", "cancel", "cancel at once", "deadline"])
async def test_a_pass_that_fails_before_the_models_first_gradient_ends_on_all(how: str) -> None:
    """The others neither wait for the rank's next pass, nor pair it with this one of theirs."""
    own = {"error": FAILED, "deadline": "TimeoutError"}.get(how, "cancelled")
    async with world_of(Engine(3)) as world:
        found = await world.run(fails_early, how)
    assert found == [["done", end, "done", "done"] for end in (ENDED, own, ENDED)]


async def fails_last() -> str:
    loss = (await DDP(Affine()))(rows()).sum()
    if dist.get_rank() == 1:
        loss.register_hook(refuse)
    return await outcome(loss.backward())


@pytest.mark.asyncio
async def test_the_others_learn_it_also_if_the_rank_has_nothing_more_to_do() -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(fails_last) == [ENDED, FAILED]


async def fails_between() -> list[str]:
    first, second = await DDP(Affine()), await DDP(Affine(0.5))
    found = []
    for step in range(3):
        y = first(rows())
        if step == 0 and dist.get_rank() == 1:
            y.register_hook(refuse)
        found.append(await outcome(second(y).sum().backward()))
    return found


@pytest.mark.asyncio
async def test_a_pass_that_comes_to_one_of_two_models_counts_for_both() -> None:
    """Otherwise this rank would number the other model's passes one behind for ever."""
    async with world_of(Engine(2)) as world:
        found = await world.run(fails_between)
    assert found == [[ENDED, "done", "done"], [FAILED, "done", "done"]]


async def fails_in_a_thread() -> list[str]:
    model = await DDP(Affine())
    found = []
    for step in range(2):
        loss = model(rows()).sum()
        if step == 0 and dist.get_rank() == 1:
            loss.register_hook(refuse)
        try:
            await asyncio.to_thread(loss.backward)
            found.append("done")
        except Exception as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.asyncio
async def test_so_does_one_that_blocks_a_thread() -> None:
    async with world_of(Engine(2)) as world:
        assert await world.run(fails_in_a_thread) == [[ENDED, "done"], [FAILED, "done"]]


async def cannot_take_part() -> list[str]:
    """The pass has already added to a leaf when it comes to the model."""
    model, own = await DDP(Affine()), ag.ones(3, dtype=ag.float64).requires_grad_()
    found = []
    for step in range(2):
        loss = model(rows()).sum()
        if step == 0 and dist.get_rank() == 1:
            own.register_post_accumulate_grad_hook(lambda leaf: None)
            loss = loss + own.sum()
        found.append(await outcome(loss.backward()))
    return found


@pytest.mark.asyncio
async def test_a_pass_in_which_the_model_can_not_take_part_is_given_up() -> None:
    async with world_of(Engine(2)) as world:
        found = await world.run(cannot_take_part)
    assert found == [[ENDED, "done"], ["AutogradError", "done"]]


async def others_fail() -> list[str]:
    """Rank 1 has passes that fail, and concern it alone."""
    model, alone = await DDP(Affine()), Affine()
    found = []
    if dist.get_rank() == 1:
        loss = alone(rows()).sum()
        loss.register_hook(refuse)
        found.append(await outcome(loss.backward()))
        loss = model(rows()).sum()
        loss.register_hook(refuse)
        with contextlib.suppress(ValueError):
            await ag.grad(loss, list(model.parameters()))
        loss = model(rows()).sum()
        loss.register_hook(refuse)
        with model.no_sync():
            found.append(await outcome(loss.backward()))
    found.append(await outcome(model(rows()).sum().backward()))
    return found


@pytest.mark.asyncio
async def test_a_failed_pass_that_does_not_lead_to_the_model_or_is_not_reduced_ends_nothing() -> (
    None
):
    async with world_of(Engine(2)) as world:
        assert await world.run(others_fail) == [["done"], [FAILED, FAILED, "done"]]
