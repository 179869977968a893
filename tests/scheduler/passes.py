"""Graphs, counters and clean-up checks that the scheduler's tests share."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from copy import copy
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncgrad as ag
from asyncgrad.core.commit import commit
from asyncgrad.core.node import Node, init_node
from asyncgrad.core.variable import gradient_edge, wrap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

#: A node that costs as much is sent to a thread.
HEAVY = 10**9
#: A slice of the loop has time for about so many of these.
CHEAP = 2_000


def leaf(size: int = 3) -> ag.Tensor:
    return ag.tensor(np.ones(size), requires_grad=True)


class Calls(Node):
    """Passes its gradient on, and calls a function (and awaits it) each time it runs."""

    __slots__ = ("call",)

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        if iscoroutinefunction(self.call):
            return _after(self.call, gradients)
        result = self.call()
        return gradients if result is None else result


async def _after(call: Callable[[], Any], gradients: tuple[Any, ...]) -> Any:
    """What the coroutine function gives, or the gradients if that is nothing."""
    result = await call()
    return gradients if result is None else result


async def give_way() -> None:
    """A coroutine node's call that lets the loop turn once."""
    await asyncio.sleep(0)


def calls(x: ag.Tensor, call: Callable[[], Any], cost: int = CHEAP) -> ag.Tensor:
    """`x`, behind a node that calls a function when the gradient comes by."""
    node = Calls()
    init_node(node, gradient_edge(x), x._metadata, cost)
    node.call = call
    return wrap(x._array, x._metadata, node)


def chain(
    x: ag.Tensor, length: int, call: Callable[[], Any] = lambda: None, cost: int = CHEAP
) -> Any:
    """`x` behind so many nodes in a row."""
    for _ in range(length):
        x = calls(x, call, cost)
    return x


def hold(value: ag.Tensor, wait: Any) -> None:
    """Have the rule of a tensor's node wait first."""
    node = value.grad_fn
    rule = node.rule = copy(node.rule)
    run = rule.run

    def waiting(*facts: Any) -> Any:
        wait()
        return run(*facts)

    rule.run = waiting


def long_pass(x: ag.Tensor, length: int = 3_000) -> ag.Tensor:
    """A scalar whose pass needs many slices."""
    return chain(x, length).sum()


def others() -> set[asyncio.Task[Any]]:
    """The loop's other tasks: what a finished pass must not leave behind."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def settle() -> None:
    """Let callbacks that are due run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop turn until something holds that nobody announces."""
    while not condition():  # noqa: ASYNC110  turns are what is waited for
        await asyncio.sleep(0)


async def assert_nothing_runs() -> None:
    """No pass is on its way on this loop, and none of the engine's tasks."""
    await settle()
    statistics = ag.engine().statistics()
    assert (statistics.in_flight, statistics.queued) == (0, 0)
    assert not [task for task in others() if task.get_name().startswith("asyncgrad")]


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


def commit_in_thread() -> None:
    """Block until another thread has committed something."""
    thread = threading.Thread(target=commit, args=((), None, True))
    thread.start()
    thread.join()


@contextmanager
def interrupts() -> Generator[Callable[[], Awaitable[None]]]:
    """Gives a coroutine function that interrupts the main thread, and returns when it has."""
    interrupted = threading.Event()
    interrupted.set()

    def interrupt(*facts: Any) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    async def send() -> None:
        # Python looks at a signal before a thread blocks, or when the signal wakes it: one that
        # comes in between is not seen. The pause is for who is to look at it: a loop that never
        # rests keeps the interpreter, and a flood of signals the thread, busy.
        interrupted.clear()
        while not interrupted.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]
            await asyncio.sleep(0.001)

    found = signal.signal(signal.SIGINT, interrupt)
    try:
        yield send
    finally:
        signal.signal(signal.SIGINT, found)
