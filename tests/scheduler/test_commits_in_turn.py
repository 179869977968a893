"""One pass commits at a time: those that run on a loop do not hold it meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import threading
from contextlib import contextmanager
from functools import partial
from operator import setitem
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from interrupts import interrupt
from passes import another_commits, calls, commit_in_thread, leaf, others, settle, until

import asyncgrad as ag
from asyncgrad.core import commit as commit_module
from asyncgrad.core import commit_turns, run_node
from asyncgrad.core.commit import commit, commit_revocably
from asyncgrad.core.commit_turns import leave_line, line_up, when_free
from asyncgrad.scheduler import running
from asyncgrad.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def is_in(thread: threading.Thread, function: Any) -> bool:
    """Whether a thread is in a function."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code is not function.__code__:
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
            while machine.heads() or not commit_turns.awaiting:
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
            await until(lambda: commit_turns.awaiting)
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
        while not is_in(thread, commit):
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
    monkeypatch.setattr(commit_turns, "committing", lock)
    revoke = commit_revocably([(x, np.ones(3), True)], None, wait=False)
    assert revoke is not None
    assert revoke(False)
    assert x.grad.tolist() == [6.0, 6.0, 6.0]


def test_who_waits_while_gradients_are_taken_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf()
    revoke = commit_revocably([(x, np.ones(3), True)], None, wait=False)
    told: list[bool] = []
    lock = Watched(taken=lambda: when_free(lambda: told.append(True)))
    monkeypatch.setattr(commit_turns, "committing", lock)
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


@contextmanager
def blocked(*calls: Callable[[], Any]) -> Iterator[None]:
    """Threads that make these calls, and wait by now for those in line; ends when they do."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
        while not is_in(thread, commit_turns.wait_for_line):
            pass
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


def commit_and(note: Callable[[], Any]) -> None:
    """A commit that blocks, and calls a function when it has its turn."""
    commit((), None, True, (), lambda: note() and None)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lets those in line go first does so until they have had their turn."""
    monkeypatch.setattr(commit_turns, "_PATIENCE", threading.TIMEOUT_MAX)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lets those in line go first soon sees that they do not come."""
    monkeypatch.setattr(commit_turns, "_PATIENCE", 0.001)


@pytest.mark.asyncio
@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("kind", KINDS)
async def test_who_may_block_and_comes_later_lets_a_pass_go_first(
    kind: Callable[..., Any], device: str
) -> None:
    seen: list[bool] = []
    with simulate():
        x = ag.ones(3, device=device, requires_grad=True)
        note = partial(commit_and, lambda: seen.append(x.grad is not None))
        with another_commits() as end:
            future = kind(x).backward()
            await until(lambda: commit_turns.line)
            with blocked(note, note, note):
                end()
                await future
                assert not commit_turns.line
        assert x.grad is not None
        assert x.grad.tolist() == [1.0] * 3
    assert seen == [True] * 3


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_passes_of_one_loop_are_committed_in_the_order_in_which_they_came(
    kind: Callable[..., Any],
) -> None:
    order: list[int] = []
    with another_commits() as end:
        futures = [kind(leaf()).backward() for _ in range(5)]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: order.append(number))
        await until(lambda: len(commit_turns.line) == 5)
        end()
        await asyncio.wait(futures)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.asyncio
@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_pass_waits_for_at_most_one_commit_of_each_thread(
    kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the threads commit without a pause; and the pass is committed on the loop."""
    number, began, waits = 3, itertools.count(1), []
    reached, came, over = 0, 0, False

    def count() -> None:
        nonlocal reached
        reached = next(began)

    def work() -> None:
        while not over:
            commit([(y, given, False)], None, True, (), count)

    def come(place: Any = None) -> Any:
        nonlocal came
        found = line_up(place)
        if place is None:
            came = reached
        return found

    def leave(place: Any) -> None:
        waits.append(reached - came)
        leave_line(place)

    for module in (running, run_node):
        monkeypatch.setattr(module, "line_up", come)
        monkeypatch.setattr(module, "leave_line", leave)
    # Large enough for NumPy to let other threads run meanwhile.
    y, given = leaf(20_000), np.ones(20_000)
    y.grad = ag.zeros_like(y)
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        while len(waits) < 20:
            await kind(leaf()).backward()
    finally:
        over = True
        for thread in threads:
            thread.join()
    # Each may have begun to wait for its turn before the pass has found another at it.
    assert max(waits) <= number
    assert y.grad[0].item() == reached
    assert ag.engine().statistics().segments == 0


@pytest.mark.asyncio
@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("turns", range(7))
@pytest.mark.parametrize("kind", KINDS)
async def test_cancelled_in_line_a_pass_lets_others_go_on(
    kind: Callable[..., Any], turns: int
) -> None:
    """Before it is called, when it has been called, and so late that it has had its turn."""
    x = leaf()
    seen: list[bool] = []
    with another_commits() as end:
        future = kind(x).backward()
        await until(lambda: commit_turns.line)
        with blocked(partial(commit_and, lambda: seen.append(True))):
            if turns:
                end()
            for _ in range(turns - 1):
                await asyncio.sleep(0)
            in_time = future.cancel()
            await asyncio.wait([future])
            assert not commit_turns.line
            end()
    assert seen == [True]
    assert future.cancelled() == in_time
    assert (x.grad is None) == in_time
    assert turns > 1 or in_time


@pytest.mark.asyncio
@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_pass_whose_deadline_passes_in_line_lets_others_go_on(
    kind: Callable[..., Any],
) -> None:
    x = leaf()
    seen: list[bool] = []
    with another_commits() as end:
        future = kind(x).backward(deadline=asyncio.get_running_loop().time() + 1_000.0)
        await until(lambda: commit_turns.line)
        with blocked(partial(commit_and, lambda: seen.append(True))):
            # What the timer calls.
            ag.engine()._expire(future._task)
            with pytest.raises(TimeoutError):
                await future
            assert not commit_turns.line
            end()
    assert seen == [True]
    assert x.grad is None


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_whose_loop_was_stopped_keeps_nobody_waiting(kind: Callable[..., Any]) -> None:
    """It gets in line again when the loop goes on."""

    async def start() -> Any:
        future = kind(x).backward()
        await until(lambda: commit_turns.line)
        return [future]

    async def end() -> None:
        await future

    x = leaf()
    with asyncio.Runner() as runner:
        with another_commits():
            (future,) = runner.run(start())
        commit_in_thread()
        commit_in_thread()
        assert not commit_turns.line
        assert x.grad is None
        runner.run(end())
    assert x.grad is not None


@pytest.mark.asyncio
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_loop_may_block_for_a_thread_that_commits(kind: Callable[..., Any]) -> None:
    """Though a pass of this loop is in line."""
    x = leaf()
    with another_commits() as end:
        future = kind(x).backward()
        await until(lambda: commit_turns.line)
        end()
        commit_in_thread()
    assert x.grad is None
    await future
    assert x.grad is not None


@pytest.mark.asyncio
@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_blocking_pass_does_not_wait_for_those_that_its_own_thread_is_to_commit(
    kind: Callable[..., Any],
) -> None:
    x, y = leaf(), leaf()
    with another_commits() as end:
        future = kind(x).backward()
        await until(lambda: commit_turns.line)
        end()
        ag.sync.backward(y.sum())
    assert y.grad is not None
    assert x.grad is None
    await future
    assert x.grad is not None


@pytest.mark.usefixtures("endless")
def test_a_pass_within_a_commit_does_not_wait_for_those_in_line() -> None:
    """They wait for that commit. So it is in a `__del__`, or in the handler of a signal."""
    x = leaf()
    places: list[Any] = []
    with commit_turns.committing:
        thread = threading.Thread(target=lambda: places.append(line_up()))
        thread.start()
        thread.join()
        x.sum().backward()
    assert x.grad is not None
    leave_line(places.pop())
    assert not commit_turns.line


def test_many_loops_and_threads_at_once() -> None:
    """No update is lost, and none of a pass that was cancelled is left."""
    leaves = [leaf(), leaf(2_000)]
    expected = [0] * 2
    started = threading.Barrier(5)

    def block() -> None:
        started.wait()
        for number in range(200):
            x = leaves[number % 2]
            (x * 1.0).sum().backward()

    async def run(seed: int) -> list[int]:
        draw = random.Random(seed)
        counts = [0] * 2
        for _ in range(40):
            which = draw.randrange(2)
            futures = [draw.choice([with_callback, ag.sum])(leaves[which] * 1.0).backward()
                       for _ in range(3)]  # fmt: skip
            await asyncio.sleep(0)
            if draw.random() < 0.5:
                futures[0].cancel()
            await asyncio.wait(futures)
            counts[which] += sum(future.committed() for future in futures)
        return counts

    def loop(seed: int) -> None:
        started.wait()
        done.append(asyncio.run(run(seed)))

    done: list[list[int]] = []
    threads = [threading.Thread(target=block) for _ in range(2)]
    threads += [threading.Thread(target=loop, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for counts in [*done, [200, 200]]:
        expected = [a + b for a, b in zip(expected, counts, strict=True)]
    assert len(done) == 3
    assert [x.grad[0].item() for x in leaves] == expected
    assert not commit_turns.line
    assert not commit_turns.awaiting


def test_no_interrupt_loses_what_waits_until_no_pass_commits() -> None:
    at, happened = 1, True
    while happened:
        called: list[int] = []

        def note(place: int, called: list[int] = called) -> None:
            # Before this calls `append`, Python looks for signals.
            called.append(abs(place))

        commit_turns.awaiting.extend(partial(note, place) for place in range(2))
        call = commit_turns.call_awaiting
        happened = interrupt(at, call, call.__code__, {commit_turns.__file__, __file__})
        assert set(called) == {0, 1}, at
        assert not commit_turns.awaiting
        at += 1
    assert at > 5


def test_an_error_of_what_waits_keeps_nobody_else_from_being_called_nor_from_committing() -> None:
    """Such as of a loop of somebody else's making, which could not be woken."""

    def fail() -> None:
        raise OSError("no socket")

    called: list[None] = []
    commit_turns.awaiting.extend((fail, partial(called.append, None)))
    x = leaf()
    with pytest.raises(OSError, match="no socket"):
        x.sum().backward()
    assert called == [None]
    x.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
