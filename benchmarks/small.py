"""Small passes on an event loop: a whole `await loss.backward()`, and a small network's step."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import torch

import asyncgrad as ag
from benchmarks.graphs import Chain, Layers
from benchmarks.harness import check_equal, event_loop, interleave, with_torch_threads
from benchmarks.report import MICROSECONDS, compared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Setting
    from benchmarks.report import Row

#: (nodes, to reach of inline, to reach of to_thread); AccumulateGrad is not counted.
WHOLE = ((1, 0.80, 0.15), (10, 0.85, 0.28))

#: Passes per turn, each over a graph of its own that is made before the clock starts.
PASSES = 200


def measure_whole(setting: Setting) -> Iterator[Row]:
    """A whole `await loss.backward()`, against inline and `asyncio.to_thread`."""
    ours, theirs = Chain.of(ag), Chain.of(torch)

    def fresh(chain: Chain, nodes: int) -> list:
        return [chain.loss(chain.leaf(), nodes - 1, "mul") for _ in range(PASSES)]

    for nodes, of_inline, of_thread in WHOLE:
        results = []
        for chain in (ours, theirs):
            x = chain.leaf()
            loss = chain.loss(x, nodes - 1, "mul")
            loss.backward()
            results.append([loss.detach().numpy(), x.grad.numpy()])
        check_equal(f"whole, {nodes}", *results)

        async def awaited(nodes: int = nodes) -> float:
            losses = fresh(ours, nodes)
            start = time.perf_counter()
            for loss in losses:
                await loss.backward()
            return (time.perf_counter() - start) / PASSES

        async def inline(nodes: int = nodes) -> float:
            losses = fresh(theirs, nodes)
            start = time.perf_counter()
            for loss in losses:
                loss.backward()
            return (time.perf_counter() - start) / PASSES

        async def in_thread(nodes: int = nodes) -> float:
            losses = fresh(theirs, nodes)
            start = time.perf_counter()
            for loss in losses:
                await asyncio.to_thread(loss.backward)
            return (time.perf_counter() - start) / PASSES

        with (
            event_loop(setting.loop) as run,
            event_loop(setting.loop) as run_t1,
            event_loop(setting.loop) as run_t2,
        ):
            sides = {"asyncgrad": lambda: run(awaited)}
            for threads, run_torch in ((1, run_t1), (2, run_t2)):
                for name, work in (("inline", inline), ("to_thread", in_thread)):
                    sides[f"{name} T{threads}"] = with_torch_threads(
                        threads, lambda run=run_torch, work=work: run(work)
                    )
            samples = interleave(sides, setting.repetitions(40), settle=0.002)
        plural = "node" if nodes == 1 else "nodes"
        for name in sides:
            if name != "asyncgrad":
                yield compared(
                    "whole",
                    f"await backward, {nodes} {plural}",
                    samples,
                    ours="asyncgrad",
                    to=name,
                    unit="us",
                    scale=MICROSECONDS,
                    to_reach=of_inline if name.startswith("inline") else of_thread,
                )


def measure_layers(setting: Setting) -> Iterator[Row]:
    """8x64 float32 through four tanh(x @ W): forward and the gradients of all W."""
    ours = Layers.of(ag, batch=8, width=64, depth=4)
    theirs = Layers.of(torch, batch=8, width=64, depth=4)
    steps = 50

    def step_of_torch() -> tuple:
        return torch.autograd.grad(theirs.loss(), theirs.weights)

    async def step_of_asyncgrad() -> tuple:
        return await ag.grad(ours.loss(), ours.weights)

    async def awaited() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            await step_of_asyncgrad()
        return (time.perf_counter() - start) / steps

    def inline() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            step_of_torch()
        return (time.perf_counter() - start) / steps

    def synchronous() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            ag.sync.grad(ours.loss(), ours.weights)
        return (time.perf_counter() - start) / steps

    with event_loop(setting.loop) as run:
        check_equal(
            "layers",
            [gradient.numpy() for gradient in run(step_of_asyncgrad)],
            [gradient.numpy() for gradient in step_of_torch()],
        )
        samples = interleave(
            {
                "awaited": lambda: run(awaited),
                "synchronous": synchronous,
                "torch T1": with_torch_threads(1, inline),
                "torch T2": with_torch_threads(2, inline),
            },
            setting.repetitions(60),
        )
    for name, to_reach in (("torch T1", 1.0), ("torch T2", 0.65)):
        yield compared(
            "layers",
            "forward and grad, awaited",
            samples,
            ours="awaited",
            to=name,
            unit="us",
            scale=MICROSECONDS,
            to_reach=to_reach,
        )
    yield compared(
        "layers",
        "forward and grad, awaited",
        samples,
        ours="awaited",
        to="synchronous",
        unit="us",
        scale=MICROSECONDS,
    )
