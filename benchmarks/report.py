"""The rows of the table, and the table as text, Markdown and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Spread, ratio, spreads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.figures import Lag
    from benchmarks.harness import Machine

#: Seconds in other units.
MILLISECONDS, MICROSECONDS = 1e3, 1e6

_HEADER = ("figure", "asyncgrad", "beside", "result", "to reach", "reached", "remark")


@dataclass(frozen=True)
class Row:
    """One figure of a case: what was measured, what stands beside it, and what it has to reach."""

    case: str
    figure: str
    #: What `ours` and `beside` are measured in.
    unit: str
    ours: Spread
    #: The same figure of the other sides, by their names.
    beside: Mapping[str, Spread] = field(default_factory=dict)
    #: What is judged: a ratio to one of the sides, or `ours` itself where it is None.
    ratio: Spread | None = None
    #: The side that the ratio is to.
    to: str | None = None
    to_reach: float | None = None
    #: Whether the result has to be that much or more, rather than that much or less.
    at_least: bool = False
    note: str = ""

    @property
    def result(self) -> float:
        """The number that is held against `to_reach`."""
        return self.ours.median if self.ratio is None else self.ratio.median

    @property
    def reached(self) -> bool | None:
        """Whether the target was reached; None where there is none."""
        if self.to_reach is None:
            return None
        return self.result >= self.to_reach if self.at_least else self.result <= self.to_reach

    def as_dict(self) -> dict[str, Any]:
        """The fields and the verdict, for JSON."""
        return asdict(self) | {"result": self.result, "reached": self.reached}


@dataclass(frozen=True)
class Missing:
    """A case that could not be run, and why."""

    case: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def compared(
    case: str,
    figure: str,
    samples: Mapping[str, Sequence[float]],
    *,
    ours: str,
    to: str,
    unit: str = "ms",
    scale: float = MILLISECONDS,
    to_reach: float | None = None,
    at_least: bool = False,
    note: str = "",
) -> Row:
    """A row for the ratio between two sides of `interleave`."""
    sides = {name: spread.scaled(scale) for name, spread in spreads(samples).items()}
    return Row(
        case,
        figure,
        unit,
        sides.pop(ours),
        {to: sides[to]},
        ratio(samples[ours], samples[to]),
        to,
        to_reach,
        at_least,
        note,
    )


def lags(
    case: str,
    figure: str,
    samples: Mapping[str, Sequence[Lag]],
    *,
    ours: str,
    p99: float | None = None,
    worst: float | None = None,
    note: str = "",
) -> list[Row]:
    """The two rows for the lag of a ticker: its p99 and its maximum in a repetition."""
    rows = []
    for name, pick, target in (
        ("p99", lambda lag: lag.p99, p99),
        ("max", lambda lag: lag.worst, worst),
    ):
        sides = {
            side: Spread.of([pick(lag) for lag in seen]).scaled(MILLISECONDS)
            for side, seen in samples.items()
        }
        rows.append(
            Row(
                case,
                f"{figure}: lag {name}",
                "ms",
                sides.pop(ours),
                sides,
                to_reach=target,
                note=note,
            )
        )
    return rows


def as_text(rows: Sequence[Row | Missing], machine: Machine, load: tuple[float, float]) -> str:
    """The table for a terminal, with the machine below it."""
    lines = [_HEADER, *(_cells(row) for row in rows if isinstance(row, Row))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
    text = []
    case = None
    for row, line in zip((None, *(r for r in rows if isinstance(r, Row))), lines, strict=True):
        if row is not None and row.case != case:
            case = row.case
            text.append(f"-- {case}")
        text.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    text += [f"-- {row.case}: not run: {row.reason}" for row in rows if isinstance(row, Missing)]
    text.append(_where(machine, load))
    return "\n".join(line.rstrip() for line in text)


def as_markdown(rows: Sequence[Row | Missing], machine: Machine, load: tuple[float, float]) -> str:
    """The table for the README and the docs, with the machine below it."""
    lines = [
        f"| case | {' | '.join(_HEADER)} |",
        f"| --- {'| --- ' * len(_HEADER)}|",
    ]
    lines += [f"| {row.case} | {' | '.join(_cells(row))} |" for row in rows if isinstance(row, Row)]
    lines += ["", _where(machine, load)]
    lines += [
        f"`{row.case}` was not run: {row.reason}." for row in rows if isinstance(row, Missing)
    ]
    return "\n".join(lines) + "\n"


def save_json(
    path: Path,
    rows: Iterable[Row | Missing],
    machine: Machine,
    load: tuple[float, float],
    **run: Any,
) -> None:
    """Save all that was measured, and where."""
    record = {
        "machine": machine.as_dict(),
        "load": {"before": load[0], "after": load[1]},
        "run": run,
        "rows": [row.as_dict() for row in rows],
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _where(machine: Machine, load: tuple[float, float]) -> str:
    """The machine in one sentence."""
    kernels = f"Numba {machine.numba}, " if machine.numba else ""
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.system}; Python {machine.python}, "
        f"NumPy {machine.numpy} with {machine.blas}, PyTorch {machine.torch}, "
        f"{kernels}uvloop {machine.uvloop or 'absent'}; load {load[0]:.2f} before, "
        f"{load[1]:.2f} after."
    )


def _cells(row: Row) -> tuple[str, ...]:
    """The cells of a row, in the order of the header."""
    verdict = {None: "", True: "yes", False: "NO"}[row.reached]
    sign = "≥" if row.at_least else "≤"
    target = "" if row.to_reach is None else f"{sign} {row.to_reach:g}"
    if row.ratio is None:
        result = f"{number(row.ours.median)} {row.unit}"
        target = target and f"{target} {row.unit}"
    else:
        result = (
            f"{row.ratio.median:.2f} [{row.ratio.lower:.2f}, {row.ratio.upper:.2f}] of {row.to}"
        )
    beside = "; ".join(f"{name} {number(side.median)}" for name, side in row.beside.items())
    return row.figure, _spread(row.ours, row.unit), beside, result, target, verdict, row.note


def _spread(spread: Spread, unit: str) -> str:
    """A median with its quartiles."""
    if spread.count == 1:
        return f"{number(spread.median)} {unit}"
    return f"{number(spread.median)} [{number(spread.lower)}, {number(spread.upper)}] {unit}"


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
