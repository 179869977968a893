"""The picture of an event loop: how late a ticker is while a backward pass runs beside it.

`python -m benchmarks.plot [PATH.svg]` draws three programs that do the same pass: PyTorch's
backward on the loop, the same in `asyncio.to_thread`, and asyncgrad's awaited.
"""

from __future__ import annotations

import asyncio
import sys
import time
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

#: Where the README looks for it.
PICTURE = Path(__file__).parent.parent / "docs" / "img" / "event_loop.svg"

#: Seconds of quiet before and after the pass.
MARGIN = 0.06

#: The least lag that the picture shows, in ms.
FLOOR = 0.02

#: How often each program is run; the one with the median of the worst lags is drawn.
RUNS = 7


@dataclass(frozen=True)
class Recording:
    """The ticks of one program, and when its pass ran, in ms from the start of the pass."""

    moments: np.ndarray
    lags: np.ndarray
    #: How long the pass took.
    end: float

    @property
    def worst(self) -> float:
        """The greatest lag among the ticks that were due while the pass ran."""
        due = self.moments - self.lags
        return float(self.lags[(self.moments >= 0) & (due <= self.end)].max())


async def record(layers: Layers, backward: Callable[[Any], Any]) -> Recording:
    """Run one pass beside a ticker, with some quiet round it."""
    layers.forget()
    loss = layers.loss()
    async with Ticker() as ticker:
        await asyncio.sleep(MARGIN)
        start = time.perf_counter()
        await backward(loss)
        end = time.perf_counter()
        await asyncio.sleep(MARGIN)
    moments, lags = np.array(ticker.ticks).T
    return Recording((moments - start) * 1e3, np.maximum(lags * 1e3, FLOOR), (end - start) * 1e3)


def recordings() -> dict[str, Recording]:
    """The three programs, taking turns; of each the run with the median of the worst lags."""
    ours = Layers.of(ag, batch=256, width=512, depth=60)
    theirs = Layers.of(torch, batch=256, width=512, depth=60)
    torch.set_num_threads(1)

    async def inline(loss: Any) -> None:
        loss.backward()

    async def in_thread(loss: Any) -> None:
        await asyncio.to_thread(loss.backward)

    async def awaited(loss: Any) -> None:
        await loss.backward()

    programs = {
        "loss.backward()  ·  PyTorch on the loop": (theirs, inline),
        "await asyncio.to_thread(loss.backward)  ·  PyTorch": (theirs, in_thread),
        "await loss.backward()  ·  asyncgrad": (ours, awaited),
    }
    seen: dict[str, list[Recording]] = {name: [] for name in programs}
    with event_loop("asyncio") as run:
        for _ in range(RUNS + 1):
            for name, (layers, backward) in programs.items():
                seen[name].append(run(lambda a=layers, b=backward: record(a, b)))
    # The first run of each warms it up.
    return {
        name: sorted(each[1:], key=lambda one: one.worst)[RUNS // 2] for name, each in seen.items()
    }


def draw(path: Path = PICTURE) -> None:
    """Measure, and save the picture."""
    programs = recordings()
    span = max(one.end for one in programs.values()) + MARGIN * 1e3
    figure, axes = plt.subplots(
        len(programs), 1, figsize=(8.4, 5.4), sharex=True, sharey=True, layout="constrained"
    )
    for axis, (name, one), colour in zip(
        axes, programs.items(), ("#c0392b", "#b9770e", "#1e8449"), strict=True
    ):
        axis.axvspan(0, one.end, color="#eef1f4", lw=0)
        # One line for all stems, broken between them: a small file.
        stems = np.array([np.full_like(one.lags, FLOOR), one.lags, np.full_like(one.lags, np.nan)])
        axis.plot(np.repeat(one.moments, 3), stems.T.ravel(), color=colour, lw=0.8, alpha=0.5)
        axis.plot(one.moments, one.lags, ".", color=colour, ms=3.5)
        ticks = int(((one.moments > 0) & (one.moments < one.end)).sum())
        axis.set_title(name, loc="left", fontsize=10.5, color=colour, fontweight="bold")
        axis.text(
            4,
            650,
            f"pass {one.end:.0f} ms, loop woke {ticks} times meanwhile, at worst "
            f"{one.worst:.1f} ms late",
            va="top",
            fontsize=9,
            color="#444",
        )
        axis.set_yscale("log")
        axis.set_ylim(FLOOR, 1000)
        axis.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        axis.axhline(1, color="#999", lw=0.6, ls=":")
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_ylabel("how late a 1 ms ticker was woken, in ms")
    axes[-1].set_xlabel("ms since the backward pass began (shaded while it runs)")
    axes[-1].set_xlim(-MARGIN * 1e3, span)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(
        path, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None
    )
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
