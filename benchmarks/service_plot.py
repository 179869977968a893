"""The picture of a service that learns: how long predictions take, on all sides of the load test.

`python -m benchmarks.service_plot [PATH.svg]` measures anew, draws for each side what so many of a
hundred predictions did not exceed, and prints the table of the same turns.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from benchmarks.harness import Machine, Setting, load
from benchmarks.report import as_markdown
from benchmarks.service import CONNECTIONS, IDLE, rows_of, turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.service import Turn

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "asyncgrad", "font.size": 10}

from matplotlib import pyplot as plt  # noqa: E402  # backend chosen above

#: The picture that docs/serving.md shows.
PICTURE = Path(__file__).parent.parent / "docs" / "img" / "service.svg"

#: The sides, as the picture names and colours them.
NAMES = {
    "inline": ("PyTorch, steps on the loop", "#c0392b"),
    "to_thread": ("PyTorch, steps in asyncio.to_thread", "#b9770e"),
    "asyncgrad": ("asyncgrad, awaited steps", "#1e8449"),
    IDLE: ("asyncgrad, no learning", "#8a94a3"),
}
#: The plotted shares of slower requests in percent, from all to one in a thousand.
SLOWER = np.logspace(2, -1, 121)


def draw(rate: float, seen: Mapping[str, Sequence[Turn]], path: Path) -> None:
    """Save the picture of some turns."""
    figure, axis = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
    for side, (name, colour) in NAMES.items():
        one = median_turn(seen[side])
        percent = [1e3 * one.percentile(100 - slower) for slower in SLOWER]
        label = f"{name}: p99 {1e3 * one.percentile(99):.1f} ms"
        if side != IDLE:
            label += f", {one.steps:.0f} steps/s"
        style = "--" if side == IDLE else "-"
        axis.plot(SLOWER, percent, style, color=colour, lw=1.8, label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(100, 0.1)
    axis.set_xticks([50, 10, 1, 0.1], ["p50", "p90", "p99", "p99.9"])
    axis.minorticks_off()
    axis.axvline(1, color="#999", lw=0.6, ls=":")
    axis.set_ylabel("a prediction takes, in ms")
    axis.set_title(
        f"{rate:.0f} predictions a second on {CONNECTIONS} connections while the service learns",
        loc="left", fontsize=10.5, fontweight="bold",
    )  # fmt: skip
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(
        path, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None
    )
    plt.close(figure)


def median_turn(turns: list[Turn]) -> Turn:
    """The one whose p99 is in the middle."""
    return sorted(turns, key=lambda turn: turn.percentile(99))[len(turns) // 2]


def main() -> None:
    """Measure, draw, and print."""
    before = load()
    rate, seen = turns(Setting())
    draw(rate, seen, Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
    print(as_markdown([*rows_of(rate, seen)], Machine.here(), (before, load())))


if __name__ == "__main__":
    main()
