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

Forward and backward of every function of the table, and training steps of four networks, in
PyTorch's time on one thread: a ratio below 1 is quicker. Both take turns in one process, after a
look at whether their results agree; a ratio is one of medians. What has no gradient is computed
only.
Functions with other arguments stand there several times, with a word in brackets. What is above the
bound says why.

Made by `python -m benchmarks --only models,small,large --json figures.json` and
`python -m benchmarks.page figures.json`, on: {machine}.
"""
_KERNELS = """## What the kernels do

- **Convolution.** Where rows are short, some images of a batch are put side by side: each element
  becomes a vector over the images. The windows are copied as columns into one workspace, about a
  megabyte at a time, all parts of nearly the same length. Between its rows are a few unused
  elements, because rows whose distance is a power of two share lines of the cache: BLAS takes 1.7
  times as long for them. Products are cut into parts of a million multiplications at most, which
  OpenBLAS computes without packing the operands (0.36 ms instead of 0.48 ms for 19 million). The
  gradient by the weight is computed with the columns first; with the few rows of the output's
  gradient first it takes nearly twice as long. Strided convolutions add up the gradient by the
  input in the same layout.
- **Normalisation.** BLAS adds up the images of a batch (9 us instead of 58 us for 128 images of 16
  channels, 8x8). The gradients of a layer norm's weight and bias are added up block by block while
  that of its input is computed. Values of channels are spread over their places first, because
  NumPy would go through channels of few places one by one.
- **Rows and columns.** NumPy copies a row or column that is broadcast against rows that are shorter
  than its buffers. Kernels run with buffers of 2048 elements instead of 8192: 6.6 us instead of
  13.2 us for 32 rows of 2048 elements.
- **Bounds.** NumPy's `maximum` of an array and a number takes 2.5 times as long as that of two
  arrays, so kernels compare with an array that holds the number.
- **Attention.** The scores of some queries are computed at a time. The queries are scaled instead
  of the scores, BLAS adds up the exponentials, and results are divided instead of weights. Causal
  masks are remembered by shape.
- **gelu** is a polynomial and one `tanh`, block by block in the cache.

What was measured on one thread and left out:

- **numexpr** takes 22 ms for gelu of a million elements, NumPy block by block 1.9 ms, PyTorch 0.5
  ms. The package is built without Intel's library of vector functions.
- **Numba** takes 17 ms for the same, without Intel's library, too. It takes 0.23 s to import and
  half a second to compile that function. As columns of a convolution (128 images of 16 channels,
  8x8) its loops take 0.86 ms and the products 0.33 ms; the whole convolution takes 0.76 ms here.
- **A product for each image** needs no images side by side, but NumPy copies rows of 8 elements:
  1.15 ms for the same convolution.
- **Saving the normal distribution** for gelu's gradient would take 1.3 ms instead of 3.0 ms for a
  million elements, and as much memory as the input.
- **A maximum by halves** takes up to twice as long as NumPy's for rows of 64 elements.
"""
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
    return "\n".join([*parts, _KERNELS])


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
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; Python "
        f"{machine['python']}, NumPy {machine['numpy']}, PyTorch {machine['torch']}, uvloop "
        f"{machine['uvloop']}; load {before:.2f} before, {after:.2f} after"
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
