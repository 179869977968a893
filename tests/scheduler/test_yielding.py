"""Who has a negative priority gives way to all others on the loop. The clock is turned by hand."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

import asyncgrad as ag


class Busy:
    """A loop that has something to do for so many turns, each a slice's fraction long."""

    def __init__(self, turns: int | None) -> None:
        self.engine = ag.engine()
        self.now = 0
        self.engine.clock = lambda: self.now
        self.left = turns
        self.turns = 0
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        if self.left == 0:
            return
        self.turns += 1
        self.now += self.engine.slice_ns // 4
        if self.left is not None:
            self.left -= 1
        asyncio.get_running_loop().call_soon(self._turn)


@pytest.mark.asyncio
async def test_it_waits_until_the_loop_has_nothing_else_to_do() -> None:
    busy = Busy(turns=30)
    with ag.request(priority=-1):
        await ag.cooperate()
    assert busy.turns == 30


@pytest.mark.asyncio
async def test_others_do_not_wait_for_that() -> None:
    busy = Busy(turns=30)
    await ag.cooperate()
    assert busy.turns < 30


@pytest.mark.asyncio
async def test_on_a_loop_that_never_rests_it_goes_on_after_twenty_slices() -> None:
    busy = Busy(turns=None)
    for _ in range(3):
        start = busy.now
        with ag.request(priority=-1):
            await ag.cooperate()
        assert 20 <= (busy.now - start) / busy.engine.slice_ns <= 21
    busy.left = 0


@pytest.mark.asyncio
async def test_one_goes_on_at_a_time_in_the_order_in_which_they_came() -> None:
    """What one of them does is, to the next, what the loop has to do."""
    busy = Busy(turns=5)
    order: list[int] = []
    turn = 0

    def count() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count)

    async def visit(number: int) -> None:
        with ag.request(priority=-5):
            await ag.cooperate()
        busy.now += busy.engine.slice_ns
        order.append(number)
        seen.append(turn)

    seen: list[int] = []
    asyncio.get_running_loop().call_soon(count)
    visitors = [asyncio.create_task(visit(number)) for number in range(6)]
    visitors[0].cancel()
    await asyncio.sleep(0)
    visitors[3].cancel()
    ended: list[Any] = await asyncio.gather(*visitors, return_exceptions=True)
    assert [type(each) for each in ended].count(asyncio.CancelledError) == 2
    assert order == [1, 2, 4, 5]
    assert all(later - earlier >= 2 for earlier, later in pairwise(seen))
    assert not busy.engine.idle_queue.waiting


@pytest.mark.asyncio
async def test_a_loop_that_rests_lets_it_go_on_at_once() -> None:
    ag.engine().clock = lambda: 0
    turns = 0
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    loop.call_soon(count)
    with ag.request(priority=-1):
        await ag.cooperate()
    assert turns <= 3
