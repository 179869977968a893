"""What it costs to have asyncgrad in a process: import time, installed size, resident memory."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Spread, ratio
from benchmarks.harness import interleave
from benchmarks.report import MILLISECONDS, Row, compared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Setting

#: The sides: a fresh installation lacks the extras SciPy and ml_dtypes.
_BARE, _WITH_SCIPY = "asyncgrad", "asyncgrad, SciPy installed"
#: Measures in a fresh interpreter how long the import takes, and what is resident after it and
#: after a first pass.
_SCRIPT = """
import importlib, json, sys, time
if {bare}:
    sys.modules["scipy"] = sys.modules["ml_dtypes"] = None
start = time.perf_counter()
library = importlib.import_module({library!r})
seconds = time.perf_counter() - start
from benchmarks.memory import resident_bytes
imported = resident_bytes()
if {library!r} != "numpy":
    x = library.ones(64, 64, requires_grad=True)
    library.tanh(x @ x).sum().backward()
print(json.dumps([seconds, imported, resident_bytes()]))
"""

_MEGABYTE = 1e-6


def measure(setting: Setting) -> Iterator[Row]:
    """Each figure against PyTorch's, with NumPy's own beside it."""

    # Installed packages have bytecode, so a source tree may write its own here.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def fresh(side: str) -> list[float]:
        script = _SCRIPT.format(library=side.split(",")[0], bare=side == _BARE)
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return json.loads(done.stdout)

    fresh(_WITH_SCIPY)

    samples = interleave(
        {name: lambda name=name: fresh(name) for name in (_BARE, _WITH_SCIPY, "torch", "numpy")},
        setting.repetitions(12),
    )
    with_scipy = [seen[0] for seen in samples.pop(_WITH_SCIPY)]
    seconds = {name: [seen[0] for seen in each] for name, each in samples.items()}
    numpy = Spread.of(seconds["numpy"]).scaled(MILLISECONDS)
    for figure, mine, to_reach in (
        ("import", seconds[_BARE], 0.18),
        ("import, SciPy installed", with_scipy, 0.25),
    ):
        sides = {**seconds, _BARE: mine}
        row = compared("footprint", figure, sides, ours=_BARE, to="torch", to_reach=to_reach)
        yield _beside_numpy(row, numpy)
    for place, figure in ((1, "resident after import"), (2, "resident after a first pass")):
        memory = {name: [seen[place] for seen in each] for name, each in samples.items()}
        row = compared(
            "footprint",
            figure,
            memory,
            ours="asyncgrad",
            to="torch",
            unit="MB",
            scale=_MEGABYTE,
            to_reach=0.25,
        )
        yield _beside_numpy(row, Spread.of(memory["numpy"]).scaled(_MEGABYTE))
    sizes = {name: [installed_bytes(name)] for name in ("asyncgrad", "torch", "numpy")}
    yield Row(
        "footprint",
        "installation with its dependencies",
        "MB",
        Spread.of(sizes["asyncgrad"]).scaled(_MEGABYTE),
        {name: Spread.of(sizes[name]).scaled(_MEGABYTE) for name in ("torch", "numpy")},
        ratio(sizes["asyncgrad"], sizes["torch"]),
        "torch",
        0.1,
    )


def installed_bytes(name: str) -> float:
    """The files of a distribution and of all that it requires, extras left out."""
    total, waiting, seen = 0, [name], set()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # A checkout that is not installed, or a requirement of another system.
            specification = importlib.util.find_spec(name.replace("-", "_"))
            if specification is not None and specification.origin is not None:
                total += _size_of_tree(Path(specification.origin).parent)
            if name == "asyncgrad":
                waiting += ["numpy", "anyio", "threadpoolctl"]
            continue
        paths = [Path(str(file.locate())) for file in distribution.files or ()]
        total += sum(path.stat().st_size for path in paths if path.is_file())
        if name == "asyncgrad" and not any(path.name == "tensor.py" for path in paths):
            # An editable installation lists a link only.
            total += _size_of_tree(Path(importlib.import_module(name).__file__ or ".").parent)
        for requirement in distribution.requires or ():
            if "extra ==" not in requirement:
                match = re.match(r"[A-Za-z0-9._-]+", requirement)
                waiting += [match.group()] if match else []
    return float(total)


def _size_of_tree(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _beside_numpy(row: Row, numpy: Spread) -> Row:
    """The row with NumPy's own figure in it."""
    return Row(**{**row.__dict__, "beside": {**row.beside, "numpy": numpy}})
