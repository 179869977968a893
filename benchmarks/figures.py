"""Medians, quartiles and ratios of what was measured. Imports nothing large."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Spread:
    """The distribution of one figure over its repetitions."""

    median: float
    lower: float
    upper: float
    worst: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarise `values`."""
        lower, median, upper = quartiles(values)
        return cls(median, lower, upper, max(values), len(values))

    def scaled(self, factor: float) -> Spread:
        """The same distribution in another unit."""
        return Spread(
            self.median * factor,
            self.lower * factor,
            self.upper * factor,
            self.worst * factor,
            self.count,
        )


@dataclass(frozen=True)
class Lag:
    """How late a ticker was woken, in seconds, while something else went on."""

    p50: float
    p99: float
    worst: float
    ticks: int


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of ascending values: always one that was seen."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The three quartiles; a single value is all three of them."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, median, upper


def spreads(samples: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Summarise each side of `interleave`."""
    return {name: Spread.of(values) for name, values in samples.items()}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The ratio of the medians, with the quartiles of the ratios turn by turn."""
    turns = [a / b for a, b in zip(ours, theirs, strict=True)]
    lower, _, upper = quartiles(turns)
    medians = statistics.median(ours) / statistics.median(theirs)
    return Spread(medians, lower, upper, max(turns), len(turns))
