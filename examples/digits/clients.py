"""The clients: a process of their own, so that their work does not disturb the measured loop.

It needs nothing but Python. Standard input takes one line of JSON with the port, the images and
the load, and then commands: `start` sends requests until `stop`, which prints one line of JSON
with what was measured. When standard input ends, so does the process: it never outlives the demo.

The load is open: each connection sends at its own fixed pseudo-random times (exponential gaps, the
same in every run), whether or not earlier requests were answered, so that a slow service can't
slow its load down. A latency counts from the sending to the parsed answer, and so does what the
sending was late by more than timers are: a client that is kept from sending waits, too.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import sys
import time
from dataclasses import dataclass
from itertools import count
from typing import Any

#: Seconds by which a timer may be late.
COARSE = 0.002


@dataclass(frozen=True)
class Answer:
    """One answered request."""

    latency: float  # seconds
    step: int  # of training, whose weights answered
    right: bool


class Connection:
    """One client with its schedule."""

    def __init__(self, number: int, setup: dict[str, Any]) -> None:
        self._setup = setup
        self._random = random.Random(number)
        self._sent: asyncio.Queue[tuple[int, int, float] | None] = asyncio.Queue()
        self._ids = count()
        #: The longest delay of a request that was sent too late, in seconds.
        self.lateness = 0.0

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._setup["port"])

    async def run(self, stop: asyncio.Event) -> list[Answer]:
        """Send on schedule, once at least, until told to stop; wait for the last answers."""
        self.lateness = 0.0
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(stop))
            answers = group.create_task(self._receive())
        return answers.result()

    async def _send(self, stop: asyncio.Event) -> None:
        images, labels = self._setup["images"], self._setup["labels"]
        due = time.perf_counter()
        for sent in count():
            due += self._random.expovariate(self._setup["rate"])
            await asyncio.sleep(due - time.perf_counter())
            if sent and stop.is_set():
                break
            request, image = next(self._ids), self._random.randrange(len(images))
            line = json.dumps({"id": request, "pixels": images[image]}).encode() + b"\n"
            now = time.perf_counter()
            self.lateness = max(self.lateness, now - due)
            self._sent.put_nowait((request, labels[image], min(now, due + COARSE)))
            self._writer.write(line)
        self._sent.put_nowait(None)

    async def _receive(self) -> list[Answer]:
        answers = []
        while (sent := await self._sent.get()) is not None:
            request, label, began = sent
            answer = json.loads(await self._reader.readline())
            latency = time.perf_counter() - began
            if answer.get("id") != request:
                raise RuntimeError(f"request {request} was answered with {answer}")
            answers.append(Answer(latency, answer["step"], answer["digit"] == label))
        return answers


def summary(connections: list[Connection], answers: list[Answer]) -> dict[str, float]:
    """Describe the answers of all connections, latencies in milliseconds."""
    latencies = sorted(answer.latency * 1e3 for answer in answers)

    def percentile(percent: float) -> float:
        return latencies[math.ceil(len(latencies) * percent / 100) - 1]

    return {
        "requests": len(answers),
        "right": sum(answer.right for answer in answers) / len(answers),
        "steps_seen": len({answer.step for answer in answers}),
        "p50_ms": percentile(50),
        "p99_ms": percentile(99),
        "max_ms": latencies[-1],
        "late_ms": max(connection.lateness for connection in connections) * 1e3,
    }


async def main() -> None:
    """Obey the commands on standard input."""
    commands = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    setup = json.loads(await commands.readline())
    if setup["give_way"] and hasattr(os, "SCHED_IDLE"):  # Linux: see cores.py
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    connections = [Connection(number, setup) for number in range(setup["connections"])]
    await asyncio.gather(*(connection.open() for connection in connections))
    while await commands.readline() == b"start\n":
        stop = asyncio.Event()
        running = [asyncio.create_task(connection.run(stop)) for connection in connections]
        if await commands.readline() != b"stop\n":
            break  # the demo was interrupted; asyncio.run() cancels what runs
        stop.set()
        answers = [answer for part in await asyncio.gather(*running) for answer in part]
        print(json.dumps(summary(connections, answers)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
