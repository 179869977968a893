"""A load generator in a process of its own: open or closed loop, over connections kept open.

`python -m benchmarks.service_client PORT BODY --count N [--rate R]` prints what it saw as JSON.
With a rate it is an open loop: requests come at random moments, whether or not earlier ones have
been answered. Without one, each connection sends its next request when it has its answer. It
imports nothing large, so that it takes little from the service's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections import Counter, deque


class Connection(asyncio.Protocol):
    """One connection, with one request on it at most."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._received = bytearray()
        self._due = 0.0

    def connection_made(self, transport) -> None:
        """Be there."""
        self.transport = transport

    def ask(self, due: float) -> None:
        """Send a request that should have been sent at `due`."""
        self._due = due
        self.transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        """Collect the answer."""
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        length = bytes(self._received[:head]).lower().partition(b"content-length:")[2]
        if len(self._received) < head + 4 + int(length.split(b"\r\n", 1)[0]):
            return
        status = int(self._received[9:12])
        self._received.clear()
        self._load.answered(self, status, time.perf_counter() - self._due)

    def connection_lost(self, error: Exception | None) -> None:
        """Whatever was asked will not be answered."""
        self._load.lost(error)


class Load:
    """So many requests, and how long each of them took.

    Args:
        request: the bytes of a request.
        count: how many are sent in all.
        rate: how many are sent in a second; None for as many as are answered.
        seed: of the moments at which they are sent.
    """

    def __init__(self, request: bytes, count: int, rate: float | None, seed: int) -> None:
        self.request = request
        self._count = count
        self._rate = rate
        self._random = random.Random(seed)
        self._idle: deque[Connection] = deque()
        self._unsent: deque[float] = deque()
        self._sent = 0
        self.latencies: list[float] = []
        self.statuses: Counter[int] = Counter()
        #: The longest delay that was the generator's own.
        self.late = 0.0
        self._ended = asyncio.get_running_loop().create_future()

    async def run(self, port: int, connections: int, seconds: float) -> float:
        """Send everything, wait for the answers, and return how long it took.

        Raises:
            TimeoutError: if that takes longer than `seconds`.
        """
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, connection = await loop.create_connection(
                lambda: Connection(self), "127.0.0.1", port
            )
            self._idle.append(connection)
        everyone = list(self._idle)
        start = time.perf_counter()
        async with asyncio.timeout(seconds):
            if self._rate is None:
                for connection in everyone:
                    self._next(connection)
            else:
                await self._arrive(self._rate)
            await self._ended
        took = time.perf_counter() - start
        for connection in everyone:
            connection.transport.abort()
        return took

    async def _arrive(self, rate: float) -> None:
        due = time.perf_counter()
        for _ in range(self._count):
            due += self._random.expovariate(rate)
            # A clock may wake too early; the next wait is then longer by as much.
            await asyncio.sleep(due - time.perf_counter())
            # Latency counts from now, not from `due`: a clock's delay is not the service's.
            now = time.perf_counter()
            self.late = max(self.late, now - due)
            self._sent += 1
            if self._idle:
                self._idle.popleft().ask(now)
            else:
                self._unsent.append(now)

    def answered(self, connection: Connection, status: int, seconds: float) -> None:
        """Note an answer, and use the connection for what comes next."""
        self.statuses[status] += 1
        self.latencies.append(seconds)
        if len(self.latencies) == self._count:
            self._ended.set_result(None)
        elif self._rate is None:
            self._next(connection)
        elif self._unsent:
            connection.ask(self._unsent.popleft())
        else:
            self._idle.append(connection)

    def _next(self, connection: Connection) -> None:
        if self._sent < self._count:
            self._sent += 1
            connection.ask(time.perf_counter())

    def lost(self, error: Exception | None) -> None:
        """A connection that the service closes before the end is an error of the run."""
        if not self._ended.done():
            self._ended.set_exception(error or ConnectionError("the service closed a connection"))


def request(path: str, body: bytes) -> bytes:
    """A POST of some JSON."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def measure(args: argparse.Namespace) -> dict:
    """Run the load and say what came of it."""
    load = Load(request(args.path, args.body.encode()), args.count, args.rate, args.seed)
    took = await load.run(args.port, args.connections, args.seconds)
    return {
        "seconds": took,
        "statuses": load.statuses,
        "late": load.late,
        "latencies": sorted(load.latencies),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_client")
    parser.add_argument("port", type=int)
    parser.add_argument("body")
    parser.add_argument("--path", default="/predict")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    gc.disable()
    json.dump(asyncio.run(measure(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
