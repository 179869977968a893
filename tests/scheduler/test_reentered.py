"""What the collector calls while its thread holds a lock."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import leaf

import asyncgrad as ag
from asyncgrad.autograd import graph
from asyncgrad.core import array_holders, commit_turns
from asyncgrad.core.locks import Shared, is_held_here
from asyncgrad.ops import namespace
from asyncgrad.ops.tensors.rng import default_generator
from asyncgrad.replay import program
from asyncgrad.scheduler import blas, registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Cycle:
    """Garbage that only the collector finds; calls something when it does."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.myself = self

    def __del__(self) -> None:
        # In a context of its own: 3.11 may crash if a context variable is set while another is.
        copy_context().run(self.call)


@contextmanager
def collected_within(lock: Any, call: Callable[[], Any], at: int = 1) -> Iterator[list[Any]]:
    """Have the collector call something in one of the allocations while a lock is held.

    Args:
        lock: is held meanwhile.
        call: what is called.
        at: in which run of the collector.

    Yields:
        What the calls have returned.
    """
    results: list[Any] = []
    thread = threading.get_ident()
    left = at

    def made(phase: str, info: Any) -> None:
        nonlocal left
        if phase == "start" and threading.get_ident() == thread and is_held_here(lock):
            left -= 1
            if not left:
                Cycle(lambda: results.append(call()))

    before = gc.get_threshold()
    gc.callbacks.append(made)
    gc.set_threshold(1)
    try:
        yield results
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(made)


def test_a_pass_within_a_commit() -> None:
    x = leaf()
    many = [leaf() for _ in range(50)]
    loss = sum((one * x).sum() for one in many)
    with collected_within(commit_turns.committing, (x * 2.0).sum().backward) as results:
        loss.backward()
    assert len(results) == 1
    assert x.grad.tolist() == [52.0] * 3


def test_a_pass_within_a_commit_that_is_undone() -> None:
    """At each allocation in turn: what it adds is not taken back with what the commit had added.

    Where that was before, both stay: the outer pass can't know its own part any more.
    """

    def fail() -> None:
        raise ValueError("no")

    at, found, sums = 1, [True], set()
    while found:
        x, y = leaf(), leaf()
        x.grad, y.grad = ag.zeros_like(x), ag.zeros_like(y)
        z = y * x
        z.register_hook(lambda gradient: graph.queue_callback(fail))
        within = (x * 2.0).sum()
        with (
            collected_within(commit_turns.committing, within.backward, at) as found,
            pytest.raises(ValueError, match="no"),
        ):
            z.sum().backward()
        if found:
            sums.add(x.grad[0].item())
        at += 1
    assert sums == {2.0, 3.0}


def limit() -> None:
    """Let BLAS use one thread for a moment."""
    holder = object()
    blas.one_thread.hold(holder)
    assert blas.one_thread.holders
    assert blas.get_threads() > 0
    blas.one_thread.drop(holder)


def test_a_setting_that_is_needed_again_before_it_has_ended() -> None:
    values, before, wanted = ["usual"], [""], [True]

    def begin() -> None:
        before[0], values[0] = values[0], "set"

    def end() -> None:
        if wanted:
            wanted.pop()
            setting.hold("another")
        values[0] = before[0]

    setting = Shared(begin, end)
    setting.hold("test")
    setting.drop("test")
    assert values == ["set"]
    setting.drop("another")
    assert values == ["usual"]


def step() -> list[float]:
    """A step whose weight a graph holds."""
    x = leaf()
    y = x * x
    array_holders.rebind({x: np.zeros(3)})
    y.sum().backward()
    return x.grad.tolist()


def no_gradient(x: ag.Tensor) -> ag.Tensor:
    """A gradient, in whose program something is computed from constants."""
    y = x.detach().requires_grad_()
    ((y * 2.0).mean(1) * 0.0).sum().backward()
    return y.grad.sum(0)


def replay() -> list[float]:
    """The first replay, for which the program is written."""
    function = ag.compile(no_gradient)
    for _ in range(3):
        result = function(ag.ones(2, 3))
    return result.tolist()


def sweep() -> None:
    """Close the engine of a loop that was closed without a shut-down."""
    loop = asyncio.new_event_loop()
    registry.engine_of(loop)
    loop.close()
    registry._sweep()


class Agrees:
    """A participant."""

    async def prepare(self, gradients: Any) -> None:
        pass

    async def commit(self) -> None:
        pass

    abort = commit


def joined() -> list[float]:
    """The gradient of a pass with a participant."""
    x = leaf()
    with ag.enable_grad():
        y = x * 1.0
        loss = y.sum()
    y.register_hook(lambda gradient: graph.join(Agrees()))
    loss.backward()
    return x.grad.tolist()


def test_a_pass_with_a_participant_within_a_commit() -> None:
    """This thread holds the lock, so the portal's would wait for ever."""
    many = [leaf() for _ in range(50)]
    loss = sum(one.sum() for one in many)
    with collected_within(commit_turns.committing, joined) as results:
        loss.backward()
    assert results == [[1.0] * 3]


@pytest.mark.parametrize(
    ("lock", "call", "result"),
    [
        (default_generator._lock, lambda: len(ag.randperm(5, generator=default_generator)), 5),
        (namespace._making, partial(namespace.add_raw_function, namespace.OPS["tanh"]), None),
        (blas.one_thread.lock, limit, None),
        (registry._changing, sweep, None),
        (array_holders.weights_lock, step, [2.0] * 3),
        (program._writing, replay, [0.0] * 3),
        (graph._joining, joined, [1.0] * 3),
    ],
    ids=["random numbers", "namespaces", "BLAS", "engines", "weights", "replay", "participants"],
)
def test_the_same_within_another_lock(lock: Any, call: Callable[[], Any], result: Any) -> None:
    with collected_within(lock, call) as results:
        assert call() == result
    assert results == [result]
    assert not is_held_here(lock)


def test_the_same_replay_while_its_program_is_written() -> None:
    """At each allocation in turn."""
    at, found = 1, [True]
    while found:
        function = ag.compile(no_gradient)
        function(ag.ones(2, 3))
        call = partial(function, ag.ones(2, 3))
        with collected_within(program._writing, call, at) as found:
            assert call().tolist() == [0.0] * 3
            assert call().tolist() == [0.0] * 3
        assert all(result.tolist() == [0.0] * 3 for result in found)
        at += 1
    assert at > 2
