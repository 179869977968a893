"""Cancelling a pass, by everything that cancels, at every node: nothing committed, nothing left."""

from __future__ import annotations

import asyncio
import threading
import weakref
from _thread import start_new_thread
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from passes import (
    CHEAP,
    HEAVY,
    assert_nothing_runs,
    calls,
    chain,
    give_way,
    leaf,
    long_pass,
    settle,
    until,
)

import asyncgrad as ag
from asyncgrad.core.commit_turns import committing
from asyncgrad.scheduler.completion import ask_to_end

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio

NODES = 12


def counted(
    x: ag.Tensor, at: int, act: Callable[[], Any], cost: int
) -> tuple[ag.Tensor, list[int]]:
    """A graph with branches of `NODES` nodes that acts when the `at`-th of them runs."""
    ran: list[int] = []

    def call() -> None:
        ran.append(len(ran))
        if len(ran) == at + 1:
            act()

    left = chain(x, NODES // 3, call, cost)
    right = chain(left, NODES // 3, call, cost)
    both = left * right
    return chain(both, NODES - 2 * (NODES // 3), call, cost).sum(), ran


def cancelled(future: Any) -> None:
    assert future.cancelled()
    with pytest.raises(asyncio.CancelledError):
        future.result()


@pytest.mark.parametrize("at", range(NODES))
class TestAtEveryNode:
    async def test_on_the_loop(self, at: int) -> None:
        """By the node itself, in whatever slice it runs."""
        x = leaf()
        holder: list[Any] = []
        answers: list[bool] = []

        def act() -> None:
            asyncio.get_running_loop().call_soon(settled.set)
            if holder:
                answers.append(holder[0].cancel("stop"))

        settled = asyncio.Event()
        loss, ran = counted(x, at, act, 2_000)
        engine = ag.engine()
        # Nothing is left of this turn, so that the first slice is not the caller's.
        slice_ns, engine.slice_ns = engine.slice_ns, 0
        holder.append(loss.backward())
        engine.slice_ns = slice_ns
        await asyncio.wait(holder)
        cancelled(holder[0])
        assert answers == [True]
        assert len(ran) == at + 1
        assert x.grad is None
        await assert_nothing_runs()

    async def test_between_slices(self, at: int) -> None:
        """One node for each slice; cancelled from outside after the k-th."""
        x = leaf()
        loss, ran = counted(x, at, lambda: None, 2_000)
        engine = ag.engine()
        slice_ns, engine.slice_ns = engine.slice_ns, 2_500
        try:
            future = loss.backward()
            await until(lambda: len(ran) > at or future.done())
            was_done = future.done()
            assert future.cancel() is not was_done
            await asyncio.wait([future])
        finally:
            engine.slice_ns = slice_ns
        if not was_done:
            cancelled(future)
            assert x.grad is None
        await assert_nothing_runs()

    async def test_in_a_thread(self, at: int) -> None:
        """While the node runs; the future ends when the thread has left it, and not before."""
        x = leaf()
        inside, may_leave = threading.Event(), threading.Event()

        def act() -> None:
            inside.set()
            assert may_leave.wait(60)

        loss, ran = counted(x, at, act, HEAVY)
        future = loss.backward()
        await asyncio.to_thread(inside.wait, 60)
        assert future.cancel("stop")
        await settle()
        assert not future.done()
        assert ran == list(range(at + 1))
        may_leave.set()
        with pytest.raises(asyncio.CancelledError, match="stop"):
            await future
        cancelled(future)
        assert len(ran) == at + 1, "nothing was handed out after the cancel"
        assert x.grad is None
        await assert_nothing_runs()

    async def test_in_a_coroutine_node(self, at: int) -> None:
        x = leaf()
        reached = asyncio.Event()
        ran: list[int] = []

        async def call() -> None:
            ran.append(len(ran))
            if len(ran) == at + 1:
                reached.set()
                await asyncio.Event().wait()

        future = chain(x, NODES, call).sum().backward()
        await reached.wait()
        assert future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert len(ran) == at + 1
        assert x.grad is None
        await assert_nothing_runs()

    async def test_a_graph_survives_with_its_other_passes(self, at: int) -> None:
        """With `retain_graph`, a cancelled pass is no reason not to try again."""
        x = leaf()
        holder: list[Any] = []
        loss, ran = counted(x, at, lambda: holder[0].cancel(), 2_000)
        engine = ag.engine()
        slice_ns, engine.slice_ns = engine.slice_ns, 0
        holder.append(loss.backward(retain_graph=True))
        engine.slice_ns = slice_ns
        await asyncio.wait(holder)
        assert x.grad is None
        ran.clear()
        ran.extend([0] * NODES)
        await loss.backward()
        assert x.grad.tolist() == [2.0] * 3


class TestWhoCancels:
    async def test_a_task_that_awaits_it(self) -> None:
        x = leaf()

        async def wait() -> None:
            await long_pass(x, 20_000).backward()

        task = asyncio.create_task(wait())
        await settle()
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        assert task.cancelled()
        assert x.grad is None
        await assert_nothing_runs()

    async def test_a_timeout(self) -> None:
        x = leaf()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await long_pass(x, 20_000).backward()
        assert x.grad is None
        assert asyncio.current_task().cancelling() == 0
        await assert_nothing_runs()

    async def test_wait_for(self) -> None:
        x = leaf()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(long_pass(x, 20_000).backward(), 0)
        assert x.grad is None
        await assert_nothing_runs()

    async def test_a_task_group_one_of_whose_tasks_failed(self) -> None:
        x = leaf()

        async def wait() -> None:
            await long_pass(x, 20_000).backward()

        async def fail() -> None:
            raise ValueError("no")

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(wait())
                group.create_task(fail())

        with pytest.raises(ExceptionGroup) as caught:
            await both()
        assert caught.value.subgroup(ValueError)
        assert x.grad is None
        await assert_nothing_runs()

    async def test_gather(self) -> None:
        x = leaf()
        futures = [long_pass(x, 20_000).backward() for _ in range(3)]
        together = asyncio.gather(*futures)
        together.cancel()
        with pytest.raises(asyncio.CancelledError):
            await together
        assert all(future.cancelled() for future in futures)
        assert x.grad is None

    async def test_shield_keeps_the_pass_for_others(self) -> None:
        x = leaf()
        future = long_pass(x, 20_000).backward()

        async def wait() -> None:
            await asyncio.shield(future)

        task = asyncio.create_task(wait())
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not future.cancelled()
        await future
        assert x.grad.tolist() == [1.0] * 3

    async def test_one_awaiters_cancellation_is_everyones(self) -> None:
        """As with every future: who wants his own keeps it behind `shield`."""
        future = long_pass(leaf(), 20_000).backward()

        async def wait() -> None:
            await future

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await settle()
        first.cancel()
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2

    async def test_another_thread(self) -> None:
        x = leaf()
        future = long_pass(x, 50_000).backward()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(future.cancel("from afar")))
        thread.start()
        with pytest.raises(asyncio.CancelledError, match="from afar"):
            await future
        await asyncio.to_thread(thread.join)
        assert answers == [True]
        assert x.grad is None
        await assert_nothing_runs()

    async def test_another_thread_while_a_thread_runs_the_pass(self) -> None:
        x = leaf()
        inside, may_leave = threading.Event(), threading.Event()
        ran = []

        def node() -> None:
            ran.append(1)
            inside.set()
            assert may_leave.wait(60)

        future = chain(x, 5, node, HEAVY).sum().backward()
        await asyncio.to_thread(inside.wait, 60)
        assert await asyncio.to_thread(future.cancel)
        may_leave.set()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert ran == [1]
        assert x.grad is None


class TestAnyio:
    """Its scopes cancel again at every turn of the loop, and know their own by the message."""

    async def test_move_on_after_catches_its_own_cancellation(self) -> None:
        x = leaf()
        with anyio.move_on_after(0) as scope:
            await long_pass(x, 20_000).backward()
        assert scope.cancelled_caught
        assert x.grad is None
        assert asyncio.current_task().cancelling() == 0
        await assert_nothing_runs()

    async def test_fail_after_turns_it_into_a_timeout(self) -> None:
        x = leaf()
        with pytest.raises(TimeoutError), anyio.fail_after(0):
            await long_pass(x, 20_000).backward()
        assert x.grad is None

    async def test_a_scope_waits_for_a_thread_to_drain(self) -> None:
        x = leaf()
        inside, may_leave = threading.Event(), threading.Event()
        turns = 0

        def node() -> None:
            inside.set()
            assert may_leave.wait(60)

        async def controller(scope: anyio.CancelScope) -> None:
            nonlocal turns
            await asyncio.to_thread(inside.wait, 60)
            scope.cancel()
            for _ in range(50):
                turns += 1
                await asyncio.sleep(0)
            assert not left
            may_leave.set()

        left: list[bool] = []
        with anyio.CancelScope() as scope:
            task = asyncio.create_task(controller(scope))
            await chain(x, 3, node, HEAVY).sum().backward()
        left.append(True)
        await task
        assert scope.cancelled_caught
        assert turns == 50
        assert x.grad is None
        await assert_nothing_runs()

    async def test_a_shielded_scope_lets_the_pass_end(self) -> None:
        x = leaf()
        with anyio.CancelScope() as outer:
            outer.cancel()
            with anyio.CancelScope(shield=True):
                await long_pass(x).backward()
            await anyio.lowlevel.checkpoint()
        assert outer.cancelled_caught
        assert x.grad.tolist() == [1.0] * 3

    async def test_a_task_group_that_is_cancelled(self) -> None:
        x = leaf()

        async def step() -> None:
            await long_pass(x, 20_000).backward()

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(step)
            await settle()
            group.cancel_scope.cancel()
        assert x.grad is None
        await assert_nothing_runs()


@pytest.mark.parametrize("length", [1, 3_000])
async def test_who_gives_way_before_the_await_cancels_the_pass_too(length: int) -> None:
    """This turn of the loop is used up: awaiting a pass is the next turn's, and cancelled then."""
    engine = ag.engine()
    xs: list[ag.Tensor] = []

    async def work() -> None:
        x = leaf()
        future = long_pass(x, length).backward()
        engine.spent = True
        xs.append(x)
        await future

    tasks = [asyncio.create_task(work()) for _ in range(5)]
    await asyncio.sleep(0)
    assert len(xs) == len(tasks)
    # Nothing takes these back.
    committed = [x.grad is not None for x in xs]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert ag.engine().statistics().in_flight == 0, "a pass goes on whose awaiter has gone"
    assert [x.grad is not None for x in xs] == committed
    await assert_nothing_runs()


class TestCancel:
    async def test_it_is_idempotent_and_keeps_its_message(self) -> None:
        x = leaf()
        inside, may_leave = threading.Event(), threading.Event()

        def node() -> None:
            inside.set()
            assert may_leave.wait(60)

        future = chain(x, 3, node, HEAVY).sum().backward()
        await asyncio.to_thread(inside.wait, 60)
        for _ in range(1_000):
            assert future.cancel("scope 42")
        assert not future.done()
        assert len(future._task.inbox) == 1, "each of a thousand calls costs the drain nothing"
        may_leave.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await future
        assert caught.value.args == ("scope 42",)
        assert not future.cancel()

    async def test_a_pass_that_has_ended_can_not_be_cancelled(self) -> None:
        x = leaf()
        future = (x * 2).sum().backward()
        await future
        assert not future.cancel()
        assert x.grad.tolist() == [2.0] * 3

    async def test_once_the_commit_has_begun_it_is_too_late(self) -> None:
        """asyncio then delivers the CancelledError after the commit."""
        x = leaf(200_000)
        future = (x * 2).sum().backward()
        with committing:
            await until(lambda: future._task.ending)
            assert not future.done(), "a large commit is a thread's"
            assert not future.cancel()
        await future
        assert x.grad[0].item() == 2.0

    @pytest.mark.usefixtures("no_collector")
    async def test_a_request_that_is_too_late_leaves_no_trace(self) -> None:
        """It would hold the pass, which holds it."""
        x = leaf(200_000)
        future = (x * 2).sum().backward()
        task: Any = weakref.ref(future._task)
        with committing:
            await until(lambda: task().ending)
            assert not ask_to_end(task())
        await future
        await settle()
        assert task() is None
        assert x.grad[0].item() == 2.0

    async def test_a_task_cancelled_during_the_commit_is_cancelled_after_it(self) -> None:
        x = leaf(200_000)
        holder: list[Any] = []

        async def wait() -> None:
            holder.append((x * 2).sum().backward())
            await holder[0]

        task = asyncio.create_task(wait())
        with committing:
            await until(lambda: holder and holder[0]._task.ending)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert holder[0].done()
        assert not holder[0].cancelled()
        assert x.grad[0].item() == 2.0

    async def test_the_thread_that_has_run_a_pass_commits_it(self) -> None:
        """Without coming back to the loop; who cancels then is told that it is too late."""
        x = leaf(200_000)
        engine = ag.engine()

        async def wait() -> None:
            await future

        with committing:
            future = calls(x, lambda: None, HEAVY).sum().backward()
            waiting = asyncio.create_task(wait())
            # The task waits by then, even if the thread begins to commit at once.
            await settle()
            await until(lambda: future._task.ending)
            assert not future.cancel()
            waiting.cancel()
            assert x.grad is None
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert future.done()
        assert not future.cancelled()
        assert x.grad[0].item() == 1.0
        assert engine.counts["segments"] == 1

    async def test_a_thread_that_says_so_first_wins(self) -> None:
        """The loop cancels in the moment in which a thread begins to commit."""
        x = leaf()
        future = long_pass(x).backward()
        task = future._task

        class Inbox(list[Any]):
            def append(self, report: Any) -> None:
                task.ending = True
                super().append(report)

        task.inbox = Inbox()
        assert not future.cancel()
        assert not task.cancelling
        task.ending = False
        task.inbox = []
        await future
        assert x.grad.tolist() == [1.0] * 3

    async def test_once_it_said_yes_it_never_ends_with_a_result(self) -> None:
        """Or asyncio would lose the cancellation: by the very last node, in each kind of slice."""
        for cost in (2_000, HEAVY):
            x = leaf()
            holder: list[Any] = []
            answers: list[bool] = []
            last = calls(x, lambda: answers.append(holder[0].cancel()), cost)  # noqa: B023
            engine = ag.engine()
            slice_ns, engine.slice_ns = engine.slice_ns, 0
            holder.append(last.sum().backward())
            engine.slice_ns = slice_ns
            await asyncio.wait(holder)
            assert answers == [True]
            cancelled(holder[0])
            assert x.grad is None

    @pytest.mark.parametrize("cost", [CHEAP, HEAVY], ids=["on the loop", "from a thread"])
    async def test_a_thread_that_cancels_at_the_last_moment_is_told_the_truth(
        self, cost: int
    ) -> None:
        """All nodes have run, and the commit has not begun."""
        x = leaf()
        engine = ag.engine()
        finish = engine._finish
        answers: list[bool] = []

        def late(task: Any) -> None:
            if not answers:
                answers.append(False)
                answered: SimpleQueue[bool] = SimpleQueue()
                start_new_thread(lambda: answered.put(future.cancel()), ())
                # The loop stands still meanwhile: who is first is not left to chance.
                answers.append(answered.get())
            finish(task)

        future = calls(calls(x, give_way), lambda: None, cost).sum().backward()
        engine._finish = late
        with pytest.raises(asyncio.CancelledError):
            await future
        assert answers == [False, True]
        assert x.grad is None
        del engine._finish
        await assert_nothing_runs()

    async def test_an_error_before_the_cancel_wins(self) -> None:
        x = leaf()
        bad, held = x * 2, x * 3
        may_end = asyncio.Event()

        async def hold(gradient: ag.Tensor) -> None:
            while not may_end.is_set():
                with suppress(asyncio.CancelledError):
                    await may_end.wait()

        async def fail(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise ValueError("first")

        held.register_hook(hold)
        bad.register_hook(fail)
        future = (bad + held).sum().backward()
        await until(lambda: future._task.error is not None)
        assert not future.cancel()
        may_end.set()
        with pytest.raises(ValueError, match="first"):
            await future
        assert not future.cancelled()

    async def test_one_that_comes_after_an_error_is_not_lost(self) -> None:
        """The awaiting task is cancelled when the pass, which cleans up, has failed."""
        x = leaf()
        cleans, may_end = asyncio.Event(), asyncio.Event()

        async def hold(gradient: ag.Tensor) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleans.set()
                await may_end.wait()

        async def fail(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise ValueError("first")

        bad, held = x * 2, x * 3
        held.register_hook(hold)
        bad.register_hook(fail)
        future = (bad + held).sum().backward()

        async def wait() -> None:
            with suppress(ValueError):
                await future
            await asyncio.sleep(0)

        waiting = asyncio.create_task(wait())
        await cleans.wait()
        waiting.cancel("mine")
        await settle()
        assert not waiting.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError, match="mine"):
            await waiting
        assert repr(future.exception()) == "ValueError('first')"

    async def test_one_that_comes_in_the_moment_of_an_error_is_not_lost(self) -> None:
        """Who cancels finds no error yet, and the thread that has one no cancellation."""
        x = leaf()
        answers = []

        class Inbox(list[Any]):
            """In which the cancellation comes just after it was found empty."""

            def __bool__(self) -> bool:
                if not answers:
                    answers.append(future.cancel())
                    return False
                return len(self) > 0

        def node() -> None:
            begun.wait()
            future._task.inbox = Inbox()
            raise ValueError("first")

        begun = threading.Event()
        future = calls(x, node, HEAVY).sum().backward()
        begun.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await future
        assert answers == [True]
        assert caught.value.__notes__ == ["the pass had failed before: ValueError('first')"]
        assert x.grad is None
        await assert_nothing_runs()

    async def test_an_error_after_the_cancel_does_not(self) -> None:
        x = leaf()
        inside, may_leave = threading.Event(), threading.Event()

        def node() -> None:
            inside.set()
            assert may_leave.wait(60)
            raise ValueError("too late")

        future = calls(x, node, HEAVY).sum().backward()
        await asyncio.to_thread(inside.wait, 60)
        future.cancel()
        may_leave.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await future
        (note,) = caught.value.__notes__
        assert "ValueError('too late')" in note
        assert x.grad is None

    async def test_what_goes_wrong_in_the_clean_up_of_a_node_is_a_note(self) -> None:
        """Also where a timeout has cancelled the task; what was said to asyncio stays."""
        x = leaf()

        async def node() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("clean-up")

        async def timed(loss: ag.Tensor) -> None:
            async with asyncio.timeout(None) as scope:
                future = loss.backward()
                waiter = asyncio.create_task(begun.wait())
                waiter.add_done_callback(lambda _: scope.reschedule(-1.0))
                await future

        begun = asyncio.Event()
        with pytest.raises(TimeoutError) as caught:
            await timed(calls(x, node).sum())
        # Its cause, too, since Python 3.11.3.
        (note,) = caught.value.__context__.__notes__
        assert "ValueError('clean-up')" in note
        begun.clear()
        future = calls(x, node).sum().backward()
        await begun.wait()
        future.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough") as stopped:
            await future
        assert len(stopped.value.__notes__) == 1
        await assert_nothing_runs()

    async def test_a_thousand_that_wait_for_a_turn_do_not_delay_others(self) -> None:
        """Clients that went away all at once: nobody waits a turn of the loop for each."""
        leaves = [leaf() for _ in range(1_000)]
        futures = [chain(x, 300).sum().backward() for x in leaves]
        await settle()
        for future in futures:
            future.cancel()
        x = leaf()
        last = chain(x, 300).sum().backward()
        turns = 0
        while not last.done():
            await asyncio.sleep(0)
            turns += 1
        await last
        assert turns < 200
        await asyncio.gather(*futures, return_exceptions=True)
        assert x.grad.tolist() == [1.0] * 3
        await assert_nothing_runs()

    async def test_before_the_walk_is_done(self) -> None:
        x = leaf()
        ran: list[int] = []
        future = chain(x, 100_000, lambda: ran.append(1)).sum().backward()
        assert future.cancel()
        await asyncio.wait([future])
        cancelled(future)
        assert ran == []

    async def test_a_cancelled_grad_gives_nothing_and_frees_what_it_held(self) -> None:
        x = leaf()
        future = ag.grad(long_pass(x, 20_000), [x])
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert future._task is None


class TestPostAccumulateHooks:
    async def test_leaves_with_such_hooks_have_committed_before_the_cancel(self) -> None:
        """That is what the hook is for; the others' gradients are not touched."""
        early, late = leaf(), leaf()
        holder: list[Any] = []

        def hook(tensor: ag.Tensor) -> None:
            assert holder[0].cancel()

        early.register_post_accumulate_grad_hook(hook)
        loss = ((early * 2) + chain(late, 5)).sum()
        engine = ag.engine()
        slice_ns, engine.slice_ns = engine.slice_ns, 0
        holder.append(loss.backward())
        engine.slice_ns = slice_ns
        await asyncio.wait(holder)
        cancelled(holder[0])
        assert early.grad.tolist() == [2.0] * 3
        assert late.grad is None


async def test_many_cancelled_passes_leave_the_good_ones_right() -> None:
    x = leaf()
    rng = np.random.default_rng(0)
    futures = [
        (chain(x, 20, cost=int(rng.choice([2_000, 100_000, HEAVY]))) * k).sum().backward()
        for k in range(60)
    ]
    doomed = set(rng.permutation(60)[:30].tolist())
    sent = {k for k in doomed if futures[k].cancel()}
    await asyncio.wait(futures)
    assert all(futures[k].cancelled() for k in sent)
    kept = [k for k in range(60) if not futures[k].cancelled()]
    assert x.grad.tolist() == [float(sum(kept))] * 3
    await assert_nothing_runs()


async def test_passes_nested_deeper_than_the_stack_are_cancelled() -> None:
    """Each cancels the one that its hook awaits, and at its end the one around it ends."""
    reached, ended = asyncio.Event(), []
    # The outermost waits until all the others have ended, however long a busy machine takes.
    ag.engine().limit(grace=1e6)

    def nested(depth: int) -> ag.Tensor:
        x = leaf() * 2

        async def hook(gradient: ag.Tensor) -> None:
            try:
                if depth == 400:
                    reached.set()
                    await asyncio.Event().wait()
                with ag.enable_grad():
                    loss = nested(depth + 1)
                await loss.backward()
            finally:
                ended.append(depth)

        x.register_hook(hook)
        return x.sum()

    future = nested(0).backward()
    await reached.wait()
    assert future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    assert ended == [*range(400, -1, -1)]
    await assert_nothing_runs()
