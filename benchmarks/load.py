"""Many passes at once, unequal passes, and passes beside other work."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

import asyncgrad as ag
from asyncgrad.scheduler.host import SLICE_NS
from benchmarks.figures import Spread, percentile
from benchmarks.graphs import Chain, Layers
from benchmarks.harness import (
    NotThereError,
    check_equal,
    event_loop,
    idle,
    interleave,
    watched,
    with_torch_threads,
)
from benchmarks.report import Row, compared, lags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness import Setting

#: The time slice of a pass in ms, for which an urgent pass may have to wait.
SLICE = SLICE_NS / 1e6

#: How many tasks are started in a turn of the loop.
GROUP = 50

#: How many passes each of a thousand tasks computes, one after another.
ROUNDS = 5

#: The longest time that the loop is kept busy, in seconds; a pass that lasts longer counts as that
#: long. The turns release the interpreter's lock so briefly that a thread can wait minutes for it.
BUSY = 4.0


def measure_many(setting: Setting) -> Iterator[Row]:
    """1,000 concurrent small passes, forward and backward.

    In three ways: from tasks that are all made at once; from tasks that come in several turns, as
    requests do; and from tasks that are made at once and compute several passes each, so that there
    are a thousand until the first task ends. Making a thousand tasks holds the loop for longer than
    is allowed, whatever they do (the side of "empty tasks"); in the third way that is one tick of
    many, in the first one of few.
    """
    count = 100 if setting.quick else 1000
    ours = Layers.of(ag, batch=8, width=64, depth=4)
    theirs = Layers.of(torch, batch=8, width=64, depth=4)

    async def of_asyncgrad() -> Any:
        await ag.cooperate()
        return await ag.grad(ours.loss(), ours.weights)

    async def of_thread() -> Any:
        return await asyncio.to_thread(torch.autograd.grad, theirs.loss(), theirs.weights)

    async def all_in_thread() -> Any:
        return await asyncio.to_thread(of_torch)

    def of_torch() -> Any:
        return torch.autograd.grad(theirs.loss(), theirs.weights)

    async def one_after_another() -> list[float]:
        start = time.perf_counter()
        latencies = []
        for _ in range(count):
            of_torch()
            latencies.append(time.perf_counter() - start)
        return latencies

    async def concurrently(one: Callable[[], Any], group: int, rounds: int) -> list[float]:
        start = time.perf_counter()
        latencies = []

        async def timed() -> None:
            begun = start
            for _ in range(rounds):
                await one()
                ended = time.perf_counter()
                latencies.append(ended - begun)
                begun = ended

        async with asyncio.TaskGroup() as together:
            for place in range(count):
                if place and place % group == 0:
                    await asyncio.sleep(0)
                together.create_task(timed())
        return latencies

    ways = {
        "asyncgrad": of_asyncgrad,
        "to_thread": of_thread,
        "to_thread, forward too": all_in_thread,
        "empty tasks": partial(asyncio.sleep, 0),
    }
    starts = {
        "at once": (count, 1),
        f"{GROUP} a turn": (GROUP, 1),
        f"at once, {ROUNDS} times": (count, ROUNDS),
    }
    with event_loop(setting.loop) as run:
        check_equal(
            "many",
            [gradient.numpy() for gradient in run(of_asyncgrad)],
            [gradient.numpy() for gradient in of_torch()],
        )
        works: dict[str, Callable[[], Any]] = {
            f"{name} {figure}": partial(concurrently, way, *start)
            for figure, start in starts.items()
            for name, way in ways.items()
        }
        works["inline"] = one_after_another
        sides: dict[str, Callable[[], Any]] = {
            name: with_torch_threads(1, lambda work=work: run(lambda: watched(work)))
            for name, work in works.items()
        }
        sides["idle"] = lambda: run(lambda: idle(0.2))
        samples = interleave(sides, setting.repetitions(16))
    idling, inline = samples["idle"], samples["inline"]
    for figure in starts:
        seen = {name: samples[f"{name} {figure}"] for name in ways} | {"inline": inline}
        passes = f"{count:,} small passes {figure}"
        throughput = {
            name: [len(one.result) / one.seconds for one in each] for name, each in seen.items()
        }
        latency = {
            name: [percentile(sorted(one.result), 99) for one in each]
            for name, each in seen.items()
        }
        for to, to_reach in (("to_thread", 3.5), ("to_thread, forward too", None), ("inline", 1.0)):
            yield compared(
                "many",
                f"{passes}: throughput",
                throughput,
                ours="asyncgrad",
                to=to,
                unit="passes/s",
                scale=1.0,
                to_reach=to_reach,
                at_least=True,
            )
        for to, to_reach in (("to_thread", 0.35), ("to_thread, forward too", None)):
            yield compared(
                "many",
                f"{passes}: p99 latency",
                latency,
                ours="asyncgrad",
                to=to,
                to_reach=to_reach,
            )
        yield from lags(
            "many",
            passes,
            {name: [one.lag for one in each] for name, each in seen.items()} | {"idle": idling},
            ours="asyncgrad",
            p99=2.0,
        )


def measure_pair(setting: Setting) -> Iterator[Row]:
    """Two long passes at once, against one after the other."""
    pairs = {
        lib: [Layers.of(lib, batch=256, width=512, depth=60, seed=seed) for seed in (0, 1)]
        for lib in (ag, torch)
    }

    def losses(lib: Any) -> list:
        for layers in pairs[lib]:
            layers.forget()
        return [layers.loss() for layers in pairs[lib]]

    async def together() -> float:
        first, second = losses(ag)
        start = time.perf_counter()
        await asyncio.gather(first.backward(), second.backward())
        return time.perf_counter() - start

    async def in_turn() -> float:
        first, second = losses(ag)
        start = time.perf_counter()
        await first.backward()
        await second.backward()
        return time.perf_counter() - start

    async def threads_together() -> float:
        both = losses(torch)
        start = time.perf_counter()
        await asyncio.gather(*(asyncio.to_thread(loss.backward) for loss in both))
        return time.perf_counter() - start

    async def threads_in_turn() -> float:
        both = losses(torch)
        start = time.perf_counter()
        for loss in both:
            await asyncio.to_thread(loss.backward)
        return time.perf_counter() - start

    with event_loop(setting.loop) as run:
        samples = interleave(
            {
                "together": lambda: run(together),
                "one after the other": lambda: run(in_turn),
                "to_thread together": with_torch_threads(1, lambda: run(threads_together)),
                "to_thread in turn": with_torch_threads(1, lambda: run(threads_in_turn)),
            },
            setting.repetitions(12),
        )
    yield compared(
        "pair",
        "two long passes at once",
        samples,
        ours="together",
        to="one after the other",
        # Together they are hardly faster, because a pass alone uses both cores, too.
        to_reach=1.05,
    )
    yield compared(
        "pair",
        "two long passes at once",
        samples,
        ours="together",
        to="to_thread together",
        to_reach=1.1,
    )


def measure_urgent(setting: Setting) -> Iterator[Row]:
    """One urgent pass among 100 long ones: how much longer it takes than alone."""
    chain = Chain.of(ag)
    _need_priorities(chain, setting)

    async def alone() -> float:
        loss = chain.loss(chain.leaf(), 1000)
        start = time.perf_counter()
        await loss.backward(priority=10)
        return time.perf_counter() - start

    async def among(others: list) -> float:
        loss = chain.loss(chain.leaf(), 1000)
        passes = [other.backward() for other in others]
        await asyncio.sleep(0.005)
        start = time.perf_counter()
        await loss.backward(priority=10)
        seconds = time.perf_counter() - start
        if sum(one.done() for one in passes) > len(passes) // 2:
            raise AssertionError("urgent: the long passes were too short to overtake.")
        await asyncio.gather(*passes)
        return seconds

    async def among_chains() -> float:
        return await among([chain.loss(chain.leaf(), 4000) for _ in range(100)])

    async def among_layers() -> float:
        return await among([layers.loss() for layers in heavy])

    heavy = [Layers.of(ag, batch=128, width=128, depth=10, seed=seed) for seed in range(100)]
    with event_loop(setting.loop) as run:
        samples = interleave(
            {
                "alone": lambda: run(alone),
                "chains": lambda: run(among_chains),
                "layers": lambda: run(among_layers),
            },
            setting.repetitions(16),
        )
    quiet = sorted(samples["alone"])[len(samples["alone"]) // 2]
    for name, figure, to_reach in (
        ("chains", "100 chains of 4,000 nodes", SLICE),
        ("layers", "100 times ten layers, 128x128", None),
    ):
        wait = {"asyncgrad": [seconds - quiet for seconds in samples[name]]}
        yield Row(
            "urgent",
            f"1,000 nodes among {figure}: beyond its own time",
            "ms",
            Spread.of(wait["asyncgrad"]).scaled(1e3),
            {"alone": Spread.of(samples["alone"]).scaled(1e3)},
            to_reach=to_reach,
        )


def measure_fair(setting: Setting) -> Iterator[Row]:
    """100 equal passes started together: how far apart any two get until the first ends."""
    chain = Chain.of(ag)
    count, pieces = 100, 100

    async def spread(piece: int) -> float:
        turns = [0] * count
        widest = 0
        ended = False

        def hook_of(index: int) -> Callable[[Any], None]:
            def turn(_gradient: Any) -> None:
                nonlocal widest, ended
                turns[index] += 1
                ended = ended or turns[index] == pieces
                if not ended:
                    widest = max(widest, max(turns) - min(turns))

            return turn

        losses = []
        for index in range(count):
            x, hook = chain.leaf(), hook_of(index)
            for _ in range(pieces):
                x = chain.forward(x, piece)
                x.register_hook(hook)
            losses.append(x.sum())
        await asyncio.gather(*(loss.backward() for loss in losses))
        return widest / pieces

    for loop in setting.loops():
        with event_loop(loop) as run:
            sides = {piece: (lambda piece=piece: run(lambda: spread(piece))) for piece in (10, 20)}
            samples = interleave(sides, setting.repetitions(12))
        for piece, widest in samples.items():
            yield Row(
                "fair",
                f"{count} chains of {pieces * piece:,} nodes, {loop}: most that one was ahead of "
                f"another",
                "% of a pass",
                Spread.of(widest).scaled(100),
                to_reach=10.0,
            )


def measure_stranger(setting: Setting) -> Iterator[Row]:
    """A long pass while the loop is busy and another process holds a core."""
    ours = Layers.of(ag, batch=256, width=512, depth=60)
    theirs = Layers.of(torch, batch=256, width=512, depth=60)

    async def quiet() -> float:
        ours.forget()
        loss = ours.loss()
        start = time.perf_counter()
        await loss.backward()
        return time.perf_counter() - start

    async def quiet_thread() -> float:
        theirs.forget()
        loss = theirs.loss()
        start = time.perf_counter()
        await asyncio.to_thread(loss.backward)
        return time.perf_counter() - start

    async def beside_others(work: Callable[[], Any]) -> float:
        with _stranger():
            busy = asyncio.create_task(_busy(BUSY))
            await asyncio.sleep(0.05)
            try:
                return await work()
            finally:
                busy.cancel()
                await asyncio.wait([busy])

    with event_loop(setting.loop) as run:
        samples = interleave(
            {
                "quiet": lambda: run(quiet),
                "beside others": lambda: run(lambda: beside_others(quiet)),
                "to_thread quiet": with_torch_threads(1, lambda: run(quiet_thread)),
                "to_thread": with_torch_threads(
                    1, lambda: run(lambda: beside_others(quiet_thread))
                ),
            },
            setting.repetitions(8),
        )
    figure = "60 layers, loop busy, a stranger on one core"
    # On a quiet machine a pass has two cores; beside the stranger it has one, which it shares with
    # the loop.
    yield compared("stranger", figure, samples, ours="beside others", to="quiet", to_reach=4.0)
    yield compared("stranger", figure, samples, ours="beside others", to="to_thread", to_reach=1.0)


async def _busy(seconds: float) -> None:
    """Keep the event loop busy: half a millisecond of Python in each of its turns."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


@contextmanager
def _stranger() -> Iterator[None]:
    """Another process that computes on one core (always the same, where it can be bound)."""
    script = "import time\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
            yield
        finally:
            process.kill()


def _need_priorities(chain: Chain, setting: Setting) -> None:
    """Raise if this asyncgrad knows no priorities."""

    async def probe() -> None:
        await chain.loss(chain.leaf(), 4).backward(priority=1)

    with event_loop(setting.loop) as run:
        try:
            run(probe)
        except TypeError as error:
            raise NotThereError("backward takes no priority yet") from error
