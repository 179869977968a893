"""A client that goes away takes its passes with it."""

import asyncio

import pytest

import asyncgrad as ag
from asyncgrad.serving import Disconnected, unless_disconnected

pytestmark = pytest.mark.asyncio


async def test_the_result_and_the_error_of_the_work_come_through():
    async def work():
        return 42

    async def fail():
        raise KeyError("mine")

    never = asyncio.Event()
    assert await unless_disconnected(work, never.wait) == 42
    with pytest.raises(KeyError, match="mine"):
        await unless_disconnected(fail, never.wait)


async def test_a_pass_of_a_client_that_has_gone_is_cancelled_and_leaves_no_gradient():
    gone, started = asyncio.Event(), asyncio.Event()
    x = ag.ones(3, requires_grad=True)

    async def wait(gradient):
        started.set()
        await asyncio.Event().wait()

    async def work():
        y = x * 2
        y.register_hook(wait)
        await y.sum().backward()

    running = asyncio.ensure_future(unless_disconnected(work, gone.wait))
    await started.wait()
    gone.set()
    with pytest.raises(Disconnected):
        await running
    assert x.grad is None
    assert ag.engine().statistics().in_flight == 0


async def test_an_error_of_who_watches_is_raised_as_it_is_and_cancels_the_work():
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def disconnected():
        await asyncio.sleep(0)
        raise OSError("the connection broke")

    with pytest.raises(OSError, match="broke"):
        await unless_disconnected(work, disconnected)
    assert ended == [True]


async def test_a_cancellation_from_outside_stays_one():
    started = asyncio.Event()

    async def work():
        started.set()
        await asyncio.Event().wait()

    running = asyncio.ensure_future(unless_disconnected(work, asyncio.Event().wait))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
