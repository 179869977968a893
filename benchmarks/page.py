"""The page of the functions' speed: `python -m benchmarks.page FIGURES.json ...`.

The figures are those saved by `python -m benchmarks --only models,small,large --json FIGURES.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"

_HEAD = """# How fast the functions are

Forward and backward of every function of the table, and training steps of four networks, in
PyTorch's time on one thread: a ratio below 1 is quicker. Both take turns in one process, after a
look at whether their results agree; a ratio is one of medians. What has no gradient is computed
only.
Functions with other arguments stand there several times, with a word in brackets. What is above the
bound says why.

Made by `python -m benchmarks --only models,small,large --json figures.json` and
`python -m benchmarks.page figures.json`, on: {machine}.
"""
_TITLES = {
    "models": "Training steps",
    "small": "16 elements",
    "large": "4 M elements in the largest array (products of matrices: 512x512)",
}


def page(runs: list[dict[str, Any]]) -> str:
    """The page, as Markdown, from the figures of one run or of several on one machine."""
    machine = runs[0]["machine"]
    load = {"before": runs[0]["load"]["before"], "after": runs[-1]["load"]["after"]}
    where = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python "
        f"{machine['python']}, NumPy {machine['numpy']}, PyTorch {machine['torch']}; load "
        f"{load['before']:.1f} before, {load['after']:.1f} after"
    )
    parts = [_HEAD.format(machine=where)]
    for case, title in _TITLES.items():
        found = [row for run in runs for row in run["rows"]]
        rows = [row for row in found if row["case"] == case and "figure" in row]
        if rows:
            parts.append(f"## {title}\n\n{_table(rows)}")
    return "\n".join(parts)


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
    PAGE.write_text(page(saved), encoding="utf-8")
