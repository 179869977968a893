"""A chain of 1,000,000 nodes against one of 1,000: does the cost of a node depend on the graph?

Each library runs in a process of its own (`python -m benchmarks.million asyncgrad`), so that the
cycle collector walks its objects alone; the two lengths take turns within it.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Spread, ratio
from benchmarks.graphs import Chain
from benchmarks.memory import resident_bytes
from benchmarks.report import MICROSECONDS, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Setting

#: The phases of a chain's life, and what each may cost per node at most: (figure, ratio to the
#: short chain with the collector on, the same with it off, us).
PHASES = (
    ("build", 3.5, 1.5, None),
    ("run", 1.5, 1.5, None),
    ("free after the run", None, None, 0.4),
    ("free without a run", None, None, 0.4),
)


def measure(setting: Setting) -> Iterator[Row]:
    """Per node: build, run and free a long chain against a short one, and bytes."""
    long = 100_000 if setting.quick else 1_000_000
    turns = setting.repetitions(3)
    children = {
        (library, collector): _child(library, collector, long, turns)
        for library in ("asyncgrad", "torch")
        for collector in ("on", "off")
    }
    for collector in ("on", "off"):
        ours, theirs = children["asyncgrad", collector], children["torch", collector]
        for phase, with_collector, without, microseconds in PHASES:
            long_chain, short_chain = ours["long"][phase], ours["short"][phase]
            spread = Spread.of(long_chain).scaled(MICROSECONDS)
            beside = {
                "1,000 nodes": Spread.of(short_chain).scaled(MICROSECONDS),
                "torch": Spread.of(theirs["long"][phase]).scaled(MICROSECONDS),
                "torch 1,000 nodes": Spread.of(theirs["short"][phase]).scaled(MICROSECONDS),
            }
            figure = f"{long:,} nodes, collector {collector}: {phase}"
            if microseconds is not None:
                yield Row("million", figure, "us/node", spread, beside, to_reach=microseconds)
            else:
                yield Row(
                    "million",
                    figure,
                    "us/node",
                    spread,
                    beside,
                    ratio(long_chain, short_chain),
                    "1,000 nodes",
                    with_collector if collector == "on" else without,
                )
    ours, theirs = children["asyncgrad", "off"], children["torch", "off"]
    for figure, key in (("resident", "resident"), ("as allocated by Python", "traced")):
        yield Row(
            "million",
            f"memory of the graph before its pass, {figure}",
            "bytes/node",
            Spread.of([ours[key]]),
            {"torch": Spread.of([theirs[key]])} if key == "resident" else {},
        )


def _child(library: str, collector: str, nodes: int, turns: int) -> dict[str, Any]:
    """Run `main` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.million", library]
    command += ["--collector", collector, "--nodes", str(nodes), "--turns", str(turns)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _live(chain: Chain, nodes: int) -> dict[str, float]:
    """Seconds per node of each phase of one chain's life."""
    x = chain.leaf()
    moments = [time.perf_counter()]
    loss = chain.loss(x, nodes)
    moments.append(time.perf_counter())
    loss.backward()
    moments.append(time.perf_counter())
    del loss
    moments.append(time.perf_counter())
    loss = chain.loss(x, nodes)
    start = time.perf_counter()
    del loss
    unused = time.perf_counter() - start
    spans = [b - a for a, b in itertools.pairwise(moments)]
    return {
        phase: seconds / nodes
        for (phase, *_), seconds in zip(PHASES, [*spans, unused], strict=True)
    }


def _short(chain: Chain, total: int) -> dict[str, float]:
    """The medians over many chains of 1,000."""
    lives = [_live(chain, 1000) for _ in range(max(5, total // 10_000))]
    return {phase: statistics.median(life[phase] for life in lives) for phase, *_ in PHASES}


def main() -> None:
    """Measure one library, and print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=("asyncgrad", "torch"))
    parser.add_argument("--collector", choices=("on", "off"), default="on")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    chain = Chain.of(importlib.import_module(options.library))
    _live(chain, 1000)
    if options.collector == "off":
        gc.disable()
    figures: dict[str, Any] = {}

    # Only the first large graph shows in the resident memory: later ones reuse it.
    before = resident_bytes()
    loss = chain.loss(chain.leaf(), options.nodes)
    figures["resident"] = (resident_bytes() - before) / options.nodes
    del loss

    lives: dict[str, list[dict[str, float]]] = {"short": [], "long": []}
    for _ in range(options.turns):
        lives["short"].append(_short(chain, options.nodes))
        lives["long"].append(_live(chain, options.nodes))
    for length, seen in lives.items():
        figures[length] = {phase: [life[phase] for life in seen] for phase, *_ in PHASES}

    traced = options.nodes // 10
    tracemalloc.start()
    loss = chain.loss(chain.leaf(), traced)
    figures["traced"] = tracemalloc.get_traced_memory()[0] / traced
    tracemalloc.stop()
    del loss
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
