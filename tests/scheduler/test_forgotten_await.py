"""A forgotten await is found by rule: whatever the timing, and with the line that made it."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from passes import HEAVY, calls, chain, give_way, leaf, long_pass, settle

import asyncgrad as ag
from asyncgrad.errors import PendingBackwardError
from asyncgrad.scheduler import check_awaited

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.asyncio

LOSSES = {
    "finished": lambda x: (x * 2).sum(),
    "pending": long_pass,
    "in a thread": lambda x: chain(x, 3, cost=HEAVY).sum(),
}


def line() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


@contextmanager
def recorded() -> Iterator[list[str]]:
    """The texts of the warnings of forgotten awaits in the block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(warning.message) for warning in caught if warning.category is RuntimeWarning]


@pytest.mark.parametrize("kind", LOSSES)
class TestWarning:
    """When the future of a pass goes and nobody has looked at it."""

    async def test_backward(self, kind: str) -> None:
        x = leaf()
        loss = LOSSES[kind](x)
        with recorded() as caught:
            here = line() + 1
            loss.backward()
            await self.end_of_pass(x)
        assert caught == [f"a backward pass started at {__file__}:{here} was never awaited"]

    async def test_grad(self, kind: str) -> None:
        x = leaf()
        loss = LOSSES[kind](x)
        with recorded() as caught:
            here = line() + 1
            ag.grad(loss, [x])
            await self.end_of_pass(x)
        assert caught == [f"a backward pass started at {__file__}:{here} was never awaited"]

    async def test_autograd_backward(self, kind: str) -> None:
        x = leaf()
        loss = LOSSES[kind](x)
        with recorded() as caught:
            here = line() + 1
            ag.autograd.backward([loss])
            await self.end_of_pass(x)
        assert caught == [f"a backward pass started at {__file__}:{here} was never awaited"]

    @staticmethod
    async def end_of_pass(x: ag.Tensor) -> None:
        while ag.engine().statistics().in_flight:  # noqa: ASYNC110  turns are waited for
            await asyncio.sleep(0)
        await settle()
        gc.collect()
        with pytest.raises(PendingBackwardError):
            check_awaited("test")

    @pytest.mark.parametrize(
        "look", ["await", "result", "exception", "callback", "gather", "wait", "shield"]
    )
    async def test_none_if_somebody_looked(self, kind: str, look: str) -> None:
        x = leaf()
        future = LOSSES[kind](x).backward()
        if look == "await":
            await future
        elif look == "callback":
            future.add_done_callback(lambda future: None)
        elif look == "gather":
            await asyncio.gather(future)
        elif look == "wait":
            await asyncio.wait([future])
        elif look == "shield":
            await asyncio.shield(future)
        else:
            while not future.done():  # noqa: ASYNC110  turns are waited for
                await asyncio.sleep(0)
            getattr(future, look)()
        while not future.done():  # noqa: ASYNC110  turns are waited for
            await asyncio.sleep(0)
        await settle()
        check_awaited("test")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del future
            gc.collect()


@pytest.mark.parametrize("kind", LOSSES)
class TestStep:
    """What uses gradients asks whether this task's passes were awaited."""

    async def test_an_optimizer_refuses_to_step_and_to_zero(self, kind: str) -> None:
        x = leaf()
        optimizer = ag.optim.SGD([x], lr=0.1)
        before = x.tolist()
        future = LOSSES[kind](x).backward()
        with pytest.raises(PendingBackwardError, match=r"SGD.step.*await loss.backward\(\)"):
            optimizer.step()
        with pytest.raises(PendingBackwardError, match="zero_grad"):
            optimizer.zero_grad()
        assert x.tolist() == before
        await future
        optimizer.step()
        assert x.tolist() != before
        optimizer.zero_grad()

    async def test_a_pass_that_is_pending_though_somebody_looked_is_refused(
        self, kind: str
    ) -> None:
        """After a timeout round `shield` the pass goes on: its gradients are still to come."""
        x = leaf()
        future = LOSSES[kind](calls(x, give_way)).backward()
        future.add_done_callback(lambda future: None)
        assert not future.done()
        with pytest.raises(PendingBackwardError):
            check_awaited("test")
        await future
        check_awaited("test")

    async def test_other_tasks_are_not_concerned(self, kind: str) -> None:
        x = leaf()
        future = LOSSES[kind](x).backward()

        async def other() -> None:
            check_awaited("test")

        await asyncio.create_task(other())
        with pytest.raises(PendingBackwardError):
            check_awaited("test")
        await future

    async def test_a_pass_awaited_by_another_task_is_awaited(self, kind: str) -> None:
        x = leaf()
        future = LOSSES[kind](x).backward()

        async def other() -> None:
            await future

        await asyncio.create_task(other())
        check_awaited("test")

    async def test_a_failed_or_cancelled_pass_counts_until_somebody_has_looked(
        self, kind: str
    ) -> None:
        def fail() -> None:
            raise ValueError("no")

        future = LOSSES[kind](calls(leaf(), fail)).backward()
        with pytest.raises(PendingBackwardError):
            check_awaited("test")
        with pytest.raises(ValueError, match="no"):
            await future
        check_awaited("test")


async def test_a_hook_may_step_in_the_pass_that_it_belongs_to() -> None:
    """Optimising as gradients arrive: in the first slice the hook runs in the caller's own task."""
    x, y = leaf(), leaf()
    optimizers = {id(p): ag.optim.SGD([p], lr=0.5) for p in (x, y)}

    def hook(parameter: ag.Tensor) -> None:
        optimizers[id(parameter)].step()
        optimizers[id(parameter)].zero_grad()

    for parameter in (x, y):
        parameter.register_post_accumulate_grad_hook(hook)
    await (x * y).sum().backward()
    assert (x.tolist(), y.tolist()) == ([0.5] * 3, [0.5] * 3)
    assert (x.grad, y.grad) == (None, None)


async def test_a_hook_in_a_task_of_its_own_awaits_what_it_starts() -> None:
    """So does a task that a hook makes: each is asked for its own passes, and no others."""
    refused = []
    tasks = []

    async def step(gradient: ag.Tensor | None = None) -> None:
        x = leaf()
        check_awaited("test")
        with ag.enable_grad():
            future = (x * 2).sum().backward()
        with pytest.raises(PendingBackwardError):
            check_awaited("test")
        refused.append(x)
        await future
        check_awaited("test")

    y = leaf() * 2
    y.register_hook(step)
    y.register_hook(lambda gradient: tasks.append(asyncio.create_task(step())))
    await y.sum().backward()
    await asyncio.gather(*tasks)
    assert len(refused) == 2


async def test_a_lost_pass_is_reported_once() -> None:
    with recorded() as caught:
        (leaf() * 2).sum().backward()
        await settle()
    assert len(caught) == 1
    with pytest.raises(PendingBackwardError):
        check_awaited("test")
    check_awaited("test")


async def test_forgotten_passes_of_tasks_that_ended_leave_nothing_behind() -> None:
    """Neither the tasks nor a note of them: a service may forget for years."""

    async def forgets() -> None:
        (leaf() * 2).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            await asyncio.create_task(forgets())
        await settle()
        gc.collect()
    engine = ag.engine()
    assert len(engine.unobserved) == 0
    assert len(engine.lost_starters) == 0


async def test_a_task_that_holds_a_forgotten_pass_dies_with_it() -> None:
    """Its exception holds the frame that started the pass: the engine must not hold the task."""

    async def cancelled_before_it_awaits() -> None:
        future = (leaf() * 2).sum().backward()
        await asyncio.Event().wait()
        await future

    async def run() -> weakref.ref[asyncio.Task[None]]:
        task = asyncio.create_task(cancelled_before_it_awaits())
        await settle()
        task.cancel()
        await asyncio.wait([task])
        return weakref.ref(task)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gone = await run()
        await settle()
        gc.collect()
    assert gone() is None
    assert len(ag.engine().unobserved) == 0


async def test_a_pass_that_was_seen_to_be_cancelled_is_not_forgotten() -> None:
    """`asyncio.gather` looks no further at one that has ended before."""
    futures = [long_pass(leaf()).backward() for _ in range(2)]
    for future in futures:
        future.cancel()
    await settle()
    assert futures[0].cancelled()
    results = await asyncio.gather(futures[1], return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    check_awaited("test")
    del futures, future


async def test_passes_started_outside_of_tasks_count_for_nobody_else() -> None:
    """A callback of the loop is nobody's task."""
    started = []
    asyncio.get_running_loop().call_soon(lambda: started.append((leaf() * 2).sum().backward()))
    await settle()
    check_awaited("test")
    await started[0]


async def test_who_learns_that_a_pass_was_cancelled_has_looked_at_its_end() -> None:
    future = long_pass(leaf()).backward()
    future.cancel()
    await asyncio.wait([future])
    future._observed = False  # As if nobody had waited.
    with recorded() as caught:
        assert future.cancelled()
        del future
        gc.collect()
    assert caught == []


async def test_to_ask_a_pass_that_has_failed_whether_it_was_cancelled_is_not_to_look() -> None:
    x = leaf()
    loss = chain(x, 3).sum()
    x.register_hook(lambda gradient: 1 / 0)
    future = loss.backward()
    while not future.done():  # noqa: ASYNC110  turns are waited for
        await asyncio.sleep(0)
    assert not future.cancelled()
    assert not future._observed
    assert isinstance(future.exception(), ZeroDivisionError)
    assert future._observed
