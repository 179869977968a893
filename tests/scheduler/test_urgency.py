"""Priorities and deadlines: who goes first, and who gives up."""

from __future__ import annotations

import asyncio
import time

import pytest

import asyncgrad as ag


def chain(nodes: int) -> tuple[ag.Tensor, ag.Tensor]:
    """A leaf and the root of a chain of nodes above it."""
    x = ag.ones(4, requires_grad=True)
    y = x
    for _ in range(nodes):
        y = y * 1.0
    return x, y.sum()


async def finish(ended: list[str], name: str, nodes: int, **urgency: object) -> None:
    """Run a pass and note that it has ended."""
    _, loss = chain(nodes)
    await loss.backward(**urgency)
    ended.append(name)


@pytest.mark.asyncio
async def test_an_urgent_pass_overtakes() -> None:
    """It is started last and ends first."""
    ended: list[str] = []
    async with asyncio.TaskGroup() as group:
        for i in range(4):
            group.create_task(finish(ended, f"long {i}", 4_000))
        group.create_task(finish(ended, "urgent", 4_000, priority=1))
    assert ended[0] == "urgent"


@pytest.mark.asyncio
async def test_request_sets_the_urgency_of_all_passes_within() -> None:
    """A service sets it once for a request, and its children inherit it."""
    ended: list[str] = []
    async with asyncio.TaskGroup() as group:
        for i in range(4):
            group.create_task(finish(ended, f"long {i}", 4_000))
        with ag.request(priority=2):
            group.create_task(finish(ended, "urgent", 4_000))
    assert ended[0] == "urgent"


@pytest.mark.asyncio
async def test_a_deadline_that_has_passed_leaves_grad_untouched() -> None:
    """The pass drains, and the engine serves the next one."""
    x, loss = chain(20_000)
    future = loss.backward(deadline=asyncio.get_running_loop().time())
    with pytest.raises(TimeoutError, match="deadline"):
        await future
    assert x.grad is None
    x, loss = chain(10)
    await loss.backward()
    assert x.grad is not None


@pytest.mark.asyncio
async def test_a_deadline_far_away_changes_nothing() -> None:
    """Its timer is gone when the pass has ended."""
    x, loss = chain(20_000)
    await loss.backward(deadline=asyncio.get_running_loop().time() + 3600)
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 4


def test_a_blocking_pass_has_deadlines_too() -> None:
    """Without a loop the clock is the one that loops use."""
    x, loss = chain(50_000)
    with pytest.raises(TimeoutError, match="deadline"):
        loss.backward(deadline=time.monotonic())
    assert x.grad is None
