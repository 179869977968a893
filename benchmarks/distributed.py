"""What passes over workers cost, on a cluster of processes of this machine: ratios, not times.

Run: python -m benchmarks.distributed [--quick] [--only lag] [--json out.json] [--faults 500]
It needs the extras `dask` and `bench`, and a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from distributed import Client, LocalCluster, SubprocessCluster

import asyncgrad as ag
from asyncgrad import distributed as dist
from benchmarks.distributed_faults import counted
from benchmarks.distributed_lag import arrived, lag, ticked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

#: The seconds that a stage of the pipeline waits in its forward, and again in its backward.
STAGE_S = 0.03
STAGES, MICROBATCHES = 3, 8


class Row:
    """One line of the table: what was measured, in terms of what, and what is to be reached."""

    def __init__(self, case: str, value: float, unit: str, reach: float) -> None:
        self.case, self.value, self.unit, self.reach = case, value, unit, reach

    def __str__(self) -> str:
        reached = "yes" if self.value <= self.reach else "no"
        return f"| {self.case} | {self.value:.2f} {self.unit} | {self.reach:g} | {reached} |"


async def seconds(call: Callable[[], Awaitable[Any]], turns: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(turns):
        start = perf_counter()
        await call()
        times.append(perf_counter() - start)
    return median(times)


# -- one small part -----------------------------------------------------------


async def small_part(world: dist.World, quick: bool) -> Row:
    """Forward and backward of a small part, in round trips of the engine."""
    part = await world.remote(0, ag.nn.Linear, 8, 8)
    x = ag.ones(4, 8)

    async def step() -> None:
        await (await part(x)).sum().backward()

    async def nothing() -> None:
        await part.apply(process_id)

    turns = 30 if quick else 300
    await step()
    trip = await seconds(nothing, turns)
    return Row("forward and backward of one small part", await seconds(step, turns) / trip,
               "round trips", 8)  # fmt: skip


def process_id(module: Any) -> int:
    """The process of a part."""
    return os.getpid()


# -- reduction beside the pass ------------------------------------------------


class Layers(ag.nn.Module):
    """Layers whose gradient takes a while to compute on another machine: it waits."""

    def __init__(self, count: int, size: int, wait: float) -> None:
        super().__init__()
        self.layers = ag.nn.ModuleList(ag.nn.Linear(size, size) for _ in range(count))
        self.wait = wait

    def forward(self, x: Any) -> Any:
        """Layer after layer."""
        for layer in self.layers:
            x = ag.tanh(layer(x))
            x.register_hook(self.compute)
        return x

    async def compute(self, gradient: Any) -> None:
        """Wait."""
        await asyncio.sleep(self.wait)


async def reduced(turns: int) -> tuple[float, float, float]:
    """On each rank: a pass without reduction, with it, and the reduction alone: a third of it."""
    module = Layers(8, 550, 0.0)
    model = await dist.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1.3)
    x = ag.ones(4, 550)

    async def plain() -> None:
        with model.no_sync():
            await model(x).sum().backward()
        model.zero_grad()

    async def together() -> None:
        await model(x).sum().backward()
        model.zero_grad()

    async def alone() -> None:
        for parameter in module.parameters():
            await dist.all_reduce(parameter.detach())

    async def taken(call: Callable[[], Awaitable[None]]) -> float:
        await dist.barrier()
        await call()
        return await seconds(call, turns)

    communication = await dist.broadcast(await taken(alone))
    module.wait = 3 * communication / len(module.layers)
    return await taken(plain), await taken(together), communication


async def reduction(world: dist.World, quick: bool) -> Row:
    """A pass with reduction against one without."""
    plain, together, alone = (await world.run(reduced, 3 if quick else 15))[0]
    share = f"communication alone is {alone / plain:.2f} of compute"
    return Row(f"reduction beside the pass ({share})", together / plain, "x no reduction", 1.10)


# -- pipeline -----------------------------------------------------------------


class Stage(ag.nn.Module):
    """Waits in its forward and in its backward."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ag.nn.Parameter(ag.ones(8))

    async def forward(self, x: Any) -> Any:
        """Wait, and scale."""
        await asyncio.sleep(STAGE_S)
        y = x * self.weight

        async def compute(gradient: Any) -> None:
            await asyncio.sleep(STAGE_S)

        y.register_hook(compute)
        return y


def mean_square(y: Any, target: Any) -> Any:
    """The loss of a micro-batch."""
    return ((y - target) ** 2).mean()


async def pipelined(world: dist.World, quick: bool, schedule: str) -> Row:
    """A step against the shortest time that its schedule allows."""
    stages = [await world.remote(rank, Stage) for rank in range(STAGES)]
    pipeline = dist.pipelining.Pipeline(stages, microbatches=MICROBATCHES, schedule=schedule)
    x = ag.ones(32, 8)

    async def step() -> None:
        await pipeline.step(x, x, mean_square)

    await step()
    ideal = (MICROBATCHES + STAGES - 1) * 2 * STAGE_S
    taken = await seconds(step, 2 if quick else 10)
    return Row(f"pipeline, {STAGES} stages, {MICROBATCHES} micro-batches, {schedule}",
               taken / ideal, "x (M + S - 1)(f + b)", 1.25)  # fmt: skip


class Computing(ag.nn.Module):
    """Computes, with as many threads as its worker has."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = ag.nn.ModuleList(ag.nn.Linear(512, 512) for _ in range(12))

    def forward(self, x: Any) -> Any:
        """Layer after layer."""
        for layer in self.layers:
            x = ag.tanh(layer(x))
        return x


async def alone(module: Any) -> float:
    """The time of a micro-batch's forward and backward in a stage's process."""
    x = ag.randn(256, 512, requires_grad=True)

    async def both() -> None:
        with ag.enable_grad():
            y = await ag.offload(module, x)
        await y.backward(ag.ones_like(y))

    taken = await seconds(both, 20)
    module.zero_grad()
    return taken


async def computed(world: dist.World, quick: bool) -> Row:
    """A pipeline of two stages that compute, each with one thread, on two cores."""
    stages = [await world.remote(rank, Computing) for rank in range(2)]
    pipeline = dist.pipelining.Pipeline(stages, microbatches=MICROBATCHES)
    x = ag.randn(256 * MICROBATCHES, 512)

    async def step() -> None:
        await pipeline.step(x, x, mean_square)

    await step()
    both = max([await stage.apply(alone) for stage in stages])
    # Measured again at the same time: both processes share the memory and the scheduler.
    at_once = max(await asyncio.gather(*[stage.apply(alone) for stage in stages]))
    taken = await seconds(step, 2 if quick else 10)
    return Row(f"pipeline that computes, 2 stages, f + b = {both * 1e3:.0f} ms on one thread "
               f"({at_once * 1e3:.0f} ms while the other computes, too)",
               taken / ((MICROBATCHES + 1) * both), "x (M + S - 1)(f + b)", 1.25)  # fmt: skip


# -- the caller's loop, and the workers' memory -------------------------------


async def lagging(
    world: dist.World, quick: bool, late: Callable[[Callable[[], Any]], Awaitable[float]]
) -> Row:
    """How late something on the caller's loop is beside remote passes, and beside nothing."""
    case, found = await lag(world, quick, late)
    return Row(case, found * 1e3, "ms", 1.0)


def resident(module: Any) -> int:
    """The memory of a part's process."""
    return psutil.Process().memory_info().rss


async def forwards(world: dist.World, quick: bool) -> Row:
    """How much a worker grows by forwards without a backward."""
    part = await world.remote(0, ag.nn.Linear, 64, 64)
    x = ag.ones(64, 64)
    count = 500 if quick else 10_000
    for _ in range(count // 2):
        await part(x)
    before = await part.apply(resident)
    for _ in range(count):
        await part(x)
    grown = (await part.apply(resident) - before) / count
    return Row(f"growth of a worker by each of {count:,} forwards", grown, "bytes", 100)


@asynccontextmanager
async def cluster(workers: int) -> AsyncIterator[Client]:
    """Some worker processes of one thread each."""
    async with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, asynchronous=True,
            silence_logs=50,
        ) as local,
        Client(local, asynchronous=True) as client,
    ):  # fmt: skip
        yield client


@asynccontextmanager
async def apart(workers: int) -> AsyncIterator[Client]:
    """The same without Dask's scheduler on the caller's loop, as where there are machines."""
    async with (
        SubprocessCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, asynchronous=True,
            silence_logs=50, worker_class="distributed.Worker",
        ) as local,
        Client(local.scheduler_address, asynchronous=True) as client,
    ):  # fmt: skip
        await client.wait_for_workers(workers)
        yield client


class Case(NamedTuple):
    """What is measured, on how many workers, on which cluster, and how the loop waits."""

    measure: Callable[..., Awaitable[Row]]
    workers: int
    cluster: Callable[[int], AbstractAsyncContextManager[Client]] = cluster
    selector: Callable[[], selectors.BaseSelector] = selectors.DefaultSelector


CASES = {
    "part": Case(small_part, 3),
    "1f1b": Case(partial(pipelined, schedule="1f1b"), 3),
    "gpipe": Case(partial(pipelined, schedule="gpipe"), 3),
    "computing": Case(computed, 2),
    "lag": Case(partial(lagging, late=ticked), 1, apart),
    "lag2": Case(partial(lagging, late=ticked), 2, apart),
    # This selector waits exactly as long as asked; the usual one waits whole milliseconds.
    "lag-select": Case(partial(lagging, late=ticked), 1, apart, selectors.SelectSelector),
    "lag2-select": Case(partial(lagging, late=ticked), 2, apart, selectors.SelectSelector),
    "lag-local": Case(partial(lagging, late=ticked), 2),
    "arrival": Case(partial(lagging, late=arrived), 1, apart),
    "arrival2": Case(partial(lagging, late=arrived), 2, apart),
    "memory": Case(forwards, 3),
    "reduction": Case(reduction, 2),
}


def measured(name: str, quick: bool) -> Row:
    """A row, on a loop and processes of its own."""
    case = CASES[name]

    async def measure() -> Row:
        async with case.cluster(case.workers) as client, dist.connect(client) as world:
            return await case.measure(world, quick=quick)

    def loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(case.selector())

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(measure())


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="does it work? not to be quoted")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES], help="these cases")
    parser.add_argument("--faults", type=int, metavar="N", help="count half-committed passes of N")
    parser.add_argument("--control", action="store_true", help="count them without join")
    arguments = parser.parse_args()
    if arguments.faults is not None:
        asyncio.run(counted(cluster, arguments.faults, arguments.control))
        return
    rows = [measured(name, arguments.quick) for name in arguments.only]
    print("| case | measured | to reach | reached |\n| --- | --- | --- | --- |")
    for row in rows:
        print(row)
    load = os.getloadavg()[0]
    print(f"\n{os.cpu_count()} cores, load {load:.1f} at the end")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([vars(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
