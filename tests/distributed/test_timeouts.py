"""No wait for another process is without a limit: the world's timeout, or one of asyncio's.

The clock goes on where nothing else can. So no test waits, and none needs to run in time.
"""

from __future__ import annotations

import asyncio
import gc
import re
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from deterministic import Engine, world_of
from models import Affine, Held

import asyncgrad as ag
from asyncgrad import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncgrad.distributed import World

LIMIT, GRACE = 0.1, 0.05


def leaf(rows: int = 3) -> ag.Tensor:
    return ag.ones(rows, 3, dtype=ag.float64, requires_grad=True)


# -- collectives --------------------------------------------------------------


async def consolidated() -> None:
    model = ag.nn.Linear(2, 1)
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ag.optim.SGD, lr=0.1)
    await optimizer.consolidate_state_dict()


async def replicated_pass() -> None:
    model = await dist.nn.parallel.DistributedDataParallel(Affine())
    if dist.get_rank() != 1:
        await model(leaf()).sum().backward()


COLLECTIVES: dict[str, Callable[[], Awaitable[Any]]] = {
    "all_reduce": lambda: dist.all_reduce(ag.ones(3)),
    "all_reduce large": lambda: dist.all_reduce(ag.ones(40_000)),
    "all_gather": lambda: dist.all_gather(1),
    "broadcast": lambda: dist.broadcast(1),
    "barrier": dist.barrier,
    "consolidate": consolidated,
    "pass": replicated_pass,
}


async def one_is_missing(name: str) -> None:
    if dist.get_rank() == 1:
        if name == "pass":
            await COLLECTIVES[name]()
        await asyncio.Event().wait()
    await COLLECTIVES[name]()


async def nothing_is_left(engine: Engine, keeps: tuple[str, ...] = ("parts",)) -> None:
    """Wait until living hosts have no tasks, calls, passes, runs and mail."""
    async with asyncio.timeout(20):
        while True:
            gc.collect()
            hosts = [h for rank, h in enumerate(engine.hosts) if rank not in engine.dead]
            kept = [(await host.on_statistics()).items() for host in hosts]
            if not any(v for items in kept for k, v in items if k not in keeps):
                return
            await asyncio.sleep(0)


async def missing_rank(name: str) -> None:
    engine = Engine(3)
    async with world_of(engine, GRACE, LIMIT) as world:
        with pytest.raises(TimeoutError, match=r"ranks \[1\] .* within 0\.1 s"):
            await world.run(one_is_missing, name)
        await nothing_is_left(engine)
        assert not world.lost
        assert await world.run(rank_of) == [0, 1, 2]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_names_the_rank_that_never_calls_it(run: Any, name: str) -> None:
    run(missing_rank(name))


async def rank_of() -> int:
    return dist.get_rank()


async def catches_its_timeout() -> None:
    if dist.get_rank() == 1:
        await asyncio.Event().wait()
    with suppress(TimeoutError):
        await dist.barrier()


async def caught_timeout() -> None:
    engine = Engine(2)
    async with world_of(engine, GRACE, LIMIT) as world:
        with pytest.raises(RuntimeError, match="given up barrier"):
            await world.run(catches_its_timeout)
        await nothing_is_left(engine)


def test_a_run_ends_where_a_rank_returns_after_the_timeout_of_a_collective(run: Any) -> None:
    run(caught_timeout())


async def stopped_rank(name: str, at: str) -> None:
    engine = Engine(3)

    def stop(rank: int, message: Any) -> None:
        if message.method == ("mail" if at == "amid" else "run") and 1 not in engine.stopped:
            engine.stop(1)

    engine.on_message = stop
    async with world_of(engine, GRACE, LIMIT) as world:
        with pytest.raises(
            (TimeoutError, dist.WorkerLostError), match=r"(worker|ranks) \[?1\]? .*0\.1 s"
        ):
            await world.run(take_part, name)
        while not world.lost:  # noqa: ASYNC110  nobody announces it
            await asyncio.sleep(GRACE)
        assert list(world.lost) == [1]
        engine.wake(1)
        # It is told nothing any more, and its world ends with the caller's.
        engine.dead.add(1)
        await nothing_is_left(engine)


@pytest.mark.parametrize("name", ["all_reduce", "barrier", "consolidate", "pass"])
@pytest.mark.parametrize("at", ["before", "amid"])
def test_a_stopped_rank_is_lost_for_all_and_leaves_nothing_when_it_wakes(
    run: Any, name: str, at: str
) -> None:
    run(stopped_rank(name, at))


async def take_part(name: str) -> None:
    await COLLECTIVES[name]()


# -- the caller ---------------------------------------------------------------


async def step_of_pipeline(world: World, parts: list[Any]) -> None:
    pipeline = dist.pipelining.Pipeline(parts, microbatches=2)
    await pipeline.step(leaf().detach(), leaf().detach(), ag.nn.functional.mse_loss)


async def backward(world: World, parts: list[Any]) -> None:
    await (await parts[1](parts[0](leaf()))).sum().backward()


async def apply_held(world: World, parts: list[Any]) -> None:
    await (await world.remote(1, Held)).apply(Held.wait, None)


async def step_of_copies(world: World, parts: list[Any]) -> None:
    model = await world.replicate(Affine)
    await model.forward_backward(sum_of, [(leaf().detach(),)] * world.size)


def sum_of(model: Any, x: Any) -> Any:
    return model(x).sum()


async def step_of_optimizer(world: World, parts: list[Any]) -> None:
    optimizer = await world.optimizer(ag.optim.SGD, parts, lr=0.1)
    await optimizer.step_async()


async def committed_context(world: World, parts: list[Any]) -> None:
    async with dist.autograd.context():
        await backward(world, parts)


USES: dict[str, tuple[Callable[[World, list[Any]], Awaitable[Any]], list[str]]] = {
    "remote": (lambda world, parts: world.remote(1, Affine), ["remote"]),
    "apply": (lambda world, parts: parts[1].apply(Affine.train), ["apply"]),
    "backward": (backward, ["hand_over", "forward", "backward", "prepare"]),
    "context": (committed_context, ["prepare"]),
    "optimizer": (step_of_optimizer, ["optimizer", "optimize"]),
    "pipeline": (step_of_pipeline, ["forward", "deposit", "prepare"]),
    "replicate": (step_of_copies, ["replicate", "forward_backward", "mail", "prepare"]),
    "run": (lambda world, parts: world.run(take_part, "barrier"), ["run", "mail"]),
}
EACH = [(use, method) for use, (_, methods) in USES.items() for method in methods]


async def stopped_amid(use: str, method: str, limit: float) -> Any:
    """Stop worker 1 at a message in some use of it; the error, and the world's lost workers.

    With an endless limit that of an `asyncio.timeout` comes with the message.
    """
    engine = Engine(2)
    loop = asyncio.get_running_loop()
    async with world_of(engine, GRACE, limit) as world:
        parts = [await world.remote(rank, Affine) for rank in range(2)]
        own = asyncio.timeout(None)

        def stop(rank: int, message: Any) -> None:
            sent = message.method == method
            if sent and 1 in {rank, message.sender} and 1 not in engine.stopped:
                engine.stop(1)
                own.reschedule(loop.time() if limit == inf else None)

        engine.on_message = stop
        error = None, ""
        try:
            async with own:
                await USES[use][0](world, parts)
        except Exception as caught:
            # Its traceback would hold what it was raised in.
            error = type(caught), str(caught)
        assert engine.stopped, "no such message"
        engine.on_message = lambda rank, message: None
        engine.wake(1)
        engine.dead |= world.lost.keys()
        await nothing_is_left(engine)
        if not world.lost:
            await backward(world, parts)
    return error, world.lost


@pytest.mark.parametrize(("use", "method"), EACH)
def test_each_use_of_a_stopped_worker_ends_with_the_timeout_of_the_world(
    run: Any, use: str, method: str
) -> None:
    error, lost = run(stopped_amid(use, method, LIMIT))
    assert error[0] in {TimeoutError, dist.WorkerLostError}, error
    assert re.search(r"(worker|ranks) \[?1\]? .*0\.1 s", error[1]), error
    assert list(lost) in ([], [1])


@pytest.mark.parametrize(("use", "method"), EACH)
def test_each_use_of_a_stopped_worker_ends_with_the_timeout_of_its_caller(
    run: Any, use: str, method: str
) -> None:
    error, lost = run(stopped_amid(use, method, inf))
    assert error[0] is TimeoutError, error
    assert not lost


async def silent_worker() -> None:
    engine = Engine(2)
    async with world_of(engine, GRACE, LIMIT) as world:
        part = await world.remote(1, Held)
        with pytest.raises(TimeoutError, match=r"worker 1 has not answered to apply within 0\.1 s"):
            await part.apply(Held.wait, None)
        await nothing_is_left(engine)
        assert engine.part(part).ended == 1
        assert not world.lost


def test_a_worker_that_lives_but_does_not_answer_is_named_and_not_lost(run: Any) -> None:
    run(silent_worker())


async def long_run() -> None:
    async with world_of(Engine(2), GRACE, LIMIT) as world:
        assert await world.run(sleeps, 2.5 * LIMIT) == [0, 1]


async def sleeps(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return dist.get_rank()


def test_a_run_may_take_longer_than_the_timeout(run: Any) -> None:
    run(long_run())


@pytest.mark.asyncio
async def test_the_caller_learns_at_once_of_a_loss_that_only_a_worker_has_noticed() -> None:
    engine = Engine(3)
    async with world_of(engine) as world:
        engine.site(0).fence(1, "planned")
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.lost == {1: "planned"}
        assert engine.site(2).lost == {1: "planned"}
        # Of a second loss, too, while the first is known.
        engine.site(0).fence(2, "planned, too")
        for _ in range(20):
            await asyncio.sleep(0)
        assert sorted(world.lost) == [1, 2]


@pytest.mark.asyncio
@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
async def test_a_timeout_is_positive(limit: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        async with dist.connect(Engine(1), timeout=limit):
            pass
    async with dist.connect(Engine(1), timeout=None) as world:
        assert await world.run(rank_of) == [0]
