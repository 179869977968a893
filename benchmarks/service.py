"""Predictions while a service learns: examples/service, and the same service with PyTorch.

Rule 1: the load comes from a process of its own, over loopback, and each side is a process of its
        own: nobody's interpreter waits for another's.
Rule 2: all sides get the same requests at the same moments, at half the rate at which the slowest
        of them saturates.
Rule 3: a turn is short, and the sides take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Spread, percentile
from benchmarks.report import MILLISECONDS, Row, compared
from examples.digits.data import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.harness import Setting

ROOT = Path(__file__).parent.parent
SIDES = ("asyncgrad", "inline", "to_thread")
#: asyncgrad's side without learning.
IDLE = "no learning"
CONNECTIONS = 200


@dataclass(frozen=True)
class Turn:
    """What one turn of the load has measured, in seconds."""

    latencies: list[float]
    seconds: float
    #: Steps of learning in a second, meanwhile.
    steps: float

    @property
    def throughput(self) -> float:
        """Answers in a second."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: float) -> float:
        """That so many percent of the answers did not exceed."""
        return percentile(self.latencies, percent)


@dataclass(frozen=True)
class Service:
    """A side that serves."""

    port: int

    def get(self, path: str) -> str:
        """What it answers to a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def step(self) -> int:
        """How many steps have been learnt."""
        lines = dict(line.rsplit(" ", 1) for line in self.get("/metrics").splitlines())
        return int(float(lines["digits_learner_step"]))

    def load(self, count: int, rate: float | None = None, seed: int = 0) -> Turn:
        """Let the generator send so many requests."""
        body = json.dumps({"pixels": load().test_images[0].tolist()})
        command = [sys.executable, "-m", "benchmarks.service_client", str(self.port), body,
                   "--count", str(count), "--connections", str(CONNECTIONS),
                   "--seed", str(seed)]  # fmt: skip
        if rate is not None:
            command += ["--rate", str(rate)]
        before, start = self.step(), time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=180)
        steps = (self.step() - before) / (time.perf_counter() - start)
        seen: dict[str, Any] = json.loads(done.stdout)
        if set(seen["statuses"]) != {"200"}:
            raise AssertionError(f"answers other than 200: {seen['statuses']}")
        return Turn(seen["latencies"], seen["seconds"], steps)


@contextmanager
def serving(side: str, *, learn: bool) -> Iterator[Service]:
    """A side as a process of its own, ready to answer."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.service_server", side, f"{folder}/weights"]
        if learn:
            command.append("--learn")
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            service = Service(int(process.stdout.readline()))
            deadline = time.monotonic() + 60
            while True:
                try:
                    service.get("/readyz")
                    break
                except (urllib.error.URLError, ConnectionError):
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
            yield service
        finally:
            process.kill()
            process.communicate()


def saturation(side: str, count: int) -> float:
    """Predictions in a second, as many as it can, without learning."""
    with serving(side, learn=False) as service:
        service.load(count // 4)
        return service.load(count).throughput


def turns(setting: Setting) -> tuple[float, dict[str, list[Turn]]]:
    """The rate of the open loop, and all turns of each side."""
    count, seconds = (400, 1.0) if setting.quick else (4_000, 10.0)
    rate = min(saturation(side, count) for side in SIDES) / 2
    seen: dict[str, list[Turn]] = {side: [] for side in (*SIDES, IDLE)}
    for repetition in range(1 if setting.quick else 5):
        for name, each in seen.items():
            with serving(SIDES[0] if name == IDLE else name, learn=name != IDLE) as service:
                service.load(round(rate * seconds / 4), rate, seed=1_000)
                each.append(service.load(round(rate * seconds), rate, seed=repetition))
    return rate, seen


def measure(setting: Setting) -> Iterator[Row]:
    """The rows of the table."""
    return rows_of(*turns(setting))


def rows_of(rate: float, seen: Mapping[str, Sequence[Turn]]) -> Iterator[Row]:
    """What turns that have been measured come to."""
    what = f"predictions at {rate:.0f}/s on {CONNECTIONS} connections, while it learns"
    latencies = {
        "p50": lambda turn: turn.percentile(50),
        "p99": lambda turn: turn.percentile(99),
        "max": lambda turn: turn.latencies[-1],
    }
    yield _row(f"{what}: throughput", seen, lambda turn: turn.throughput, "answers/s", 1.0)
    for name, pick in latencies.items():
        yield _row(f"{what}: {name}", seen, pick, "ms", MILLISECONDS)
    p99 = {name: [turn.percentile(99) for turn in each] for name, each in seen.items()}
    for to, most in ((IDLE, 1.2), ("inline", 1.0), ("to_thread", 1.0)):
        yield compared("service", "p99 beside it", p99, ours=SIDES[0], to=to, to_reach=most)
    steps = {name: [turn.steps for turn in seen[name]] for name in SIDES}
    for to, least in (("inline", None), ("to_thread", 0.8)):
        yield compared(
            "service", "learning meanwhile", steps,
            ours=SIDES[0], to=to, unit="steps/s", scale=1.0, to_reach=least, at_least=True,
        )  # fmt: skip


def _row(
    figure: str, seen: Mapping[str, Sequence[Turn]], pick: Any, unit: str, scale: float
) -> Row:
    """All sides' values of one figure, without a target."""
    sides = {name: Spread.of([pick(t) for t in each]).scaled(scale) for name, each in seen.items()}
    return Row("service", figure, unit, sides.pop(SIDES[0]), sides)
