"""What holds of processes that are killed, stopped and woken at each message of a step.

The processes may be those of any engine: its class and that of its peers are given.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from models import Affine, Outer, gradients, pid_of
from worlds import leaf

import asyncgrad as ag
from asyncgrad import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.distributed import World

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


def names(at: Any) -> str | None:
    """The name of a test about a message."""
    return f"{at[1]}-from-{at[0]}-to-{at[2]}" if isinstance(at, tuple) else None


def trap(kind: Any, method: str, rank: int, pid: int, number: int) -> None:
    """Signal a process when objects of a class send a message to it, once."""
    call = kind.call

    async def trapped(peers: Any, to: int, message: Any) -> Any:
        if (message.method, to) == (method, rank):
            kind.call = call
            os.kill(pid, number)
        return await call(peers, to, message)

    kind.call = trapped


def trap_of_part(module: Any, *args: Any) -> None:
    """The same in the process of a part."""
    trap(*args)


class Model:
    """Two parts on two processes, one of which calls a third, and a leaf of the caller's."""

    def __init__(self, world: World, engine: Any, peers: Any) -> None:
        self.world, self.engine, self.peers = world, engine, peers
        self.x = leaf()
        self.started: Any = None

    async def make(self) -> Model:
        remote = self.world.remote
        self.inner = await remote(0, Affine, 3.0)
        self.parts = [await remote(0, Affine), await remote(1, Outer, self.inner), self.inner]
        self.pids = [await part.apply(pid_of) for part in self.parts[:2]]
        # What is imported and compiled on first use takes long on a busy machine.
        await self.step()
        self.x.grad = self.started = None
        for part in self.parts:
            await part.apply(ag.nn.Module.zero_grad)
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
        given = method, rank, self.pids[rank], number
        if sender == CALLER:
            trap(self.engine, *given)
        else:
            await self.parts[sender].apply(trap_of_part, self.peers, *given)

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


async def killed(model: Model, at: tuple[int, str, int]) -> None:
    """Before the point of no return nothing is committed; after it all who live commit."""
    await model.make()
    await model.signalled(at, signal.SIGKILL)
    if at in AFTER:
        await model.step()
    else:
        with pytest.raises(dist.WorkerLostError) as caught:
            await model.step()
        assert caught.value.rank == at[2]
        # It would hold the graph.
        caught = None  # type: ignore[assignment]
    assert await model.changed() == {at in AFTER}
    assert list(model.world.lost) == [at[2]]
    model.started = None
    await model.nothing_is_left()


async def left_by_the_deadline(model: Model) -> None:
    """A stopped process is not waited for, and has nothing left of the pass when it wakes."""
    await model.make()
    loop, site = asyncio.get_running_loop(), model.world._site
    await model.step()
    limit, grace = 0.2, site.grace
    for steps, at in enumerate(BEFORE, 1):
        await model.signalled(at, signal.SIGSTOP)
        process = psutil.Process(model.pids[at[2]])
        # It is waited for so long, and no longer. Who lives has more time to confirm a commit.
        site.grace = 0.1
        while process.status() != psutil.STATUS_STOPPED:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(limit):
                    await model.step(deadline=loop.time() + limit)
            # On a busy machine the time may be over before the message is sent.
            limit *= 2
        limit /= 2
        site.grace = grace
        process.resume()
        model.started = None
        await model.nothing_is_left()
        assert model.x.grad.tolist() == await model.expected(steps), at
        await model.step()
        assert model.x.grad.tolist() == await model.expected(steps + 1), at
    assert not model.world.lost


async def woken(model: Model) -> None:
    """A process that wakes within the grace goes on where it was."""
    await model.make()
    loop = asyncio.get_running_loop()
    for steps, at in enumerate(BEFORE + AFTER, 1):
        await model.signalled(at, signal.SIGSTOP)
        step = asyncio.ensure_future(model.step())
        process = psutil.Process(model.pids[at[2]])
        while process.status() != psutil.STATUS_STOPPED:
            assert not step.done(), at
            await asyncio.sleep(0.001)
        loop.call_later(0.05, process.resume)
        await step
        assert model.x.grad.tolist() == await model.expected(steps), at
    model.started = None
    await model.nothing_is_left()
    assert not model.world.lost


async def not_confirmed(model: Model, at: tuple[int, str, int]) -> None:
    """One that does not confirm a commit in time is lost for good; the pass has succeeded."""
    await model.make()
    # The other one, which lives, confirms it in this time.
    model.world._site.grace = 1.0
    await model.signalled(at, signal.SIGSTOP)
    await model.step()
    psutil.Process(model.pids[at[2]]).resume()
    assert list(model.world.lost) == [at[2]]
    assert await model.changed() == {True}
    with pytest.raises(dist.WorkerLostError, match="not confirmed"):
        await model.parts[at[2]](leaf())


async def silent(model: Model, at: tuple[int, str, int]) -> None:
    """A stopped process gives no sign of life, and is lost for all."""
    await model.make()
    # Not before: a process imports the package when it starts, in the time that it has for signs.
    site = model.world._site
    site.timeout, site.grace = 4.0, 0.1
    site.spawn(site.watch(at[2]))
    await model.signalled(at, signal.SIGSTOP)
    # A worker that waits for the silent one does not answer in this time, either.
    words = f"worker ({at[0]}|{at[2]}) .* 4 s"
    with pytest.raises((TimeoutError, dist.WorkerLostError), match=words):
        await model.step()
    while not model.world.lost:  # noqa: ASYNC110  nobody announces it
        await asyncio.sleep(0)
    psutil.Process(model.pids[at[2]]).resume()
    assert list(model.world.lost) == [at[2]]
    assert await model.changed() == {False}


#: The module of the last run of `trained` in this process.
_module: Any = None
#: Rank 0's messages of a data parallel pass: the method, and how many come before it.
OF_RANK_0 = [("mail", 0), ("mail", 3), ("succeeds", 0), ("succeeds", 1)]


async def trained(peers: Any, method: str, number: int) -> None:
    """A data parallel pass, on whose way rank 0 is killed by one of its own messages."""
    global _module
    model = await dist.nn.parallel.DistributedDataParallel(Affine(), bucket_cap_mb=1e-6)
    _module = model.module
    if dist.get_rank() == 0:
        call, sent = peers.call, list[asyncio.Task[Any]]()

        async def trapped(own: Any, to: int, message: Any) -> Any:
            if message.method != method:
                return await call(own, to, message)
            if len(sent) == number:
                # Those before it have arrived.
                await asyncio.gather(*sent)
                os.kill(os.getpid(), signal.SIGKILL)
            sent.append(asyncio.ensure_future(call(own, to, message)))
            return await sent[-1]

        peers.call = trapped
    await model(leaf()).sum().backward()


def gradients_of_run(part: Any) -> list[Any]:
    """The gradients of the module of the last run in the process of a part."""
    return gradients(_module)


async def rank_0_killed(model: Model, method: str, number: int) -> None:
    """The others ask one another whether it has decided, so that all commit, or none does."""
    parts = [await model.world.remote(rank, Affine) for rank in (1, 2)]
    with pytest.raises(dist.WorkerLostError) as caught:
        await model.world.run(trained, model.peers, method, number)
    assert (caught.value.rank, list(model.world.lost)) == (0, [0])
    first, second = [await part.apply(gradients_of_run) for part in parts]
    assert first == second
    assert (first != [None, None]) == ((method, number) == ("succeeds", 1))


class AtEachMessage:
    """The tests of all this, for an engine."""

    #: How long a worker that lives has to confirm a commit, on a busy machine.
    grace = 20.0

    def run(self, what: Callable[..., Any], *args: Any, workers: int = 2) -> None:
        """Await `what(model, *args)` in a world of some processes."""
        raise NotImplementedError

    @pytest.mark.parametrize("at", OF_RANK_0, ids=lambda at: f"{at[0]}-{at[1]}")
    def test_a_pass_whose_rank_0_is_killed_is_committed_by_all_or_none(
        self, at: tuple[str, int]
    ) -> None:
        self.run(rank_0_killed, *at, workers=3)

    @pytest.mark.parametrize("at", BEFORE + AFTER, ids=names)
    def test_a_process_killed_commits_all_or_nothing(self, at: tuple[int, str, int]) -> None:
        self.run(killed, at)

    def test_a_process_stopped_is_left_by_the_deadline(self) -> None:
        self.run(left_by_the_deadline)

    def test_a_process_woken_again_goes_on_where_it_was(self) -> None:
        self.run(woken)

    @pytest.mark.parametrize("at", AFTER, ids=names)
    def test_a_process_that_does_not_confirm_a_commit_is_lost(
        self, at: tuple[int, str, int]
    ) -> None:
        self.run(not_confirmed, at)

    @pytest.mark.parametrize("at", [BEFORE[0], BEFORE[2], BEFORE[-1]], ids=names)
    def test_a_process_that_gives_no_sign_of_life_is_lost(self, at: tuple[int, str, int]) -> None:
        self.run(silent, at)
