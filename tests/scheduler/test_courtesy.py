"""A busy loop gives way to threads that work for it; an idle one has no need to."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from passes import settle, until

import asyncgrad as ag
from asyncgrad.scheduler import courtesy

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.asyncio


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moments in which the loop has given way."""
    given: list[float] = []
    monkeypatch.setattr(courtesy, "sleep", given.append)
    return given


@pytest.fixture
def computing(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The part of its time in which the loop's thread computes, as the clocks tell it."""
    part = [1.0]

    def clock(rate: list[float]) -> Iterator[float]:
        now = 0.0
        while True:
            now += rate[0]
            yield now

    monkeypatch.setattr(courtesy, "perf_counter", clock([1.0]).__next__)
    monkeypatch.setattr(courtesy, "thread_time", clock(part).__next__)
    return part


class Working:
    """A thread that works for the engine until the block ends."""

    async def __aenter__(self) -> None:
        self.go_on = threading.Event()
        self.task = asyncio.create_task(ag.offload(self.go_on.wait, 30))
        await settle()

    async def __aexit__(self, *exception: object) -> None:
        self.go_on.set()
        await self.task


async def test_a_busy_loop_gives_way_again_and_again(
    moments: list[float], computing: list[float]
) -> None:
    async with Working():
        await until(lambda: len(moments) >= 3)


async def test_an_idle_loop_does_not(moments: list[float], computing: list[float]) -> None:
    computing[0] = 0.1
    loop = asyncio.get_running_loop()
    async with Working():
        for _ in range(3):
            looked = loop.create_future()
            loop.call_later(courtesy._SELDOM * 1.5, looked.set_result, None)
            await looked
    assert moments == []


async def test_it_ends_with_the_work(moments: list[float], computing: list[float]) -> None:
    async with Working():
        pass
    engine = ag.engine()
    await until(lambda: not engine.away._courtesy._active)
    count = len(moments)
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(courtesy._SELDOM * 2, done.set_result, None)
    await done
    assert len(moments) == count
