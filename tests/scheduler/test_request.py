"""Priorities and deadlines: who goes first, and who gives up."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from passes import calls, leaf

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
async def test_a_pass_that_waits_ends_at_its_deadline() -> None:
    """Nothing else would end it; so a second timeout ends the test."""

    async def forever(gradient: ag.Tensor) -> None:
        await asyncio.Event().wait()

    x, loss = chain(10)
    x.register_hook(forever)
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError, match=r"no \.grad was touched"):
            await loss.backward(deadline=asyncio.get_running_loop().time() + 0.01)
    assert x.grad is None


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


def turns_of(log: list[str], name: str) -> Any:
    """A node's function that notes whose node has run."""
    return lambda: log.append(name)


def marked(log: list[str], name: str, nodes: int = 600) -> ag.Tensor:
    """A scalar whose pass notes every node; a slice has time for about 125."""
    x = leaf()
    for _ in range(nodes):
        x = calls(x, turns_of(log, name))
    return x.sum()


@pytest.mark.asyncio
async def test_of_equals_the_one_with_the_nearest_deadline_goes_first() -> None:
    ended: list[str] = []
    now = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        group.create_task(finish(ended, "none", 4_000))
        group.create_task(finish(ended, "far", 4_000, deadline=now + 2_000))
        group.create_task(finish(ended, "near", 4_000, deadline=now + 1_000))
        group.create_task(finish(ended, "urgent", 4_000, priority=1))
    assert ended == ["urgent", "near", "far", "none"]


@pytest.mark.asyncio
async def test_a_deadline_in_the_past_ends_even_a_small_pass() -> None:
    """Whether a pass is small enough to end before its first turn changes nothing."""
    x = leaf()
    with pytest.raises(TimeoutError):
        await (x * 2).sum().backward(deadline=asyncio.get_running_loop().time())
    assert x.grad is None


def test_a_deadline_in_the_past_ends_a_small_blocking_pass() -> None:
    x = leaf()
    with pytest.raises(TimeoutError):
        (x * 2).sum().backward(deadline=time.monotonic())
    assert x.grad is None


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("backward", [ag.Tensor.backward, ag.sync.backward])
def test_a_deadline_has_passed_from_the_time_that_it_names(backward: Any, passed: bool) -> None:
    """Neither later nor earlier, as the loop's clock shows, which here stands still."""

    class Still(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return 100.0

    async def main() -> None:
        ending = backward((x * 2).sum(), deadline=100.0 if passed else 100.5)
        if ending is not None:
            await ending

    x = leaf()
    with asyncio.Runner(loop_factory=Still) as runner:
        if passed:
            with pytest.raises(TimeoutError, match="deadline"):
                runner.run(main())
        else:
            runner.run(main())
    assert (x.grad is None) == passed


@pytest.mark.parametrize("size", [3, 200_000], ids=["on the loop", "in a thread"])
@pytest.mark.asyncio
async def test_what_is_given_is_not_added_after_the_deadline_of_a_request(size: int) -> None:
    x = leaf(size)
    with ag.request(deadline=asyncio.get_running_loop().time() - 1.0):
        future = ag.autograd.graph.accumulate({x: ag.ones(size, dtype=x.dtype)})
    with pytest.raises(TimeoutError, match="deadline"):
        await future
    assert x.grad is None
    with ag.request(priority=3):
        future = ag.autograd.graph.accumulate({x: ag.ones(size, dtype=x.dtype)})
    if future._task is not None:
        assert future._task.priority == 3
    await future
    assert x.grad[0].item() == 1.0


@pytest.mark.asyncio
async def test_requests_within_one_another_keep_what_they_do_not_set() -> None:
    ended: list[str] = []
    x = leaf()
    async with asyncio.TaskGroup() as group:
        for i in range(2):
            group.create_task(finish(ended, f"long {i}", 4_000))
        with ag.request(priority=1), ag.request(deadline=asyncio.get_running_loop().time() + 1e3):
            group.create_task(finish(ended, "urgent", 4_000))
    assert ended[0] == "urgent"
    with ag.request(deadline=0.0), ag.request(priority=1), pytest.raises(TimeoutError):
        await (x * 2).sum().backward()


@pytest.mark.asyncio
async def test_nothing_starves_beside_an_endless_stream_of_urgent_passes() -> None:
    """However urgent they are: the stream ends only when the other pass has."""
    x, loss = chain(2_000)
    waiting = loss.backward()
    count = 0
    while not waiting.done():
        with ag.request(priority=1_000):
            _, first = chain(400)
            _, second = chain(400)
            await asyncio.gather(first.backward(), second.backward())
        count += 1
        assert count < 5_000, "it starves"
    await waiting
    assert x.grad is not None


@pytest.mark.asyncio
async def test_a_nested_pass_goes_before_its_parent() -> None:
    """Both have something ready: the parent a branch beside the one that waits."""
    log: list[str] = []
    inner = marked(log, "inner")
    x = leaf()
    branch = x
    for _ in range(600):
        branch = calls(branch, turns_of(log, "outer"))

    async def nested() -> None:
        await inner.backward()

    await (branch + calls(x, nested)).sum().backward()
    assert x.grad is not None
    first, last = log.index("inner"), len(log) - log[::-1].index("inner")
    between = log[first:last].count("outer")
    # The slice in which the nested pass started, and no turn after it.
    assert between <= 150


@pytest.mark.asyncio
async def test_depth_does_not_count_between_families() -> None:
    """A nested pass of one family and a pass of another have turns in turn."""
    log: list[str] = []
    inner, other = marked(log, "inner", 2_000), marked(log, "other", 2_000)
    x = leaf()

    async def nested() -> None:
        await inner.backward()

    await asyncio.gather(calls(x, nested).sum().backward(), other.backward())
    half = log[: len(log) // 2]
    assert abs(half.count("inner") - half.count("other")) <= len(half) // 5


@pytest.mark.asyncio
async def test_a_family_of_passes_has_one_share() -> None:
    """Many nested passes at once get together what one pass beside them gets."""
    log: list[str] = []
    inner = [marked(log, "inner", 500) for _ in range(4)]
    other = marked(log, "other", 2_000)
    x = leaf()

    async def nested() -> None:
        await asyncio.gather(*(loss.backward() for loss in inner))

    await asyncio.gather(calls(x, nested).sum().backward(), other.backward())
    half = log[: len(log) // 2]
    assert abs(half.count("inner") - half.count("other")) <= len(half) // 5


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("urgency", "error"),
    [
        ({"priority": "high"}, TypeError),
        ({"priority": 1.5}, TypeError),
        ({"deadline": "soon"}, TypeError),
        ({"deadline": float("nan")}, ValueError),
    ],
)
async def test_an_urgency_that_is_none_is_refused_before_anything_happens(
    urgency: dict[str, Any], error: type[Exception]
) -> None:
    """No node has run, no pass is left behind, and the graph can still be used."""
    x, loss = chain(3_000)
    engine = ag.engine()
    for start in (
        lambda: loss.backward(**urgency),
        lambda: ag.grad(loss, [x], **urgency),
        lambda: ag.request(**urgency),
        lambda: ag.sync.backward(loss, **urgency),
    ):
        with pytest.raises(error, match=r"priority|deadline"):
            start()
    statistics = engine.statistics()
    assert (statistics.passes, statistics.in_flight, statistics.queued) == (0, 0, 0)
    await loss.backward()
    assert x.grad is not None


@pytest.mark.asyncio
async def test_an_infinite_deadline_is_none() -> None:
    """It also takes back that of the surroundings."""
    loop = asyncio.get_running_loop()
    with ag.request(deadline=loop.time() - 1):
        x, loss = chain(3_000)
        await loss.backward(deadline=float("inf"))
        assert x.grad is not None
        with ag.request(deadline=float("inf")):
            _, loss = chain(3_000)
            await loss.backward()
        _, loss = chain(3_000)
        with pytest.raises(TimeoutError):
            await loss.backward()


class Outlasted:
    """A pass whose deadline comes while its node runs, and one that the node starts then."""

    def __init__(self, asked: float) -> None:
        """Let the nested pass ask for a deadline so much later than its parent's."""
        self.inner = leaf()
        self.deadline = time.monotonic() + 0.01
        self.asked = self.deadline + asked

    def start(self) -> Any:
        while time.monotonic() <= self.deadline:
            pass
        with ag.enable_grad():
            return (self.inner * 1.0).sum().backward(deadline=self.asked)

    async def start_and_wait(self) -> None:
        await self.start()

    def end(self, node: Any) -> Any:
        return calls(leaf(), node).sum().backward(deadline=self.deadline)


@pytest.mark.parametrize("asked", [1e4, float("inf")])
@pytest.mark.parametrize("way", ["without a loop", "from a hook", "from a coroutine"])
def test_a_nested_pass_does_not_outlast_its_parents_deadline(way: str, asked: float) -> None:
    """As with `asyncio.timeout`: the outer one holds whatever the inner one is."""
    outlasted = Outlasted(asked)

    async def end() -> None:
        coroutine = way == "from a coroutine"
        await outlasted.end(outlasted.start_and_wait if coroutine else outlasted.start)

    def run() -> None:
        if way == "without a loop":
            outlasted.end(outlasted.start)
        else:
            asyncio.run(end())

    with pytest.raises(TimeoutError, match="deadline"):
        run()
    assert outlasted.inner.grad is None


def test_a_far_deadline_of_a_pass_without_a_loop() -> None:
    """No thread waits for longer than threads can."""
    for deadline in (1e30, float("inf")):
        x, loss = chain(10)
        loss.backward(deadline=deadline)
        assert x.grad is not None
