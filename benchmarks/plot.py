"""The picture of many passes at once: when they end, and how late requests are meanwhile.

`python -m benchmarks.plot [PATH.svg]` draws the same passes in PyTorch, each in
`asyncio.to_thread`, and in asyncgrad, each awaited. Later an urgent one starts, and one is
cancelled.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import torch

import asyncgrad as ag
from benchmarks.graphs import Layers
from benchmarks.harness import Ticker, event_loop

if TYPE_CHECKING:
    from collections.abc import Callable

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "asyncgrad", "font.size": 10}

from matplotlib import pyplot as plt  # noqa: E402  # backend chosen above

#: The picture that the README shows.
PICTURE = Path(__file__).parent.parent / "docs" / "img" / "event_loop.svg"
#: How many passes start at once.
PASSES = 40
#: When the urgent pass starts, and when a running one is cancelled, in seconds.
URGENT, CANCELLED = 0.04, 0.06
#: The least lag that the picture shows, in ms.
FLOOR = 0.02
#: How often each program is run; the one with the median wait of the urgent pass is drawn.
RUNS = 5
_GREY, _RED, _AMBER = "#95a5a6", "#c0392b", "#d68910"


@dataclass
class Pass:
    """Moments of one pass in seconds; it computes between the last two."""

    started: float
    computes: float = 0.0
    ended: float = 0.0
    #: The moment of its cancellation; None if it was not cancelled.
    cancelled: float | None = None

    @property
    def takes(self) -> float:
        """From its start to its end."""
        return self.ended - self.started


@dataclass(frozen=True)
class Recording:
    """One program: its passes, the urgent one last, and (moment, lateness) of requests."""

    passes: list[Pass]
    ticks: np.ndarray

    @property
    def end(self) -> float:
        """When the last pass had ended."""
        return max(one.ended for one in self.passes)


async def in_thread(loss: Any, urgent: bool, seen: Pass) -> None:
    """PyTorch's pass in a thread."""

    def work() -> None:
        seen.computes = time.perf_counter()
        loss.backward()
        seen.ended = time.perf_counter()

    await asyncio.to_thread(work)


async def awaited(loss: Any, urgent: bool, seen: Pass) -> None:
    """asyncgrad's pass."""
    seen.computes = time.perf_counter()
    try:
        await loss.backward(priority=int(urgent))
    finally:
        seen.ended = time.perf_counter()


async def record(graphs: list[Layers], program: Callable[..., Any]) -> Recording:
    """Run all passes beside a ticker."""
    for layers in graphs:
        layers.forget()
    losses = [layers.loss() for layers in graphs]
    passes: list[Pass] = []
    tasks: list[asyncio.Task[None]] = []

    def start(loss: Any, urgent: bool) -> None:
        passes.append(Pass(time.perf_counter()))
        tasks.append(asyncio.create_task(program(loss, urgent, passes[-1])))

    async with Ticker() as ticker:
        begin = time.perf_counter()
        for loss in losses[:-1]:
            start(loss, urgent=False)
        await asyncio.sleep(URGENT)
        start(losses[-1], urgent=True)
        await asyncio.sleep(CANCELLED - URGENT)
        place = next(n for n, one in enumerate(passes) if one.computes and not one.ended)
        passes[place].cancelled = time.perf_counter() - begin
        tasks[place].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[place]
        tasks.pop(place)
        await asyncio.gather(*tasks)
        # The thread of a cancelled pass may still compute.
        await asyncio.get_running_loop().shutdown_default_executor()
    for one in passes:
        one.started, one.computes, one.ended = (
            moment - begin for moment in (one.started, one.computes, one.ended)
        )
    ticks = np.array(ticker.ticks)
    return Recording(passes, ticks - [begin, 0.0])


def recordings() -> dict[str, Recording]:
    """Both programs, taking turns; of each the run with the median wait of the urgent pass."""
    programs = {
        "PyTorch: await asyncio.to_thread(loss.backward)": (torch, in_thread),
        "asyncgrad: await loss.backward()": (ag, awaited),
    }
    torch.set_num_threads(1)
    graphs = {
        name: [
            Layers.of(lib, batch=256, width=256, depth=8, seed=seed) for seed in range(PASSES + 1)
        ]
        for name, (lib, _) in programs.items()
    }
    seen: dict[str, list[Recording]] = {name: [] for name in programs}
    for _ in range(RUNS + 1):
        for name, (_, program) in programs.items():
            # On a loop of its own: a living engine would change how the system treats the loop.
            with event_loop("asyncio") as run:
                seen[name].append(run(lambda g=graphs[name], p=program: record(g, p)))
    # The first run of each program is left out: it fills caches.
    return {
        name: sorted(each[1:], key=lambda one: one.passes[-1].takes)[RUNS // 2]
        for name, each in seen.items()
    }


def draw(path: Path = PICTURE) -> None:
    """Measure, and save the picture."""
    programs = recordings()
    figure, axes = plt.subplots(
        2,
        len(programs),
        figsize=(8.8, 5.2),
        sharex=True,
        sharey="row",
        height_ratios=(3, 1.4),
        layout="constrained",
    )
    for (above, below), (name, one) in zip(axes.T, programs.items(), strict=True):
        _draw_passes(above, one)
        above.set_title(name, loc="left", fontsize=10, fontweight="bold")
        moments, lags = one.ticks.T * 1e3
        below.plot(moments, np.maximum(lags, FLOOR), ".", color="#1f618d", ms=3)
        below.text(
            0.02,
            0.97,
            f"requests: at worst {lags[moments <= one.end * 1e3].max():.1f} ms late",
            transform=below.transAxes,
            va="top",
            fontsize=8.5,
        )
        below.set_yscale("log")
        below.set_ylim(FLOOR, 200)
        below.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        below.set_xlabel("ms")
        for axis in (above, below):
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel(f"{PASSES} passes and an urgent one")
    axes[1, 0].set_ylabel("a 1 ms ticker\nis late by, ms")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(
        path, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None
    )
    plt.close(figure)


def _draw_passes(axis: Any, one: Recording) -> None:
    """A line for each pass: thin while it waits for a thread, thick from there to its end."""
    axis.set_yticks([])
    axis.set_ylim(PASSES + 1, -11)
    urgent = one.passes[-1]
    (gone,) = [each for each in one.passes if each.cancelled is not None]
    assert gone.cancelled is not None
    for place, each in enumerate([urgent, *one.passes[:-1]]):
        end = each.ended if each.cancelled is None else min(each.ended, each.cancelled)
        colour = _RED if each is urgent else _AMBER if each is gone else _GREY
        for start, width in ((each.started, 0.6), (each.computes, 2.6)):
            axis.plot([start * 1e3, end * 1e3], [place] * 2, color=colour, lw=width)
        if each is gone:
            axis.plot([end * 1e3, each.ended * 1e3], [place] * 2, ":", color=colour, lw=2.6)
            axis.plot(end * 1e3, place, "x", color="black", ms=7, mew=1.6)
    lines = (
        (f"urgent: ends after {urgent.takes * 1e3:.0f} ms", _RED),
        (f"cancelled: computes on for {(gone.ended - gone.cancelled) * 1e3:.1f} ms", _AMBER),
        (f"all: {one.end * 1e3:.0f} ms", "#444"),
    )
    for number, (text, colour) in enumerate(lines):
        axis.text(
            0.02, 0.985 - 0.065 * number, text, color=colour, va="top", fontsize=9,
            transform=axis.transAxes,
        )  # fmt: skip


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
