"""The figures in the documents: `python -m benchmarks.page FIGURES.json ...`.

The files are those of `python -m benchmarks --json FIGURES.json`, one or several of one machine.
The page of the functions' speed is written anew if they have its figures; in the tables of the
others each row that was measured takes its new figures.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import number

_ROOT = Path(__file__).parents[1]
SPEED = _ROOT / "docs" / "speed.md"
TABLES = (_ROOT / "README.md", _ROOT / "docs" / "benchmarks.md")

_HEAD = """# How fast the functions are

Forward and backward of every function of the table, and training steps of four networks, beside
PyTorch on one thread. Times are medians, and a ratio is asyncgrad's by PyTorch's: below 1,
asyncgrad is quicker. Both libraries take turns in one process, after a check that their results
agree. Functions that have no gradient are only called. A function that is also measured with other
arguments has further rows, with a word in brackets. Where a ratio is in bold, it is above the
bound, and the last column says why.

Made by `python -m benchmarks --only models,small,large --json figures.json` and
`python -m benchmarks.page figures.json`, on: {machine}.
"""
#: What follows the figures is written by hand, and stays.
_KERNELS = "## What the kernels do"
#: The cells of a row of figures.
_COLUMNS = 6
_TITLES = {
    "models": "Training steps",
    "small": "16 elements",
    "large": "4 M elements in the largest array (products of matrices: 512x512)",
}


def speed_page(runs: list[dict[str, Any]]) -> str:
    """The page of the functions' speed, as Markdown, from the figures of some runs."""
    parts = [_HEAD.format(machine=_where(runs))]
    for case, title in _TITLES.items():
        rows = [row for row in _rows(runs) if row["case"] == case]
        if rows:
            parts.append(f"## {title}\n\n{_table(rows)}")
    _, heading, kernels = SPEED.read_text(encoding="utf-8").partition(_KERNELS)
    return "\n".join([*parts, heading + kernels])


def refreshed(text: str, runs: list[dict[str, Any]]) -> str:
    """A page with the figures of some runs in the place of those it has."""
    measured = {(row["figure"], row["to"]): row for row in _rows(runs)}
    lines = text.split("\n")
    for place, line in enumerate(lines):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == _COLUMNS:
            row = measured.get((cells[0], cells[3].partition(" of ")[2] or None))
            if row is not None:
                lines[place] = f"| {' | '.join(_cells(row))} |"
    return re.sub(r"(?<=Machine: ).* after(?=\.)", _where(runs), "\n".join(lines))


def _rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all runs but of those cases that were not run."""
    return [row for run in runs for row in run["rows"] if "figure" in row]


def _where(runs: list[dict[str, Any]]) -> str:
    """The machine and its load."""
    machine = runs[0]["machine"]
    before, after = runs[0]["load"]["before"], runs[-1]["load"]["after"]
    kernels = f"Numba {machine['numba']}, " if machine.get("numba") else ""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; Python "
        f"{machine['python']}, NumPy {machine['numpy']}, PyTorch {machine['torch']}, {kernels}"
        f"uvloop {machine['uvloop']}; load {before:.2f} before, {after:.2f} after"
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a row of figures."""
    unit = row["unit"]
    beside = "; ".join(f"{name} {number(side['median'])}" for name, side in row["beside"].items())
    aim = ""
    if row["to_reach"] is not None:
        aim = f"{'≥' if row['at_least'] else '≤'} {row['to_reach']:g}"
    result = f"{row['result']:.2f} of {row['to']}"
    if row["ratio"] is None:
        result = f"{number(row['result'])} {unit}"
        aim = aim and f"{aim} {unit}"
    reached = {None: "", True: "yes", False: "**no**"}[row["reached"]]
    return row["figure"], f"{number(row['ours']['median'])} {unit}", beside, result, aim, reached


def _table(rows: list[dict[str, Any]]) -> str:
    lines = []
    if rows[0]["ratio"] is None:
        first, *rows = rows
        spread = first["ours"]
        above = sum(not row["reached"] for row in rows)
        lines.append(
            f"**{first['figure'].capitalize()}: {first['result']:.2f}** of PyTorch's time (to "
            f"reach: {first['to_reach']:g}; quartiles {spread['lower']:.2f} and "
            f"{spread['upper']:.2f}). "
            f"{above} are above {rows[0]['to_reach']:g}.\n"
        )
    lines += ["| | asyncgrad | PyTorch | ratio | why |", "| --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        (beside,) = row["beside"].values()
        ours, theirs = (f"{side['median']:.3g} {row['unit']}" for side in (row["ours"], beside))
        ratio = f"{row['result']:.2f}"
        ratio = ratio if row["reached"] else f"**{ratio}**"
        lines.append(f"| {row['figure']} | {ours} | {theirs} | {ratio} | {row['note']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    saved = [json.loads(Path(path).read_text("utf-8")) for path in sys.argv[1:]]
    if _TITLES.keys() <= {row["case"] for row in _rows(saved)}:
        SPEED.write_text(speed_page(saved), encoding="utf-8")
    for page in TABLES:
        page.write_text(refreshed(page.read_text("utf-8"), saved), encoding="utf-8")
