"""Passes over two worker processes, each with a fault at a random time: how many commit a half?

Half of them go through parts, half are `forward_backward` of a model with copies.
Run: python -m benchmarks.distributed --faults 500 [--control]
The control is the same, with parts only, without `autograd.graph.join`: the workers' commits are
awaited in a callback at the end of the pass, so that a cancellation may come between the first and
the last.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

import asyncgrad as ag
from asyncgrad import distributed as dist
from asyncgrad.autograd import graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    Cluster = Callable[[int], AbstractAsyncContextManager[Any]]

#: After so many faults a worker is killed and a new cluster is made.
LIFE = 50
HALF = "half-committed"


class Refuses(ag.nn.Module):
    """A layer whose gradient fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = ag.nn.Linear(8, 8)
        self.refuses = False

    def forward(self, x: Any) -> Any:
        """The layer, with a hook."""
        y = self.layer(x)
        y.register_hook(self.check)
        return y

    def check(self, gradient: Any) -> None:
        """Fail, perhaps."""
        if self.refuses:
            raise ArithmeticError("planned")


def refuse(module: Any, refuses: bool) -> None:
    """Let a part fail, or not."""
    getattr(module, "module", module).refuses = refuses


def taken(module: Any) -> bool:
    """Whether a module has gradients, which are dropped."""
    has = any(p.grad is not None for p in module.parameters())
    for p in module.parameters():
        p.grad = None
    return has


def process(module: Any) -> int:
    """The process of a part."""
    return os.getpid()


@contextmanager
def without_join() -> Iterator[None]:
    """Let participants take part in a pass as a callback at its end."""
    join = graph.join

    def call_back(participant: Any) -> None:
        async def decide() -> None:
            await participant.prepare({})
            await participant.commit()

        graph.queue_callback(decide)

    graph.join = call_back  # type: ignore[assignment]
    try:
        yield
    finally:
        graph.join = join


class Parts:
    """A part on each worker, one after the other."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.x = ag.ones(4, 8, requires_grad=True)

    @classmethod
    async def make(cls, world: dist.World) -> Parts:
        """Make the parts."""
        return cls([await world.remote(rank, Refuses) for rank in range(2)])

    async def start(self, left: float | None) -> Any:
        """Start a pass that has so many seconds."""
        loss = (await self.parts[1](self.parts[0](self.x))).sum()
        deadline = None if left is None else asyncio.get_running_loop().time() + left
        return loss.backward(deadline=deadline)

    def taken(self) -> set[bool]:
        """Whether the caller has gradients, which are dropped."""
        has = self.x.grad is not None
        self.x.grad = None
        return {has}


class Copies(Parts):
    """A model of which each worker has a copy."""

    @classmethod
    async def make(cls, world: dist.World) -> Parts:
        """Make the copies."""
        made = cls([])
        made.model = await world.replicate(Refuses, bucket_cap_mb=1e-4)
        made.parts = made.model.parts
        return made

    async def start(self, left: float | None) -> Any:
        """Start a step that has so many seconds."""
        deadline = None if left is None else asyncio.get_running_loop().time() + left
        shards = [(self.x.detach(),)] * 2
        step = self.model.forward_backward(total, shards, deadline=deadline)
        return asyncio.ensure_future(step)

    def taken(self) -> set[bool]:
        """Nothing: the caller has none."""
        return set()


def total(model: Any, x: Any) -> Any:
    """The loss of a copy."""
    return model(x).sum()


async def life(
    client: Any, rng: random.Random, count: int, found: Counter[str], *, copies: bool
) -> None:
    """Some passes in one world, the last of which meets a worker's death."""
    async with dist.connect(client, workers=2, grace=1.0) as world:
        programs = [await kind.make(world) for kind in ((Parts, Copies) if copies else (Parts,))]
        pid = await programs[0].parts[0].apply(process)
        usual = dict.fromkeys(programs, 0.1)
        for number in range(-10, count):
            program = programs[number % len(programs)] if number < 0 else rng.choice(programs)
            kind = rng.choice(["cancel", "deadline", "error"]) if number < count - 1 else "kill"
            kind = "none" if number < 0 else kind
            after = rng.uniform(0, 1.2 * usual[program])
            refusing = rng.choice(program.parts) if kind == "error" else None
            if refusing is not None:
                await refusing.apply(refuse, True)
            start = perf_counter()
            running = await program.start(after if kind == "deadline" else None)
            act = {"cancel": running.cancel, "kill": lambda: os.kill(pid, signal.SIGKILL)}
            loop = asyncio.get_running_loop()
            timer = loop.call_later(after, act[kind]) if kind in act else None
            with suppress(asyncio.CancelledError, Exception):
                await running
            if kind == "none":
                usual[program] = perf_counter() - start
            if timer is not None:
                timer.cancel()
            committed = program.taken()
            for part in program.parts:
                with suppress(dist.WorkerLostError):
                    committed.add(await part.apply(taken))
            if refusing is not None:
                await refusing.apply(refuse, False)
            if kind != "none":
                ended = HALF if len(committed) > 1 else f"committed: {committed.pop()}"
                found[ended] += 1
                found[kind] += 1


async def rounds(
    cluster: Cluster, count: int, *, copies: bool = True, seed: int = 0
) -> Counter[str]:
    """So many faults."""
    rng, found = random.Random(seed), Counter[str]()
    for start in range(0, count, LIFE):
        async with cluster(2) as client:
            await life(client, rng, min(LIFE, count - start), found, copies=copies)
    return found


async def counted(cluster: Cluster, count: int, control: bool) -> None:
    """Print what has become of passes."""
    with without_join() if control else nullcontext():
        found = await rounds(cluster, count, copies=not control)
    kinds = [f"{found[kind]} {kind}" for kind in ("cancel", "deadline", "error", "kill")]
    ends = [str(found[end]) for end in ("committed: True", "committed: False", HALF)]
    print("| | faults | committed everywhere | nowhere | half-committed |")
    print("| --- | --- | --- | --- | --- |")
    name = "without join" if control else "with join"
    print(f"| {name} | {count} ({', '.join(kinds)}) | {' | '.join(ends)} |")
