"""One pass commits at a time: those that run on a loop do not hold it meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from passes import calls, leaf, others, settle

import asyncgrad as ag
from asyncgrad.core.commit import commit

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@contextmanager
def another_commits(staged: tuple[Any, ...] = ()) -> Generator[Callable[[], None], None, None]:
    """A commit in another thread, which goes on when it is told to, at the latest at the end."""
    holds, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        holds.set()
        goes_on.wait()

    thread = threading.Thread(target=commit, args=(staged, None, True, (), hold))
    thread.start()
    holds.wait()

    def end() -> None:
        goes_on.set()
        thread.join()

    try:
        yield end
    finally:
        end()


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
@pytest.mark.parametrize("kind", KINDS[:2])
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
