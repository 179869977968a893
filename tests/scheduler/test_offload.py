"""Functions off the loop, and forward passes that give way."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from passes import settle, until

import asyncgrad as ag
from asyncgrad.core import modes
from asyncgrad.scheduler import blas, segments


@pytest.mark.asyncio
async def test_a_forward_pass_runs_in_a_thread_of_the_engine() -> None:
    """Its graph is as good as any other."""
    x = ag.tensor([3.0], requires_grad=True)

    def forward(scale: float, *, power: int) -> tuple[ag.Tensor, str]:
        return (x**power * scale).sum(), threading.current_thread().name

    loss, thread = await ag.offload(forward, 2.0, power=2)
    assert thread.startswith("asyncgrad")
    await loss.backward()
    assert x.grad is not None
    assert x.grad.item() == 12.0


@pytest.mark.asyncio
async def test_errors_come_back() -> None:
    """With their class and traceback."""

    def broken() -> None:
        raise LookupError("not here")

    with pytest.raises(LookupError, match="not here"):
        await ag.offload(broken)


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_caller_waits_for_the_function_to_end(fails: bool) -> None:
    """What the function touches is free again when the CancelledError arrives."""
    loop = asyncio.get_running_loop()
    entered = asyncio.Event()
    go_on = threading.Event()
    ended: list[bool] = []

    def slow() -> None:
        loop.call_soon_threadsafe(entered.set)
        go_on.wait(30)
        ended.append(True)
        if fails:
            raise ValueError("too late to matter")

    task = asyncio.create_task(ag.offload(slow))
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


@pytest.mark.asyncio
async def test_a_caller_cancelled_in_every_turn_of_the_loop_waits_no_longer_than_that() -> None:
    """So do anyio's scopes cancel tasks that wait."""
    loop = asyncio.get_running_loop()
    entered = asyncio.Event()
    go_on = threading.Event()

    def slow() -> None:
        loop.call_soon_threadsafe(entered.set)
        go_on.wait(30)

    task = asyncio.create_task(ag.offload(slow))
    await entered.wait()
    cancels = True

    def cancel() -> None:
        if cancels:
            task.cancel()
            loop.call_soon(cancel)

    cancel()
    await settle()
    assert not task.done()
    go_on.set()
    await until(lambda: ag.engine().thread_segments._done)
    await settle()
    ended = task.done()
    cancels = False
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


@pytest.mark.asyncio
async def test_cooperate_gives_way_when_the_budget_is_gone_and_not_before() -> None:
    """The engine's clock is turned by hand."""
    engine = ag.engine()
    now = [0]
    engine.clock = lambda: now[0]
    turns: list[int] = []

    async def bystander() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    other = asyncio.create_task(bystander())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    count = len(turns)
    await ag.cooperate()
    assert len(turns) == count
    now[0] += engine.slice_ns + 1
    await ag.cooperate()
    assert len(turns) > count
    other.cancel()


@pytest.mark.asyncio
async def test_those_who_cooperate_come_back_in_order() -> None:
    """Each turn of the loop admits as many as its budget holds; nobody is forgotten."""
    engine = ag.engine()
    now = [0]
    engine.clock = lambda: now[0]
    order: list[int] = []

    async def visit(number: int) -> None:
        await ag.cooperate()
        now[0] += engine.slice_ns
        order.append(number)

    visitors = [asyncio.create_task(visit(number)) for number in range(20)]
    visitors[7].cancel()
    await asyncio.gather(*visitors, return_exceptions=True)
    assert order == [number for number in range(20) if number != 7]


@pytest.mark.asyncio
@pytest.mark.parametrize(("busy", "visitors_a_turn"), [(0, 10), (1, 6), (3, 5)])
async def test_fewer_come_back_in_a_turn_in_which_others_are_busy(
    busy: int, visitors_a_turn: int
) -> None:
    """A turn lasts five eighths of a slice with all that happens in it; half is theirs."""
    engine = ag.engine()
    visit, slice_ns = engine.slice_ns // 16, engine.slice_ns
    now = [0]
    engine.clock = lambda: now[0]
    turn = [0]
    seen: list[int] = []

    async def others() -> None:
        while True:
            turn[0] += 1
            now[0] += busy * slice_ns // 4
            await asyncio.sleep(0)

    async def visitor() -> None:
        await ag.cooperate()
        now[0] += visit
        seen.append(turn[0])

    engine.budget_left(engine.loop)
    now[0] += slice_ns
    tasks = [asyncio.create_task(visitor()) for _ in range(200)]
    bystander = asyncio.create_task(others())
    await asyncio.gather(*tasks)
    bystander.cancel()
    # The first turns show what a visit takes, and the last is as it is.
    counts = [seen.count(number) for number in sorted(set(seen))][12:-1]
    assert set(counts) == {visitors_a_turn}


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [StopIteration, asyncio.CancelledError])
async def test_errors_that_mean_something_to_coroutines_are_failures(
    kind: type[BaseException],
) -> None:
    """Futures refuse StopIteration: whoever awaited it would wait for ever."""

    def broken() -> None:
        raise kind("broken")

    with pytest.raises(RuntimeError, match=kind.__name__) as caught:
        await ag.offload(broken)
    assert isinstance(caught.value.__cause__, kind)


def _nothing() -> Any:
    return contextlib.nullcontext()


def _unpacked() -> Any:
    return ag.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)


@pytest.mark.asyncio
@pytest.mark.parametrize("before", [_nothing, ag.no_grad, ag.enable_grad, _unpacked])
@pytest.mark.parametrize("after", [_nothing, ag.no_grad, ag.enable_grad, _unpacked])
async def test_a_cancelled_forward_pass_ends_at_its_next_operation(
    before: Callable[[], Any], after: Callable[[], Any]
) -> None:
    """Nobody waits for the rest of it, in whatever modes it was and is."""
    loop = asyncio.get_running_loop()
    entered = asyncio.Event()
    go_on = threading.Event()
    ran: list[int] = []
    x = ag.tensor([3.0], requires_grad=True)

    def forward() -> ag.Tensor:
        y = x
        for step in range(5):
            with before():
                if step == 2:
                    loop.call_soon_threadsafe(entered.set)
                    go_on.wait(30)
                with after():
                    y = y * 2.0
            ran.append(step)
        return y

    task = asyncio.create_task(ag.offload(forward))
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran == [0, 1]
    assert (await ag.offload(lambda: (x * 2.0).item())) == 6.0


@pytest.mark.asyncio
async def test_operations_in_a_thread_take_the_short_way_until_they_are_to_stop() -> None:
    """Small ones would take twice as long if each looked whether it is still wanted."""

    def forward() -> list[bool]:
        with ag.no_grad():
            inner = modes.current().plain
        return [modes.current().plain, inner]

    assert await ag.offload(forward) == [True, True]


@pytest.mark.asyncio
async def test_a_function_that_has_not_begun_never_does() -> None:
    """It waited for a thread when its caller was cancelled, who waits for no stranger."""
    engine = ag.engine()
    go_on = threading.Event()
    blockers = [
        asyncio.create_task(ag.offload(go_on.wait, 30))
        for _ in engine.thread_segments.threads._members
    ]
    await asyncio.sleep(0)
    ran: list[Any] = []
    x = ag.ones(2)
    argument = weakref.ref(x)
    late = asyncio.create_task(ag.offload(ran.append, x))
    del x
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    del late
    # This turn of the loop still has the futures in its hands.
    await asyncio.sleep(0)
    assert argument() is None
    go_on.set()
    assert await asyncio.gather(*blockers) == [True] * len(blockers)
    assert await ag.offload(int) == 0
    assert ran == []
    assert engine.statistics().offloads == len(blockers) + 2


@pytest.mark.asyncio
async def test_a_result_in_the_place_of_a_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r"not a Tensor: write offload\(model, x\)"):
        await ag.offload(ag.ones(2))


@pytest.mark.asyncio
async def test_a_coroutine_function_is_refused() -> None:
    """It would run on the loop, and its coroutine might never be awaited."""

    async def forward() -> None:
        """Does not run."""

    class Model:
        async def __call__(self) -> None:
            await forward()

    for function in (forward, functools.partial(forward), Model(), lambda: forward()):
        with pytest.raises(
            TypeError, match=r"returned the coroutine .*, which would run on the loop"
        ):
            await ag.offload(function)


@pytest.mark.asyncio
async def test_functions_that_wait_for_a_pass_in_all_threads_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pass has expensive nodes, and would wait for a thread without a word."""
    monkeypatch.setattr(segments, "STALLED", 0.0)
    threads = ag.engine().thread_segments
    ended = threading.Event()
    waiting = [asyncio.ensure_future(ag.offload(ended.wait, 60)) for _ in range(blas.CORES)]
    await until(lambda: not threads.threads.idle())
    x = ag.rand(600, 600, requires_grad=True)
    future = (x @ x).sum().backward()
    waiting.append(asyncio.ensure_future(ag.offload(ended.wait, 60)))
    with pytest.warns(
        RuntimeWarning, match=r"waits for a thread, but .* asyncio.to_thread"
    ) as told:
        await until(lambda: told)
    ended.set()
    await future
    assert all(await asyncio.gather(*waiting))
    assert threads._timer is None
