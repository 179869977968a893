"""Passes that block: scripts, threads, and code that knows nothing of loops."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import threading
from typing import Any

import pytest

import asyncgrad as ag
import asyncgrad.sync
from asyncgrad.scheduler import portal
from asyncgrad.scheduler.portal import OnPortal, call_on_portal


def square() -> tuple[ag.Tensor, ag.Tensor]:
    """A leaf and the square of it."""
    x = ag.tensor([3.0], requires_grad=True)
    return x, (x * x).sum()


def test_without_a_loop_backward_has_ended_when_it_returns() -> None:
    """What it returns can be awaited all the same."""
    x, loss = square()
    finished = loss.backward()
    assert x.grad is not None
    assert x.grad.item() == 6.0

    async def program() -> None:
        assert await finished is None

    asyncio.run(program())
    assert "finished" in repr(finished)


def test_without_a_loop_grad_gives_a_plain_tuple() -> None:
    """It unpacks, and can be awaited, too."""
    x, loss = square()
    results = ag.grad(loss, [x], retain_graph=True)
    (gradient,) = results
    assert gradient.item() == 6.0

    async def program() -> tuple[ag.Tensor, ...]:
        return await results

    assert asyncio.run(program())[0] is gradient


@pytest.mark.parametrize("way", ["a method", "a function", "grad"])
def test_a_thread_may_have_nothing_else_to_run(way: str) -> None:
    """No line of Python has called: there is none to be named in errors."""
    x, loss = square()
    ended = threading.Event()
    x.register_hook(lambda gradient: ended.set())
    calls = {
        "a method": (loss.backward, ()),
        "a function": (ag.autograd.backward, (loss,)),
        "grad": (ag.grad, (loss, [x])),
    }
    _thread.start_new_thread(*calls[way])
    assert ended.wait(60)


def test_a_coroutine_hook_runs_on_the_portals_loop() -> None:
    """In another thread, and the pass waits for it."""
    x, loss = square()
    seen: list[object] = []

    async def double(gradient: ag.Tensor) -> ag.Tensor:
        await asyncio.sleep(0)
        seen.append(threading.current_thread())
        return gradient * 2

    x.register_hook(double)
    asyncgrad.sync.backward(loss)
    assert x.grad is not None
    assert x.grad.item() == 12.0
    assert seen != [threading.current_thread()]


def test_a_coroutine_on_the_portal_is_cancelled_once() -> None:
    """Its clean-up may await, and one that has ended is left alone."""
    began = threading.Event()
    faults: list[dict[str, object]] = []

    async def cleans_up() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        try:
            began.set()
            await loop.create_future()
        finally:
            running.cancel()
            await asyncio.sleep(0)
            cleaned.append(True)

    cleaned: list[bool] = []
    running = OnPortal(cleans_up(), contextvars.copy_context())
    running.start()
    assert began.wait(60)
    running.cancel()
    assert isinstance(running.result()[1], asyncio.CancelledError)
    running.cancel()
    try:
        call_on_portal(asyncio.sleep(0))
        assert (cleaned, faults) == ([True], [])
    finally:
        running._loop.call_soon_threadsafe(running._loop.set_exception_handler, None)


def test_a_pass_fails_if_no_loop_can_be_made_for_its_coroutines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not wait for ever, and the next one tries again."""
    x, loss = square()

    async def hook(gradient: ag.Tensor) -> None:
        await asyncio.sleep(0)

    x.register_hook(hook)

    def fail(main: Any) -> None:
        main.close()
        raise OSError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(portal, "_loops", [])
        patched.setattr(asyncio, "run", fail)
        with pytest.raises(OSError, match="too many open files"):
            loss.backward(retain_graph=True)
        with pytest.raises(OSError, match="too many open files"):
            call_on_portal(asyncio.sleep(0))
    assert x.grad is None
    loss.backward()
    assert x.grad is not None


def test_an_error_of_a_coroutine_hook_is_raised() -> None:
    """And `.grad` is untouched."""
    x, loss = square()

    async def broken(gradient: ag.Tensor) -> None:
        raise ValueError("broken")

    x.register_hook(broken)
    with pytest.raises(ValueError, match="broken"):
        loss.backward()
    assert x.grad is None


@pytest.mark.asyncio
async def test_blocking_on_the_loops_own_thread() -> None:
    """As a block, as a decorator and through `sync`."""
    x, loss = square()
    with ag.blocking():
        loss.backward(retain_graph=True)
    assert x.grad is not None
    assert x.grad.item() == 6.0
    (gradient,) = asyncgrad.sync.grad(loss, [x], retain_graph=True)
    assert gradient.item() == 6.0

    @ag.blocking()
    def library() -> float:
        return ag.grad(loss, [x])[0].item()

    assert library() == 6.0


@pytest.mark.asyncio
async def test_blocking_that_meets_a_coroutine_hook_says_use_await() -> None:
    """It could only run on the loop that is blocked."""
    x, loss = square()

    async def hook(gradient: ag.Tensor) -> None:
        await asyncio.sleep(0)

    x.register_hook(hook)
    with pytest.raises(RuntimeError, match="use await"):
        asyncgrad.sync.backward(loss)
    assert x.grad is None


def test_passes_of_many_threads_lose_no_update() -> None:
    """Each with its own graph over one leaf, half of them on loops of their own."""
    x = ag.zeros(8, requires_grad=True)
    start = threading.Barrier(8)

    def blocking() -> None:
        start.wait()
        for _ in range(25):
            (x * 2.0).sum().backward()

    async def awaited() -> None:
        for _ in range(25):
            await (x * 2.0).sum().backward()

    def looping() -> None:
        start.wait()
        asyncio.run(awaited())

    threads = [threading.Thread(target=t) for t in (blocking, looping) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.grad is not None
    assert x.grad.tolist() == [8 * 25 * 2.0] * 8
