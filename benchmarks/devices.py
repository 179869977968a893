"""Devices with streams: what overlaps, what the loop feels, and what a node costs.

    python -m benchmarks.devices           # the simulated accelerator, and a GPU where there is one
    python -m benchmarks.devices --quick   # does it work? not to be quoted

On `sim` the durations of operations are given and time is virtual, so its ratios are exact and the
same on every machine; only the lag is measured. On a GPU, torch CUDA runs beside it where it is
installed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncgrad as ag
from asyncgrad.testing import simulate
from benchmarks.figures import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MS = 1e-3
_BRANCH = 50
_TICK = 1 * MS


# -- simulated -------------------------------------------------------------------------------------


def branches(streams: int) -> float:
    """Simulated seconds of a step of two independent branches, on so many streams."""
    with simulate(devices=1, latency=MS) as machine:

        async def step() -> None:
            default = ag.accelerator.current_stream("sim:0")
            sides = [ag.Stream(device="sim:0") for _ in range(streams)]
            parts = []
            for place in range(2):
                x = ag.ones(4, device="sim:0", requires_grad=True)
                side = sides[place % streams]
                side.wait_stream(default)
                with side:
                    for _ in range(_BRANCH):
                        x = x.sin()
                    parts.append(x.sum())
            for side in sides:
                default.wait_stream(side)
            await (parts[0] + parts[1]).backward()

        asyncio.run(step())
        return float(machine.clock.now())


def copying(copies: bool) -> float:
    """Simulated seconds of computing, with or without a copy to the host in another stream."""

    def duration(name: str, size: int) -> float:
        return 50 * MS if name == "copy to the host" else MS

    with simulate(devices=1, duration=duration) as machine:

        async def work() -> None:
            y = ag.ones(4, device="sim:0") * 2
            coming = None
            if copies:
                side = ag.Stream(device="sim:0")
                side.wait_stream(ag.accelerator.current_stream("sim:0"))
                with side:
                    coming = y.to_async("cpu")
            for _ in range(2 * _BRANCH):
                y = y + 1
            if coming is not None:
                await coming
            await ag.accelerator.synchronize_async("sim:0")

        asyncio.run(work())
        return float(machine.clock.now())


async def _ticking(work: Any) -> list[float]:
    """How late a task was that wanted to be woken every millisecond beside some work."""
    late: list[float] = []
    running = True

    async def tick() -> None:
        while running:
            due = time.perf_counter() + _TICK
            await asyncio.sleep(_TICK)
            late.append(time.perf_counter() - due)

    ticker = asyncio.ensure_future(tick())
    await asyncio.sleep(5 * _TICK)
    await work
    running = False
    await ticker
    return late


def lag(length: int) -> list[float]:
    """The lag beside a pass of so many nodes whose device takes 100 us for each."""
    with simulate(devices=1, latency=100e-6, clock="real"):

        async def run() -> list[float]:
            x = ag.ones(4, device="sim:0", requires_grad=True)
            y = x
            for _ in range(length):
                y = -y
            await ag.accelerator.synchronize_async("sim:0")
            return await _ticking(y.sum().backward())

        return asyncio.run(run())


def held(length: int) -> list[float]:
    """The loop's own processor time from turn to turn, beside the same pass.

    Other processes add nothing to it, unlike to the lag.
    """
    with simulate(devices=1, latency=100e-6, clock="real"):

        async def run() -> list[float]:
            x = ag.ones(4, device="sim:0", requires_grad=True)
            y = x
            for _ in range(length):
                y = -y
            await ag.accelerator.synchronize_async("sim:0")
            passing = y.sum().backward()
            found = []
            last = time.thread_time()
            while not passing.done():
                await asyncio.sleep(0)
                now = time.thread_time()
                found.append(now - last)
                last = now
            await passing
            return found

        return asyncio.run(run())


# -- on a GPU --------------------------------------------------------------------------------------


def chain(library: Any, length: int) -> Any:
    """A loss at the end of small elementwise operations."""
    x = library.ones(16, device="cuda", requires_grad=True)
    y = x
    for _ in range(length // 2):
        y = library.tanh(y * 1.01)
    return y.sum()


def gpt(library: Any, width: int, depth: int, length: int) -> Callable[[], Any]:
    """The loss of a GPT-like stack on its own numbers."""
    layers = [
        library.nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        ).to("cuda")
        for _ in range(depth)
    ]
    x = library.randn(8, length, width).to("cuda")

    def loss() -> Any:
        y = x
        for layer in layers:
            y = layer(y)
        return (y * y).mean()

    return loss


def mlp(library: Any, width: int) -> Callable[[], Any]:
    """The loss of a multi-layer perceptron."""
    layers = library.nn.Sequential(
        library.nn.Linear(width, width), library.nn.ReLU(), library.nn.Linear(width, 10)
    ).to("cuda")
    x, target = library.randn(256, width).to("cuda"), library.arange(256).to("cuda") % 10
    criterion = library.nn.CrossEntropyLoss()
    return lambda: criterion(layers(x), target)


def resnet(library: Any, width: int) -> Callable[[], Any]:
    """The loss of a small residual network on images of 32 by 32."""
    nn = library.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Two convolutions, and a way around them."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )

        def forward(self, x: Any) -> Any:
            return library.relu(x + self.inner(x))

    layers = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *(Block() for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    ).to("cuda")  # fmt: skip
    x, target = library.randn(64, 3, 32, 32).to("cuda"), library.arange(64).to("cuda") % 10
    criterion = nn.CrossEntropyLoss()
    return lambda: criterion(layers(x), target)


def node(library: Any, length: int, turns: int) -> float:
    """The host's seconds for a node of a pass over a chain, launched and not waited for."""
    found = []
    for _ in range(turns + 3):
        loss = chain(library, length)
        library.cuda.synchronize()
        start = time.perf_counter()
        loss.backward(wait="enqueued") if library is ag else loss.backward()
        found.append((time.perf_counter() - start) / length)
        library.cuda.synchronize()
    return statistics.median(found[3:])


def small(library: Any) -> Callable[[Any], Any]:
    """The gradients of a network of four small layers, as a function of its input."""
    weights = [library.randn(64, 64).to("cuda").mul(0.1).requires_grad_() for _ in range(4)]

    def gradients(x: Any) -> Any:
        y = x
        for weight in weights:
            y = library.tanh(y @ weight)
        return library.autograd.grad((y * y).sum(), weights)

    return gradients


def gpu_lag(library: Any, turns: int) -> float:
    """The 99th percentile of the loop's lag beside passes over a GPT on the GPU.

    PyTorch's passes run in a thread.
    """
    loss = gpt(library, 1_024, 8, 512)

    async def run() -> list[float]:
        late: list[float] = []
        for turn in range(turns):
            made = loss()
            library.cuda.synchronize()
            work = made.backward() if library is ag else asyncio.to_thread(made.backward)
            beside = await _ticking(work)
            late += beside if turn else []
        return late

    return percentile(sorted(asyncio.run(run())), 99)


def seconds(library: Any, work: Callable[[], Any], turns: int) -> float:
    """The median time of some work, synchronised."""
    found = []
    for _ in range(turns + 3):
        start = time.perf_counter()
        work()
        library.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found[3:])


def _step(loss: Callable[[], Any]) -> None:
    loss().backward()


def gpu(turns: int) -> Iterator[str]:
    """Lines about a GPU."""
    libraries = {"asyncgrad": ag}
    try:
        import torch
    except ImportError:
        pass
    else:
        if torch.cuda.is_available():
            libraries[f"torch {torch.__version__}"] = torch
    cases: dict[str, Callable[[Any], Callable[[], Any]]] = {
        "chain of 2,000": lambda library: lambda: chain(library, 2_000),
        "MLP": lambda library: mlp(library, 1_024),
        "ResNet": lambda library: resnet(library, 64),
        "GPT": lambda library: gpt(library, 1_024, 8, 512),
    }
    for case, make in cases.items():
        for name, library in libraries.items():
            loss = make(library)
            took = seconds(library, partial(_step, loss), turns)
            yield f"{case}, forward and backward, {name}: {1e3 * took:.2f} ms"
    for name, library in libraries.items():
        gradients, x = small(library), library.randn(8, 64).to("cuda")
        took = seconds(library, partial(gradients, x), turns)
        yield f"four layers of 64, forward and gradients, {name}: {1e3 * took:.3f} ms"
        if library is ag:
            took = seconds(ag, partial(ag.compile(gradients), x), turns)
            yield f"four layers of 64, replayed, {name}: {1e3 * took:.3f} ms"
    for name, library in libraries.items():
        yield f"a node of a pass, {name}: {1e6 * node(library, 500, turns):.1f} us on the host"
    for name, library in libraries.items():
        where = "" if library is ag else " in a thread"
        late = 1e3 * gpu_lag(library, max(3, turns // 3))
        yield f"the loop's lag beside passes over the GPT, {name}{where}: p99 {late:.2f} ms"
    device = ag.device("cuda")
    for waiting in ("thread", "poll"):
        device.waiting = waiting

        async def awaited() -> float:
            x = ag.ones(16, device="cuda")
            found = []
            for _ in range(200):
                start = time.perf_counter()
                await (x * 2).to_async("cpu")
                found.append(time.perf_counter() - start)
            return statistics.median(found)

        yield f"an awaited copy, {waiting}: {1e6 * asyncio.run(awaited()):.0f} us"


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    serial, overlapped = branches(1), branches(2)
    print(f"sim: two branches on two streams: {overlapped / serial:.3f} of serial (at most 0.6)")
    alone, beside = copying(False), copying(True)
    print(f"sim: computing with a copy beside it: {beside / alone:.3f} of without (1)")
    own = sorted(held(500 if quick else 3_000))
    print(f"sim: the loop held by a turn beside a pass: p99 {1e3 * percentile(own, 99):.2f} ms")
    for what, late in (
        ("beside a pass", lag(500 if quick else 3_000)),
        ("beside nothing", asyncio.run(_ticking(asyncio.sleep(1)))),
    ):
        late.sort()
        print(
            f"sim: the loop's lag {what}: p50 {1e3 * statistics.median(late):.2f} ms, "
            f"p99 {1e3 * percentile(late, 99):.2f} ms (at most 1)"
        )
    if ag.cuda.is_available():
        for line in gpu(5 if quick else 30):
            print(line)
    else:
        print("cuda: there is no GPU here, nothing is measured on one")


if __name__ == "__main__":
    main()
