"""What another thread may do between any two bytecodes: done there, at each in turn.

Nothing waits here and there is no other thread, so that nothing can hang; `test_interleavings.py`
has threads, and more than one preemption.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import calls, leaf

import asyncgrad as ag
from asyncgrad.core import commit_turns
from asyncgrad.core.commit import commit
from asyncgrad.core.commit_turns import leave_line, line_up
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import Outcome, State
from asyncgrad.core.variable import gradient_edge
from asyncgrad.scheduler import blas
from asyncgrad.scheduler.completion import ask_to_end, finish
from asyncgrad.scheduler.future import BackwardFuture
from asyncgrad.scheduler.helpers import Helpers
from asyncgrad.scheduler.queues import ORDINARY
from asyncgrad.scheduler.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="3.13 does not trace the bytecodes of every frame"
)

_PACKAGE = str(Path(ag.__file__).parent)


def preempt(call: Callable[[], Any], at: int, other: Callable[[], Any]) -> bool:
    """Call something, and something else before the bytecode of the package with this number.

    Returns:
        Whether there were so many.
    """
    left = at

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if left <= 0 or not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left -= 1
            if not left:
                sys.settrace(None)
                other()
        return trace

    before = sys.gettrace()
    # From 3.12 on bytecodes are traced only if some frame has wanted it before `settrace`.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return left <= 0


def everywhere(make: Callable[[], Any], check: Callable[[Any], None], step: int = 1) -> int:
    """Preempt what a new state's `call` does by its `other`, before each bytecode.

    Returns:
        Before how many.
    """
    at = 1
    while True:
        state = make()
        happened = preempt(state.call, at, state.other)
        if not happened:
            return at // step
        check(state)
        at += step


class Commits:
    """Two commits to one leaf; who finds another at it tries again afterwards."""

    def __init__(self, *, first: bool) -> None:
        self.x = leaf()
        if not first:
            self.x.grad = ag.tensor(np.zeros(3))
        self.missing = 0

    def call(self) -> None:
        if not commit([(self.x, np.ones(3), True)], None, wait=False):
            self.missing += 1

    other = call

    def check(self) -> None:
        for _ in range(self.missing):
            assert commit([(self.x, np.ones(3), True)], None, wait=False)
        assert self.x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("first", [False, True], ids=["added", "first"])
def test_no_update_of_a_leaf_is_lost(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real lock lets its thread in again.
    monkeypatch.setattr(commit_turns, "committing", Lock())
    assert everywhere(lambda: Commits(first=first), Commits.check) > 50


class _Open:
    """No lock at all."""

    def acquire(self, wait: bool = True) -> bool:
        return True

    def release(self) -> None:
        pass


class _Held(_Open):
    """One that another thread has."""

    def acquire(self, wait: bool = True) -> bool:
        return False


def test_without_the_lock_one_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is: it would be seen."""
    monkeypatch.setattr(commit_turns, "committing", _Open())
    with pytest.raises(AssertionError):
        everywhere(lambda: Commits(first=False), Commits.check)


class Line:
    """A commit that lets a pass of another thread's loop go first."""

    def __init__(self) -> None:
        self.x = leaf()
        self.place = line_up()
        commit_turns.line[self.place] = -1

    def call(self) -> None:
        commit([(self.x, np.ones(3), True)], None, wait=True)

    def other(self) -> None:
        """Its turn is over."""
        leave_line(self.place)

    def check(self) -> None:
        assert self.x.grad.tolist() == [1.0] * 3
        assert not commit_turns.line
        assert not self.place.turn.locked()


class Ended(Line):
    """Where it takes the pass too long, so that another thread waits no more."""

    def other(self) -> None:
        commit_turns.line.clear()

    def check(self) -> None:
        leave_line(self.place)
        super().check()


class Again(Ended):
    """The pass has tried, while another one was at it, and is in line again."""

    def other(self) -> None:
        line_up(self.place)
        commit_turns.line[self.place] = -1


class Later(Ended):
    """Another one comes."""

    def other(self) -> None:
        self.later = line_up()

    def check(self) -> None:
        leave_line(self.later)
        super().check()


@pytest.mark.parametrize("what", [Line, Ended, Again, Later])
def test_who_lets_others_go_first_commits_whatever_they_do(
    what: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_turns, "_PATIENCE", 0.0)
    assert everywhere(what, what.check) > 50


class Step:
    """An optimiser's step, while another task drops gradients."""

    def __init__(self) -> None:
        self.x = leaf()
        self.x.grad = ag.ones_like(self.x)
        self.optimizer = ag.optim.SGD([self.x], lr=1.0)

    def call(self) -> None:
        self.optimizer.step()

    def other(self) -> None:
        self.x.grad = None

    def check(self) -> None:
        assert self.x.grad is None
        assert self.x.tolist() in ([1.0] * 3, [0.0] * 3)


class ZeroGrad(Step):
    """The same beside one that sets them to zero."""

    def call(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)

    def check(self) -> None:
        assert self.x.grad is None or self.x.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("what", [Step, ZeroGrad])
def test_a_gradient_that_is_dropped_meanwhile(what: Any) -> None:
    """It is used before that, or not at all."""
    assert everywhere(what, what.check) > 10


@pytest.mark.parametrize("held", [False, True], ids=["leaf free", "leaf held"])
def test_a_cancel_is_all_or_nothing(monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    """Wherever it comes while the pass runs; who is told that it is too late has changed nothing.

    As the engine ends a pass (`Engine._finish`): later where another pass commits.
    """
    ends: set[str] = set()

    class Pass:
        def __init__(self) -> None:
            self.x = leaf()
            loss = calls(self.x * 2.0, lambda: None).sum()
            self.task = GraphTask([gradient_edge(loss)], [np.ones(())])
            self.in_time: bool | None = None

        def call(self) -> None:
            task = self.task
            task.start()
            assert task.run(10**9, Helpers(Threads(0), ORDINARY, 0)) is Outcome.FINISHED
            if held:
                monkeypatch.setattr(commit_turns, "committing", _Held())
                ended = finish(task, False) is Outcome.FINISHED
                assert ended == (task.state is State.CANCELLED)
                monkeypatch.undo()
            assert finish(task, True) is Outcome.FINISHED

        def other(self) -> None:
            self.in_time = ask_to_end(self.task)

        def check(self) -> None:
            ends.add(self.task.state.value)
            if self.task.state is State.DONE:
                assert not self.in_time
                assert self.x.grad.tolist() == [2.0] * 3
            else:
                assert self.task.state is State.CANCELLED
                assert self.in_time
                assert self.x.grad is None

    everywhere(Pass, Pass.check)
    assert ends == {"done", "cancelled"}


@pytest.mark.asyncio
async def test_a_failed_pass_that_another_thread_cancels_as_it_ends() -> None:
    """Who is told that it was in time finds it cancelled, and everybody else the failure."""
    answers: set[bool] = set()
    engine = ag.engine()

    class Pass:
        def __init__(self) -> None:
            loss = calls(leaf(), lambda: None).sum()
            self.task = GraphTask([gradient_edge(loss)], [np.ones(())])
            loop = asyncio.get_running_loop()
            self.future = self.task.future = BackwardFuture(engine, loop, self.task, None)
            self.task.fail(ValueError("no"))
            self.task.take_last_steps()

        def call(self) -> None:
            engine._resolve(self.task)
            self.future._observe()
            self.future._log_traceback = False

        def other(self) -> None:
            self.in_time = ask_to_end(self.task)

        def check(self) -> None:
            answers.add(self.in_time)
            assert self.future.cancelled() == self.in_time
            if not self.in_time:
                assert isinstance(self.future.exception(), ValueError)

    everywhere(Pass, Pass.check)
    assert answers == {True, False}


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:a backward pass started at")
async def test_a_forgotten_pass_that_another_thread_collects_is_counted_once() -> None:
    """While its starter starts, or looks at, the next one."""
    engine = ag.engine()
    loop = asyncio.get_running_loop()

    class Futures:
        def __init__(self) -> None:
            self.task = GraphTask([gradient_edge(leaf().sum())], [np.ones(())])
            self.first: Any = BackwardFuture(engine, loop, self.task, None)

        def call(self) -> None:
            BackwardFuture(engine, loop, self.task, None)._observe()

        def other(self) -> None:
            self.first = None

        def check(self) -> None:
            assert not engine.unobserved

    assert everywhere(Futures, Futures.check) > 10
    # The tracer holds the last ones.
    gc.collect()


def test_a_lent_call_is_made_once() -> None:
    """By the owner or by a helper, and the owner learns of it."""

    class Lent:
        def __init__(self) -> None:
            self.ran: list[int] = []
            self.helpers = Helpers(Threads(0), ORDINARY, 0)
            self.helpers.lend(lambda: self.ran.append(1))

        def call(self) -> None:
            self.helpers._make_next()

        other = call

        def check(self) -> None:
            assert self.ran == [1]
            assert [self.helpers.join() for _ in range(2)] == [True, False]

    assert everywhere(Lent, Lent.check) > 10


@pytest.mark.parametrize("taken", [0, 15], ids=["the most urgent", "the oldest"])
def test_a_job_that_comes_while_another_is_taken(
    monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """The loop does not wait for the threads' lock when it hands one in."""
    monkeypatch.setattr("asyncgrad.scheduler.threads._PATIENCE", -1)

    class Queue:
        def __init__(self) -> None:
            self.threads = Threads(0)
            self.threads._queue.taken = taken
            self.done: list[int] = []
            for number in range(3):
                self.submit(number)

        def submit(self, number: int) -> None:
            urgency = ORDINARY._replace(minus_priority=-number)
            self.threads.submit(lambda: self.done.append(number), urgency)

        def call(self) -> None:
            for _ in range(3):
                self.threads._take()[0]()

        def other(self) -> None:
            self.submit(3)

        def check(self) -> None:
            self.threads._take()[0]()
            assert sorted(self.done) == [0, 1, 2, 3]
            if taken:
                assert self.done[0] == 0

    assert everywhere(Queue, Queue.check) > 100


@pytest.mark.parametrize("taken", [0, 15], ids=["the most urgent", "the oldest"])
def test_a_job_that_is_taken_while_another_comes(taken: int) -> None:
    """A thread takes the job for which it was called, or one that is more urgent."""

    class Queue:
        def __init__(self) -> None:
            self.threads = Threads(0)
            self.threads._queue.taken = taken
            self.done: list[int] = []
            self.submit(0)

        def submit(self, number: int) -> None:
            urgency = ORDINARY._replace(minus_priority=-number)
            self.threads.submit(lambda: self.done.append(number), urgency)

        def call(self) -> None:
            self.submit(1)

        def other(self) -> None:
            self.threads._take()[0]()

        def check(self) -> None:
            self.threads._take()[0]()
            assert sorted(self.done) == [0, 1]

    assert everywhere(Queue, Queue.check) > 10


class _Forked(Exception):
    """Ends a thread where a fork would: the child does not have it."""


@pytest.mark.usefixtures("no_collector")
def test_a_child_forked_while_the_matrix_library_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has all its threads, wherever the parent was in limiting it or in giving them back."""

    class Library:
        num_threads = 4

        def set_num_threads(self, number: int) -> None:
            self.num_threads = number

    class Parent:
        def __init__(self) -> None:
            monkeypatch.setattr(blas.one_thread, "holders", set())
            monkeypatch.setattr(blas, "_before", [])
            monkeypatch.setattr(blas.one_thread, "lock", Lock())
            self.lib_controllers = [Library(), Library()]
            monkeypatch.setattr(blas, "_CONTROLLER", self)

        def select(self, user_api: str) -> Parent:
            return self

        def call(self) -> None:
            with suppress(_Forked):
                blas.one_thread.hold("test")
                assert [library.num_threads for library in self.lib_controllers] == [1, 1]
                blas.one_thread.drop("test")

        def other(self) -> None:
            raise _Forked

        def check(self) -> None:
            blas.one_thread.after_fork()
            assert [library.num_threads for library in self.lib_controllers] == [4, 4]

    # Engines of other tests look on when it collects.
    assert everywhere(Parent, Parent.check) > 50
