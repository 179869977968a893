"""What a backward pass does to the rest of the event loop: a ticker beside long passes.

Every lag stands beside that of an idle ticker, and of PyTorch's backward inline and in
`asyncio.to_thread`. The graphs are built before the ticker starts.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import asyncgrad as ag
from benchmarks.figures import Lag, Spread
from benchmarks.graphs import Chain, Layers, leaf
from benchmarks.harness import (
    Watched,
    check_equal,
    event_loop,
    idle,
    interleave,
    watched,
    with_blas_threads,
    with_torch_threads,
)
from benchmarks.report import MILLISECONDS, Row, compared, lags

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from benchmarks.harness import Setting


def measure_long(setting: Setting) -> Iterator[Row]:
    """60 layers tanh(x @ W) on 256x512: lag beside the pass, and its time against synchronous."""
    ours = Layers.of(ag, batch=256, width=512, depth=60)
    theirs = Layers.of(torch, batch=256, width=512, depth=60)
    for layers in (ours, theirs):
        layers.loss().backward()
    check_equal("long", ours.gradients(), theirs.gradients())

    def synchronous() -> float:
        ours.forget()
        loss = ours.loss()
        start = time.perf_counter()
        loss.backward()
        return time.perf_counter() - start

    async def awaited() -> Watched:
        ours.forget()
        loss = ours.loss()
        return await watched(partial(_await, loss.backward))

    for loop in setting.loops():
        with event_loop(loop) as run, _of_torch(loop, theirs) as of_torch:
            samples = interleave(
                {
                    "asyncgrad": _on(run, awaited),
                    "synchronous T1": with_blas_threads(1, synchronous),
                    "synchronous T2": with_blas_threads(2, synchronous),
                    **of_torch,
                    "idle": _on(run, lambda: idle(0.2)),
                },
                setting.repetitions(12),
            )
        yield from lags(
            "long", f"60 layers, {loop}", _lag_of(samples), ours="asyncgrad", p99=1.0, worst=4.0
        )
        seconds = _seconds_of(samples)
        for to, to_reach in (
            ("synchronous T1", 1.05),
            ("synchronous T2", None),
            ("inline T1", None),
            ("to_thread T1", None),
            ("to_thread T2", None),
        ):
            yield compared(
                "long",
                f"60 layers, {loop}: time beside the ticker",
                seconds,
                ours="asyncgrad",
                to=to,
                to_reach=to_reach,
            )


def measure_cores(setting: Setting) -> Iterator[Row]:
    """60 layers on two cores beside the ticker, alone and with a neighbour that computes, too."""
    ours = Layers.of(ag, batch=256, width=512, depth=60)
    theirs = Layers.of(torch, batch=256, width=512, depth=60)

    async def awaited(busy: float, forward: bool) -> Watched:
        ours.forget()
        # The first offloaded call starts the threads before the measurement.
        loss = await ag.offload(ours.loss)
        work = partial(ag.offload, ours.loss) if forward else partial(_await, loss.backward)
        async with _neighbour(busy):
            return await watched(work)

    async def of_torch(busy: float, forward: bool) -> Watched:
        theirs.forget()
        loss = await asyncio.to_thread(theirs.loss)
        work = theirs.loss if forward else loss.backward
        async with _neighbour(busy):
            return await watched(partial(_run_torch, work, True))

    async def alone(busy: float) -> Lag:
        async with _neighbour(busy):
            return await idle(0.2)

    def inline(forward: bool) -> float:
        theirs.forget()
        work = theirs.loss if forward else theirs.loss().backward
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def once(work: Callable[[], Any]) -> Callable[[], Any]:
        """A loop for each turn: an engine that lives changes what the others' loop gets."""

        def run() -> Any:
            with event_loop(setting.loop) as run:
                return run(work)

        return run

    for forward in (False, True):
        for busy in (0.0, 0.3):
            samples = interleave(
                {
                    "asyncgrad": once(partial(awaited, busy, forward)),
                    "inline T2": with_torch_threads(2, partial(inline, forward)),
                    "to_thread T2": with_torch_threads(2, once(partial(of_torch, busy, forward))),
                    "idle": once(partial(alone, busy)),
                },
                setting.repetitions(12),
            )
            figure = f"60 layers {'forward' if forward else 'backward'}"
            if busy:
                figure += ", a neighbour"
                samples.pop("inline T2")
            yield from lags(
                "cores",
                figure,
                {side: lag for side, lag in _lag_of(samples).items() if side != "inline T2"},
                ours="asyncgrad",
                p99=1.5 if busy else 1.0,
                worst=None if busy else 3.0,
            )
            sides = {"to_thread T2": 1.25} if busy else {"inline T2": 1.1, "to_thread T2": 1.0}
            for to, to_reach in sides.items():
                yield compared(
                    "cores",
                    f"{figure}: time",
                    _seconds_of(samples),
                    ours="asyncgrad",
                    to=to,
                    to_reach=to_reach,
                )


@asynccontextmanager
async def _neighbour(busy: float) -> AsyncIterator[None]:
    """A task that computes for `busy` ms in every ms of the loop."""

    async def compute() -> None:
        while True:
            end = time.perf_counter() + busy * 1e-3
            while time.perf_counter() < end:
                pass
            await asyncio.sleep((1 - busy) * 1e-3)

    task = asyncio.create_task(compute()) if busy else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


def measure_tiny(setting: Setting) -> Iterator[Row]:
    """60,000 tiny nodes beside the ticker, for all leaves and with `inputs=`."""
    nodes = 60_000
    ours, theirs = Chain.of(ag), Chain.of(torch)

    async def awaited(with_inputs: bool) -> Watched:
        x = ours.leaf()
        loss = ours.loss(x, nodes)
        begin = partial(loss.backward, inputs=[x]) if with_inputs else loss.backward
        seen = await watched(partial(_await, begin))
        del begin
        start = time.perf_counter()
        del loss
        return Watched(seen.seconds, seen.lag, time.perf_counter() - start)

    async def of_torch(in_thread: bool) -> Watched:
        loss = theirs.loss(theirs.leaf(), nodes)
        return await watched(partial(_run_torch, loss.backward, in_thread))

    for loop in setting.loops():
        with event_loop(loop) as run:
            samples = interleave(
                {
                    "asyncgrad": _on(run, lambda: awaited(False)),
                    "asyncgrad inputs=": _on(run, lambda: awaited(True)),
                    "inline T1": with_torch_threads(1, _on(run, lambda: of_torch(False))),
                    "to_thread T1": with_torch_threads(1, _on(run, lambda: of_torch(True))),
                    "idle": _on(run, lambda: idle(0.2)),
                },
                setting.repetitions(12),
            )
        for name, figure in (("asyncgrad", "60,000 nodes"), ("asyncgrad inputs=", "inputs=")):
            others = {
                side: seen
                for side, seen in _lag_of(samples).items()
                if side == name or not side.startswith("asyncgrad")
            }
            yield from lags("tiny", f"{figure}, {loop}", others, ours=name, p99=1.0)
            yield compared(
                "tiny",
                f"{figure}, {loop}: time beside the ticker",
                _seconds_of(samples),
                ours=name,
                to="inline T1",
            )
        freeing = [seen.result for seen in samples["asyncgrad"]]
        yield Row(
            "tiny",
            f"freeing the graph after the pass, {loop}",
            "ms",
            Spread.of(freeing).scaled(MILLISECONDS),
        )


def measure_commit(setting: Setting) -> Iterator[Row]:
    """25 M float32 gradients reach `.grad`: in one leaf or 25, as the first or added."""
    total = 1_000_000 if setting.quick else 25_000_000

    def parameters(lib: Any, leaves: int) -> list:
        return [leaf(lib, np.ones(total // leaves, np.float32)) for _ in range(leaves)]

    def loss_of(weights: Sequence) -> Any:
        loss = weights[0].sum()
        for weight in weights[1:]:
            loss = loss + weight.sum()
        return loss

    for leaves in (1, 25):
        ours, theirs = parameters(ag, leaves), parameters(torch, leaves)

        async def awaited(accumulate: bool, ours: list = ours) -> Watched:
            if not accumulate:
                _forget(ours)
            loss = loss_of(ours)
            return await watched(partial(_await, loss.backward))

        async def of_torch(in_thread: bool, accumulate: bool, theirs: list = theirs) -> Watched:
            if not accumulate:
                _forget(theirs)
            loss = loss_of(theirs)
            return await watched(partial(_run_torch, loss.backward, in_thread))

        for weights in (ours, theirs):
            loss_of(weights).backward()
            loss_of(weights).backward()
        check_equal("commit", *([w.grad.numpy() for w in side] for side in (ours, theirs)))
        plural = "leaf" if leaves == 1 else "leaves"
        with event_loop(setting.loop) as run:
            for accumulate in (False, True):
                samples = interleave(
                    {
                        "asyncgrad": _on(run, lambda a=accumulate: awaited(a)),
                        "inline T1": with_torch_threads(
                            1, _on(run, lambda a=accumulate: of_torch(False, a))
                        ),
                        "to_thread T1": with_torch_threads(
                            1, _on(run, lambda a=accumulate: of_torch(True, a))
                        ),
                        "idle": _on(run, lambda: idle(0.05)),
                    },
                    setting.repetitions(12),
                )
                figure = f"25 M float32, {leaves} {plural}, {'added' if accumulate else 'first'}"
                yield from lags("commit", figure, _lag_of(samples), ours="asyncgrad", p99=1.0)
                yield compared(
                    "commit",
                    f"{figure}: time beside the ticker",
                    _seconds_of(samples),
                    ours="asyncgrad",
                    to="inline T1",
                )


@contextmanager
def _of_torch(loop: str, layers: Layers) -> Iterator[dict[str, Callable[[], Watched]]]:
    """PyTorch's sides of a comparison of lags: inline, and in a thread."""

    async def work(in_thread: bool) -> Watched:
        layers.forget()
        loss = layers.loss()
        return await watched(partial(_run_torch, loss.backward, in_thread))

    with event_loop(loop) as run_t1, event_loop(loop) as run_t2:
        yield {
            "inline T1": with_torch_threads(1, _on(run_t1, lambda: work(False))),
            "to_thread T1": with_torch_threads(1, _on(run_t1, lambda: work(True))),
            "inline T2": with_torch_threads(2, _on(run_t2, lambda: work(False))),
            "to_thread T2": with_torch_threads(2, _on(run_t2, lambda: work(True))),
        }


async def _run_torch(work: Callable[[], object], in_thread: bool) -> None:
    """PyTorch's work, on the loop or beside it."""
    if in_thread:
        await asyncio.to_thread(work)
    else:
        work()


async def _await(begin: Callable[[], Any]) -> None:
    """Start a pass and await it."""
    await begin()


def _on(run: Callable[..., Any], work: Callable[[], Any]) -> Callable[[], Any]:
    """A side that runs a coroutine function on an open event loop."""
    return lambda: run(work)


def _forget(weights: Sequence) -> None:
    """Drop the gradients of the last pass."""
    for weight in weights:
        weight.grad = None


def _lag_of(samples: dict[str, list]) -> dict[str, list[Lag]]:
    """The lags of the sides that were watched."""
    lag = {}
    for name, seen in samples.items():
        if isinstance(seen[0], Watched):
            lag[name] = [one.lag for one in seen]
        elif isinstance(seen[0], Lag):
            lag[name] = seen
    return lag


def _seconds_of(samples: dict[str, list]) -> dict[str, list[float]]:
    """The times of the sides that took any."""
    return {
        name: [one.seconds if isinstance(one, Watched) else one for one in seen]
        for name, seen in samples.items()
        if not isinstance(seen[0], Lag)
    }
