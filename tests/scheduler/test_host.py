"""What the host application decides: how its tasks start, and whether it forks."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import warnings
from typing import Any

import pytest
from passes import HEAVY, assert_nothing_runs, calls, chain, give_way, leaf, long_pass

import asyncgrad as ag
from asyncgrad.core import commit_turns
from asyncgrad.ops.tensors.rng import default_generator
from asyncgrad.scheduler import blas


def _custom_factory(loop: Any, coroutine: Any, **options: Any) -> Any:
    """A host's own factory, that knows what it makes tasks of."""
    assert "asyncgrad" not in str(options.get("name", ""))
    return asyncio.Task(coroutine, loop=loop, **options)


def _eager_factory(loop: Any, coroutine: Any, **options: Any) -> Any:
    # uvloop passes it on, and the factory of Python 3.13.0 does not know it.
    options.pop("eager_start", None)
    return asyncio.eager_task_factory(loop, coroutine, **options)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "factory",
    [
        pytest.param(_custom_factory, id="custom"),
        pytest.param(
            _eager_factory,
            id="eager",
            marks=pytest.mark.skipif(
                sys.version_info < (3, 12), reason="eager tasks came with Python 3.12"
            ),
        ),
    ],
)
class TestTaskFactories:
    """The engine's own tasks are not made by the host's factory; its callers' may be."""

    async def test_passes_of_all_kinds_beside_one_another(self, factory: Any) -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        leaves = [leaf() for _ in range(12)]
        order: list[int] = []

        async def train(number: int, x: ag.Tensor) -> None:
            loss = [
                lambda: long_pass(x, 1_000),
                lambda: chain(x, 3, cost=HEAVY).sum(),
                lambda: chain(calls(x, give_way), 500).sum(),
            ][number % 3]()
            await ag.cooperate()
            await loss.backward()
            order.append(number)

        async with asyncio.TaskGroup() as group:
            for number, x in enumerate(leaves):
                group.create_task(train(number, x))
        assert sorted(order) == list(range(12))
        assert all(x.grad.tolist() == [1.0] * 3 for x in leaves)
        await assert_nothing_runs()

    async def test_a_pass_started_by_a_task_that_starts_at_once(self, factory: Any) -> None:
        """The task's first step is a part of `create_task`, with its creator still current."""
        asyncio.get_running_loop().set_task_factory(factory)
        x = leaf()

        async def train() -> None:
            await long_pass(x).backward()

        task = asyncio.get_running_loop().create_task(train())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.shield(task)
        await task
        assert x.grad is not None
        await assert_nothing_runs()

    async def test_a_cancelled_pass_ends(self, factory: Any) -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        x = leaf()
        future = chain(calls(x, give_way), 1_000).sum().backward()
        await asyncio.sleep(0)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert x.grad is None
        await assert_nothing_runs()


def _waiting(connection: Any) -> None:
    """In a child: how many passes wait to commit."""
    connection.send([len(commit_turns.line), len(commit_turns.awaiting)])


def _child(connection: Any) -> None:
    """Run passes of all kinds in a child, on a loop of its own."""
    x = leaf()

    async def main() -> None:
        await long_pass(x).backward()
        await chain(x, 3, cost=HEAVY).sum().backward()
        await calls(x, give_way).sum().backward()
        await ag.offload(lambda: (x * 2).sum().backward())

    asyncio.run(main())
    with ag.blocking():
        (x * 2).sum().backward()
    connection.send(x.grad.tolist())


def _draw(connection: Any) -> None:
    """Draw random numbers in a forked child."""
    connection.send(ag.rand(3).tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
class TestForks:
    def fork(self, child: Any = _child) -> Any:
        """What a child answers that is forked here and now."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs,))
        with warnings.catch_warnings():
            # From 3.12 on Python warns of any fork beside a thread; here it is what is tested.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        try:
            assert ours.poll(60), "the child hangs"
            return ours.recv()
        finally:
            process.kill()
            process.join()

    def test_a_child_of_a_process_whose_loop_has_ended(self) -> None:
        async def main() -> None:
            await chain(leaf(), 3, cost=HEAVY).sum().backward()

        asyncio.run(main())
        assert self.fork() == [7.0] * 3

    def test_a_child_waits_for_no_pass_of_its_parent(self) -> None:
        place = commit_turns.line_up()
        commit_turns.awaiting.append(lambda: None)
        try:
            assert self.fork(_waiting) == [0, 0]
            assert len(commit_turns.line) == len(commit_turns.awaiting) == 1
        finally:
            commit_turns.leave_line(place)
            commit_turns.awaiting.clear()

    def test_a_child_forked_while_a_loop_runs_in_another_thread(self) -> None:
        """With passes on their way and a lock held, as gunicorn's workers may find it."""
        ready, stop = threading.Event(), threading.Event()

        async def main() -> None:
            x = leaf()
            running = calls(x, lambda: (ready.set(), stop.wait(60))[0], HEAVY).sum().backward()
            await running

        thread = threading.Thread(target=asyncio.run, args=(main(),))
        thread.start()
        try:
            assert ready.wait(30)
            # That of a pass of the other thread's loop, which the child does not have.
            place = commit_turns.line_up()
            commit_turns.line[place] = -1
            with commit_turns.committing, blas.one_thread.lock:
                assert self.fork() == [7.0] * 3
            commit_turns.leave_line(place)
        finally:
            stop.set()
            thread.join()

    @pytest.mark.parametrize("whose", ["ours", "NumPy's"])
    def test_a_child_forked_while_another_thread_draws(self, whose: str) -> None:
        generator = default_generator
        lock = generator._lock if whose == "ours" else generator._random.bit_generator.lock
        draws, stop = threading.Event(), threading.Event()

        def draw() -> None:
            with lock:
                draws.set()
                stop.wait(60)

        expected = generator.clone_state()
        thread = threading.Thread(target=draw)
        thread.start()
        try:
            assert draws.wait(30)
            assert self.fork(_draw) == ag.rand(3, generator=expected).tolist()
        finally:
            stop.set()
            thread.join()
