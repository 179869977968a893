"""What the collector calls while its thread holds a lock."""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import leaf

import asyncgrad as ag
from asyncgrad.autograd import graph
from asyncgrad.core import array_holders
from asyncgrad.core import commit as commit_module
from asyncgrad.core.locks import is_held_here
from asyncgrad.ops import namespace
from asyncgrad.ops.tensors.rng import default_generator
from asyncgrad.replay import program
from asyncgrad.scheduler import blas, registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Cycle:
    """Garbage that only the collector finds; calls something when it does."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.myself = self

    def __del__(self) -> None:
        self.call()


@contextmanager
def collected_within(lock: Any, call: Callable[[], Any]) -> Iterator[list[Any]]:
    """Have the collector call something in the first allocations while a lock is held.

    Yields:
        What the calls have returned.
    """
    results: list[Any] = []
    thread = threading.get_ident()

    def made(phase: str, info: Any) -> None:
        if phase == "start" and threading.get_ident() == thread and is_held_here(lock):
            gc.callbacks.remove(made)
            Cycle(lambda: results.append(call()))

    before = gc.get_threshold()
    gc.callbacks.append(made)
    gc.set_threshold(1)
    try:
        yield results
    finally:
        gc.set_threshold(*before)
        if made in gc.callbacks:
            gc.callbacks.remove(made)


def test_a_pass_within_a_commit() -> None:
    x = leaf()
    many = [leaf() for _ in range(50)]
    loss = sum((one * x).sum() for one in many)
    with collected_within(commit_module._committing, (x * 2.0).sum().backward) as results:
        loss.backward()
    assert len(results) == 1
    assert x.grad.tolist() == [52.0] * 3


def limit() -> None:
    """Let BLAS use one thread for a moment."""
    blas.one_thread.hold()
    assert blas.one_thread.holders
    assert blas.get_threads() > 0
    blas.one_thread.drop()


def step() -> list[float]:
    """A step whose weight a graph holds."""
    x = leaf()
    y = x * x
    array_holders.rebind({x: np.zeros(3)})
    y.sum().backward()
    return x.grad.tolist()


def replay() -> list[float]:
    """The first replay, for which the program is written."""
    function = ag.compile(lambda x: (x * 2.0).tanh() * 0.0)
    for _ in range(3):
        result = function(ag.ones(3))
    return result.tolist()


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


@pytest.mark.parametrize(
    ("lock", "call", "result"),
    [
        (default_generator._lock, lambda: len(ag.randperm(5, generator=default_generator)), 5),
        (namespace._making, partial(namespace.add_raw_function, namespace.OPS["tanh"]), None),
        (blas.one_thread.lock, limit, None),
        (registry._changing, registry._sweep, None),
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
