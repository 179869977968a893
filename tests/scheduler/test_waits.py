"""What waits in a pass holds up nothing but what needs it.

Coroutines of one pass wait for one another's end, along the graph or across it, in any pattern that
has no cycle. A pass in which one began only when others have ended would wait for ever.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from passes import HEAVY, assert_nothing_runs, calls, chain, give_way, leaf, until

import asyncgrad as ag
from asyncgrad.scheduler import coroutines, inline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: What waits, at one place of a graph.
KINDS = ["node", "tensor", "prehook", "posthook", "unpack", "accumulated"]
#: A node in a thread, which does not wait.
HEAVY_KIND = "heavy"


class Place:
    """One place of a random graph, and what has to come before it ends."""

    def __init__(self, kind: str, users: list[int], awaited: list[int], heavy: bool) -> None:
        self.kind = kind
        #: What has waited goes on in a thread.
        self.heavy = heavy
        #: The places that its value goes to; those, none of which needs it, whose end it awaits.
        self.users = users
        self.awaited = awaited
        self.ended: Future[None] = Future()

    async def wait(self, places: list[Place]) -> None:
        """Wait for the others; in vain, if they have not begun."""
        async with asyncio.timeout(20):
            for other in self.awaited:
                await asyncio.wrap_future(places[other].ended)
        await asyncio.sleep(0)
        self.end()

    def end(self) -> None:
        self.ended.set_result(None)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, list[int], list[int], bool]]:
    """Places in an order in which they can end: each has users and awaits others before it."""
    count = draw(st.integers(2, 7))
    # The order in which they come in the graph: users have later numbers when it is recorded.
    found = []
    for place in range(count):
        earlier = st.lists(st.sampled_from(range(place)), unique=True, max_size=2)
        kind = draw(st.sampled_from([*KINDS, HEAVY_KIND]))
        users = draw(earlier) if place else []
        awaited = draw(earlier) if place and kind != HEAVY_KIND else []
        found.append((kind, users, awaited, draw(st.booleans())))
    return found


def recorded(
    graph: list[tuple[str, list[int], list[int], bool]],
) -> tuple[list[ag.Tensor], ag.Tensor]:
    """The leaves and the loss of a graph whose coroutines have yet to wait."""
    places = [Place(*facts) for facts in graph]
    leaves, inputs = [], [[] for _ in places]
    loss: Any = 0.0
    for place in reversed(places):
        number = places.index(place)
        x = leaf()
        leaves.append(x)
        value = sum(inputs[number], x * 1.0)

        async def wait(*facts: Any, place: Place = place) -> None:
            await place.wait(places)

        if place.kind == HEAVY_KIND:
            value = calls(chain(value, 1, cost=HEAVY), place.end, HEAVY)
        elif place.kind == "node":
            value = calls(value, wait)
        elif place.kind == "unpack":

            async def unpack(packed: ag.Tensor, wait: Callable[[], Awaitable[None]] = wait) -> Any:
                await wait()
                return packed

            with ag.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
                value = value.sin()
        elif place.kind == "accumulated":
            x.register_post_accumulate_grad_hook(wait)
        else:
            value = value * 2.0
            if place.kind == "tensor":
                value.register_hook(wait)
            elif place.kind == "prehook":
                value.grad_fn.register_prehook(wait)
            else:
                value.grad_fn.register_hook(wait)
        if place.heavy:
            value.grad_fn.cost = HEAVY
        for user in place.users:
            inputs[user].append(value)
        if not place.users:
            loss = loss + value
    return leaves, loss.sum()


def without_accumulation(graph: list[tuple[str, list[int], list[int], bool]]) -> Any:
    """The same for `grad()`, in which nothing is accumulated."""
    return [("tensor" if kind == "accumulated" else kind, *rest) for kind, *rest in graph]


@settings(max_examples=40)
@given(graph=graphs())
@pytest.mark.parametrize("how", ["backward", "grad", "create_graph"])
@pytest.mark.asyncio
async def test_who_can_begin_does_whoever_waits(how: str, graph: Any) -> None:
    if how == "backward":
        _, loss = recorded(graph)
        await loss.backward()
    else:
        leaves, loss = recorded(without_accumulation(graph))
        await ag.grad(loss, leaves, create_graph=how == "create_graph")
    await assert_nothing_runs()


@settings(max_examples=40)
@given(graph=graphs())
@pytest.mark.parametrize("how", ["backward", "grad"])
def test_who_can_begin_does_in_a_blocking_pass(how: str, graph: Any) -> None:
    if how == "backward":
        _, loss = recorded(graph)
        loss.backward()
    else:
        leaves, loss = recorded(without_accumulation(graph))
        ag.grad(loss, leaves)


@pytest.mark.asyncio
async def test_a_coroutine_that_a_thread_meets_begins_before_the_threads_next_expensive_node() -> (
    None
):
    """The loop alone can begin it: the thread has to give the pass back."""
    x = leaf()
    begun = threading.Event()
    seen = []

    async def begin() -> None:
        begun.set()

    old = calls(x, lambda: seen.append(begun.wait(10)), HEAVY)
    young = calls(x, begin)
    await chain(old + young, 1, cost=HEAVY).sum().backward()
    assert seen == [True]


@pytest.mark.asyncio
async def test_a_coroutine_that_ends_while_a_thread_gives_its_pass_back_is_not_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread has found nothing ready any more, and the loop not yet heard of it."""
    x = leaf()
    thread_segments = ag.engine().thread_segments
    ended = asyncio.Event()
    returned = thread_segments._returned
    late: list[Any] = []

    async def wait() -> None:
        await ended.wait()

    monkeypatch.setattr(thread_segments, "_returned", lambda *facts: late.extend(facts))
    future = (chain(x, 1, cost=HEAVY) + calls(x, wait)).sum().backward()
    await until(lambda: late)
    ended.set()
    await until(lambda: late[1].inbox)
    returned(*late)
    late.clear()
    await asyncio.wait_for(future, 20)
    assert x.grad.tolist() == [2.0] * 3


def promote_binary(x: ag.Tensor, count: int) -> tuple[asyncio.Barrier, ag.Tensor]:
    """A loss whose coroutine hooks, so many, go on when all have begun."""
    barrier = asyncio.Barrier(count)

    async def meet(gradient: ag.Tensor) -> None:
        await barrier.wait()

    loss: Any = 0.0
    for _ in range(count):
        y = x * 1.0
        y.register_hook(meet)
        loss = loss + y
    return barrier, loss.sum()


@pytest.mark.asyncio
async def test_hooks_that_wait_for_one_another_beyond_the_limit_say_so_and_go_on_with_a_higher_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coroutines, "STALLED", 0.0)
    engine = ag.engine()
    engine.limit(coroutine_nodes=3)
    x = leaf()
    barrier, loss = promote_binary(x, 5)
    future = loss.backward()
    with pytest.warns(RuntimeWarning, match="3 coroutine nodes .* 2 more begin only") as told:
        await until(lambda: told and barrier.n_waiting == 3)
    engine.limit(coroutine_nodes=5)
    await asyncio.wait_for(future, 20)
    assert x.grad.tolist() == [5.0] * 3
    assert not engine.coroutine_nodes._full
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_hooks_that_end_below_the_limit_are_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than may wait, each ending by itself: some I/O."""
    told: list[Any] = []
    monkeypatch.setattr(coroutines, "warn_of_stall", lambda *facts: told.append(facts))
    x = leaf()
    loss: Any = 0.0
    for _ in range(2 * coroutines.LIMIT):
        loss = loss + calls(x, give_way)
    await loss.sum().backward()
    assert told == []
    assert not ag.engine().coroutine_nodes._full
    await assert_nothing_runs()


@pytest.mark.asyncio
async def test_a_cancelled_pass_does_not_warn_of_hooks_that_go_on() -> None:
    """None of them has ended, but the pass will start no more."""
    engine = ag.engine()
    engine.limit(coroutine_nodes=3)
    x, release = leaf(), asyncio.Event()

    async def clean_up() -> None:
        try:
            await release.wait()
        finally:
            await release.wait()

    loss: Any = 0.0
    for _ in range(5):
        loss = loss + calls(x, clean_up)
    future = loss.sum().backward()
    await until(lambda: bool(engine.coroutine_nodes._full))
    future.cancel()
    await until(lambda: not engine.coroutine_nodes._running)
    assert not engine.coroutine_nodes._full
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await future
    await assert_nothing_runs()


def test_a_blocking_pass_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "STALLED", 0.01)
    monkeypatch.setattr(inline, "LIMIT", 3)
    x = leaf()
    # The warning is an error, and so ends the pass.
    with pytest.raises(RuntimeWarning, match="1 more begin only"):
        promote_binary(x, 4)[1].backward()
    assert x.grad is None
