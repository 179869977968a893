"""Run the hub for a while, with a client of its page, and print what was measured."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from examples.edge_forecast.hub import Hub, Lateness
from examples.edge_forecast.readings import load
from examples.options import seconds, whole

if TYPE_CHECKING:
    from collections.abc import Callable

#: The readings with which the hub starts: two and a half years.
KNOWN = 900


async def ask(port: int, method: str, path: str) -> Any:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length:")[2].split("\r\n")[0])
        return json.loads(await reader.readexactly(length))
    finally:
        writer.close()


async def visit(
    hub: Hub, waits: Lateness, leave: asyncio.Event, say: Callable[[str], None]
) -> None:
    """Look at the forecast again and again; train, cancel once, and train again.

    The last look comes after the hub's last day: a training may have ended with it.
    """
    await ask(hub.web.port, "POST", "/training/start")
    cancelled, told = False, 0
    while True:
        leaves = leave.is_set()
        asked = time.perf_counter()
        forecast = await ask(hub.web.port, "GET", "/forecast")
        waits.note(asked)
        status = await ask(hub.web.port, "GET", "/status")
        if status["trainings"] > told:
            told = status["trainings"]
            tomorrow = forecast["celsius"][0] if forecast["celsius"] else float("nan")
            say(f"day {status['day']:,}: training {told} has ended; its forecasts are off by "
                f"{status['error']:.2f} degrees, tomorrow will have {tomorrow:.1f}")  # fmt: skip
        if leaves:
            return
        if forecast["celsius"] is not None and not status["training"]:
            if not cancelled:
                cancelled = True
                await ask(hub.web.port, "POST", "/training/start")
                await asyncio.sleep(0.05)
                await ask(hub.web.port, "POST", "/training/cancel")
                say(f"day {status['day']:,}: the next training was cancelled; forecasts go on")
            else:
                await ask(hub.web.port, "POST", "/training/start")
        await asyncio.sleep(0.01)


async def live(days: int, tick: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the hub for so many days, say what happens, and return what was measured."""
    hub, waits = Hub(load(), known=KNOWN, tick=tick), Lateness()
    leave = asyncio.Event()
    async with hub.web, asyncio.TaskGroup() as group:
        group.create_task(visit(hub, waits, leave, say))
        await hub.run(days)
        leave.set()
    forecaster = hub.published
    scale = 1 if sys.platform == "darwin" else 1024
    return {
        "days": days,
        "trainings": hub.trainings,
        "steps": hub.steps,
        "error": None if forecaster is None else forecaster.error,
        "error_of_yesterday": None if forecaster is None else forecaster.error_of_yesterday,
        "switched": len(hub.switched),
        "answered": hub.web.answered,
        "sensor_p99_ms": hub.sensors.percentile(99),
        "scheduler_p99_ms": hub.scheduler.percentile(99),
        "page_p50_ms": waits.percentile(50),
        "page_p99_ms": waits.percentile(99),
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6,
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m examples.edge_forecast", description=__doc__)
    most = len(load()) - KNOWN
    parser.add_argument("--days", type=whole(1, most), default=500, help="to live through")
    parser.add_argument("--tick", type=seconds, default=0.02, help="seconds that a day takes")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    if args.json:
        print(json.dumps(asyncio.run(live(args.days, args.tick, lambda text: None))))
        return 0
    print(f"A home's hub lives through {args.days} days of Seattle's weather in about "
          f"{args.days * args.tick:.0f} seconds.")  # fmt: skip
    print("On one event loop it reads sensors, switches the heating, answers a page, and trains a "
          "forecaster.")  # fmt: skip
    figures = asyncio.run(live(args.days, args.tick, partial(print, flush=True)))
    print()
    print(f"{figures['trainings']} trainings of {figures['steps']} steps in all")
    if figures["error"] is not None:
        print(
            f"The last forecaster is off by {figures['error']:.2f} degrees on days that it has not"
        )
        print('seen; guessing "like the day before" is off by '
              f"{figures['error_of_yesterday']:.2f}.")  # fmt: skip
    print("While it was training, so much too late at most, 99 times of 100:")
    print(f"  sensors {figures['sensor_p99_ms']:6.1f} ms")
    print(f"  heating {figures['scheduler_p99_ms']:6.1f} ms")
    print(f"  page    {figures['page_p99_ms']:6.1f} ms to answer ({figures['answered']} requests, "
          f"half of them within {figures['page_p50_ms']:.1f} ms)")  # fmt: skip
    print(f"The whole program used {figures['resident_mb']:.0f} MB of memory at most.")
    return 0
