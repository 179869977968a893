"""One pass commits at a time: those that run on a loop do not hold it meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from functools import partial
from operator import setitem
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from interrupts import interrupt
from passes import another_commits, calls, leaf, others, settle, until

import asyncgrad as ag
from asyncgrad.core import commit as commit_module
from asyncgrad.core.commit import commit, commit_revocably, when_free
from asyncgrad.scheduler import completion
from asyncgrad.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def commits(thread: threading.Thread) -> bool:
    """Whether a thread is in a commit."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code is not commit.__code__:
        frame = frame.f_back
    return frame is not None


def behind_hook(x: ag.Tensor) -> Any:
    """A pass with a hook that runs after accumulation."""
    x.register_post_accumulate_grad_hook(lambda leaf: None)
    return x.sum()


def with_callback(x: ag.Tensor) -> Any:
    """A pass with a function to be called at its end."""
    y = x * 1.0
    y.register_hook(lambda gradient: ag.autograd.graph.queue_callback(lambda: None))
    return y.sum()


KINDS = [behind_hook, with_callback, ag.sum]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_the_loop_turns_while_another_pass_commits(kind: Callable[..., Any]) -> None:
    x = leaf()
    with another_commits() as end:
        future = kind(x).backward()
        await settle()
        assert not future.done()
        assert x.grad is None
        end()
        await future
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.asyncio
async def test_a_pass_waits_for_what_it_adds_after_the_commit_it_has_waited_for() -> None:
    """Devices had computed the new `.grad`, and the other pass has changed it."""
    with simulate() as machine:
        x = ag.ones(3, device="sim:0", requires_grad=True)
        given = ag.ones(3, device="sim:0")
        with another_commits() as end:
            future = (x * 2).sum().backward()
            while machine.heads() or not commit_module._awaiting:
                await settle()
            x.grad = given
            end()
            await future
        assert not machine.heads()
        assert x.grad.tolist() == [3.0, 3.0, 3.0]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_pass_that_waits_for_its_turn_can_be_cancelled(kind: Callable[..., Any]) -> None:
    x = leaf()
    with another_commits():
        future = kind(x).backward()
        await settle()
        assert future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert not others()
    assert x.grad is None
    await kind(x).backward()
    assert x.grad is not None


@pytest.mark.asyncio
async def test_what_is_added_on_a_device_to_a_grad_that_has_changed_is_waited_for() -> None:
    """It has changed while the pass waited for its turn, after the devices had computed all."""
    with simulate():
        x = ag.ones(3, device="sim:0", requires_grad=True)
        await x.sum().backward()
        changed = ag.ones(3, device="sim:0")
        side = ag.Stream(device="sim:0")
        side.wait_stream(ag.accelerator.current_stream("sim:0"))
        with another_commits() as end:
            with side:
                future = (x * 2.0).sum().backward()
            await until(lambda: commit_module._awaiting)
            x.grad = changed
            end()
            await future
        assert (await x.grad.to_async("cpu")).tolist() == [3.0] * 3


@pytest.mark.asyncio
async def test_a_pass_on_a_device_that_has_called_back_needs_no_further_turn() -> None:
    """Its gradients were added before its callbacks were called."""

    async def wait() -> None:
        called.set()
        await goes_on.wait()

    called, goes_on = asyncio.Event(), asyncio.Event()
    with simulate():
        x = ag.ones(3, device="sim:0", requires_grad=True)
        y = x * 1.0
        y.register_hook(lambda gradient: ag.autograd.graph.queue_callback(wait))
        future = y.sum().backward()
        await called.wait()
        with another_commits():
            goes_on.set()
            await future


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [3, 1_000_000])
async def test_a_large_leaf_is_committed_in_a_thread_where_a_hook_waits_for_it(size: int) -> None:
    x = leaf(size)
    seen: list[str] = []
    x.register_post_accumulate_grad_hook(lambda _: seen.append(threading.current_thread().name))
    await x.sum().backward()
    assert x.grad is not None
    assert x.grad.sum().item() == size
    (where,) = seen
    assert where.startswith("asyncgrad") == (size > 3)


def then(x: ag.Tensor, call: Callable[[], Any]) -> Any:
    """A cheap pass that calls a function at its end."""
    ones = ag.ones_like(x)
    return calls(x, lambda: ag.autograd.graph.queue_callback(call)).backward(ones)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [3, 1_000_000])
async def test_a_large_leaf_is_committed_in_a_thread_before_callbacks(size: int) -> None:
    """Though cheap nodes alone have run, on the loop."""
    x = leaf(size)
    seen: list[Any] = []
    await then(x, lambda: seen.extend([threading.current_thread().name, x.grad]))
    assert seen[1] is x.grad is not None
    assert seen[0].startswith("asyncgrad") == (size > 3)


@pytest.mark.asyncio
async def test_a_thread_that_has_committed_before_callbacks_ends_the_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may have added to its leaves when the loop learns of it, and nothing is taken back."""
    x = leaf(1_000_000)
    engine = ag.engine()
    returned = engine.returned
    answers: list[bool] = []

    def cancel_first(*facts: Any) -> None:
        answers.append(future.cancel())
        returned(*facts)

    monkeypatch.setattr(engine, "returned", cancel_first)
    future = then(x, lambda: None)
    await future
    assert answers == [False]
    assert x.grad.sum().item() == 1_000_000


@pytest.mark.asyncio
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("size", [3, 1_000_000])
async def test_cancelled_by_its_last_callback_a_pass_leaves_grad_as_it_was(
    size: int, before: bool
) -> None:
    x = leaf(size)
    x.grad = grad = ag.full_like(x, 5.0) if before else None
    answers: list[bool] = []
    # The pass is still to run when `backward` returns.
    ag.engine().slice_ns = 0
    future = then(x, lambda: answers.append(future.cancel()))
    with pytest.raises(asyncio.CancelledError):
        await future
    assert answers == [True]
    assert x.grad is grad
    assert grad is None or grad.tolist() == [5.0] * size


def test_what_another_pass_adds_meanwhile_is_not_taken_back() -> None:
    """A callback fails, and its pass's own gradients are taken back: those alone."""
    x = leaf()
    x.grad = ag.zeros_like(x)
    y = x * 1.0

    def fail() -> None:
        raise ValueError("no")

    y.register_hook(lambda gradient: ag.autograd.graph.queue_callback(fail))
    errors: list[BaseException] = []

    def run() -> None:
        try:
            y.sum().backward()
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    with another_commits(((x, (x.detach() * 5.0)._array, True),)) as end:
        thread.start()
        while not commits(thread):
            pass
        end()
    thread.join()
    assert len(errors) == 1
    assert x.grad.tolist() == [5.0, 5.0, 5.0]


class Watched:
    """A lock that calls a function when it has been taken, and one when it is free again."""

    def __init__(
        self, taken: Callable[[], None] = lambda: None, free: Callable[[], None] = lambda: None
    ) -> None:
        self._lock = threading.Lock()
        self.locked = self._lock.locked
        self._taken, self._free = taken, free

    def acquire(self, wait: bool = True) -> bool:
        acquired = self._lock.acquire(wait)
        if acquired:
            self._taken()
        return acquired

    def release(self) -> None:
        self._lock.release()
        free, self._free = self._free, lambda: None
        free()


def test_what_another_pass_adds_just_afterwards_is_not_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = leaf()
    x.grad = ag.zeros_like(x)
    another = [(x, np.full(3, 5.0), True)]
    lock = Watched(free=lambda: commit(another, None, wait=False) and None)
    monkeypatch.setattr(commit_module, "_committing", lock)
    revoke = commit_revocably([(x, np.ones(3), True)], None, wait=False)
    assert revoke is not None
    assert revoke(False)
    assert x.grad.tolist() == [6.0, 6.0, 6.0]


def test_who_waits_while_gradients_are_taken_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf()
    revoke = commit_revocably([(x, np.ones(3), True)], None, wait=False)
    told: list[bool] = []
    lock = Watched(taken=lambda: when_free(lambda: told.append(True)))
    monkeypatch.setattr(commit_module, "_committing", lock)
    assert revoke is not None
    assert revoke(False)
    assert x.grad is None
    assert told == [True]


@pytest.mark.asyncio
async def test_the_loop_turns_while_gradients_wait_to_be_taken_back() -> None:
    x = leaf()
    x.grad = grad = ag.zeros_like(x)
    fails = asyncio.Event()

    async def fail() -> None:
        await fails.wait()
        raise ValueError("no")

    future = then(x, fail)
    await settle()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    with another_commits() as end:
        fails.set()
        await settle()
        assert not future.done()
        end()
        with pytest.raises(ValueError, match="no"):
            await future
    assert x.grad is grad
    assert grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.asyncio
async def test_large_gradients_are_taken_back_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(1_000_000)
    x.grad = ag.zeros_like(x)
    where: list[str] = []

    def note(*args: Any) -> None:
        where.append(threading.current_thread().name)
        setitem(*args)

    async def fail() -> None:
        raise ValueError("no")

    monkeypatch.setattr(commit_module, "setitem", note)
    with pytest.raises(ValueError, match="no"):
        await then(x, fail)
    assert x.grad.sum().item() == 0
    assert [name.startswith("asyncgrad") for name in where] == [True]


@pytest.mark.asyncio
@pytest.mark.parametrize("device", ["cpu", "sim:0"])
async def test_a_small_pass_ends_though_others_commit_without_a_pause(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the loop tries, another pass commits. Only who waits for the lock gets it."""
    real, tries = completion.commit_staged, itertools.count()

    def commit_where_it_waits(task: Any, wait: bool) -> bool:
        assert next(tries) < 100, "the loop tries for ever"
        return wait and real(task, wait)

    monkeypatch.setattr(completion, "commit_staged", commit_where_it_waits)
    with simulate():
        x = ag.ones(3, device=device, requires_grad=True)
        await x.sum().backward()
        assert x.grad is not None


def test_no_interrupt_loses_what_waits_until_no_pass_commits() -> None:
    at, happened = 1, True
    while happened:
        called: list[int] = []

        def note(place: int, called: list[int] = called) -> None:
            # Before this calls `append`, Python looks for signals.
            called.append(abs(place))

        commit_module._awaiting.extend(partial(note, place) for place in range(2))
        call = commit_module._call_awaiting
        happened = interrupt(at, call, call.__code__, {commit_module.__file__, __file__})
        assert set(called) == {0, 1}, at
        assert not commit_module._awaiting
        at += 1
    assert at > 5


def test_an_error_of_what_waits_keeps_nobody_else_from_being_called_nor_from_committing() -> None:
    """Such as of a loop of somebody else's making, which could not be woken."""

    def fail() -> None:
        raise OSError("no socket")

    called: list[None] = []
    commit_module._awaiting.extend((fail, partial(called.append, None)))
    x = leaf()
    with pytest.raises(OSError, match="no socket"):
        x.sum().backward()
    assert called == [None]
    x.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
