"""How many passes run at once, and what can be seen of what they did."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from passes import (
    HEAVY,
    assert_nothing_runs,
    calls,
    chain,
    give_way,
    leaf,
    long_pass,
    settle,
    until,
)

import asyncgrad as ag
from asyncgrad.core.frames import PACKAGE
from asyncgrad.scheduler.host import EventLog
from asyncgrad.scheduler.statistics import Collections, EngineStatistics

pytestmark = pytest.mark.asyncio

SERVING = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


class Gate:
    """A pass that runs until it is let go."""

    def __init__(self, log: list[str], name: str, **urgency: Any) -> None:
        self.event = asyncio.Event()
        self.x = leaf()
        self.log, self.name = log, name
        self.future = calls(self.x, self.enter).sum().backward(**urgency)

    async def enter(self) -> None:
        self.log.append(self.name)
        await self.event.wait()


class TestPassesInFlight:
    async def test_what_is_over_the_limit_waits_in_order_of_priority(self) -> None:
        ag.engine().limit(passes=2)
        log: list[str] = []
        gates = {
            name: Gate(log, name, priority=priority)
            for name, priority in [("a", 0), ("b", 0), ("c", 0), ("d", 5), ("e", 0), ("f", 9)]
        }
        await until(lambda: len(log) == 2)
        assert log == ["a", "b"]
        statistics = ag.engine().statistics()
        assert (statistics.in_flight, statistics.held_back) == (2, 4)
        for released, entered in [("a", "f"), ("b", "d"), ("f", "c"), ("d", "e")]:
            gates[released].event.set()
            await gates[released].future
            before = len(log)
            await until(lambda before=before: len(log) > before)
            assert log[-1] == entered
        for gate in gates.values():
            gate.event.set()
            await gate.future
            assert gate.x.grad is not None
        await assert_nothing_runs()

    async def test_of_equals_the_one_with_the_nearest_deadline_goes_first(self) -> None:
        ag.engine().limit(passes=1)
        log: list[str] = []
        far = asyncio.get_running_loop().time() + 1_000
        gates = [
            Gate(log, "first"),
            Gate(log, "no hurry"),
            Gate(log, "later", deadline=far + 1),
            Gate(log, "sooner", deadline=far),
        ]
        for gate in gates:
            gate.event.set()
        await asyncio.gather(*(gate.future for gate in gates))
        assert log == ["first", "sooner", "later", "no hurry"]

    async def test_nothing_starves_behind_urgent_passes(self) -> None:
        """Of 16 that go in one is the oldest, once 64 have overtaken it."""
        ag.engine().limit(passes=1)
        log: list[str] = []
        gates = [Gate(log, "first"), Gate(log, "patient", priority=-3)]
        gates += [Gate(log, "urgent", priority=1) for _ in range(120)]
        for gate in gates:
            gate.event.set()
        await asyncio.gather(*(gate.future for gate in gates))
        assert 64 <= log.index("patient") <= 64 + 16
        assert len(log) == len(gates)
        await assert_nothing_runs()

    @pytest.mark.parametrize("before", [None, 2])
    async def test_nested_passes_take_nobodys_place(self, before: int | None) -> None:
        """Nor do those that began before there was a limit."""
        ag.engine().limit(passes=before)
        log: list[str] = []
        inner: list[Gate] = []

        async def nested() -> None:
            with ag.enable_grad():
                inner.append(Gate(log, "inner"))
            await inner[0].future

        outer = calls(leaf(), nested).sum().backward()
        await until(lambda: log)
        ag.engine().limit(passes=2)
        beside = Gate(log, "beside")
        assert ag.engine().statistics().held_back == 0
        one_more = Gate(log, "one more")
        await until(lambda: len(log) == 2)
        await settle()
        assert log == ["inner", "beside"]
        assert ag.engine().statistics().held_back == 1
        for gate in (*inner, beside, one_more):
            gate.event.set()
        await asyncio.gather(outer, beside.future, one_more.future)
        assert log == ["inner", "beside", "one more"]
        await assert_nothing_runs()

    async def test_one_that_waits_can_be_cancelled_and_has_a_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        ag.engine().limit(passes=1)
        log: list[str] = []
        first, second = Gate(log, "first"), Gate(log, "second")
        third = Gate(log, "third", deadline=loop.time() + 0.001)
        second.future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second.future
        with pytest.raises(TimeoutError):
            await third.future
        first.event.set()
        await first.future
        assert log == ["first"]
        await long_pass(leaf()).backward()
        await assert_nothing_runs()

    async def test_nested_passes_are_not_held_back(self) -> None:
        """Their parents wait for them."""
        ag.engine().limit(passes=1)
        x, inner = leaf(), leaf()
        loss = long_pass(inner)

        async def nested() -> None:
            await asyncio.sleep(0)
            await loss.backward()

        await calls(x, nested).sum().backward()
        assert inner.grad is not None
        assert x.grad is not None

    async def test_to_wait_takes_no_longer_if_many_wait(self) -> None:
        """Or to start many would take a time that grows as the square of their number."""
        ag.engine().limit(passes=1)
        x, log = leaf(), list[str]()
        first = Gate(log, "first")
        await until(lambda: log)
        count, counts = 0, list[int]()

        def note(frame: Any, event: str, _: Any) -> None:
            nonlocal count
            count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

        futures = []
        for _ in range(100):
            loss, count = x.sum(), 0
            sys.setprofile(note)
            try:
                futures.append(loss.backward())
            finally:
                sys.setprofile(None)
            counts.append(count)
        first.event.set()
        await asyncio.gather(first.future, *futures)
        # The least of several: the engine's function for the garbage collector is called in some.
        assert min(counts[-20:]) == min(counts[:20])

    async def test_taking_the_limit_away_lets_all_in(self) -> None:
        engine = ag.engine()
        engine.limit(passes=1)
        log: list[str] = []
        gates = [Gate(log, str(number)) for number in range(4)]
        await until(lambda: log)
        assert log == ["0"]
        engine.limit()
        await until(lambda: len(log) == 4)
        assert log == ["0", "1", "2", "3"]
        for gate in gates:
            gate.event.set()
        await asyncio.gather(*(gate.future for gate in gates))

    @pytest.mark.parametrize(
        "wrong",
        [{"passes": 0}, {"coroutine_nodes": 0}, {"grace": -1.0}, {"grace": float("nan")}],
    )
    async def test_limits_under_which_nothing_runs_are_refused(self, wrong: dict) -> None:
        engine = ag.engine()
        engine.limit(passes=7)
        with pytest.raises(ValueError, match="limit"):
            engine.limit(**wrong)
        assert engine.admission.limit == 7

    @pytest.mark.parametrize(
        "wrong",
        [
            {"passes": 1.5},
            {"passes": float("nan")},
            {"passes": "2"},
            {"coroutine_nodes": None},
            {"grace": None},
        ],
    )
    async def test_limits_that_are_no_numbers_are_refused(self, wrong: dict) -> None:
        """Nothing is less than NaN: no pass would ever run."""
        engine = ag.engine()
        engine.limit(passes=7)
        with pytest.raises(TypeError, match=r"limit: .* is an int"):
            engine.limit(**wrong)
        assert engine.admission.limit == 7


class TestStatistics:
    async def test_passes_nodes_slices_and_waits_are_counted(self) -> None:
        engine = ag.engine()
        before = engine.statistics()
        x = leaf()
        await (x * 2).sum().backward()
        await long_pass(x, 1_000).backward()
        after = engine.statistics()
        assert after.passes - before.passes == 2
        # Product, sum and accumulator; the chain, its sum and the accumulator.
        assert after.nodes - before.nodes == 3 + 1_002
        assert after.slices - before.slices >= 3
        assert after.queue_waits > 0
        assert after.queue_wait >= after.longest_queue_wait > 0
        assert after.loop_held >= after.longest_hold > 0
        assert after.longest_turn > 0

    async def test_passes_that_fail_and_that_are_cancelled_are_counted(self) -> None:
        async def ending() -> tuple[int, int]:
            await assert_nothing_runs()
            statistics = ag.engine().statistics()
            return statistics.failed, statistics.cancelled

        def fail() -> None:
            raise ValueError("no")

        await long_pass(leaf()).backward()
        assert await ending() == (0, 0)
        with pytest.raises(ValueError, match="no"):
            await calls(leaf(), fail).sum().backward()
        assert await ending() == (1, 0)
        with pytest.raises(TimeoutError):
            await long_pass(leaf()).backward(deadline=0.0)
        assert await ending() == (2, 0)
        future = long_pass(leaf(), 20_000).backward()
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert await ending() == (2, 1)

    async def test_times_are_in_seconds(self) -> None:
        """Their sources count nanoseconds."""
        engine = ag.engine()
        times = (
            "queue_wait", "longest_queue_wait", "collector_pause", "longest_collector_pause",
            "loop_held", "longest_hold", "longest_turn",
        )  # fmt: skip
        await engine.shut_down()
        for seconds, name in enumerate(times, 1):
            engine.counts[name] = seconds * 10**9
        statistics = engine.statistics()
        assert [getattr(statistics, name) for name in times] == [1, 2, 3, 4, 5, 6, 7]

    async def test_turns_in_which_a_graph_is_walked_are_counted(self) -> None:
        engine = ag.engine()
        loss = long_pass(leaf(), 30_000)
        before = engine.statistics()
        await loss.backward()
        after = engine.statistics()
        assert after.slices - before.slices >= after.queue_waits - before.queue_waits > 10

    async def test_segments_and_offloads_are_counted(self) -> None:
        engine = ag.engine()
        await chain(leaf(), 3, cost=HEAVY).sum().backward()
        await ag.offload(int)
        statistics = engine.statistics()
        assert statistics.segments == 1
        assert statistics.offloads == 1

    async def test_a_pause_that_had_begun_before_is_not_counted(self) -> None:
        """Another thread may make an engine in the middle of one."""
        counts = {"collections": 0, "collector_pause": 0, "longest_collector_pause": 0}
        collections = Collections(counts, lambda: None)
        collections._note("stop", {"generation": 0})
        assert not any(counts.values())
        collections._note("start", {"generation": 0})
        collections._note("stop", {"generation": 0})
        assert counts["collections"] == 1

    async def test_the_collectors_pauses_are_counted(self) -> None:
        engine = ag.engine()
        before = engine.statistics()
        gc.collect()
        after = engine.statistics()
        assert after.collections > before.collections
        assert after.collector_pause > before.collector_pause
        assert after.longest_collector_pause > 0
        await engine.shut_down()
        at_the_end = engine.statistics().collections
        gc.collect()
        assert engine.statistics().collections == at_the_end

    async def test_bytes_held_are_those_of_the_pool(self) -> None:
        x = ag.ones(600, 600, requires_grad=True)
        await ag.tanh(x * 2.0).sum().backward()
        x = None
        gc.collect()
        assert ag.engine().statistics().bytes_held >= 600 * 600 * 4

    async def test_they_are_a_record_that_nobody_changes(self) -> None:
        statistics = ag.engine().statistics()
        with pytest.raises(dataclasses.FrozenInstanceError):
            statistics.passes = 5

    @pytest.mark.parametrize("field", dataclasses.fields(EngineStatistics), ids=lambda f: f.name)
    async def test_the_manual_explains_each_of_them(self, field: Any) -> None:
        assert re.search(rf"^\|.*`{field.name}`.* \| .+ \|$", SERVING, re.MULTILINE)


class TestEventLog:
    async def test_an_error_tells_what_happened_to_its_pass(self) -> None:
        x = leaf()

        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError("no")

        y = chain(calls(chain(x, 1, cost=HEAVY), fail), 2, cost=HEAVY)
        with pytest.raises(ValueError, match="no") as caught:
            await chain(y, 1_000).sum().backward()
        log = caught.value.__notes__[-1]
        lines = [line.split("ms  ")[-1] for line in log.splitlines()[1:]]
        assert lines[0].startswith("runs a slice")
        assert lines[1:] == [
            "goes to a thread",
            "comes back from the thread",
            "awaits Calls",
            "Calls has ended",
        ]

    async def test_it_tells_when_each_happened_last_and_how_often(self) -> None:
        log = EventLog(5_000_000)
        for now, what in ((5_000_000, "begins"), (6_500_000, "goes on"), (7_500_500, "goes on")):
            log.add(now, what)
        assert str(log).splitlines()[1:] == [
            "  +0.000 ms  begins", "  +2.501 ms  goes on (2 times)",
        ]  # fmt: skip

    async def test_it_is_bounded(self) -> None:
        x = leaf()

        def fail() -> None:
            raise ValueError("no")

        y = calls(x, fail)
        for _ in range(50):
            y = calls(chain(y, 3), give_way)
        with pytest.raises(ValueError, match="no") as caught:
            await y.sum().backward()
        log = caught.value.__notes__[-1]
        assert len(log.splitlines()) == 25

    async def test_a_deadline_tells_it_too(self) -> None:
        with pytest.raises(TimeoutError) as caught:
            await long_pass(leaf(), 20_000).backward(
                deadline=asyncio.get_running_loop().time() + 0.002
            )
        assert "its deadline has passed" in caught.value.__notes__[-1]

    async def test_a_small_pass_has_none(self) -> None:
        def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no") as caught:
            await calls(leaf(), fail).sum().backward()
        if not asyncio.get_running_loop().get_debug():
            assert len(caught.value.__notes__) == 1
