"""What a world's processes count, in one text for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from asyncgrad.scheduler import engine


def counted(kept: Mapping[str, float]) -> dict[str, float]:
    """What this process counts: what it keeps of a world, and its loop's engine."""
    own = {f"asyncgrad_world_{name}": value for name, value in kept.items()}
    figures = asdict(engine().statistics())
    return own | {f"asyncgrad_engine_{name}": value for name, value in figures.items()}


def text(workers: Mapping[str, Mapping[str, float]]) -> str:
    """The figures of several processes as gauges, in Prometheus' text format."""
    lines = []
    for name in sorted({name for figures in workers.values() for name in figures}):
        lines.append(f"# TYPE {name} gauge")
        lines += [
            f'{name}{{worker="{worker}"}} {float(figures[name])!r}'
            for worker, figures in workers.items()
            if name in figures
        ]
    return "\n".join([*lines, ""])
