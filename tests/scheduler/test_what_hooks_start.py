"""Tasks, timers and contexts that hooks make outlive the pass, and hold nothing of it."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import weakref
from itertools import product
from typing import Any

import numpy as np
import pytest
from passes import HEAVY, calls, leaf

import asyncgrad as ag

pytestmark = pytest.mark.asyncio


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("kind", "coroutine"),
    [
        *product(["backward", "retain", "grad", "cancelled", "failed"], [False, True]),
        ("blocking", False),
    ],
)
async def test_a_context_that_outlives_the_pass_holds_no_graph(kind: str, coroutine: bool) -> None:
    kept: list[Any] = []

    def hook(gradient: ag.Tensor) -> None:
        kept.append(contextvars.copy_context())

    async def later(gradient: ag.Tensor) -> None:
        await asyncio.sleep(0)
        kept.append(contextvars.copy_context())

    def after(gradient: ag.Tensor) -> None:
        if kind == "failed":
            raise ValueError
        if kind == "cancelled":
            future.cancel()

    x = ag.tensor(np.ones(3), requires_grad=True)
    before = ag.tanh(x)
    noted = ag.tanh(before)
    behind = ag.tanh(noted)
    refs = [weakref.ref(tensor.detach().numpy()) for tensor in (before, noted, behind)]
    refs += [weakref.ref(tensor.grad_fn) for tensor in (before, noted, behind)]
    noted.register_hook(later if coroutine else hook)
    before.register_hook(after)
    loss = behind.sum()
    # So that none is at its end before `future` is known.
    ag.engine().slice_ns = 0
    if kind == "grad":
        future = ag.grad(loss, x)
    elif kind == "blocking":
        ag.sync.backward(loss)
    else:
        future = loss.backward(retain_graph=kind == "retain")
    del loss, before, noted, behind
    if kind != "blocking":
        await asyncio.wait([future])
        assert future.cancelled() == (kind == "cancelled")
        if kind == "failed":
            assert isinstance(future.exception(), ValueError)
        del future
    await asyncio.sleep(0)
    assert len(kept) == 1
    assert [ref() for ref in refs] == [None] * len(refs)


async def test_passes_of_a_task_that_outlives_its_pass_are_nested_in_none() -> None:
    """Neither its deadline nor its depth is theirs."""
    loop = asyncio.get_running_loop()
    go_on = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def later() -> tuple[int, float | None]:
        await go_on.wait()
        with ag.enable_grad():
            loss = (ag.ones(3, requires_grad=True) * 2.0).sum()
        future = loss.backward()
        facts = future._task.depth, future._task.deadline
        await future
        return facts

    y = ag.ones(3, requires_grad=True) * 2.0
    y.register_hook(lambda gradient: tasks.append(loop.create_task(later())))
    await y.sum().backward(deadline=loop.time() + 1_000)
    go_on.set()
    # So that the pass is still to run when `backward` returns.
    ag.engine().slice_ns = 0
    assert await tasks[0] == (0, None)


async def test_a_task_of_a_pass_that_has_ended_is_nested_in_the_one_around_it() -> None:
    """Which may wait for it: a limit on passes must not hold it back."""
    ag.engine().limit(passes=1)
    go_on = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def later() -> None:
        await go_on.wait()
        with ag.enable_grad():
            loss = (ag.ones(3, requires_grad=True) * 2.0).sum()
        await loss.backward()

    async def hook(gradient: ag.Tensor) -> None:
        with ag.enable_grad():
            inner = ag.ones(3, requires_grad=True) * 2.0
            loss = inner.sum()
        inner.register_hook(lambda gradient: tasks.append(asyncio.create_task(later())))
        await loss.backward()
        go_on.set()
        await tasks[0]

    x = ag.ones(3, requires_grad=True)
    y = x * 2.0
    y.register_hook(hook)
    async with asyncio.timeout(30):
        await y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    ag.engine().limit()


async def test_passes_of_a_task_that_a_hook_starts_do_not_hold_the_loop() -> None:
    """The hook's own passes have to end before it returns; its tasks are not the hook."""
    tasks: list[asyncio.Task[Any]] = []
    kinds = []

    def started() -> Any:
        with ag.enable_grad():
            loss = (ag.ones(3, requires_grad=True) * 2.0).sum()
        return loss.backward()

    async def later() -> None:
        future = started()
        kinds.append(isinstance(future, ag.BackwardFuture))
        await future

    def hook(gradient: ag.Tensor) -> None:
        kinds.append(isinstance(started(), ag.BackwardFuture))
        tasks.append(asyncio.get_running_loop().create_task(later()))

    async def wait(gradient: ag.Tensor) -> None:
        await asyncio.sleep(0)

    y = ag.ones(3, requires_grad=True) * 2.0
    # The second of these follows a wait, so that no slice of the pass is running.
    for one in (hook, wait, hook):
        y.register_hook(one)
    await y.sum().backward()
    await asyncio.gather(*tasks)
    assert sorted(kinds) == [False, False, True, True]


async def test_what_a_thread_has_the_loop_call_does_not_hold_it() -> None:
    """Even while the hook or node that has asked for it still runs, in its thread."""
    loop = asyncio.get_running_loop()
    futures: list[Any] = []

    def start(called: threading.Event) -> None:
        with ag.enable_grad():
            futures.append((leaf() * 2.0).sum().backward())
        called.set()

    def ask() -> None:
        called = threading.Event()
        loop.call_soon_threadsafe(start, called)
        assert called.wait(30)

    await calls(leaf(), ask, HEAVY).sum().backward()
    await asyncio.to_thread(lambda: calls(leaf(), ask).sum().backward())
    await asyncio.to_thread(lambda: ag.sync.backward(calls(leaf(), ask).sum()))
    assert [type(future) for future in futures] == [ag.BackwardFuture] * 3
    await asyncio.gather(*futures)


async def test_tasks_that_hooks_of_a_blocking_pass_make_do_not_block() -> None:
    tasks: list[asyncio.Task[Any]] = []
    kinds = []

    def started() -> Any:
        with ag.enable_grad():
            return (leaf() * 2.0).sum().backward()

    async def later() -> None:
        future = started()
        kinds.append(isinstance(future, ag.BackwardFuture))
        await future

    def hook(gradient: ag.Tensor) -> None:
        kinds.append(isinstance(started(), ag.BackwardFuture))
        tasks.append(asyncio.create_task(later()))

    y = leaf() * 2.0
    y.register_hook(hook)
    ag.sync.backward(y.sum())
    with ag.blocking():
        ag.grad((y * 2.0).sum(), [y])
    await asyncio.gather(*tasks)
    assert kinds == [False, False, True, True]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager task factories came with 3.12")
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_task_that_begins_within_the_hook_does_not_block(blocking: bool) -> None:
    """With an eager task factory a new task runs to its first wait on the hook's stack."""
    loop = asyncio.get_running_loop()
    kinds = []
    tasks: list[asyncio.Task[Any]] = []

    def eager(loop: Any, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coroutine, loop=loop, **(kwargs | {"eager_start": True}))

    async def later() -> None:
        with ag.enable_grad():
            y = leaf() * 2.0
            # Which a blocking pass on a loop could not wait for.
            y.register_hook(lambda gradient: asyncio.sleep(0))
            future = y.sum().backward()
            kinds.append(isinstance(future, ag.BackwardFuture))
        await future

    def hook(gradient: ag.Tensor) -> None:
        tasks.append(loop.create_task(later()))
        with ag.enable_grad():
            kinds.append(isinstance((leaf() * 2.0).sum().backward(), ag.BackwardFuture))

    y = leaf() * 2.0
    y.register_hook(hook)
    loop.set_task_factory(eager)
    try:
        if blocking:
            ag.sync.backward(y.sum())
        else:
            await y.sum().backward()
        await asyncio.gather(*tasks)
    finally:
        loop.set_task_factory(None)
    assert kinds == [True, False]
