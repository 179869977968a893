"""What is left of passes when their loop ends: nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from passes import HEAVY, calls, chain, give_way, leaf, long_pass, until

import asyncgrad as ag
from asyncgrad.scheduler import blas
from asyncgrad.scheduler.registry import _engines

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from asyncgrad.scheduler.engine import Engine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")


def _run_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


@pytest.fixture(
    params=[asyncio.run, lambda main: asyncio.run(main, debug=True), _run_uvloop],
    ids=["asyncio", "asyncio-debug", "uvloop"],
)
def run(request: pytest.FixtureRequest) -> Any:
    """Run a program; afterwards nothing of it may be left, nor may it have complained."""
    complaints: list[dict[str, Any]] = []
    threads, engines = set(threading.enumerate()), set(_engines.values())

    def program(main: Coroutine[Any, Any, Any]) -> Any:
        async def listening() -> Any:
            asyncio.get_running_loop().set_exception_handler(
                lambda loop, context: complaints.append(context)
            )
            return await main

        return request.param(listening())

    yield program
    gc.collect()
    assert complaints == []
    assert [thread for thread in threading.enumerate() if thread not in threads] == []
    assert [engine for engine in _engines.values() if not engine.closed] == [
        engine for engine in engines if not engine.closed
    ]


def keep(future: Any) -> list[str]:
    """How a pass will have ended; looking at it is enough not to have forgotten it."""
    outcome: list[str] = []

    def note(done: Any) -> None:
        outcome.append("cancelled" if done.cancelled() else repr(done.exception()))

    future.add_done_callback(note)
    return outcome


async def values(x: ag.Tensor, engines: list[Any]) -> Any:
    """A generator with passes in its `finally`; notes the engine that has run them."""
    try:
        yield 1
    finally:
        await long_pass(x).backward()
        await chain(x, 3, cost=HEAVY).sum().backward()
        engines.append(ag.engine())


class TestAbandonedPasses:
    """Started and never awaited to the end: cancelled, drained, and `.grad` as it was."""

    def test_one_that_waits_for_its_turn(self, run: Run) -> None:
        x = leaf()

        async def main() -> list[str]:
            return keep(long_pass(x, 20_000).backward())

        assert run(main()) == ["cancelled"]
        assert x.grad is None

    def test_one_that_is_in_a_thread(self, run: Run) -> None:
        """The program does not end before the thread has."""
        x = leaf()
        inside, trace = threading.Event(), []

        def node() -> None:
            trace.append("in")
            inside.set()
            trace.append("out")

        async def main() -> list[str]:
            future = chain(x, 1_000, node, HEAVY).sum().backward()
            await asyncio.to_thread(inside.wait)
            return keep(future)

        outcome = run(main())
        assert outcome in (["cancelled"], ["None"])
        if outcome == ["cancelled"]:
            assert x.grad is None
        assert trace.count("in") == trace.count("out")

    def test_one_whose_coroutine_waits(self, run: Run) -> None:
        x = leaf()
        y = x * 2
        ended = []

        async def hook(gradient: ag.Tensor) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("hook")

        y.register_hook(hook)

        async def main() -> list[str]:
            future = y.sum().backward()
            await asyncio.sleep(0.0)
            await asyncio.sleep(0.0)
            return keep(future)

        assert run(main()) == ["cancelled"]
        assert ended == ["hook"]
        assert x.grad is None

    @pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
    def test_passes_that_wait_for_others(self, factory: Callable[[], Any]) -> None:
        """The end of one ends the pass that its hook awaits; the others end, too."""
        loop = factory()
        complaints: list[Any] = []
        loop.set_exception_handler(lambda loop, context: complaints.append(context))

        def outer() -> ag.Tensor:
            inner = long_pass(leaf(), 20_000)

            async def wait() -> None:
                await inner.backward()

            return calls(leaf(), wait).sum()

        async def main() -> list[list[str]]:
            outcomes = [keep(outer().backward()) for _ in range(6)]
            await until(lambda: ag.engine().statistics().in_flight == 12)
            return outcomes

        outcomes = loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        assert outcomes == [["cancelled"]] * 6
        assert complaints == []

    def test_many_of_all_kinds(self, run: Run) -> None:
        leaves = [leaf() for _ in range(30)]

        async def main() -> list[list[str]]:
            return [
                keep(
                    (
                        long_pass(x, 2_000)
                        if k % 3 == 0
                        else chain(x, 50, cost=HEAVY).sum()
                        if k % 3 == 1
                        else calls(x, give_way).sum()
                    ).backward()
                )
                for k, x in enumerate(leaves)
            ]

        for x, outcome in zip(leaves, run(main()), strict=True):
            assert (outcome, x.grad is None) in ((["cancelled"], True), (["None"], False))

    def test_one_that_its_own_task_awaits_when_the_program_ends(self, run: Run) -> None:
        """`asyncio.run` cancels the task, the task its pass."""
        x = leaf()

        async def wait() -> None:
            await long_pass(x, 20_000).backward()

        async def main() -> None:
            task = asyncio.create_task(wait())
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(task.get_name)

        run(main())
        assert x.grad is None


class TestCleanUp:
    """Code that runs while the loop shuts down may await passes."""

    def test_a_pass_in_a_finally_of_a_cancelled_task(self, run: Run) -> None:
        x = leaf()

        async def service() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await long_pass(x).backward()
                await chain(x, 3, cost=HEAVY).sum().backward()
                await calls(x, give_way).sum().backward()

        async def main() -> None:
            main.service = asyncio.create_task(service())
            await asyncio.sleep(0)

        run(main())
        assert x.grad.tolist() == [3.0] * 3

    def test_a_pass_in_a_finally_of_an_asynchronous_generator(self, run: Run) -> None:
        x = leaf()

        async def main() -> None:
            main.generator = values(x, [])
            await (x * 0).sum().backward()
            await anext(main.generator)

        run(main())
        assert x.grad.tolist() == [2.0] * 3

    def test_a_pass_in_an_exit_stack_whose_task_was_cancelled(self, run: Run) -> None:
        import contextlib

        x = leaf()

        async def main() -> None:
            async def service() -> None:
                async with contextlib.AsyncExitStack() as stack:
                    stack.push_async_callback(wait)
                    await asyncio.Event().wait()

            async def wait() -> None:
                await long_pass(x).backward()

            task = asyncio.create_task(service())
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        run(main())
        assert x.grad.tolist() == [1.0] * 3


async def after_a_pass() -> Engine:
    """The engine of a loop, which has run a pass."""
    await long_pass(leaf()).backward()
    return ag.engine()


def join_all(threads: Iterable[threading.Thread]) -> None:
    """Wait for the end of threads that may not have begun: another one starts them."""
    for thread in threads:
        thread._started.wait()  # type: ignore[attr-defined]
        thread.join()


class TestEngines:
    def test_each_loop_has_its_own_and_a_new_loop_a_new_one(self, run: Run) -> None:
        async def main() -> Engine:
            first = ag.engine()
            assert ag.engine() is first
            return first

        first = run(main())
        second = run(main())
        assert first is not second
        assert first.closed
        assert second.closed

    def test_there_is_none_without_a_loop(self) -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            ag.engine()

    def test_a_closed_engine_stays_closed(self, run: Run) -> None:
        async def main() -> Engine:
            return ag.engine()

        engine = run(main())
        engine.close()
        assert engine.closed

    def test_a_loop_that_was_closed_without_ceremony_is_forgotten(self) -> None:
        async def main() -> Engine:
            await (leaf() * 2).sum().backward()
            return ag.engine()

        loop = asyncio.new_event_loop()
        engine = loop.run_until_complete(main())
        loop.close()
        assert not engine.closed
        asyncio.run(main())
        assert engine.closed

    @pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
    @pytest.mark.parametrize("pending", [False, True])
    def test_the_collector_finds_a_loop_that_was_closed_without_ceremony(
        self, factory: Callable[[], asyncio.AbstractEventLoop], pending: bool
    ) -> None:
        """No other loop has to come for its threads and its passes to go."""
        x = leaf()

        async def main() -> Engine:
            engine = ag.engine()
            threads = engine.thread_segments.threads._members
            present = threading.Barrier(len(threads))
            await asyncio.gather(*(ag.offload(present.wait) for _ in threads))
            future = long_pass(x, 20_000).backward()
            if pending:
                keep(future)
            else:
                await future
            return engine

        loop = factory()
        engine = loop.run_until_complete(main())
        loop.close()
        gc.collect()
        join_all(engine.thread_segments.threads._members)
        assert engine.closed
        assert engine not in _engines.values()
        assert engine.collections._note not in gc.callbacks
        references = weakref.ref(engine), weakref.ref(loop)
        del engine, loop
        gc.collect()
        assert [reference() for reference in references] == [None, None]

    @pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
    def test_a_call_of_several_passes_goes_with_a_loop_that_was_closed_without_ceremony(
        self, factory: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        """As asyncio's own tasks do, with the same complaint."""
        complaints: list[str] = []

        async def waits(x: ag.Tensor) -> ag.Tensor:
            await asyncio.Event().wait()
            return x.sum()

        async def main() -> Any:
            program = ag.func.grad(waits)(leaf())
            keep(program)
            await asyncio.sleep(0)
            return weakref.ref(program), ag.engine().thread_segments.threads._members

        loop = factory()
        loop.set_exception_handler(lambda loop, context: complaints.append(context["message"]))
        program, threads = loop.run_until_complete(main())
        loop.close()
        reference = weakref.ref(loop)
        del loop
        gc.collect()
        join_all(threads)
        gc.collect()
        assert [program(), reference()] == [None, None]
        assert complaints == ["Task was destroyed but it is pending!"]

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    def test_the_collector_finds_a_loop_that_was_never_closed(self) -> None:
        """The engine is not what keeps it; uvloop's are kept by themselves."""
        loop = asyncio.new_event_loop()
        engine = loop.run_until_complete(after_a_pass())
        reference = weakref.ref(loop)
        del loop
        gc.collect()
        assert reference() is None
        join_all(engine.thread_segments.threads._members)
        assert engine.closed
        assert engine not in _engines.values()

    @pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
    def test_one_made_after_the_generators_were_told_leaves_nothing(
        self, factory: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        """Nobody will tell it of the end: it serves passes, and is closed from the beginning.

        uvloop says so by a warning alone, which is an error here.
        """
        x = leaf()
        engines = []

        async def main() -> None:
            main.generator = values(x, engines)
            await anext(main.generator)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
        assert x.grad.tolist() == [2.0] * 3
        assert engines[0].closed
        assert engines[0].collections._note not in gc.callbacks

    @pytest.mark.parametrize("turns", [0, 1, 5])
    def test_a_loop_closed_with_passes_pending_takes_them_with_it(self, turns: int) -> None:
        """Nothing is committed, nobody complains, and another loop serves the next pass."""
        x = leaf()
        complaints: list[dict[str, Any]] = []

        async def start() -> Any:
            future = long_pass(x, 20_000).backward()
            keep(future)
            for _ in range(turns):
                await asyncio.sleep(0)
            return weakref.ref(future._task)

        def abandon() -> Any:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda loop, context: complaints.append(context))
            machine = loop.run_until_complete(start())
            loop.close()
            return machine

        async def again() -> None:
            await long_pass(x).backward()

        machine = abandon()
        assert x.grad is None
        asyncio.run(again())
        gc.collect()
        assert machine() is None
        assert complaints == []
        assert x.grad.tolist() == [1.0] * 3

    def test_an_engine_does_not_keep_its_loop_alive(self) -> None:
        loop = asyncio.new_event_loop()
        engine = loop.run_until_complete(after_a_pass())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        reference = weakref.ref(loop)
        del loop
        gc.collect()
        assert reference() is None
        with pytest.raises(RuntimeError, match="loop is gone"):
            _ = engine.loop


class TestBlas:
    """The matrix library's threads are the user's; engines borrow all but one."""

    @staticmethod
    def threads() -> list[int]:
        return [
            library.num_threads
            for library in blas._CONTROLLER.select(user_api="blas").lib_controllers
        ]

    @pytest.fixture(autouse=True)
    def _untouched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """As if there were no engine: one of an earlier test may not have been collected yet."""
        if not self.threads():
            pytest.skip("no library that can be limited")
        monkeypatch.setattr(blas.one_thread, "holders", set())
        monkeypatch.setattr(blas, "_before", [])
        with blas._CONTROLLER.limit(limits=blas.CORES, user_api="blas"):
            yield

    def test_the_library_uses_one_thread_as_long_as_an_engine_lives(self, run: Run) -> None:
        before = self.threads()

        async def main() -> list[int]:
            ag.engine()
            return self.threads()

        inside = run(main())
        assert set(inside) == {1}
        assert self.threads() == before

    def test_what_the_user_has_set_is_never_exceeded(self, run: Run) -> None:
        async def main() -> list[int]:
            ag.engine()
            return self.threads()

        with blas._CONTROLLER.limit(limits=1, user_api="blas"):
            assert set(run(main())) == {1}
            assert set(self.threads()) == {1}

    def test_what_the_user_sets_meanwhile_stays(self, run: Run) -> None:
        async def main() -> None:
            ag.engine()
            for library in blas._CONTROLLER.select(user_api="blas").lib_controllers:
                library.set_num_threads(3)

        with blas._CONTROLLER.limit(limits=4, user_api="blas"):
            run(main())
            assert set(self.threads()) == {3}

    def test_a_loop_in_another_thread_than_the_first_one_limits_it_too(self, run: Run) -> None:
        """Since threadpoolctl 3.8, one thread controls the library until it lets go of that."""
        before = self.threads()

        async def main() -> list[int]:
            ag.engine()
            return self.threads()

        for library in blas._CONTROLLER.select(user_api="blas").lib_controllers:
            library.set_num_threads(library.num_threads)
        inside: list[int] = []
        for _ in range(2):
            thread = threading.Thread(target=lambda: inside.extend(asyncio.run(main())))
            thread.start()
            thread.join()
            assert self.threads() == before
        assert set(inside) == {1}

    def test_engines_that_overlap_give_the_cores_back_when_the_last_ends(self) -> None:
        before = self.threads()
        loops = [asyncio.new_event_loop() for _ in range(2)]

        async def main() -> None:
            ag.engine()

        for loop in loops:
            loop.run_until_complete(main())
        during = self.threads()
        loops[0].run_until_complete(loops[0].shutdown_asyncgens())
        assert self.threads() == during, "one loop still runs"
        loops[1].run_until_complete(loops[1].shutdown_asyncgens())
        assert self.threads() == before
        for loop in loops:
            loop.close()
