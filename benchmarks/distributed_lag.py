"""How late a ticker, or what another process sends, is on the loop of a caller of remote passes."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import asyncgrad as ag
from benchmarks.figures import percentile
from benchmarks.harness import watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncgrad import distributed as dist

#: Sends the time at random moments, until nobody listens: a given number of seconds apart on
#: average. What comes in step with a ticker would hide how asyncio rounds the ticker's sleep.
SENDER = """
import random, socket, struct, sys, time
out = socket.socket(fileno=int(sys.argv[1]))
while True:
    time.sleep(random.expovariate(1 / float(sys.argv[2])))
    out.send(struct.pack("d", time.perf_counter()))
"""


class Woken:
    """Counts how often something has come that the loop has slept for."""

    def __init__(self) -> None:
        self._selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        self.count = 0

    def __enter__(self) -> Woken:
        select = self._selector.select

        def counted(timeout: float | None = None) -> Any:
            events = select(timeout)
            self.count += bool(events) and (timeout is None or timeout > 0)
            return events

        self._selector.select = counted
        return self

    def __exit__(self, *error: object) -> None:
        del self._selector.select


async def ticked(work: Callable[[], Any]) -> float:
    """The 99th percentile of a ticker's lag beside some work: asyncio rounds its time up to ms."""
    return (await watched(work)).lag.p99


async def arrived(work: Callable[[], Any], apart_s: float = 0.001) -> float:
    """The same of what another process sends: between its sending and the caller's reading."""
    own, its = socket.socketpair(type=socket.SOCK_DGRAM)
    late: list[float] = []
    begun = asyncio.Event()

    def read() -> None:
        (sent,) = struct.unpack("d", own.recv(8))
        late.append(perf_counter() - sent)
        begun.set()

    with own, its:
        asyncio.get_running_loop().add_reader(own, read)
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SENDER, str(its.fileno()), str(apart_s),
            pass_fds=[its.fileno()], stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await begun.wait()
        late.clear()
        await work()
        sender.kill()
        await sender.wait()
        asyncio.get_running_loop().remove_reader(own)
    return percentile(sorted(late), 99)


async def lag(
    world: dist.World, quick: bool, late: Callable[[Callable[[], Any]], Awaitable[float]]
) -> tuple[str, float]:
    """How late something on the caller's loop is beside remote passes, and beside nothing."""
    value = ag.ones(256, 512)
    parts = [await world.remote(rank, ag.nn.Linear, 512, 512) for rank in range(world.size)]

    async def passes(count: int) -> None:
        for _ in range(count):
            y: Any = value
            for part in parts:
                y = part(y)
            await (await y).sum().backward()

    await passes(10)
    idle = await late(partial(asyncio.sleep, 1.0))
    count = 10 if quick else 200
    start = perf_counter()
    with Woken() as woken:
        found = await late(partial(passes, count))
    apart_s = (perf_counter() - start) / woken.count
    what = "what arrives"
    beside = f"its loop idle: {idle * 1e3:.2f} ms"
    if late is ticked:
        what = "a ticker"
        received: list[float] = []

        async def receive() -> None:
            received.append(await ticked(partial(asyncio.sleep, 1.0)))

        await arrived(receive, apart_s)
        beside += (
            f", receiving a byte at random as often, {woken.count / count:.1f} times in the "
            f"{woken.count * apart_s / count * 1e3:.1f} ms of a pass: {received[0] * 1e3:.2f}"
        )
    case = f"lag p99 of {what} on the caller beside remote passes, workers: {world.size} ({beside})"
    return case, found
