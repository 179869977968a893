"""KeyboardInterrupt in the midst of a pass: a commit is to all leaves or none, and no lock stays
taken, nor does NumPy stay silent.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
import time
from concurrent.futures import _base
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from interrupts import DROPS, LOOKS, interrupt, stop

import asyncgrad as ag
from asyncgrad.core import commit as commits
from asyncgrad.core import commit_turns, graph_task, pass_state, prepared
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.locks import is_held_here
from asyncgrad.devices import cores, fp_errors, pool
from asyncgrad.ops import fused, namespace
from asyncgrad.ops.table import elementwise
from asyncgrad.ops.tensors import sparse_rows
from asyncgrad.scheduler import inline, participants, portal
from asyncgrad.scheduler.engine import Engine
from asyncgrad.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("nothing_is_left")

#: Whose code is interrupted in a commit, and around the slices of a pass.
COMMIT = {
    module.__file__
    for module in (commits, cores, fused, namespace, pool, sparse_rows, commit_turns)
}
SILENCE = {
    run.__code__.co_filename
    for run in (Engine.run_slice, inline._run, fp_errors.call_without_fp_errors, elementwise._rsqrt)
}


class Leaves:
    """One of each kind; the large one is added to in two parts."""

    def __init__(self) -> None:
        table = np.ones((5, 3), np.float32)
        self.all = [
            ag.tensor(np.ones((300_000,), np.float32), requires_grad=True),
            ag.tensor(np.ones((3,), np.float32), requires_grad=True),
            ag.tensor(np.ones((4,), np.float32), requires_grad=True),
            *(ag.tensor(table, requires_grad=True) for _ in range(4)),
        ]
        places = ag.tensor([1, 2, 2])
        _, _, fresh, added, outgrown, summed, moved = self.all
        added.grad = ag.zeros(5, 3)
        for leaf in (outgrown, summed, moved):
            ag.nn.functional.embedding(places, leaf, sparse=True).sum().backward()
        for leaf in self.all[:2]:
            leaf.sum().backward()
        self.before = self.now()
        sparse = [
            ag.nn.functional.embedding(ag.tensor(which), leaf, sparse=True)
            for leaf, which in ((added, [1, 3]), (summed, [1, 2, 2]), (moved, [4]))
        ]
        terms = [*self.all[:2], fresh, *sparse, outgrown * 1.0]
        self.loss: Any = sum(term.sum() for term in terms)

    def now(self) -> list[Any]:
        """The values of all gradients."""
        grads = [leaf.grad for leaf in self.all]
        arrays = [None if grad is None else grad._array for grad in grads]
        return [a.dense() if isinstance(a, sparse_rows.Rows) else np.array(a) for a in arrays]

    def changed(self) -> set[str]:
        """Whether gradients are as before, or as they are to be."""
        undisturbed = Leaves()
        undisturbed.loss.backward()
        found = set()
        for now, before, after in zip(self.now(), self.before, undisturbed.now(), strict=True):
            as_before, as_after = np.array_equal(now, before), np.array_equal(now, after)
            assert as_before != as_after
            found.add("before" if as_before else "after")
        return found


def test_all_leaves_or_none_wherever_an_interrupt_comes() -> None:
    at, seen = 1, set()
    while True:
        leaves = Leaves()
        interrupted = interrupt(at, leaves.loss.backward, commits.commit.__code__, COMMIT)
        assert not is_held_here(commit_turns.committing)
        changed = leaves.changed()
        assert len(changed) == 1, f"{at}: {changed}"
        if not interrupted:
            break
        seen |= changed
        at += 1
    assert seen == {"before", "after"}
    assert changed == {"after"}
    assert at > 50


def test_what_a_signal_handler_or_del_adds_meanwhile_is_not_lost() -> None:
    """It runs in the thread that commits, so the lock must not make it wait."""

    class Kept(Leaves):
        def __init__(self) -> None:
            super().__init__()
            kept = self.all[1] * 1.0
            kept.retain_grad()
            self.loss = self.loss + kept.sum()
            self.all.append(kept)

        def backward(self) -> None:
            self.loss.backward(retain_graph=True)

    at = 1
    expected = Kept()
    expected.backward()
    expected.backward()
    files = COMMIT - {sparse_rows.__file__}
    while True:
        leaves = Kept()
        happened = interrupt(
            at, leaves.backward, commits.commit.__code__, files, leaves.backward, LOOKS + DROPS
        )
        if not happened:
            break
        for now, wanted in zip(leaves.now(), expected.now(), strict=True):
            assert np.array_equal(now, wanted), at
        assert not is_held_here(commit_turns.committing)
        at += 1
    assert at > 100


@pytest.mark.parametrize("handler", [stop, "leaves", "commits"])
def test_who_lets_others_go_first_may_be_interrupted_anywhere(
    handler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an interrupt, or by what runs in this thread and does the same, or ends the wait."""
    monkeypatch.setattr(commit_turns, "_PATIENCE", 0.0)
    files = {commits.__file__, commit_turns.__file__}
    at, happened = 1, True
    while happened:
        x, y = (ag.ones(3, requires_grad=True) for _ in range(2))
        place = commit_turns.line_up()
        commit_turns.line[place] = -1
        calls = {"leaves": partial(commit_turns.leave_line, place), "commits": y.sum().backward}
        call = partial(commits.commit, [(x, np.ones(3, np.float32), False)], None, True)
        happened = interrupt(at, call, commits.commit.__code__, files, calls.get(handler, handler))
        assert not is_held_here(commit_turns.committing)
        assert handler is stop or x.grad is not None
        assert (y.grad is not None) == (happened and handler == "commits")
        if not (happened and handler == "leaves"):
            commit_turns.leave_line(place)
        assert not commit_turns.line
        commits.commit([(x, np.ones(3, np.float32), False)], None, True)
        at += 1
    assert at > 10


def test_all_leaves_of_a_device_or_none_wherever_an_interrupt_comes() -> None:
    files = {commits.__file__, prepared.__file__, commit_turns.__file__}
    at, seen = 1, set()
    with simulate():
        while True:
            leaves = [ag.ones(5, device="sim", requires_grad=True) for _ in "abcd"]
            for leaf in leaves[:3]:
                leaf.grad = ag.zeros_like(leaf)
            seen_by_others = leaves[0].grad.detach()
            loss = sum((leaf * 2.0).sum() for leaf in leaves)
            interrupted = interrupt(at, loss.backward, commits.commit.__code__, files)
            seen.add(tuple([0.0 if x.grad is None else x.grad[0].item() for x in leaves]))
            assert seen_by_others[0].item() == leaves[0].grad[0].item()
            if not interrupted:
                break
            at += 1
    assert seen == {(0.0,) * 4, (2.0,) * 4}


def test_what_callbacks_have_not_seen_is_taken_back_wherever_an_interrupt_comes() -> None:
    """The pass has failed, though its gradients were added before its callbacks."""
    at, seen = 1, set()
    interrupted = True
    while interrupted:
        x, called = ag.ones(3, requires_grad=True), []
        y = x * 2.0
        note = partial(called.append, True)
        y.register_hook(lambda gradient, note=note: ag.autograd.graph.queue_callback(note))
        loss = y.sum()
        interrupted = interrupt(at, loss.backward, commits.commit.__code__, COMMIT)
        assert (x.grad is not None) == bool(called), at
        seen.add(bool(called))
        at += 1
    assert seen == {True, False}
    assert called


class Replaced:
    """A commit that writes new values into `.grad`s."""

    sums_after: ClassVar = {(105.0, 105.0, 12.0), (120.0, 120.0, 12.0)}

    def __init__(self) -> None:
        self.leaves = [ag.tensor(np.ones((5, 3), np.float32), requires_grad=True) for _ in "abc"]
        self.add()

    def add(self) -> None:
        """Add to each; to the last one sparse rows."""
        rows = ag.nn.functional.embedding(ag.tensor([1, 2]), self.leaves[-1], sparse=True)
        sum((leaf.sum() for leaf in self.leaves[:-1]), rows.sum()).backward()

    def call(self) -> None:
        given = np.full((5, 3), 7, np.float32)
        commits.commit([(leaf, given, None) for leaf in self.leaves[:-1]], None, True)

    def sums(self) -> list[float]:
        """Of each `.grad`."""
        return [leaf.grad.to_dense().sum().item() for leaf in self.leaves]


class Revoked(Replaced):
    """One that is undone, unless something was added before."""

    sums_after: ClassVar = {(30.0, 30.0, 12.0), (45.0, 45.0, 18.0)}

    def __init__(self) -> None:
        super().__init__()
        ones = np.ones((5, 3), np.float32)
        rows = ag.nn.functional.embedding(ag.tensor([1, 2]), self.leaves[-1], sparse=True)
        (given,) = ag.autograd.grad(rows.sum(), self.leaves[-1])
        staged = [(leaf, ones, False) for leaf in self.leaves[:-1]]
        revoke = commits.commit_revocably(
            [*staged, (self.leaves[-1], given._array, False)], None, True
        )
        assert revoke is not None
        self.call = lambda: revoke(True)


@pytest.mark.parametrize("kind", [Replaced, Revoked])
def test_what_is_added_meanwhile_is_not_overwritten(kind: type[Replaced]) -> None:
    at, seen = 1, set()
    while True:
        one = kind()
        files = {commits.__file__, namespace.__file__, sparse_rows.__file__, commit_turns.__file__}
        if not interrupt(at, one.call, commits.commit.__code__, files, one.add):
            break
        seen.add(tuple(one.sums()))
        at += 1
    # It comes before or after all that the commit does.
    assert seen == kind.sums_after
    assert at > 10


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("blocks", [True, False])
def test_a_pass_ends_though_an_interrupt_comes_as_a_node_begins_to_wait(blocks: bool) -> None:
    """It would wait for that node for ever."""

    async def hook(gradient: ag.Tensor) -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        await loss.backward()

    at = 1
    while True:
        x = ag.ones(3, requires_grad=True)
        y = x * 2.0
        y.register_hook(hook)
        loss = y.sum()
        call = loss.backward if blocks else partial(asyncio.run, main())
        files = {graph_task.__file__, pass_state.__file__}
        if not interrupt(at, call, GraphTask._resume.__code__, files):
            break
        assert x.grad is None
        at += 1
    assert x.grad is not None
    assert at > 5


def test_a_blocking_pass_ends_though_an_interrupt_comes_as_a_node_has_its_result() -> None:
    """Whose result is then asked for once more."""
    at, ended = 1, 0

    async def hook(gradient: ag.Tensor) -> None:
        nonlocal ended
        await asyncio.sleep(0)
        ended += 1

    while True:
        x = ag.ones(3, requires_grad=True)
        y = x * 2.0
        y.register_hook(hook)
        files = {inline.__file__, graph_task.__file__, portal.__file__}
        if not interrupt(at, y.sum().backward, inline._take_result.__code__, files):
            break
        assert ended == at
        assert x.grad is None
        at += 1
    assert x.grad is not None
    assert at > 5


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_participants_are_told_though_a_second_interrupt_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the pass ends because of the first one."""

    class Joins:
        def __init__(self) -> None:
            self.told: list[str] = []
            self.asked = False

        def prepare(self, gradients: Any) -> None:
            self.asked = True

        def commit(self) -> None:
            self.told.append("commit")

        def abort(self) -> None:
            self.told.append("abort")

    def second(task: GraphTask) -> None:
        if seconds:
            raise seconds.pop()
        real(task)

    real = inline.discard_all
    monkeypatch.setattr(inline, "discard_all", second)
    files = {inline.__file__, graph_task.__file__, participants.__file__}
    told: set[str] = set()
    at = 1
    while True:
        member, x = Joins(), ag.ones(3, requires_grad=True)
        x.register_hook(lambda gradient, member=member: ag.autograd.graph.join(member))
        seconds = [KeyboardInterrupt()]
        loss = (x * 1.0).sum()
        happened = interrupt(at, loss.backward, inline._run.__code__, files)
        how = "abort" if x.grad is None else "commit"
        assert member.told == [how] or not (member.told or member.asked)
        told |= {*member.told}
        if not happened:
            break
        at += 1
    assert told == {"abort", "commit"}


@pytest.mark.parametrize("deadline", [{}, {"deadline": 0.0}, {"deadline": 1e9}])
def test_an_interrupt_is_raised_wherever_it_comes_in_a_pass_that_fails(
    deadline: dict[str, float],
) -> None:
    """Also when the pass has just ended, and nobody knows its error yet.

    While it waits for a deadline it uses no lock of `threading`, in which an interrupt may make
    another error.
    """

    def fail(gradient: ag.Tensor) -> None:
        raise ValueError("planned")

    def backward() -> None:
        with suppress(ValueError, TimeoutError):
            loss.backward(**deadline)
            return
        failed.append(at)

    at = 1
    files = {inline.__file__, graph_task.__file__, pass_state.__file__, threading.__file__}
    while True:
        failed: list[int] = []
        x = ag.ones(3, requires_grad=True)
        x.register_hook(fail)
        loss = (x * 2.0).sum()
        if not interrupt(at, backward, inline._run.__code__, files):
            break
        assert not failed
        at += 1
    assert failed == [at]
    assert at > 10


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_interrupt_of_a_call_that_waits_leaves_no_lock_taken() -> None:
    """For which the portal's thread would wait for ever, and with it every later pass."""

    async def long() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    def call() -> None:
        portal.call_on_portal(long())

    # Else the start of the portal's thread would be interrupted, too.
    call()
    files = {portal.__file__, threading.__file__, _base.__file__}
    at = 1
    while interrupt(at, call, portal.call_on_portal.__code__, files):
        assert portal.call_on_portal(asyncio.sleep(0, at)) == at
        at += 1
    assert at > 5


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_interrupt_as_an_answer_comes_makes_no_consent_of_a_refusal() -> None:
    """Others may have been told of it."""

    class Refuses:
        def __init__(self) -> None:
            self.told: list[str] = []

        def prepare(self, gradients: Any) -> None:
            pass

        async def decide(self) -> None:
            raise ValueError("planned")

        async def commit(self) -> None:
            self.told.append("commit")

        async def abort(self) -> None:
            self.told.append("abort")

    def backward() -> None:
        with suppress(ValueError):
            (x * 1.0).sum().backward()

    at = 1
    while True:
        member, x = Refuses(), ag.ones(3, requires_grad=True)
        x.register_hook(lambda gradient, member=member: ag.autograd.graph.join(member))
        files = {participants.__file__, portal.__file__}
        happened = interrupt(at, backward, participants.conclude_inline.__code__, files)
        assert x.grad is None
        assert member.told == ["abort"]
        if not happened:
            break
        at += 1
    assert at > 1


def loss() -> Any:
    """Of a pass that computes in silence, and warns where it does not."""
    x = ag.zeros(3, requires_grad=True)
    return x.sqrt().sum()


def along_a_chain() -> None:
    loss().backward()


def one_go() -> None:
    y = loss()
    (y * y).backward()


def several_goes() -> None:
    loss().backward(deadline=time.monotonic() + 1e4)


def on_a_loop() -> None:
    async def main() -> None:
        try:
            await loss().backward()
        finally:
            assert np.geterr() == before

    before = np.geterr()
    asyncio.run(main())


def alone() -> None:
    fp_errors.call_without_fp_errors(np.sqrt, -1.0)


def forward() -> None:
    elementwise._rsqrt(np, -1.0)


@pytest.mark.filterwarnings("ignore:a backward pass:RuntimeWarning")
@pytest.mark.parametrize(
    ("call", "within"),
    [
        (along_a_chain, inline.start_chain),
        (one_go, inline._run),
        (several_goes, inline._run_to_end),
        (on_a_loop, Engine.run_slice),
        (alone, fp_errors.call_without_fp_errors),
        (forward, elementwise._rsqrt),
    ],
)
def test_numpy_is_as_loud_as_before_wherever_an_interrupt_comes(
    call: Callable[[], None], within: Any
) -> None:
    at, before = 1, np.geterr()
    with np.errstate():
        while interrupt(at, call, within.__code__, SILENCE):
            assert np.geterr() == before, at
            at += 1
        assert np.geterr() == before
    assert at > 2
    # The future that an interrupt has lost warns that nobody has awaited it.
    gc.collect()


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main's"
)
def test_an_interrupt_while_it_waits_for_the_commit_leaves_the_lock_free() -> None:
    """Python sees the signal when the lock has been taken: nobody else would give it back."""
    lock = commit_turns.committing
    call = ag.tensor(np.ones(3), requires_grad=True).sum().backward
    main = threading.main_thread().ident or 0
    taken = threading.Event()

    def interrupt() -> None:
        with lock:
            taken.set()
            while sys._current_frames()[main].f_code.co_name != "commit":
                pass
            # To this thread: it does not wake the main one, which goes on waiting for the lock.
            signal.raise_signal(signal.SIGINT)

    # A process in the background of a shell ignores it.
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    taken.wait()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        thread.join()
        signal.signal(signal.SIGINT, found)
    assert not is_held_here(lock)
