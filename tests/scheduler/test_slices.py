"""What a turn of the loop is filled with: as much as it has time for, and something in any case."""

from __future__ import annotations

import asyncio
import sys
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from passes import calls, chain, leaf, until

import asyncgrad as ag
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.variable import gradient_edge
from asyncgrad.ops.namespace import Raw
from asyncgrad.scheduler.walk_budget import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.asyncio
@pytest.mark.parametrize("slice_ns", [0, 1_000, 100_000])
async def test_every_slice_gets_on_however_short(slice_ns: int) -> None:
    """A node that costs more than a slice, and not enough for a thread, still has its turn."""
    x = leaf()
    ran: list[int] = []
    y = x
    for i in range(6):
        y = calls(y, lambda i=i: ran.append(i), cost=150_000)
    engine = ag.engine()
    engine.slice_ns = slice_ns
    before = engine.counts["segments"]
    await y.sum().backward()
    assert ran == [5, 4, 3, 2, 1, 0]
    assert engine.counts["segments"] == before
    assert engine.counts["slices"] >= 6


@pytest.mark.asyncio
async def test_a_pass_that_is_alone_fills_its_slices_by_the_clock() -> None:
    """Its nodes take half as long as expected, so that it needs fewer turns than two at once."""

    async def slices_of(passes: int) -> float:
        before = engine.counts["slices"]
        futures = []
        for _ in range(passes):
            y = leaf()
            for _ in range(400):
                y = calls(y, work, cost=10_000)
            futures.append(y.sum().backward())
        for future in futures:
            await future
        return (engine.counts["slices"] - before) / passes

    def work() -> None:
        now[0] += 5_000

    now = [0]
    engine = ag.engine()
    engine.slice_ns = 250_000
    engine.clock = lambda: now[0]
    alone = await slices_of(1)
    assert 8 <= alone <= 13
    assert await slices_of(2) >= 16


@pytest.mark.asyncio
@pytest.mark.parametrize(("nodes", "slices"), [(100, 1), (120, 1), (160, 2)])
async def test_the_little_that_is_left_of_a_pass_needs_no_turn(nodes: int, slices: int) -> None:
    """Where nobody waits, a slice goes on for a third of what it was worth if that is the end."""
    engine = ag.engine()
    engine.slice_ns = 1_100_000
    engine.clock = lambda: 0
    ran: list[int] = []

    def chain(length: int) -> Any:
        y = leaf()
        for _ in range(length):
            y = calls(y, lambda: ran.append(1), cost=10_000)
        return y.sum()

    await chain(nodes).backward()
    assert engine.counts["slices"] == slices
    engine.slice_ns = 0
    waiting = chain(2).backward()
    engine.slice_ns = 1_100_000
    ran.clear()
    future = chain(120).backward()
    at_once = len(ran)
    await waiting
    await future
    assert at_once < 120, "others wait"


@pytest.mark.asyncio
async def test_a_pass_whose_nodes_are_slow_gets_shorter_slices() -> None:
    """The loop's turns stay as long as they should be."""
    now = [0]
    engine = ag.engine()
    engine.slice_ns = 250_000
    engine.clock = lambda: now[0]

    def work() -> None:
        now[0] += 20_000

    y = leaf()
    for _ in range(400):
        y = calls(y, work, cost=10_000)
    await y.sum().backward()
    assert engine.counts["slices"] >= 26, "as many as their time is worth, but for the first few"


@pytest.mark.asyncio
@pytest.mark.parametrize(("turn_ns", "turns"), [(0, 3), (70_000, 2), (150_000, 1)])
async def test_the_loop_has_three_turns_between_slices(turn_ns: int, turns: int) -> None:
    """Enough for what a timer wakes; fewer where they last longer than a slice."""
    now = [0]
    engine = ag.engine()
    engine.slice_ns = 120_000
    engine.clock = lambda: now[0]
    seen: list[int] = []
    y = leaf()
    for _ in range(6):
        y = calls(y, lambda: seen.append(turn), cost=150_000)
    turn = 0
    future = y.sum().backward()
    while not future.done():
        await asyncio.sleep(0)
        turn += 1
        now[0] += turn_ns
    await future
    steps = [later - earlier for earlier, later in pairwise(seen)]
    assert set(steps[2:]) == {turns}


@pytest.mark.asyncio
async def test_a_loop_that_has_nothing_else_to_do_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second and the third are for what the first has woken."""
    loop = asyncio.get_running_loop()
    run_once = getattr(loop, "_run_once", None)
    if run_once is None:
        pytest.skip("uvloop does not show what is ready")
    engine = ag.engine()
    engine.slice_ns = 120_000
    engine.clock = lambda: 0
    turn = 0
    seen: list[int] = []
    before: list[int] = []

    def count() -> None:
        nonlocal turn
        turn += 1
        run_once()

    def node() -> None:
        seen.append(turn)
        if len(seen) == 3:
            # Runs in the next turn, and wakes somebody for the one after that.
            loop.call_soon(loop.call_soon, lambda: before.append(len(seen)))

    monkeypatch.setattr(loop, "_run_once", count)
    y = leaf()
    for _ in range(6):
        y = calls(y, node, cost=150_000)
    await y.sum().backward()
    assert [later - earlier for earlier, later in pairwise(seen)][1:] == [1, 2, 1, 1]
    assert before == [3]


@pytest.mark.asyncio
async def test_the_more_urgent_overtakes_who_came_first() -> None:
    ended: list[str] = []
    engine = ag.engine()
    engine.slice_ns = 0

    def start(name: str, priority: int) -> Any:
        y = leaf()
        for _ in range(3):
            y = calls(y, lambda: None)
        future = y.sum().backward(priority=priority)
        future.add_done_callback(lambda _: ended.append(name))
        return future

    queue = engine.queue
    assert queue.empty()
    first = start("first", 0)
    assert (queue.waiting(), queue.empty()) == (1, False)
    second = start("urgent", 1)
    assert queue.waiting() == 2
    third = start("third", 0)
    for future in (first, second, third):
        await future
    assert ended[0] == "urgent"
    assert queue.empty()
    assert engine.statistics().queue_waits >= 3


def test_a_walk_gets_less_far_where_nodes_lead_to_several_others() -> None:
    """These take longer, and a part of the walk must not hold the loop longer than others."""

    def parts(function: Callable[[ag.Tensor], ag.Tensor]) -> int:
        y = ag.ones(2, requires_grad=True)
        for _ in range(3_000):
            y = function(y)
        task = GraphTask([gradient_edge(y)], [None])
        number = 1
        while not task.start(1_000):
            number += 1
        return number

    w = ag.ones(2, requires_grad=True)
    assert parts(lambda y: y * 2.0) == 4
    assert parts(lambda y: y * w) == 9


def test_a_walk_stops_where_its_dictionary_moves() -> None:
    """What that takes is a turn of its own, with few other nodes in it."""
    dependencies: dict[int, int] = {}
    moved = 0
    while (known := len(dependencies)) < 400_000:
        size = sys.getsizeof(dependencies)
        steps = steps_of(known, 250_000)
        dependencies.update((key, 1) for key in range(known, known + steps))
        if known > 10_000 and sys.getsizeof(dependencies) != size:
            moved += 1
            assert steps <= 32
    assert moved >= 5


@pytest.mark.parametrize("tasks", [True, False])
@pytest.mark.asyncio
async def test_equal_passes_get_on_alike(tasks: bool) -> None:
    """None is ahead of another by a tenth of a pass, although each is but a few slices long.

    Not even the one that has started while nobody could know of the others.
    """
    nodes, turns, widest = 1_000, [0] * 20, 0

    def turn(place: int) -> None:
        nonlocal widest
        turns[place] += 1
        if max(turns) < nodes:
            widest = max(widest, max(turns) - min(turns))

    def start(place: int) -> Any:
        return chain(leaf(), nodes, lambda: turn(place)).sum().backward()

    async def run(place: int) -> None:
        await start(place)

    await asyncio.gather(*map(run if tasks else start, range(len(turns))))
    assert turns == [nodes] * len(turns)
    assert widest <= nodes // 10


@pytest.mark.asyncio
async def test_what_hooks_add_to_a_node_counts() -> None:
    """A slice does not get on as far where every node takes the long way."""
    engine = ag.engine()
    engine.clock = lambda: 0
    slices = []
    for hooked in (False, True):
        y = leaf()
        for _ in range(400):
            y = -y
            if hooked:
                y.register_hook(lambda gradient: None)
        before = engine.counts["slices"]
        await y.sum().backward()
        slices.append(engine.counts["slices"] - before)
    assert slices[1] >= 2 * slices[0]


@pytest.mark.asyncio
@pytest.mark.parametrize("of", ["sum", "mean", "roots", "a part"])
async def test_large_gradients_are_added_in_threads(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of sums are views, which cost nothing, but to add two of them takes milliseconds.

    So does to add those of a root that is given twice.
    """
    threads = []
    accumulate = Raw.accumulate

    def noted(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return accumulate(*args)

    monkeypatch.setattr(Raw, "accumulate", noted)
    x = ag.ones(2, 1_000_000, requires_grad=True)
    engine = ag.engine()
    before = engine.counts["segments"]
    if of in ("sum", "mean"):
        total = getattr(x, of)
        await (total() + total()).backward()
    else:
        root = x * 1.0 if of == "roots" else x.unbind()[1]
        await ag.autograd.backward([root] * 2, [ag.ones(root.shape)] * 2)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    assert engine.counts["segments"] == before + 1


@pytest.mark.asyncio
async def test_many_small_leaves_are_committed_in_a_thread() -> None:
    """To add a gradient takes a microsecond, however small it is."""
    leaves = [leaf() for _ in range(1_000)]
    loss = sum(x.sum() for x in leaves)
    engine = ag.engine()
    await loss.backward()
    assert engine.counts["segments"] == 1
    assert all(x.grad is not None for x in leaves)


@pytest.mark.asyncio
async def test_what_many_leaves_got_is_freed_by_the_thread_that_commits() -> None:
    """For 20,000 leaves that takes a millisecond, which the loop has not got."""
    leaves = [leaf() for _ in range(1_000)]
    future = sum(x.sum() for x in leaves).backward()
    task = future._task
    await future
    assert task.staged == []


@pytest.mark.asyncio
@pytest.mark.parametrize("many", ["inputs", "outputs", "roots"])
async def test_a_node_with_many_edges_runs_in_a_thread(many: str) -> None:
    """It makes or takes a gradient for each, however small they are."""
    x = ag.ones(1_000, 2, requires_grad=True)
    roots = [-x[0] for _ in range(1_000)] if many == "inputs" else x.unbind()
    if many != "roots":
        roots = [(ag.stack(roots) if many == "inputs" else sum(roots)).sum()]
    engine = ag.engine()
    await ag.autograd.backward(roots, [ag.ones_like(root) for root in roots])
    assert engine.counts["segments"] >= 1


@pytest.mark.asyncio
async def test_a_pass_that_has_ended_in_the_queue_does_not_wait() -> None:
    """What is queued is in flight, too, whenever somebody looks."""
    engine = ag.engine()
    engine.slice_ns = 0
    for number in (1, 3):
        futures = [calls(leaf(), lambda: None).sum().backward() for _ in range(number)]
        assert engine.statistics().queued == number
        for place, future in enumerate(futures):
            future.cancel()
            statistics = engine.statistics()
            assert statistics.queued == statistics.in_flight == number - place - 1
        for future in futures:
            with pytest.raises(asyncio.CancelledError):
                await future


@pytest.mark.asyncio
async def test_half_precision_fills_slices_sooner() -> None:
    """NumPy takes some ten times as long for it, which the loop would have to wait."""

    async def slices_of(dtype: ag.dtype) -> int:
        y = ag.ones(4_000, dtype=dtype, requires_grad=True)
        for _ in range(400):
            y = y * 1.0
        before = engine.counts["slices"]
        await y.sum().backward()
        return engine.counts["slices"] - before

    engine = ag.engine()
    engine.clock = lambda: 0
    assert await slices_of(ag.float16) > 3 * await slices_of(ag.float32)


@pytest.mark.asyncio
@pytest.mark.parametrize("waits", [False, True])
async def test_large_gradients_are_copied_in_threads(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a hook, or before it goes on, which might change the arrays that they share."""
    threads = []
    copy = Raw.own_copy

    def noted(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return copy(*args)

    async def hook(gradient: ag.Tensor) -> None:
        if waits:
            await until(lambda: task.staged and task not in engine.thread_segments.tasks)

    monkeypatch.setattr(Raw, "own_copy", noted)
    engine = ag.engine()
    x = ag.ones(1_000_000, requires_grad=True)
    total = x.sum() if waits else 0.0
    y = leaf() * 2.0
    y.register_hook(hook)
    if not waits:
        # So many cheap nodes bring the pass back to the loop.
        for _ in range(100):
            y = y.tanh()
        total = x.sum()
    future = (total + y.sum()).backward()
    task = future._task
    await future
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
