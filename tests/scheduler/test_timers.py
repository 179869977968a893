"""Timers and workers that outlive a pass keep nothing of its caller."""

from __future__ import annotations

import asyncio
import time
import weakref
from contextvars import ContextVar, copy_context

import pytest

import asyncgrad as ag


class Thing:
    """What a caller's context refers to."""


variable: ContextVar[Thing] = ContextVar("variable")


async def a_pass_with_a_deadline(x: ag.Tensor) -> None:
    """Longer than a turn, so that it gets a timer."""
    loss = x
    for _ in range(500):
        loss = loss * 1.0
    await loss.sum().backward(deadline=time.monotonic() + 1e4)


async def a_pass_of_waits(x: ag.Tensor) -> None:
    """One that is at its limit of coroutine nodes."""

    async def hook(gradient: ag.Tensor) -> None:
        await asyncio.sleep(0)

    ag.engine().limit(coroutine_nodes=1)
    parts = [x * number for number in range(3)]
    for part in parts:
        part.register_hook(hook)
    await ag.stack(parts).sum().backward()


async def a_cancelled_pass(x: ag.Tensor) -> None:
    """One whose hook has to end within the grace."""
    waits = asyncio.Event()

    async def hook(gradient: ag.Tensor) -> None:
        waits.set()
        await asyncio.Event().wait()

    y = x * 2
    y.register_hook(hook)
    future = y.sum().backward()
    await waits.wait()
    future.cancel()
    await asyncio.wait([future])


@pytest.mark.parametrize("run", [a_pass_with_a_deadline, a_pass_of_waits, a_cancelled_pass])
def test_no_timer_keeps_the_callers_context(run) -> None:
    async def main() -> None:
        thing = Thing()
        reference = weakref.ref(thing)
        context = copy_context()
        context.run(variable.set, thing)
        x = ag.ones(3, requires_grad=True)
        await asyncio.create_task(run(x), context=context)
        del thing, context
        # The task's own callbacks.
        for _ in range(3):
            await asyncio.sleep(0)
        assert reference() is None

    asyncio.run(main())


def test_no_worker_keeps_the_callers_context() -> None:
    """It lives as long as passes wait, which may be started by others."""

    def long_pass() -> ag.BackwardFuture:
        loss = ag.ones(1, requires_grad=True)
        for _ in range(5000):
            loss = loss * 1.0
        return loss.sum().backward()

    async def main() -> None:
        thing = Thing()
        reference = weakref.ref(thing)
        context = copy_context()
        context.run(variable.set, thing)
        first = context.run(long_pass)
        second = long_pass()
        first.cancel()
        await asyncio.wait([first])
        del thing, context, first
        assert reference() is None
        assert not second.done()
        await second

    asyncio.run(main())
