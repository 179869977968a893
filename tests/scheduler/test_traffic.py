"""Many passes of every kind at once, driven at random, against a sequential reference."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from traffic import FATES, KINDS, Pass, Traffic

import asyncgrad as ag
from asyncgrad.core.graph_task import GraphTask


class Loop(RuleBasedStateMachine):
    """An event loop on which anything happens in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[dict[str, Any]] = []
        self.threads = set(threading.enumerate())
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.complaints.append(context))
        self.traffic = Traffic()

    def within(self, call: Any) -> Any:
        """Call something on the running loop."""

        async def step() -> Any:
            return call()

        return self.loop.run_until_complete(step())

    @initialize(limit=st.sampled_from([None, None, 2]), coroutines=st.sampled_from([1, 8]))
    def limits(self, limit: int | None, coroutines: int) -> None:
        self.within(lambda: ag.engine().limit(passes=limit, coroutine_nodes=coroutines))

    @rule(
        kind=st.sampled_from(KINDS),
        place=st.integers(0, 2),
        amount=st.integers(1, 9),
        fate=st.sampled_from(FATES),
        priority=st.sampled_from([0, 0, 1, -1]),
        deadline=st.sampled_from(["none", "none", "far", "late"]),
    )
    def start(
        self, kind: str, place: int, amount: int, fate: Any, priority: int, deadline: str
    ) -> None:
        urgency = {"deadline": self.loop.time() + 1e4} if deadline == "far" else {}
        self.within(
            lambda: self.traffic.start(
                kind, place, amount, fate, late=deadline == "late", priority=priority, **urgency
            )
        )

    @rule(turns=st.integers(1, 20))
    def turn(self, turns: int) -> None:
        async def turn() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turn())

    @precondition(lambda self: self.traffic.passes)
    @rule(which=st.integers(0, 999))
    def open_a_gate(self, which: int) -> None:
        self.within(self.one(which).gate.set)

    @precondition(lambda self: self.traffic.passes)
    @rule(which=st.integers(0, 999), elsewhere=st.booleans())
    def cancel(self, which: int, elsewhere: bool) -> None:
        one = self.one(which)
        if elsewhere:
            # The loop stands still meanwhile: who is first is not left to chance.
            thread = threading.Thread(target=self.traffic.cancel, args=(one,))
            thread.start()
            thread.join()
        else:
            self.within(lambda: self.traffic.cancel(one))

    def one(self, which: int) -> Pass:
        """One of the passes; how many there are is up to threads."""
        return self.traffic.passes[which % len(self.traffic.passes)]

    @invariant()
    def gradients_are_those_of_the_passes_that_have_ended_well(self) -> None:
        self.within(self.traffic.check)

    def teardown(self) -> None:
        loop = self.loop
        try:
            loop.run_until_complete(self.traffic.end())
            assert self.complaints == []
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
        assert set(threading.enumerate()) <= self.threads


TestLoop = Loop.TestCase
TestLoop.settings = settings(max_examples=60, stateful_step_count=25)


async def run_traffic(count: int, seed: int, width: int = 40) -> list[int]:
    """Run so many passes, `width` at a time, with random cancels, errors and deadlines.

    Returns:
        How many objects there were whenever another tenth of the passes had ended.
    """
    rng = random.Random(seed)
    traffic = Traffic()
    before = alive()
    objects = []
    for number in range(count):
        urgency: dict[str, Any] = {"priority": rng.choice([0, 0, 0, 1, 5])}
        if rng.random() < 0.2:
            urgency["deadline"] = asyncio.get_running_loop().time() + rng.choice([1e-4, 1e-2, 1e4])
        one = traffic.start(rng.choice(KINDS), rng.randrange(3), rng.randint(1, 9), **urgency)
        # What it ends with depends on the clock; that it is all or nothing does not.
        one.fate = rng.choice(FATES)
        if rng.random() < 0.8:
            one.gate.set()
        if rng.random() < 0.2:
            traffic.cancel(rng.choice(traffic.passes))
        if rng.random() < 0.3:
            await asyncio.sleep(0)
        while len(traffic.passes) > width:
            for one in traffic.passes[: width // 2]:
                one.gate.set()
            await asyncio.wait(
                [one.future for one in traffic.passes], return_when=asyncio.FIRST_COMPLETED
            )
            forget(traffic)
        if (number + 1) % (count // 10) == 0:
            # Passes that run hold objects, too: how many depends on where each of them is.
            for one in traffic.passes:
                one.gate.set()
            while traffic.passes:
                await asyncio.wait([one.future for one in traffic.passes])
                forget(traffic)
            one = None
            # What was cancelled while it waited for a turn is in the queue until that comes.
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
            gc.collect()
            there = gc.get_objects()
            # asyncio keeps cancelled timers, each with its context, until they are many or due.
            over = [x for x in there if type(x) is asyncio.TimerHandle and x.cancelled()]
            objects.append(len(there) - 2 * len(over))
            there = over = None
    assert set(alive()) <= set(before)
    return objects


def alive() -> weakref.WeakSet[GraphTask]:
    """The passes that have not been freed; a test that has failed may hold some."""
    return weakref.WeakSet([thing for thing in gc.get_objects() if type(thing) is GraphTask])


def forget(traffic: Traffic) -> None:
    """Compare the leaves with the reference, and let go of what has ended."""
    expected = list(traffic.settled)
    for one in traffic.passes:
        if one.ended_well:
            expected[one.place] += one.amount
            assert not one.cancelled
    assert [0.0 if x.grad is None else x.grad.tolist()[0] for x in traffic.leaves] == expected
    traffic.forget()


def soak(count: int, seed: int) -> None:
    complaints: list[dict[str, Any]] = []
    threads = set(threading.enumerate())

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(context))
        objects = await run_traffic(count, seed)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        statistics = ag.engine().statistics()
        assert (statistics.in_flight, statistics.queued) == (0, 0)
        assert statistics.passes >= count
        return objects

    objects = asyncio.run(main())
    assert complaints == []
    assert set(threading.enumerate()) <= threads
    # The first figures are of a program that is still warming up. The least of some: queues drop
    # entries of what has ended when there are many of them, or when their turn comes.
    assert min(objects[5:]) < 1.1 * min(objects[2:5]), "memory is not flat"


def test_a_while_of_heavy_traffic_leaves_nothing_behind() -> None:
    soak(1_000, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_passes_leave_nothing_behind(seed: int) -> None:
    soak(10_000, seed)
