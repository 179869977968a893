"""What `backward()` and `grad()` return on a running loop, under what asyncio does to futures."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading

import anyio
import numpy as np
import pytest
from passes import (
    HEAVY,
    assert_nothing_runs,
    calls,
    chain,
    give_way,
    leaf,
    long_pass,
    settle,
)

import asyncgrad as ag
from asyncgrad.errors import WrongLoopError

pytestmark = pytest.mark.asyncio


def failing(x: ag.Tensor) -> ag.Tensor:
    def fail() -> None:
        raise ValueError("no")

    return calls(x, fail).sum()


class TestAwaiting:
    @pytest.mark.parametrize("kind", ["small", "long", "heavy", "coroutine"])
    async def test_a_pass_that_was_awaited_has_committed(self, kind: str) -> None:
        x = leaf()
        loss = {
            "small": lambda: (x * 2).sum(),
            "long": lambda: long_pass(x * 2),
            "heavy": lambda: chain(x * 2, 3, cost=HEAVY).sum(),
            "coroutine": lambda: calls(x * 2, give_way).sum(),
        }[kind]()
        assert await loss.backward() is None
        assert x.grad.tolist() == [2.0] * 3
        await assert_nothing_runs()

    async def test_a_pass_knows_whether_it_has_committed(self) -> None:
        """Who asks need not have awaited it, and has not heard of an error by that."""
        x = leaf()
        succeeds, fails = calls(x, give_way).sum().backward(), failing(x).backward()
        cancelled = calls(x, give_way).sum().backward()
        assert not succeeds.committed()
        cancelled.cancel()
        await asyncio.wait([succeeds, fails, cancelled])
        assert [one.committed() for one in (succeeds, fails, cancelled)] == [True, False, False]
        with pytest.raises(ValueError, match="no"):
            await fails

    async def test_a_small_pass_comes_back_finished_without_a_turn_of_the_loop(self) -> None:
        """Except in debug mode, which wants every await to be one."""
        x = leaf()
        future = (x * 2).sum().backward()
        assert isinstance(future, asyncio.Future)
        assert future.done() is not asyncio.get_running_loop().get_debug()
        await future

    async def test_grad_gives_a_tuple_and_touches_no_grad(self) -> None:
        x, y = leaf(), leaf()
        gradients = await ag.grad((x * y * 3).sum(), [x, y])
        assert type(gradients) is tuple
        assert [g.tolist() for g in gradients] == [[3.0] * 3] * 2
        assert (x.grad, y.grad) == (None, None)

    async def test_a_future_can_be_awaited_again_and_by_several(self) -> None:
        x = leaf()
        future = long_pass(x).backward()

        async def wait() -> None:
            await future

        await asyncio.gather(wait(), wait())
        await future
        assert future.result() is None
        assert x.grad.tolist() == [1.0] * 3

    async def test_the_loop_turns_while_a_long_pass_runs(self) -> None:
        """Counted in turns that a bystander gets, for time says nothing on a busy machine."""
        turns = 0

        async def bystander() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        watcher = asyncio.create_task(bystander())
        await long_pass(leaf(), 20_000).backward()
        watcher.cancel()
        # 20,000 nodes of 2 us are 40 ms of expected cost, a slice is a quarter of one.
        assert turns >= 100

    async def test_gather_wait_as_completed_and_shield_take_it(self) -> None:
        x = leaf()
        await asyncio.gather(long_pass(x).backward(), (x * 2).sum().backward())
        assert x.grad.tolist() == [3.0] * 3
        future = long_pass(x).backward()
        done, pending = await asyncio.wait([future])
        assert (done, pending) == ({future}, set())
        for finished in asyncio.as_completed([long_pass(x).backward()]):
            assert await finished is None
        await asyncio.shield(long_pass(x).backward())
        assert await asyncio.wait_for(long_pass(x).backward(), None) is None
        assert asyncio.ensure_future(future) is future
        assert x.grad.tolist() == [7.0] * 3

    async def test_gather_keeps_the_results_of_grad_in_order(self) -> None:
        x = leaf()
        results = await asyncio.gather(*(ag.grad(long_pass(x * k, 500), [x]) for k in range(5)))
        assert [gradient.tolist() for (gradient,) in results] == [[k] * 3 for k in range(5)]

    async def test_a_task_group_runs_passes_beside_one_another(self) -> None:
        x = leaf()

        async def step(factor: int) -> None:
            await long_pass(x * factor, 1_000).backward()

        async with asyncio.TaskGroup() as group:
            for factor in range(5):
                group.create_task(step(factor))
        assert x.grad.tolist() == [10.0] * 3

    async def test_a_done_callback_is_called_with_the_future_in_its_context(self) -> None:
        variable = contextvars.ContextVar("variable", default="default")
        called = []
        future = long_pass(leaf()).backward()
        context = contextvars.copy_context()
        context.run(variable.set, "mine")
        future.add_done_callback(lambda f: called.append((f, variable.get())), context=context)
        await future
        await settle()
        assert called == [(future, "mine")]

    async def test_the_budget_of_a_turn_is_shared_by_all_passes_started_in_it(self) -> None:
        """A task that awaits small passes one after another must not starve its neighbours."""
        turns = 0

        async def bystander() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        watcher = asyncio.create_task(bystander())
        x = leaf()
        for _ in range(200):
            await chain(x, 10).sum().backward()
        watcher.cancel()
        # 200 passes of some 25 us are twenty slices at the very least.
        assert turns >= 10


class TestRefusals:
    async def test_the_result_of_a_pending_pass_is_an_error_and_no_deadlock(self) -> None:
        future = long_pass(leaf()).backward()
        with pytest.raises(asyncio.InvalidStateError, match="use await"):
            future.result()
        with pytest.raises(asyncio.InvalidStateError):
            future.exception()
        await future
        assert future.exception() is None

    async def test_a_look_at_a_pending_pass_is_no_await(self) -> None:
        """Else a forgotten await would be hidden by one that failed."""
        future = long_pass(leaf()).backward()
        with pytest.raises(asyncio.InvalidStateError):
            future.exception()
        assert not future._observed
        await future

    @pytest.mark.parametrize("length", [1, 3_000])
    async def test_unpacking_gradients_that_were_not_awaited_says_so(self, length: int) -> None:
        x = leaf()
        future = ag.grad(chain(x, length).sum(), [x])
        with pytest.raises(TypeError, match="await the pass"):
            (gradient,) = future
        with pytest.raises(TypeError, match="await the pass"):
            list(future)
        assert future, "a future is true, whatever it stands for"
        (gradient,) = await future
        assert gradient.tolist() == [1.0] * 3

    async def test_it_can_not_be_awaited_in_another_loop(self) -> None:
        x = leaf()
        future = long_pass(x).backward()

        async def elsewhere() -> None:
            await future

        with pytest.raises(WrongLoopError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, elsewhere())
        await future
        assert x.grad.tolist() == [1.0] * 3

    async def test_a_finished_pass_of_another_loop_can_not_be_awaited_either(self) -> None:
        """Whether it has finished is a matter of timing, and an error should not be."""

        async def start() -> object:
            future = (leaf() * 2).sum().backward()
            await asyncio.wait([future])
            return future

        future = await asyncio.to_thread(asyncio.run, start())
        with pytest.raises(WrongLoopError):
            await future


class TestErrors:
    async def test_the_error_is_raised_by_await_with_its_traceback(self) -> None:
        with pytest.raises(ValueError, match="no") as caught:
            await failing(leaf()).backward()
        names = [entry.name for entry in caught.traceback]
        assert names[0].startswith("test_the_error")
        assert names[-1] == "fail"

    async def test_the_error_of_a_small_pass_waits_for_the_await_too(self) -> None:
        """Errors of a pass come from one place, whatever the timing."""
        future = failing(leaf()).backward()
        with pytest.raises(ValueError, match="no"):
            await future
        assert isinstance(future.exception(), ValueError)

    async def test_errors_of_arguments_are_raised_by_the_call(self) -> None:
        with pytest.raises(RuntimeError, match="does not require grad"):
            ag.tensor([1.0]).backward()
        with pytest.raises(RuntimeError, match="scalar outputs"):
            (leaf() * 2).backward()

    async def test_other_passes_go_on(self) -> None:
        x, y = leaf(), leaf()
        good = [long_pass(y, 1_000).backward() for _ in range(3)]
        bad = [failing(chain(x, 1_000)).backward() for _ in range(3)]
        results = await asyncio.gather(*good, *bad, return_exceptions=True)
        assert results[:3] == [None] * 3
        assert [type(error) for error in results[3:]] == [ValueError] * 3
        assert (x.grad, y.grad.tolist()) == (None, [3.0] * 3)
        await assert_nothing_runs()

    async def test_an_error_in_a_thread_is_the_passs_too(self) -> None:
        x = leaf()
        where = []

        def fail() -> None:
            where.append(threading.current_thread())
            raise ValueError("no")

        with pytest.raises(ValueError, match="no") as caught:
            await calls(x, fail, HEAVY).sum().backward()
        assert where != [threading.current_thread()]
        assert (
            caught.value.__notes__[0]
            == "raised by Calls, whose forward output was float64[3] on cpu"
        )
        assert x.grad is None

    @pytest.mark.parametrize("cost", [1, HEAVY])
    @pytest.mark.parametrize(
        "error", [StopIteration(1), GeneratorExit("node's"), asyncio.CancelledError("node's")]
    )
    async def test_exceptions_that_mean_something_to_asyncio_are_failures_of_the_node(
        self, error: BaseException, cost: int
    ) -> None:
        def fail() -> None:
            raise error

        x = leaf()
        future = calls(x, fail, cost).sum().backward()
        with pytest.raises(RuntimeError) as caught:
            await future
        causes = [caught.value]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        assert causes[-1] is error
        assert not future.cancelled()

    async def test_a_node_that_raises_generator_exit_closes_no_coroutine(self) -> None:
        """asyncio would throw it into those that await the pass, which ends all but the first."""

        def fail() -> None:
            raise GeneratorExit

        async def caller() -> str:
            with pytest.raises(RuntimeError):
                await calls(leaf(), fail, HEAVY).sum().backward()
            await asyncio.sleep(0)
            return "went on"

        assert await caller() == "went on"

    async def test_a_hook_of_a_table_node_that_raises_is_named(self) -> None:
        x = leaf()
        y = ag.tanh(x)

        def hook(gradient: ag.Tensor) -> None:
            raise ValueError("no")

        y.register_hook(hook)
        with pytest.raises(ValueError, match="no") as caught:
            await y.sum().backward()
        assert "TanhBackward0" in caught.value.__notes__[0]

    async def test_an_error_reaches_the_handler_where_warnings_are_errors(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        contexts, unraisable = [], []
        monkeypatch.setattr("sys.unraisablehook", unraisable.append)
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: contexts.append(context)
        )
        future = failing(leaf()).backward()
        await settle()
        del future
        (report,) = unraisable
        assert "never awaited" in str(report.exc_value)
        assert [type(context["exception"]) for context in contexts] == [ValueError]

    async def test_an_error_that_nobody_retrieves_reaches_the_loops_handler(self) -> None:
        contexts = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: contexts.append(context)
        )
        future = failing(leaf()).backward()
        future.add_done_callback(lambda future: None)
        await settle()
        del future
        await settle()
        assert [type(context["exception"]) for context in contexts] == [ValueError]

    async def test_an_awaiter_that_is_cancelled_as_it_gives_way_is_somebody(self) -> None:
        """As with asyncio's futures: cancelled before it goes on, a task has seen the error."""
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: complaints.append(context)
        )

        async def wait() -> None:
            future = failing(leaf()).backward()
            # A failed pass that has ended: debug mode lets none end in its caller's turn.
            await asyncio.wait([future])
            ag.engine().spent = True
            await future

        task = asyncio.create_task(wait())
        while not ag.engine().spent:  # noqa: ASYNC110  turns are what is waited for
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        await settle()
        gc.collect()
        await settle()
        assert complaints == []

    async def test_a_failed_commit_is_an_error_and_changes_no_grad(self) -> None:
        x, y = leaf(), leaf()
        await (x * y).sum().backward()
        y.grad._array.flags.writeable = False
        before = x.grad.tolist(), y.grad.tolist()
        with pytest.raises(RuntimeError, match="read-only"):
            await (x * y).sum().backward()
        assert (x.grad.tolist(), y.grad.tolist()) == before
        await assert_nothing_runs()


class TestAnyio:
    async def test_fail_after_and_move_on_after_let_a_pass_end(self) -> None:
        x = leaf()
        with anyio.fail_after(60):
            await long_pass(x).backward()
        with anyio.move_on_after(60) as scope:
            await long_pass(x).backward()
        assert not scope.cancelled_caught
        assert x.grad.tolist() == [2.0] * 3

    async def test_task_groups_take_passes(self) -> None:
        x = leaf()

        async def step() -> None:
            await long_pass(x, 1_000).backward()

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(step)
        assert x.grad.tolist() == [3.0] * 3

    @pytest.mark.parametrize("priority", [0, -1])
    @pytest.mark.parametrize("tasks", [1, 3])
    async def test_those_who_give_way_in_every_turn_are_cancelled(
        self, priority: int, tasks: int
    ) -> None:
        """A scope looks once in a turn, maybe always after they were woken."""
        engine = ag.engine()
        now = 0

        def clock() -> int:
            nonlocal now
            now += 1
            return now

        engine.clock, engine.slice_ns = clock, 1
        turns = 0

        async def give_way() -> None:
            nonlocal turns
            with ag.request(priority=priority):
                while turns < 1_000:
                    turns += 1
                    await ag.cooperate()

        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                for _ in range(tasks):
                    group.start_soon(give_way)
                for _ in range(5):
                    await asyncio.sleep(0)
                loop.call_soon(scope.cancel)
        assert scope.cancelled_caught
        assert 1 < turns < 200


async def test_passes_beside_one_another_lose_no_update() -> None:
    x = leaf(100_000)
    y = leaf()

    async def step(k: int) -> None:
        await ((x * k).sum() + long_pass(y * k, 200)).backward()

    await asyncio.gather(*(step(k) for k in range(20)))
    assert np.array_equal(x.grad.numpy(), np.full(100_000, 190.0))
    assert y.grad.tolist() == [190.0] * 3


async def test_equal_passes_get_equal_shares() -> None:
    """When the first of ten has ended, the others are nearly there: counted in nodes."""
    counts = [0] * 10

    def count(place: int) -> object:
        def call() -> None:
            counts[place] += 1

        return call

    futures = [chain(leaf(), 3_000, count(place)).sum().backward() for place in range(10)]
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    assert min(counts) >= 1_000
    await asyncio.gather(*futures)
    assert counts == [3_000] * 10
