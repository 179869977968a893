"""Passes that end when the call returns: scripts, threads, `asyncgrad.sync`, `blocking()`."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import (
    HEAVY,
    assert_nothing_runs,
    calls,
    chain,
    give_way,
    interrupts,
    leaf,
    long_pass,
    until,
)

import asyncgrad as ag
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler import call_on_portal, inline

if TYPE_CHECKING:
    from blockbuster import BlockBuster

pytestmark = pytest.mark.usefixtures("nothing_is_left")

#: Of a program of its own: a blocking pass that waits for a coroutine on the portal.
ONCE = """
def once():
    x = ag.ones(3, requires_grad=True)
    y = x * 2
    async def hook(gradient):
        await asyncio.sleep(0)
    y.register_hook(hook)
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3
"""


def ends_quietly(program: str) -> None:
    done = subprocess.run(
        # From 3.12 on Python warns of any fork beside a thread; here it is what is tested.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class TestWithoutALoop:
    def test_backward_has_ended_when_it_returns(self) -> None:
        x = leaf()
        long_pass(x * 2).backward()
        assert x.grad.tolist() == [2.0] * 3

    def test_what_it_returns_can_be_awaited_in_any_loop(self) -> None:
        """Code written for a loop runs without one, too."""
        x = leaf()
        finished = (x * 2).sum().backward()
        results = ag.grad((x * 3).sum(), [x])

        async def wait() -> tuple:
            await finished
            return await results

        (gradient,) = asyncio.run(wait())
        assert gradient.tolist() == [3.0] * 3
        assert "finished" in repr(finished)

    def test_grad_is_a_plain_tuple_that_unpacks(self) -> None:
        x, y = leaf(), leaf()
        gx, gy = ag.grad((x * y * 2).sum(), [x, y])
        assert (gx.tolist(), gy.tolist()) == ([2.0] * 3, [2.0] * 3)
        assert isinstance(ag.grad((x * 2).sum(), [x]), tuple)

    def test_errors_are_raised_by_the_call(self) -> None:
        x = leaf()

        def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no") as caught:
            calls(x, fail).sum().backward()
        assert len(caught.value.__notes__) == 1
        assert x.grad is None

    @pytest.mark.parametrize("error", [StopIteration(1), asyncio.CancelledError("node's")])
    def test_exceptions_that_mean_something_to_callers_are_failures_of_the_node(
        self, error: BaseException
    ) -> None:
        def fail() -> None:
            raise error

        with pytest.raises(RuntimeError):
            calls(leaf(), fail).sum().backward()

    def test_without_an_engine_the_collector_calls_nothing(self) -> None:
        """An interrupt that comes while it runs would be raised there, where Python drops it."""
        program = (
            "import gc; before = list(gc.callbacks); import asyncgrad as ag; "
            "(ag.ones(3, requires_grad=True) * 2).sum().backward(); "
            "raise SystemExit(gc.callbacks != before)"
        )
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

    def test_keyboard_interrupt_is_raised_as_it_is(self) -> None:
        x = leaf()

        def interrupt() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            calls(x, interrupt).sum().backward()
        assert x.grad is None
        (x * 2).sum().backward()
        assert x.grad.tolist() == [2.0] * 3

    def test_everything_runs_in_the_calling_thread(self) -> None:
        seen = []
        chain(leaf(), 3, lambda: seen.append(threading.current_thread()), HEAVY).sum().backward()
        assert seen == [threading.current_thread()] * 3

    def test_a_deadline_ends_it(self) -> None:
        x = leaf()

        def wait() -> None:
            assert not never.wait(0.05)

        never = threading.Event()
        with pytest.raises(TimeoutError, match="deadline"):
            chain(x, 1_000, wait).sum().backward(deadline=monotonic())
        assert x.grad is None

    def test_there_is_nothing_to_await_for_an_optimizer(self) -> None:
        x = leaf()
        optimizer = ag.optim.SGD([x], lr=0.5)
        (x * 2).sum().backward()
        optimizer.step()
        assert x.tolist() == [0.0] * 3


class TestCoroutineNodesWithoutALoop:
    """One portal thread has the loop that they need."""

    def test_a_coroutine_hook_runs_on_the_portals_loop(self) -> None:
        x = leaf()
        y = x * 2
        seen = []

        async def hook(gradient: ag.Tensor) -> ag.Tensor:
            await asyncio.sleep(0)
            seen.append(threading.current_thread().name)
            return gradient * 10

        y.register_hook(hook)
        y.sum().backward()
        assert x.grad.tolist() == [20.0] * 3
        assert seen == ["asyncgrad portal"]

    def test_coroutines_of_one_pass_wait_together(self) -> None:
        x = leaf()
        barrier = asyncio.Barrier(3)

        async def wait(gradient: ag.Tensor) -> None:
            await barrier.wait()

        parts = [x * k for k in range(3)]
        for part in parts:
            part.register_hook(wait)
        (parts[0] + parts[1] + parts[2]).sum().backward()
        assert x.grad.tolist() == [3.0] * 3

    def test_the_error_of_one_ends_the_others(self) -> None:
        x = leaf()
        good, bad = x * 2, x * 3
        ended = threading.Event()

        async def wait(gradient: ag.Tensor) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async def fail(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise ValueError("no")

        good.register_hook(wait)
        bad.register_hook(fail)
        with pytest.raises(ValueError, match="no"):
            (good + bad).sum().backward()
        assert ended.wait(60)
        assert x.grad is None

    @pytest.mark.usefixtures("no_collector")
    @pytest.mark.parametrize("alone", [True, False])
    def test_their_errors_are_part_of_no_cycle(self, alone: bool) -> None:
        """Nor is the cancellation of the one that has not failed: all go without the collector."""
        kept: list[weakref.ref[Any]] = []

        class Stop(Exception):
            def __init__(self) -> None:
                kept.append(weakref.ref(self))

        async def fail(gradient: ag.Tensor) -> None:
            await asyncio.sleep(0)
            raise Stop

        async def wait(gradient: ag.Tensor) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise Stop from None

        def run() -> None:
            x = leaf()
            good, bad = x * 2, x * 3
            if not alone:
                good.register_hook(wait)
            bad.register_hook(fail)
            kept.append(weakref.ref(good.grad_fn))
            with pytest.raises(Stop):
                (good + bad).sum().backward()

        gc.collect()
        run()
        for _ in range(3):
            # The portal's loop is done with its tasks.
            call_on_portal(asyncio.sleep(0))
        assert [reference() for reference in kept] == [None] * len(kept)

    def test_a_hook_that_raises_cancelled_error_has_failed(self) -> None:
        x = leaf()
        y = x * 2

        async def hook(gradient: ag.Tensor) -> None:
            raise asyncio.CancelledError

        y.register_hook(hook)
        with pytest.raises(AutogradError, match="CancelledError"):
            y.sum().backward()
        assert x.grad is None

    def test_coroutines_that_have_not_begun_never_do_if_another_node_fails(self) -> None:
        x = leaf()
        old, young = x * 2, x * 3
        began = []

        async def hook(gradient: ag.Tensor) -> None:
            began.append(gradient)

        def fail(gradient: ag.Tensor) -> None:
            raise ValueError("no")

        young.register_hook(hook)
        old.register_hook(fail)
        with pytest.raises(ValueError, match="no"):
            (old + young).sum().backward()
        assert began == []

    def test_a_hook_can_await_a_pass_on_the_portals_loop(self) -> None:
        x, z = leaf(), leaf()
        y = x * 2

        async def hook(gradient: ag.Tensor) -> None:
            with ag.enable_grad():
                await long_pass(z).backward()

        y.register_hook(hook)
        y.sum().backward()
        assert (x.grad.tolist(), z.grad.tolist()) == ([2.0] * 3, [1.0] * 3)

    def test_a_pass_on_the_portals_loop_leaves_the_matrix_library_its_threads(self) -> None:
        """That loop lasts as long as the process, whose products are the user's."""
        ends_quietly("""if True:
            import asyncgrad as ag
            from asyncgrad.scheduler import blas
            ag.set_num_threads(3)
            x, z = ag.ones(3, requires_grad=True), ag.ones(3, requires_grad=True)
            y = x * 2
            passes = []
            async def hook(gradient):
                with ag.enable_grad():
                    loss = z.sum()
                await loss.backward()
                passes.append(ag.engine().statistics().passes)
            y.register_hook(hook)
            y.sum().backward()
            assert passes == [1]
            libraries = blas._CONTROLLER.select(user_api="blas").lib_controllers
            assert {library.num_threads for library in libraries} <= {3}
        """)

    def test_a_deadline_ends_what_coroutines_wait_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And their clean-up has run when the error is raised."""
        x = leaf()
        begun: list[int] = []
        ended: list[int] = []
        clock: list[Any] = []

        def start(expire: Any, facts: Any) -> None:
            """The thread that waits for the deadline runs when both nodes wait."""
            clock.append(partial(expire, *facts[:-1], 0.0))

        async def node() -> None:
            begun.append(1)
            if len(begun) == 2:
                clock.pop()()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(1)

        monkeypatch.setattr(inline, "start_new_thread", start)
        both = calls(x * 1.0, node) + calls(x * 2.0, node)
        with pytest.raises(TimeoutError, match="deadline"):
            both.sum().backward(deadline=monotonic() + 1e4)
        assert (begun, ended) == ([1, 1], [1, 1])
        assert x.grad is None

    @pytest.mark.skipif(
        threading.current_thread() is not threading.main_thread(), reason="signals are the main's"
    )
    def test_an_interrupt_ends_them_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = leaf()
        ended: list[int] = []
        waits = threading.Event()
        first_of = inline._first_of

        def noting(*facts: Any) -> Any:
            waits.set()
            return first_of(*facts)

        async def node() -> None:
            await asyncio.to_thread(waits.wait, 60)
            try:
                await interrupt()
                await asyncio.Event().wait()
            finally:
                ended.append(1)

        monkeypatch.setattr(inline, "_first_of", noting)
        with interrupts() as interrupt, pytest.raises(KeyboardInterrupt):
            calls(x, node).sum().backward()
        assert ended == [1]
        assert x.grad is None

    @pytest.mark.skipif(
        threading.current_thread() is not threading.main_thread(), reason="signals are the main's"
    )
    @pytest.mark.parametrize("fails", [False, True])
    def test_a_second_interrupt_does_not_leave_them_running(
        self, monkeypatch: pytest.MonkeyPatch, fails: bool
    ) -> None:
        """Whether the first ends a pass that runs or one that has failed, whose error gives way."""
        x, y = leaf(), leaf()
        ended: list[int] = []
        waits = asyncio.Event()
        ends: list[int] = []
        real = inline._end_nodes
        monkeypatch.setattr(inline, "_end_nodes", lambda *of: (ends.append(1), real(*of)))

        async def node() -> None:
            waits.set()
            try:
                if not fails:
                    await interrupt()
                await asyncio.Event().wait()
            finally:
                if fails:
                    await interrupt()
                await until(lambda: len(ends) == 1 + fails)
                await interrupt()
                await give_way()
                ended.append(1)

        async def other() -> None:
            await waits.wait()
            if fails:
                raise ValueError("planned")
            await asyncio.Event().wait()

        with interrupts() as interrupt, pytest.raises(KeyboardInterrupt):
            (calls(x, node) + calls(y, other)).sum().backward()
        assert ended == [1]
        assert x.grad is None

    @pytest.mark.parametrize("forks", [False, True])
    def test_the_process_ends_all_the_same(self, forks: bool) -> None:
        """A portal that had to be stopped would keep the interpreter for ever, as would a dead one
        in a forked child."""
        program = f"""
import asyncio, os, sys
import asyncgrad as ag

{ONCE}
once()
if {forks}:
    pid = os.fork()
    once()
    asyncio.run(asyncio.sleep(0))
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
"""
        ends_quietly(program)

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
    def test_the_host_makes_loops_whose_tasks_start_at_once(self) -> None:
        """Its policy makes the portal's loop, too."""
        program = f"""
import asyncio
import asyncgrad as ag
{ONCE}
def factory(loop, coroutine, **options):
    options.pop("eager_start", None)
    return asyncio.eager_task_factory(loop, coroutine, **options)

class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self):
        loop = super().new_event_loop()
        loop.set_task_factory(factory)
        return loop

asyncio.set_event_loop_policy(Policy())
once()
once()
"""
        ends_quietly(program)


@pytest.mark.asyncio
class TestOnALoop:
    async def test_sync_blocks_and_gives_plain_results(self) -> None:
        x = leaf()
        assert ag.sync.backward(long_pass(x * 2)) is None
        assert x.grad.tolist() == [2.0] * 3
        gradients = ag.sync.grad((x * 3).sum(), [x])
        assert type(gradients) is tuple
        assert gradients[0].tolist() == [3.0] * 3
        await assert_nothing_runs()

    async def test_within_blocking_backward_has_ended_when_it_returns(self) -> None:
        x = leaf()
        with ag.blocking():
            long_pass(x).backward()
            assert x.grad.tolist() == [1.0] * 3
            (gradient,) = ag.grad((x * 3).sum(), [x])
        assert gradient.tolist() == [3.0] * 3
        future = long_pass(x).backward()
        assert isinstance(future, asyncio.Future)
        await future

    async def test_blocking_is_a_decorator_too_and_follows_the_task(self) -> None:
        x = leaf()

        @ag.blocking()
        def library() -> object:
            return long_pass(x).backward()

        async def elsewhere() -> bool:
            future = (x * 0).sum().backward()
            await future
            return isinstance(future, asyncio.Future)

        other = asyncio.create_task(elsewhere())
        library()
        assert x.grad.tolist() == [1.0] * 3
        assert await other

    async def test_a_coroutine_node_says_use_await(self) -> None:
        """It could only run on the loop whose thread is blocked."""
        x = leaf()
        with pytest.raises(AutogradError, match="use await"):
            ag.sync.backward(calls(x, give_way).sum())
        assert x.grad is None
        await assert_nothing_runs()

    async def test_a_synchronous_hook_may_run_passes_that_block(self) -> None:
        x, z = leaf(), leaf()
        y = x * 2

        def hook(gradient: ag.Tensor) -> ag.Tensor:
            with ag.enable_grad():
                (inner,) = ag.grad(long_pass(z * 5), [z])
            return gradient * inner

        y.register_hook(hook)
        await y.sum().backward()
        assert x.grad.tolist() == [10.0] * 3

    async def test_what_a_nested_pass_returns_is_not_awaited(self) -> None:
        """It has ended, and a blocked loop could await nothing."""

        class Product(ag.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: ag.Tensor, y: ag.Tensor) -> ag.Tensor:
                ctx.save_for_backward(x, y)
                return x * y

            @staticmethod
            def backward(ctx: Any, gradient: ag.Tensor) -> Any:
                inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                with ag.enable_grad():
                    return ag.grad(inputs[0] * inputs[1], inputs, gradient)

        x, y, z = leaf(), leaf(), leaf()
        inner = [(z * 5).sum() for _ in range(3)]
        layer = ag.nn.ReLU()
        layer.register_full_backward_hook(lambda *_: inner.pop().backward())
        product = Product.apply(x, y * 2)
        product.register_hook(lambda gradient: inner.pop().backward())
        product.grad_fn.register_hook(lambda *_: inner.pop().backward())
        with ag.blocking():
            layer(product).sum().backward()
        assert z.grad.tolist() == [15.0] * 3
        assert x.grad.tolist() == y.grad.tolist() == [2.0] * 3

    async def test_a_thread_without_a_loop_blocks_beside_the_loops_passes(self) -> None:
        x = leaf()

        def work() -> bool:
            for _ in range(5):
                finished = long_pass(x, 500).backward()
            return isinstance(finished, asyncio.Future)

        threads = [asyncio.to_thread(work) for _ in range(3)]
        passes = [long_pass(x, 500).backward() for _ in range(5)]
        assert not any(await asyncio.gather(*threads))
        await asyncio.gather(*passes)
        assert x.grad.tolist() == [20.0] * 3


def test_a_deadline_is_a_time_of_the_loops_clock(blockbuster: BlockBuster) -> None:
    """Which need not be the system's: a test's loop has one of its own."""

    class Ahead(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return super().time() + 1e6

    def wait() -> None:
        assert not never.wait(0.05)

    async def main() -> None:
        loss = chain(x, 1_000, wait).sum()
        with pytest.raises(TimeoutError, match="deadline"):
            ag.sync.backward(loss, deadline=asyncio.get_running_loop().time() + 0.01)

    # It is meant to block.
    blockbuster.deactivate()
    never = threading.Event()
    x = leaf()
    with asyncio.Runner(loop_factory=Ahead) as runner:
        runner.run(main())
    assert x.grad is None


class TestThreads:
    def test_many_threads_with_their_own_loops_lose_no_update(self) -> None:
        """One leaf, eight loops, passes of every kind, small and large commits."""
        x = leaf(60_000)
        start = threading.Barrier(8)
        errors = []

        async def train(k: int) -> None:
            for step in range(6):
                cost = HEAVY if step % 3 == 0 else 2_000
                await chain(x * float(k), 3, cost=cost).sum().backward()
                await asyncio.gather(*((x[:10] * 1.0).sum().backward() for _ in range(3)))

        def thread(k: int) -> None:
            try:
                start.wait(60)
                asyncio.run(train(k))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=thread, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert errors == []
        expected = np.full(60_000, 6.0 * sum(range(8)))
        expected[:10] += 8 * 6 * 3
        assert np.array_equal(x.grad.numpy(), expected)

    def test_threads_that_race_to_a_leaf_share_its_accumulator(self) -> None:
        x = leaf()
        start = threading.Barrier(8)
        found = []

        def thread() -> None:
            start.wait(60)
            y = x * 2
            found.append((y, y.grad_fn.next_functions[0][0]))

        threads = [threading.Thread(target=thread) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert len({id(accumulator) for _, accumulator in found}) == 1

    def test_one_graph_can_serve_passes_of_several_threads(self) -> None:
        x = leaf()
        loss = long_pass(x * x, 300)
        start = threading.Barrier(4)

        def thread() -> None:
            start.wait(60)
            for _ in range(5):
                loss.backward(retain_graph=True)

        threads = [threading.Thread(target=thread) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert x.grad.tolist() == [40.0] * 3
