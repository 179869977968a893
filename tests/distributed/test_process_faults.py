"""Processes killed, stopped and woken at each message: all or nothing, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from asyncgrad import distributed as dist

pytest.importorskip("distributed", reason="Dask distributed is not installed")

import psutil
from clusters import cluster, pid_of
from models import Affine, Outer, gradients
from worlds import leaf

from asyncgrad.distributed.dask_engine import DaskEngine, DaskPeers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.distributed import World

# Dask's own, at the end of processes that were killed.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CALLER = -1
#: What a step sends up to the point of no return: the sender, the method, and the receiver.
BEFORE = [
    (CALLER, "forward", 0),
    (CALLER, "forward", 1),
    (1, "hand_over", 0),
    (1, "forward", 0),
    (CALLER, "fetch", 0),
    (CALLER, "backward", 0),
    (CALLER, "backward", 1),
    (1, "backward", 0),
    (1, "deposit", 0),
    (CALLER, "prepare", 0),
    (CALLER, "prepare", 1),
]
AFTER = [(CALLER, "commit", 0), (CALLER, "commit", 1)]


def trap(module: Any, method: str, rank: int, pid: int, number: int) -> None:
    """In the process of a part: signal another when a message is sent to it, once."""
    call = DaskPeers.call

    async def trapped(peers: Any, to: int, message: Any) -> Any:
        if (message.method, to) == (method, rank):
            DaskPeers.call = call
            os.kill(pid, number)
        return await call(peers, to, message)

    DaskPeers.call = trapped


class Model:
    """Two parts on two processes, one of which calls a third, and a leaf of the caller's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.x = leaf()
        self.started: Any = None

    async def make(self) -> Model:
        remote = self.world.remote
        self.inner = await remote(0, Affine, 3.0)
        self.parts = [await remote(0, Affine), await remote(1, Outer, self.inner), self.inner]
        self.pids = [await part.apply(pid_of) for part in self.parts[:2]]
        return self

    async def step(self, deadline: float | None = None) -> None:
        first = self.parts[0](self.x)
        last = await self.parts[1](first)
        loss = last.sum() + (await first).sum()
        del first, last
        self.started = loss.backward(deadline=deadline)
        del loss
        await self.started

    async def signalled(self, at: tuple[int, str, int], number: int) -> None:
        """Have the receiver of one message signalled when it is sent."""
        sender, method, rank = at
        if sender != CALLER:
            await self.parts[sender].apply(trap, method, rank, self.pids[rank], number)
            return
        call = DaskEngine.call

        async def trapped(engine: Any, to: int, message: Any) -> Any:
            if (message.method, to) == (method, rank):
                DaskEngine.call = call  # type: ignore[method-assign]
                os.kill(self.pids[rank], number)
            return await call(engine, to, message)

        DaskEngine.call = trapped  # type: ignore[method-assign]

    async def changed(self) -> set[bool]:
        """Whether the caller and those that live have gradients."""
        found = {self.x.grad is not None}
        for part in self.parts:
            if part.rank not in self.world.lost:
                found |= {grad is not None for grad in await part.apply(gradients)}
        return found

    async def nothing_is_left(self) -> None:
        """Wait until no task, graph or staged gradient is left on those that live."""
        gc.collect()
        async with asyncio.timeout(20):
            while any(
                value
                for kept in await self.world.statistics()
                for key, value in (kept or {}).items()
                if key != "parts"
            ):
                gc.collect()
                await asyncio.sleep(0)

    async def expected(self, steps: int) -> list[Any]:
        """The gradient of the leaf after some steps in one process."""
        y, first, own, inner = leaf(), Affine(), Affine(0.5), Affine(3.0)
        for _ in range(steps):
            middle = first(y)
            await (inner(inner(own(middle))).sum() + middle.sum()).backward()
        return y.grad.tolist()


@contextmanager
def calls_restored() -> Iterator[None]:
    call = DaskEngine.call
    try:
        yield
    finally:
        DaskEngine.call = call  # type: ignore[method-assign]


def names(at: Any) -> str | None:
    return f"{at[1]}-from-{at[0]}-to-{at[2]}" if isinstance(at, tuple) else None


@pytest.mark.parametrize("at", BEFORE + AFTER, ids=names)
def test_a_process_killed_at_each_message_commits_all_or_nothing(at: tuple[int, str, int]) -> None:
    async def main() -> None:
        async with cluster(2, processes=True) as client, dist.connect(client, grace=1.0) as world:
            model = await Model(world).make()
            await model.signalled(at, signal.SIGKILL)
            if at in AFTER:
                await model.step()
            else:
                with pytest.raises(dist.WorkerLostError) as caught:
                    await model.step()
                assert caught.value.rank == at[2]
                caught = None  # type: ignore[assignment]
            assert await model.changed() == {at in AFTER}
            assert list(world.lost) == [at[2]]
            model.started = None
            await model.nothing_is_left()

    with calls_restored():
        asyncio.run(asyncio.wait_for(main(), 60))


def test_a_process_stopped_at_each_message_is_left_by_the_deadline() -> None:
    async def main() -> None:
        async with cluster(2, processes=True) as client, dist.connect(client, grace=1.0) as world:
            model = await Model(world).make()
            loop = asyncio.get_running_loop()
            await model.step()
            for steps, at in enumerate(BEFORE, 1):
                await model.signalled(at, signal.SIGSTOP)
                began = loop.time()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await model.step(deadline=began + 0.2)
                taken = loop.time() - began
                stopped = psutil.Process(model.pids[at[2]]).status()
                os.kill(model.pids[at[2]], signal.SIGCONT)
                assert stopped == psutil.STATUS_STOPPED, at
                # It ends with the deadline, and the grace of those that do not answer.
                assert taken < 3.0, (at, taken)
                model.started = None
                await model.nothing_is_left()
                assert model.x.grad.tolist() == await model.expected(steps), at
                await model.step()
                assert model.x.grad.tolist() == await model.expected(steps + 1), at
            assert not world.lost

    with calls_restored():
        asyncio.run(asyncio.wait_for(main(), 120))


def test_a_process_woken_again_goes_on_where_it_was() -> None:
    async def main() -> None:
        async with cluster(2, processes=True) as client, dist.connect(client, grace=20.0) as world:
            model = await Model(world).make()
            loop = asyncio.get_running_loop()
            for steps, at in enumerate(BEFORE + AFTER, 1):
                await model.signalled(at, signal.SIGSTOP)
                step = asyncio.ensure_future(model.step())
                process = psutil.Process(model.pids[at[2]])
                while process.status() != psutil.STATUS_STOPPED:
                    assert not step.done(), at
                    await asyncio.sleep(0.001)
                loop.call_later(0.05, os.kill, process.pid, signal.SIGCONT)
                await step
                assert model.x.grad.tolist() == await model.expected(steps), at
            model.started = None
            await model.nothing_is_left()
            assert not world.lost

    with calls_restored():
        asyncio.run(asyncio.wait_for(main(), 120))


@pytest.mark.parametrize("at", AFTER, ids=names)
def test_a_process_that_does_not_confirm_a_commit_is_lost_for_good(
    at: tuple[int, str, int],
) -> None:
    async def main() -> None:
        async with cluster(2, processes=True) as client, dist.connect(client, grace=0.3) as world:
            model = await Model(world).make()
            await model.signalled(at, signal.SIGSTOP)
            await model.step()
            os.kill(model.pids[at[2]], signal.SIGCONT)
            assert list(world.lost) == [at[2]]
            assert await model.changed() == {True}
            with pytest.raises(dist.WorkerLostError, match="not confirmed"):
                await model.parts[at[2]](leaf())

    with calls_restored():
        asyncio.run(asyncio.wait_for(main(), 60))
