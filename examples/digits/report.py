"""What the demo prints: a bar with the loss while training, and a table of figures at the end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.digits.machine import Noise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rich.console import Console

#: The verdicts on a promise.
KEPT, MISSED, NOT_JUDGED = "kept", "missed", "not judged"
_COLOURS = {KEPT: "green", MISSED: "red", NOT_JUDGED: "yellow"}
TITLES = {
    "asyncgrad": "asyncgrad\nawait loss.backward()",
    "asyncgrad-blocking": "asyncgrad\nblocking",
    "torch-inline": "PyTorch\nloss.backward()",
    "torch-thread": "PyTorch\nto_thread(loss.backward)",
}


class Display:
    """The progress of one variant."""

    #: Seconds between two updates of the display. An update takes about a millisecond of the loop
    #: that is measured, so there are few, and as many with training as without.
    INTERVAL = 0.25

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]:<12}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )

    @asynccontextmanager
    async def running(self, name: str, steps: int) -> AsyncIterator[None]:
        """Paint the bar from time to time while the body runs."""
        self._task = self._progress.add_task(name, total=steps, note="serving")

        async def paint() -> None:
            while True:
                self._progress.refresh()
                await asyncio.sleep(self.INTERVAL)

        with self._progress:
            painter = asyncio.create_task(paint())
            try:
                yield
            finally:
                painter.cancel()

    def show(self, step: int, loss: float) -> None:
        """Note a step, which the next update of the display shows."""
        self._progress.update(self._task, completed=step, note=f"loss {loss:.4f}")


def checks(results: list[dict[str, Any]], seconds: float, noise: Noise) -> dict[str, str]:
    """The verdict on each promise; on a busy machine, promises of time are not judged."""
    by_name = {result["variant"]: result for result in results}
    promises = {}

    def promise(text: str, kept: bool, *, of_time: bool = True) -> None:
        missed = NOT_JUDGED if of_time and noise.is_busy else MISSED
        promises[text] = KEPT if kept else missed

    promise("everything took less than a minute", seconds < 60.0)
    if ours := by_name.get("asyncgrad"):
        lag = ours["with_training"]["lag_max_ms"]
        promise("accuracy on held-out digits >= 97 %", ours["accuracy"] >= 0.97, of_time=False)
        promise("p99 latency with training <= twice that without", ours["p99_ratio"] <= 2.0)
        promise("worst delay of the event loop <= 10 ms", lag <= 10.0)
    if inline := by_name.get("torch-inline"):
        lag = inline["with_training"]["lag_max_ms"]
        promise("the passes are large: one inline holds the loop for >= 50 ms", lag >= 50.0)
    return promises


def table(results: list[dict[str, Any]]) -> Table:
    """Lay the figures of all variants side by side."""
    rows = Table(title="One asyncio program that serves and trains", title_justify="left")
    rows.add_column("")
    for result in results:
        rows.add_column(TITLES[result["variant"]], justify="right")

    def add(label: str, figure: Any, end_section: bool = False) -> None:
        rows.add_row(label, *(figure(result) for result in results), end_section=end_section)

    def phases(label: str, key: str, end_section: bool = False) -> None:
        def figure(result: dict[str, Any]) -> str:
            without, beside = result["without_training"][key], result["with_training"][key]
            return f"{without:.2f} / {beside:.2f} ms"

        add(label, figure, end_section)

    add("test accuracy", lambda result: f"{result['accuracy']:.2%}")
    add("training", lambda result: f"{result['training_seconds']:.1f} s")
    add("one backward pass", lambda result: f"{result['backward_ms']:.0f} ms", end_section=True)
    add("requests answered", lambda result: f"{result['answered']:,}")
    phases("latency p50, without / with training", "p50_ms")
    phases("latency p99", "p99_ms")
    phases("latency max", "max_ms")
    add("p99 with / without", lambda result: f"{result['p99_ratio']:.1f} x", end_section=True)
    phases("event loop's delay p99", "lag_p99_ms")
    phases("event loop's delay max", "lag_max_ms")
    return rows


def show(console: Console, figures: dict[str, Any]) -> None:
    """Print the table, and which promises were kept."""
    console.print()
    console.print(table(figures["results"]))
    for promise, outcome in figures["checks"].items():
        console.print(f"[{_COLOURS[outcome]}]{outcome:<12}[/]{promise}", highlight=False)
    noise = Noise(**figures["machine"])
    console.print(f"This machine, before and after: {noise}.", highlight=False)
    if noise.is_busy:
        console.print("It is busy with something else: run the demo again when it is not.")
    console.print(f"{figures['seconds']:.0f} seconds in all")
