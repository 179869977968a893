"""The measured program: a service and a training loop on one event loop.

It runs twice over: first the service alone, then the service with training beside it, each with
the same load from the clients and with a ticker that says how long others had to wait for the loop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import statistics
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.digits.cores import give_one_to_the_loop
from examples.digits.data import GREY_LEVELS
from examples.digits.service import Service
from examples.digits.ticker import ticker
from examples.digits.training import Training
from examples.digits.variants import classifier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from examples.digits.data import Digits
    from examples.digits.report import Display
    from examples.digits.variants import Variant


@dataclass(frozen=True)
class Settings:
    """The sizes of a run; smaller ones make it quick."""

    #: The width of both hidden layers. At 1024 an inline backward pass takes 60 ms or more.
    width: int = 1024
    steps: int = 60
    learning_rate: float = 3e-3
    seed: int = 0
    connections: int = 16
    #: Requests per second of each connection, on average.
    rate: float = 25.0
    #: Steps that are not measured, because memory is used for the first time in them.
    warm_up_steps: int = 10
    idle_seconds: float = 4.0
    #: Whether the clients leave their core to the loop. If other programs compute at the same time,
    #: such clients hardly get to send.
    clients_give_way: bool = True


QUICK = Settings(
    width=256, steps=150, learning_rate=5e-3, connections=4, warm_up_steps=2, idle_seconds=0.5,
    clients_give_way=False,
)  # fmt: skip


class Clients:
    """Controls the process of the clients."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def start(self) -> None:
        """Let the clients begin to send."""
        self._writer.write(b"start\n")

    async def stop(self) -> dict[str, Any]:
        """Let them wait for their last answers, and say what they measured."""
        self._writer.write(b"stop\n")
        line = await self._reader.readline()
        if not line:
            raise RuntimeError("the clients' process ended before it was told to")
        return json.loads(line)


@asynccontextmanager
async def clients(port: int, digits: Digits, settings: Settings) -> AsyncIterator[Clients]:
    """Start the clients' process, and end it whatever happens."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        process = subprocess.Popen(  # noqa: ASYNC220 - uvloop's have no process group
            [sys.executable, str(Path(__file__).with_name("clients.py"))],
            stdin=theirs,
            stdout=theirs,
            # In a process group of its own, so that Ctrl-C reaches this program alone, which then
            # ends the clients. In a session of its own, Linux would grant the clients as large a
            # share of a core as the loop and all threads together.
            process_group=0,
        )
    try:
        setup = {
            "port": port,
            "connections": settings.connections,
            "rate": settings.rate,
            "give_way": settings.clients_give_way,
            "images": (digits.test_images * GREY_LEVELS).astype(int).tolist(),
            "labels": digits.test_labels.tolist(),
        }
        writer.write(json.dumps(setup).encode() + b"\n")
        await writer.drain()
        yield Clients(reader, writer)
    finally:
        writer.close()  # and so it ends
        await asyncio.to_thread(process.wait)


@asynccontextmanager
async def measured(load: Clients) -> AsyncIterator[dict[str, float]]:
    """Measure latencies and the loop's delay while the body runs."""
    figures: dict[str, float] = {}
    async with ticker() as delays:
        load.start()
        yield figures
        figures |= await load.stop()
    delays.sort()
    figures |= {
        "lag_p50_ms": statistics.median(delays) * 1e3,
        "lag_p99_ms": delays[len(delays) * 99 // 100] * 1e3,
        "lag_max_ms": delays[-1] * 1e3,
    }


async def run(
    variant: Variant, digits: Digits, settings: Settings, display: Display
) -> dict[str, Any]:
    """Serve, then serve and train, and return the figures of both."""

    def make_model() -> Any:
        return classifier(variant.library, settings.width, settings.seed)

    await give_one_to_the_loop(variant)
    model = make_model()
    training = Training(variant, model, digits, settings.learning_rate, settings.seed)
    # The collector need not visit what was imported, which lives as long as the program.
    gc.collect()
    gc.freeze()
    async with (
        Service(variant, make_model) as service,
        clients(service.port, digits, settings) as load,
        display.running(variant.name, settings.steps),
    ):
        # The first requests and steps fill caches and import modules, so they are not measured.
        load.start()
        for _ in range(settings.warm_up_steps):
            await training.step()
        await load.stop()

        async with measured(load) as without:
            await asyncio.sleep(settings.idle_seconds)

        async with measured(load) as beside:
            started = time.perf_counter()
            for step in range(1, settings.steps + 1):
                await training.step()
                await service.publish(model, step)
                display.show(step, training.losses[-1])
            seconds = time.perf_counter() - started

        return {
            "variant": variant.name,
            "accuracy": await training.accuracy(),
            "losses": training.losses,
            "training_seconds": seconds,
            "backward_ms": statistics.median(training.backward_seconds) * 1e3,
            "answered": service.answered,
            "without_training": without,
            "with_training": beside,
            "p99_ratio": beside["p99_ms"] / without["p99_ms"],
        }
