"""Coroutine hooks: how long a pass takes beside the longest path of waits in its graph."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncgrad as ag
from benchmarks.graphs import leaf
from benchmarks.harness import event_loop, interleave
from benchmarks.report import compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.harness import Setting
    from benchmarks.report import Row

#: The largest ratio of a graph's time to that of its longest path.
REACH = 1.1


@dataclass(frozen=True)
class Waits:
    """A graph: for each place, in the order of the pass, the seconds it waits and its users."""

    places: Sequence[tuple[float, Sequence[int]]]

    @classmethod
    def random(cls, rng: random.Random, count: int) -> Waits:
        """Some places, each used by up to two before it."""
        waits = [rng.choice((0.01, 0.03, 0.05, 0.2)) for _ in range(count)]
        users = [rng.sample(range(at), rng.randint(0, min(2, at))) for at in range(count)]
        return cls(list(zip(waits, users, strict=True)))

    @classmethod
    def beside(cls, path: int, wait: float, others: int, longer: float) -> Waits:
        """A path of short waits beside long ones."""
        chain = [(wait, [at - 1] if at else []) for at in range(path)]
        return cls(chain + [(longer, [])] * others)

    def longest(self) -> float:
        """The seconds of the longest path."""
        ends: list[float] = []
        for wait, users in self.places:
            ends.append(wait + max((ends[user] for user in users), default=0.0))
        return max(ends)

    def loss(self) -> Any:
        """The loss, whose hooks wait: those on a tensor, before a node and after one in turn."""
        inputs: list[Any] = [leaf(ag, np.ones(3)) for _ in self.places]
        loss: Any = 0.0
        for at in reversed(range(len(self.places))):
            wait, users = self.places[at]

            async def hook(*facts: Any, wait: float = wait) -> None:
                await asyncio.sleep(wait)

            value = inputs[at] * 1.0
            node = value.grad_fn
            (value.register_hook, node.register_prehook, node.register_hook)[at % 3](hook)
            for user in users:
                inputs[user] = inputs[user] + value
            if not users:
                loss = loss + value
        return loss.sum()


def measure(setting: Setting) -> Iterator[Row]:
    """Graphs of waits: the time of a pass against that of its longest path."""
    rng = random.Random(0)
    graphs = {
        "6 x 50 ms beside 300 ms": Waits.beside(6, 0.05, 1, 0.3),
        "10 x 30 ms beside 20 x 290 ms": Waits.beside(10, 0.03, 20, 0.29),
        "30 random waits": Waits.random(rng, 30),
        "100 random waits": Waits.random(rng, 100),
    }
    for loop in setting.loops():
        with event_loop(loop) as run:
            samples = interleave(
                {name: _on(run, graph) for name, graph in graphs.items()}, setting.repetitions(16)
            )
        for name, seconds in samples.items():
            longest = [graphs[name].longest()] * len(seconds)
            yield compared(
                "waits",
                f"{name}, {loop}",
                {"asyncgrad": seconds, "longest path": longest},
                ours="asyncgrad",
                to="longest path",
                to_reach=REACH,
            )


def _on(run: Any, graph: Waits) -> Callable[[], float]:
    """One pass of a graph, as a side of a comparison."""

    async def awaited() -> float:
        loss = graph.loss()
        start = time.perf_counter()
        await loss.backward()
        return time.perf_counter() - start

    return partial(run, awaited)
