"""A chain of 2,000 elementwise operations: the cost of a node, forward and backward."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

import asyncgrad as ag
from benchmarks.graphs import MIX, Chain
from benchmarks.harness import check_equal, event_loop, interleave, with_torch_threads
from benchmarks.report import compared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Setting
    from benchmarks.report import Row

NODES = 2000

#: What the synchronous backward of each chain has to reach, as a ratio to PyTorch's.
BACKWARD = {"mix": 0.65} | dict.fromkeys(MIX, 0.80)


def measure(setting: Setting) -> Iterator[Row]:
    """Forward, synchronous backward, and awaited backward against synchronous."""
    chains = {"asyncgrad": Chain.of(ag), "torch": Chain.of(torch)}
    for kind in BACKWARD:
        _check(chains, kind)

    def forward(chain: Chain, kind: str = "mix") -> float:
        x = chain.leaf()
        start = time.perf_counter()
        loss = chain.loss(x, NODES, kind)
        seconds = time.perf_counter() - start
        del loss
        return seconds

    def backward(chain: Chain, kind: str = "mix") -> float:
        loss = chain.loss(chain.leaf(), NODES, kind)
        start = time.perf_counter()
        loss.backward()
        return time.perf_counter() - start

    for kind in BACKWARD:
        sides = {
            "asyncgrad": lambda kind=kind: forward(chains["asyncgrad"], kind),
            "torch T1": with_torch_threads(1, lambda kind=kind: forward(chains["torch"], kind)),
            "torch T2": with_torch_threads(2, lambda kind=kind: forward(chains["torch"], kind)),
        }
        samples = interleave(sides, setting.repetitions(40), settle=0.002)
        for to in ("torch T1", "torch T2") if kind == "mix" else ("torch T1",):
            yield compared(
                "chain",
                f"forward, {kind}",
                samples,
                ours="asyncgrad",
                to=to,
                to_reach=0.80 if kind == "mix" else None,
            )

    for kind, to_reach in BACKWARD.items():
        sides = {
            "asyncgrad": lambda kind=kind: backward(chains["asyncgrad"], kind),
            "torch T1": with_torch_threads(1, lambda kind=kind: backward(chains["torch"], kind)),
            "torch T2": with_torch_threads(2, lambda kind=kind: backward(chains["torch"], kind)),
        }
        samples = interleave(sides, setting.repetitions(40), settle=0.002)
        for to in ("torch T1", "torch T2") if kind == "mix" else ("torch T1",):
            yield compared(
                "chain",
                f"synchronous backward, {kind}",
                samples,
                ours="asyncgrad",
                to=to,
                to_reach=to_reach,
            )

    for loop in setting.loops():
        with event_loop(loop) as run:

            async def awaited() -> float:
                chain = chains["asyncgrad"]
                loss = chain.loss(chain.leaf(), NODES)
                start = time.perf_counter()
                await loss.backward()
                return time.perf_counter() - start

            samples = interleave(
                {
                    "awaited": lambda run=run: run(awaited),
                    "synchronous": lambda: backward(chains["asyncgrad"]),
                },
                setting.repetitions(80),
                settle=0.002,
            )
        yield compared(
            "chain",
            f"awaited backward, mix, {loop}",
            samples,
            ours="awaited",
            to="synchronous",
            to_reach=1.05,
        )


def _check(chains: dict[str, Chain], kind: str) -> None:
    """Both libraries compute the same loss and gradient."""
    results = []
    for chain in chains.values():
        x = chain.leaf()
        loss = chain.loss(x, NODES, kind)
        loss.backward()
        results.append([loss.detach().numpy(), x.grad.numpy()])
    check_equal(f"chain, {kind}", *results)
