"""Threads change places more often while they work for an engine, and only then."""

from __future__ import annotations

import asyncio
import sys
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from passes import HEAVY, chain, leaf, settle

import asyncgrad as ag
from asyncgrad.scheduler import switch_interval
from asyncgrad.scheduler.segments import ThreadJob
from asyncgrad.scheduler.switch_interval import INTERVAL

if TYPE_CHECKING:
    from collections.abc import Iterator

USUAL = 0.005


@pytest.fixture(autouse=True)
def interval(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The usual interval, and no engine of another test that wants a shorter one."""
    before = sys.getswitchinterval()
    monkeypatch.setattr(switch_interval.short, "holders", set())
    monkeypatch.setattr(switch_interval, "_usual", None)
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def now() -> float:
    return round(sys.getswitchinterval(), 6)


class Loop:
    """An event loop with a thread that works until it is let go."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.gate: SimpleQueue[None] = SimpleQueue()

    def begin(self) -> None:
        async def start() -> None:
            self.task = asyncio.create_task(ag.offload(self.gate.get))
            await settle()

        self.loop.run_until_complete(start())

    def end(self) -> None:
        self.gate.put(None)
        self.loop.run_until_complete(self.task)

    def close(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def test_it_is_short_while_one_of_several_engines_works() -> None:
    first, second = Loop(), Loop()
    assert now() == USUAL
    first.begin()
    assert now() == INTERVAL
    second.begin()
    first.end()
    assert now() == INTERVAL
    second.end()
    assert now() == USUAL
    first.close()
    second.close()
    assert now() == USUAL


def test_a_pass_in_a_thread_wants_it_too() -> None:
    seen: list[float] = []

    async def main() -> None:
        await chain(leaf(), 2, lambda: seen.append(now()), HEAVY).sum().backward()

    asyncio.run(main())
    assert seen == [INTERVAL] * 2
    assert now() == USUAL


def test_a_shorter_one_of_the_users_is_kept() -> None:
    sys.setswitchinterval(INTERVAL / 2)
    mine = now()
    loop = Loop()
    loop.begin()
    assert now() == mine
    loop.end()
    assert now() == mine
    loop.close()


def test_putting_it_back_again_and_again_does_not_wear_it_down() -> None:
    """Python cuts microseconds off: 0.05 is read as less, which set again would be less still."""
    sys.setswitchinterval(0.05)
    mine = sys.getswitchinterval()
    loop = Loop()
    for _ in range(3):
        loop.begin()
        loop.end()
        assert sys.getswitchinterval() == mine
    loop.close()


def test_one_that_the_user_sets_meanwhile_stays() -> None:
    loop = Loop()
    loop.begin()
    sys.setswitchinterval(0.002)
    loop.end()
    assert now() == 0.002
    loop.close()


def test_an_error_and_a_loop_closed_without_ceremony_give_it_back() -> None:
    loop = Loop()

    async def fail() -> Any:
        with pytest.raises(ZeroDivisionError):
            await ag.offload(lambda: 1 / 0)

    loop.loop.run_until_complete(fail())
    assert now() == USUAL
    loop.begin()
    assert now() == INTERVAL
    loop.gate.put(None)
    loop.task.cancel()
    loop.loop.run_until_complete(asyncio.wait([loop.task]))
    assert now() == USUAL

    async def engine() -> Any:
        return ag.engine()

    loop.begin()
    loop.loop.run_until_complete(engine()).close()
    assert now() == USUAL
    loop.end()
    assert now() == USUAL
    loop.close()


def test_what_is_withdrawn_does_not_count_until_a_thread_finds_it() -> None:
    """It has ended once, for all: there and then."""
    told: list[str] = []
    thread_job = ThreadJob(
        lambda: told.append("ran"),
        lambda *_: told.append("is reported"),
        lambda: told.append("has ended"),
    )
    assert thread_job.withdraw()
    assert told == ["has ended"]
    assert not thread_job.withdraw()
    thread_job.run()
    thread_job.report()
    assert told == ["has ended"]
