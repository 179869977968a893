"""A pass of each kind, cancelled at each of its awaits, or failing in each way at each node."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from passes import (
    HEAVY,
    another_commits,
    assert_nothing_runs,
    calls,
    chain,
    give_way,
    others,
    settle,
    until,
)

import asyncgrad as ag
from asyncgrad.core.commit_turns import awaiting, committing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.usefixtures("nothing_is_left")

#: More elements than are added to leaves on the loop.
LARGE = 60_000


class Mine(BaseException):
    """No Exception, and nothing that stops the program."""


def leaves(size: int = 3) -> tuple[ag.Tensor, ag.Tensor]:
    return tuple(ag.tensor(np.ones(size), requires_grad=True) for _ in range(2))


def plain(x: ag.Tensor, y: ag.Tensor) -> ag.Tensor:
    return (chain(x, 500) + chain(y, 500)).sum()


def coroutine(x: ag.Tensor, y: ag.Tensor) -> ag.Tensor:
    return (calls(chain(calls(x, give_way), 3), give_way) + calls(y, give_way)).sum()


def in_threads(x: ag.Tensor, y: ag.Tensor) -> ag.Tensor:
    return (chain(chain(chain(x, 2, cost=HEAVY), 200), 2, cost=HEAVY) + y).sum()


def waited_for(x: ag.Tensor, y: ag.Tensor) -> ag.Tensor:
    """Expensive nodes whose hooks are coroutines: they go to a thread when these have ended."""

    async def hook(gradient: ag.Tensor) -> None:
        await give_way()

    loss = y
    for tensor in (x * 1.0, calls(x, lambda: None), y * 1.0):
        tensor.grad_fn.cost = HEAVY
        tensor.register_hook(hook)
        loss = loss + tensor
    return (loss - x - y).sum()


def offloading(x: ag.Tensor, y: ag.Tensor) -> ag.Tensor:
    async def node() -> None:
        await ag.offload(lambda: None)

    return (calls(calls(x, node), node) + y).sum()


def nested(x: ag.Tensor, y: ag.Tensor) -> ag.Tensor:
    losses = [plain(*leaves()), coroutine(*leaves())]

    async def node() -> None:
        for loss in losses:
            await loss.backward(retain_graph=True)

    return (calls(x, node) + y).sum()


KINDS = [plain, coroutine, in_threads, waited_for, offloading, nested]


async def check_after(task: asyncio.Task[None], x: ag.Tensor, y: ag.Tensor) -> bool:
    """See that the pass of a task is over, all or nothing; whether it was cancelled in time."""
    cancelled = False
    try:
        await task
    except asyncio.CancelledError:
        cancelled = True
    done = [tensor.grad is not None for tensor in (x, y)]
    assert done in ([True, True], [False, False])
    if not cancelled:
        assert done == [True, True]
    await assert_nothing_runs()
    assert others() == set()
    for tensor in (x, y):
        tensor.grad = None
    await (x * 2 + y).sum().backward()
    assert (x.grad.tolist()[0], y.grad.tolist()[0]) == (2.0, 1.0)
    return cancelled


@asynccontextmanager
async def busy_threads() -> AsyncIterator[None]:
    """All threads have something else to do, until the end."""
    entered: list[int] = []
    go_on = threading.Event()

    def block() -> None:
        entered.append(1)
        go_on.wait(30)

    blockers = [
        asyncio.create_task(ag.offload(block)) for _ in ag.engine().thread_segments.threads._members
    ]
    # Each has taken its job: one that is about to would rather take one with a deadline.
    await until(lambda: len(entered) == len(blockers))
    try:
        yield
    finally:
        go_on.set()
        await asyncio.gather(*blockers)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "committed in a thread"])
@pytest.mark.parametrize("kind", KINDS)
async def test_cancelled_in_every_turn_of_the_loop(kind: Any, size: int) -> None:
    """Until it is so late that nothing is left to cancel."""
    turn, in_time = 0, 0
    while turn < 60:
        x, y = leaves(size)
        loss = kind(x, y)

        async def train(loss: ag.Tensor = loss) -> None:
            await loss.backward()

        task = asyncio.create_task(train())
        for _ in range(turn):
            await asyncio.sleep(0)
        task.cancel("stop")
        if not await check_after(task, x, y):
            break
        in_time += 1
        # Every turn at first, where most happens.
        turn += 1 if turn < 12 else 7
    assert in_time >= 2


@pytest.mark.asyncio
async def test_cancelled_while_a_thread_commits() -> None:
    """The commit has begun: it is complete, and then the task is cancelled."""
    x, y = leaves(LARGE)

    async def train() -> None:
        await future

    with committing:
        future = (x + y).sum().backward()
        task = asyncio.create_task(train())
        # The task waits by then, even if the thread begins to commit at once.
        await settle()
        await until(lambda: future._task.ending)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.committed()
    assert x.grad is not None
    assert y.grad is not None
    await assert_nothing_runs()


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["cancelled", "deadline"])
@pytest.mark.parametrize("size", [3, LARGE], ids=["another commits", "large"])
async def test_ended_while_the_commit_waits(size: int, how: str) -> None:
    """It has not begun: another pass commits, and the threads have other things to do."""
    x, y = leaves(size)
    engine = ag.engine()
    async with busy_threads():
        deadline = asyncio.get_running_loop().time() + 0.01 if how == "deadline" else None
        with another_commits():
            future = (x + y).sum().backward(deadline=deadline)
            await until(lambda: engine.thread_segments.tasks or awaiting or future.done())
            if how == "cancelled":
                assert future.cancel()
            # The pass ends now, and not when a thread is free.
            await asyncio.wait([future], timeout=10)
    with pytest.raises(asyncio.CancelledError if how == "cancelled" else TimeoutError):
        await future
    assert x.grad is None
    assert y.grad is None
    await assert_nothing_runs()


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["cancelled", "deadline"])
async def test_a_pass_that_waits_for_a_thread_need_not_get_one_to_end(how: str) -> None:
    """What others do in the threads is none of its business."""
    x, y = leaves()
    engine = ag.engine()
    ran: list[int] = []
    async with busy_threads():
        loss = (chain(x, 2, lambda: ran.append(1), HEAVY) + y).sum()
        deadline = asyncio.get_running_loop().time() + 0.01 if how == "deadline" else None
        future = loss.backward(deadline=deadline)
        if how == "cancelled":
            assert future.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else TimeoutError):
            await future
        assert engine.thread_segments.tasks == {}
    assert await ag.offload(int) == 0
    assert ran == []
    assert x.grad is None
    assert y.grad is None
    await assert_nothing_runs()


# -- failures -----------------------------------------------------------------

NODES = 5
ERRORS = [ValueError, MemoryError, StopIteration, StopAsyncIteration, GeneratorExit, Mine]


def raising(kind: type[BaseException]) -> Callable[..., Any]:
    def fail(*arguments: Any) -> None:
        raise kind("planned")

    return fail


def raising_later(kind: type[BaseException]) -> Callable[..., Any]:
    async def fail(*arguments: Any) -> None:
        await asyncio.sleep(0)
        raise kind("planned")

    return fail


def failing(where: str, at: int, kind: type[BaseException]) -> Any:
    """A chain of nodes of which one fails in some way; its leaves and its loss."""
    x, y = leaves()
    value = x
    for place in range(NODES):
        if place != at:
            value = chain(value, 1)
        elif where == "node":
            value = calls(value, raising(kind))
        elif where == "coroutine node":
            value = calls(value, raising_later(kind))
        elif where == "node in a thread":
            value = chain(calls(value, raising(kind), HEAVY), 1, cost=HEAVY)
        elif where == "hook":
            value = value * 1.0
            value.register_hook(raising(kind))
        elif where == "coroutine hook":
            value = value * 1.0
            value.register_hook(raising_later(kind))
        elif where == "hook before a node":
            value = value * 1.0
            value.grad_fn.register_prehook(raising(kind))
        elif where == "hook after a node":
            value = value * 1.0
            value.grad_fn.register_hook(raising(kind))
        else:
            value = calls(
                value,
                lambda: ag.autograd.Variable._execution_engine.queue_callback(
                    (raising if where == "callback" else raising_later)(kind)
                ),
            )
    return x, y, (value + y).sum()


WHERE = [
    "node",
    "coroutine node",
    "node in a thread",
    "hook",
    "coroutine hook",
    "hook before a node",
    "hook after a node",
    "callback",
    "coroutine callback",
]


def as_expected(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether a pass has ended with an error; some mean something else to futures."""
    if isinstance(error, kind):
        return "planned" in str(error)
    special = {StopIteration, StopAsyncIteration, GeneratorExit}
    return kind in special and isinstance(error, RuntimeError)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("where", WHERE)
async def test_a_failure_at_every_node(where: str, kind: type[BaseException]) -> None:
    """It ends its pass, changes nothing, and the next pass is served."""
    for at in range(NODES):
        x, y, loss = failing(where, at, kind)
        error: BaseException | None = None
        try:
            await loss.backward()
        except BaseException as caught:
            error = caught
        assert as_expected(error, kind), repr(error)
        error = None
        assert (x.grad, y.grad) == (None, None)
        del loss
        await assert_nothing_runs()
        await (x * 2).sum().backward()
        assert x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("where", WHERE)
def test_a_failure_at_every_node_of_a_blocking_pass(where: str, kind: type[BaseException]) -> None:
    for at in range(NODES):
        x, y, loss = failing(where, at, kind)
        error: BaseException | None = None
        try:
            loss.backward()
        except BaseException as caught:
            error = caught
        assert as_expected(error, kind), repr(error)
        assert (x.grad, y.grad) == (None, None)
        (x * 2).sum().backward()
        assert x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", WHERE)
def test_what_stops_the_program_at_every_node(where: str, kind: type[BaseException]) -> None:
    """It reaches the caller of the loop; the next loop serves the next pass."""

    async def main(loss: ag.Tensor) -> None:
        await loss.backward()

    async def again(x: ag.Tensor) -> None:
        await (x * 2).sum().backward()

    for at in range(NODES):
        x, y, loss = failing(where, at, kind)
        with pytest.raises(kind):
            asyncio.run(main(loss))
        assert (x.grad, y.grad) == (None, None)
        asyncio.run(again(x))
        assert x.grad.tolist() == [2.0] * 3
