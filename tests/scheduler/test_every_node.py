"""A pass cancelled or failing at each of its nodes: nothing of it is left, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import asyncgrad as ag

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("nothing_is_left")

NODES = 14


def graph(at: int, act: Callable[[], Any]) -> tuple[list[ag.Tensor], ag.Tensor]:
    """Two leaves and a loss of `NODES` nodes with branches; `act` is a hook of the `at`th."""
    x = ag.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = ag.tensor([0.5, 0.5, 0.5], requires_grad=True)
    made: list[ag.Tensor] = []

    def keep(tensor: ag.Tensor) -> ag.Tensor:
        made.append(tensor)
        return tensor

    y = x
    for _ in range(3):
        y = keep(ag.tanh(keep(y * w)))
        y = keep(y + keep(y * 2.0))
    loss = keep(keep(y * y).sum())
    assert len(made) == NODES
    made[at].register_hook(lambda gradient: act())
    return [x, w], loss


def quiet(loop: asyncio.AbstractEventLoop) -> None:
    """Nothing runs any more but the test itself."""
    assert asyncio.all_tasks(loop) == {asyncio.current_task()}
    statistics = ag.engine().statistics()
    assert statistics.in_flight == 0
    assert statistics.queued == 0


async def serves() -> None:
    """The engine runs the next pass."""
    x = ag.tensor([2.0], requires_grad=True)
    await (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 4.0


async def outcome_of(future: Any) -> BaseException | None:
    """Wait for a pass however it ends."""
    try:
        await future
    except BaseException as error:
        return error
    return None


@pytest.mark.asyncio
@pytest.mark.parametrize("at", range(NODES))
async def test_cancelled_from_within_at_every_node(at: int) -> None:
    """The node that runs ends, nothing new starts, and the future ends as cancelled."""
    loop = asyncio.get_running_loop()
    futures: list[Any] = []
    ran: list[int] = []

    async def act() -> None:
        # A coroutine hook: the pass is suspended here and not finished by its first slice.
        futures[0].cancel("enough")
        await asyncio.sleep(0)
        ran.append(at)

    leaves, loss = graph(at, act)
    futures.append(loss.backward())
    error = await outcome_of(futures[0])
    assert isinstance(error, asyncio.CancelledError)
    assert [leaf.grad for leaf in leaves] == [None, None]
    assert ran == []
    await asyncio.sleep(0)
    quiet(loop)
    await serves()


@pytest.mark.asyncio
@pytest.mark.parametrize("at", range(NODES))
async def test_the_awaiting_task_is_cancelled_at_every_node(at: int) -> None:
    """The task stays suspended until nothing of the pass runs."""
    reached = asyncio.Event()
    released: list[bool] = []

    async def act() -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            released.append(True)

    leaves, loss = graph(at, act)

    async def train() -> None:
        await loss.backward()

    task = asyncio.create_task(train())
    await reached.wait()
    task.cancel("stop")
    error = await outcome_of(task)
    assert isinstance(error, asyncio.CancelledError)
    assert released == [True]
    assert [leaf.grad for leaf in leaves] == [None, None]
    quiet(asyncio.get_running_loop())
    await serves()


@pytest.mark.asyncio
@pytest.mark.parametrize("at", range(NODES))
@pytest.mark.parametrize("kind", [ValueError, MemoryError, StopIteration, asyncio.CancelledError])
async def test_an_error_at_every_node(at: int, kind: type[BaseException]) -> None:
    """It ends the pass with its class, names the node, and leaves `.grad` alone."""

    def act() -> None:
        raise kind("broken")

    leaves, loss = graph(at, act)
    before = [ag.tensor([1.0, 1.0, 1.0]) for _ in leaves]
    for leaf, grad in zip(leaves, before, strict=True):
        leaf.grad = grad
    error = await outcome_of(loss.backward())
    if kind in {ValueError, MemoryError}:
        assert type(error) is kind
        assert any("Backward" in note for note in error.__notes__)
    else:
        assert isinstance(error, RuntimeError)
        assert not isinstance(error, asyncio.CancelledError)
    for leaf, grad in zip(leaves, before, strict=True):
        assert leaf.grad is grad
        assert grad.tolist() == [1.0, 1.0, 1.0]
    quiet(asyncio.get_running_loop())
    await serves()


@pytest.mark.asyncio
@pytest.mark.parametrize("at", range(NODES))
async def test_an_error_in_a_coroutine_hook_at_every_node(at: int) -> None:
    """The same after an await."""

    async def act() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    leaves, loss = graph(at, act)
    error = await outcome_of(loss.backward())
    assert type(error) is ValueError
    assert [leaf.grad for leaf in leaves] == [None, None]
    await asyncio.sleep(0)
    quiet(asyncio.get_running_loop())
    await serves()


@pytest.mark.asyncio
@pytest.mark.parametrize("at", range(5))
async def test_cancelled_while_a_thread_runs_the_pass(at: int) -> None:
    """The node in the thread ends first; the future ends after it."""
    loop = asyncio.get_running_loop()
    entered = asyncio.Event()
    go_on = threading.Event()
    left: list[bool] = []

    def hold(gradient: ag.Tensor) -> None:
        loop.call_soon_threadsafe(entered.set)
        go_on.wait(30)
        left.append(True)

    w = ag.ones(256, 256, requires_grad=True)
    values = [ag.ones(1024, 256) * 1e-3]
    for _ in range(5):
        values.append(ag.tanh(values[-1] @ w))
    values[at + 1].register_hook(hold)
    # The loss is made heavy, so that the pass has left the loop when it meets the hook.
    task = asyncio.ensure_future(outcome_of((values[-1] @ w).sum().backward()))
    await asyncio.sleep(0)
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    error = await task
    assert isinstance(error, asyncio.CancelledError)
    assert left == [True]
    assert w.grad is None
    quiet(loop)
    await serves()


def test_keyboard_interrupt_in_a_node_reaches_the_caller() -> None:
    """Other passes fail, and the next loop has an engine again."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def program() -> None:
        _, loss = graph(3, interrupt)
        await loss.backward()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(program())
    asyncio.run(serves())
