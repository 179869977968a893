"""Threads that meet at a leaf, a pass or a job, in every order that makes a difference.

`frontrun` runs them bytecode by bytecode: all orders up to two preemptions, or a great number of
seeded ones. The locks are made anew in each run, so that it can see them.
"""

from __future__ import annotations

import threading
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import calls, leaf

import asyncgrad as ag
from asyncgrad.core import commit_turns
from asyncgrad.core.commit import commit
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import commit_staged
from asyncgrad.core.states import Outcome
from asyncgrad.core.states import State as Of
from asyncgrad.core.variable import gradient_edge
from asyncgrad.scheduler.helpers import Helpers
from asyncgrad.scheduler.queues import ORDINARY
from asyncgrad.scheduler.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

frontrun = pytest.importorskip("frontrun", reason="frontrun is not installed")
cooperative = pytest.importorskip("frontrun._cooperative", reason="frontrun has changed")
# Beside threads that other tests have left asleep a schedule may wait for ever.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def locks() -> Iterator[Callable[[], None]]:
    """Make the lock that threads meet at anew; puts the old one back at the end."""
    found = commit_turns.committing

    def renew() -> None:
        commit_turns.committing = threading.Lock()

    cooperative.patch_locks()
    yield renew
    cooperative.unpatch_locks()
    commit_turns.committing = found


def explore(setup: Any, workers: list[Any], invariant: Any, **options: Any) -> None:
    options = {"detect_io": False, "trace_packages": ["asyncgrad*"]} | options
    frontrun.explore(setup=setup, workers=workers, invariant=invariant, **options).assert_holds()


@pytest.mark.parametrize("first", [False, True], ids=["added", "first"])
@pytest.mark.parametrize(
    "options",
    [{"max_executions": 300}, {"strategy": "random", "max_attempts": 40, "seed": 1}],
    ids=["dpor", "random"],
)
def test_no_update_of_a_leaf_is_lost(locks: Any, first: bool, options: dict[str, Any]) -> None:
    class State:
        def __init__(self) -> None:
            locks()
            self.x = leaf()
            if not first:
                self.x.grad = ag.tensor(np.zeros(3))

    def add(state: State) -> None:
        commit([(state.x, np.ones(3), True)], None, wait=True)

    explore(State, [add, add], lambda state: state.x.grad.tolist() == [2.0] * 3, **options)


class _Open:
    """No lock at all."""

    def acquire(self, wait: bool = True) -> bool:
        return True

    def release(self) -> None:
        pass


def test_without_the_lock_an_update_would_be_lost(locks: Any) -> None:
    """That is: these explorations would see it."""

    class State:
        def __init__(self) -> None:
            commit_turns.committing = _Open()
            self.x = leaf()

    def add(state: State) -> None:
        commit([(state.x, np.ones(3), True)], None, wait=True)

    with pytest.raises(AssertionError):
        explore(
            State,
            [add, add],
            lambda state: state.x.grad.tolist() == [2.0] * 3,
            strategy="random",
            max_attempts=200,
            max_ops=3_000,
            seed=1,
        )


def test_a_lent_call_is_made_once() -> None:
    """By the owner or by a helper, and the owner learns of it."""

    class State:
        def __init__(self) -> None:
            self.ran: list[int] = []
            self.helpers = Helpers(Threads(0), ORDINARY, 0)
            self.helpers.lend(lambda: self.ran.append(1))

    def make(state: State) -> None:
        state.helpers._make_next()

    def once(state: State) -> bool:
        return state.ran == [1] and state.helpers.join() and not state.helpers.join()

    explore(State, [make, make], once, max_executions=300)


@pytest.mark.parametrize("others", ["ends", "closes"])
def test_the_last_of_the_threads_says_so_once(others: str) -> None:
    """Also if another one ends at the same time, or somebody closes them."""

    class State:
        def __init__(self) -> None:
            self.told: list[bool] = []
            self.errors: list[Exception] = []
            self.threads = Threads(0)
            self.threads._calls.put(False)
            if others == "ends":
                self.threads._present = [0, 1]
                self.threads._calls.put(False)
                self.threads._ended.append(self.tell)
            else:
                self.threads._present = [0]

        def tell(self) -> None:
            self.told.append(True)

    def end(state: State) -> None:
        try:
            state.threads._work()
        except Exception as error:
            state.errors.append(error)

    def close(state: State) -> None:
        state.threads.close(state.tell)

    def once(state: State) -> bool:
        return state.told == [True] and not state.errors

    explore(State, [end, end if others == "ends" else close], once, max_executions=300)


def test_a_cancel_from_another_thread_is_all_or_nothing(locks: Any) -> None:
    """Whenever it comes while a thread runs the pass."""

    ends: set[str] = set()
    delays = cycle(range(0, 1_000, 90))

    class State:
        def __init__(self) -> None:
            locks()
            self.x = leaf()
            loss = calls(calls(self.x, lambda: None), lambda: None).sum()
            self.task = pass_of(loss)
            self.ended = ""
            self.steps, self.delay = 0, next(delays)

    def run(state: State) -> None:
        task = state.task
        task.start()
        assert task.run(10**9, Helpers(Threads(0), ORDINARY, 0)) is Outcome.FINISHED
        if task.state is Of.RUNNING:
            commit_staged(task, wait=True)
            task.succeed()
        state.ended = task.state.value

    def cancel(state: State) -> None:
        for _ in range(state.delay):
            state.steps += 1
        state.task.inbox.append(state.task.cancel)

    def whole(state: State) -> bool:
        ends.add(state.ended)
        gradient = state.x.grad
        if state.ended == "done":
            return gradient is not None and gradient.tolist() == [1.0] * 3
        return state.ended == "cancelled" and gradient is None

    explore(State, [run, cancel], whole, strategy="random", max_attempts=24, seed=1)
    assert len(ends) == 2, "it never came in time, or always"


def pass_of(loss: ag.Tensor) -> Any:
    """The pass of a loss, not started."""
    return GraphTask([gradient_edge(loss)], [np.ones(())])
