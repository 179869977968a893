"""What instruments cost that are off: the branches that ask for hooks and observers.

The same commit is measured twice, as it is and with those branches taken out of its source, by the
instructions that a processor executes (Valgrind's callgrind counts them): that figure is the same
on a busy machine, and resolves what a clock can't.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import asyncgrad
from benchmarks.figures import Spread
from benchmarks.harness import NotThereError
from benchmarks.report import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Setting

#: The files in which a pass asks whether it is observed.
_MODULES = ("core/graph_task.py", "scheduler/worker.py", "autograd/new_pass.py")
#: The names that are None, and those that are false, in a pass that is not observed.
_NONE, _FALSE = frozenset({"extras", "observer"}), frozenset({"careful"})

#: Builds a chain of so many nodes, and runs its backward pass or does not.
_SCRIPT = """
import gc, sys
import asyncgrad as ag
gc.disable()
y = x = ag.ones(16, requires_grad=True)
for _ in range(int(sys.argv[1])):
    y = y * 1.0
loss = y.sum()
if sys.argv[2] == "backward":
    loss.backward()
"""


class WithoutInstruments(ast.NodeTransformer):
    """Takes out what only runs while a hook or an observer is there, and the question."""

    def __init__(self) -> None:
        """Nothing is taken out yet."""
        self.count = 0

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """`node.extras is None` is true."""
        left = node.left
        if (
            isinstance(left, ast.Attribute)
            and left.attr in _NONE
            and isinstance(node.ops[0], ast.Is | ast.IsNot)
        ):
            self.count += 1
            return ast.Constant(isinstance(node.ops[0], ast.Is))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """`careful` is false."""
        if node.id in _FALSE and isinstance(node.ctx, ast.Load):
            self.count += 1
            return ast.Constant(False)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Of `and` and `or` what is not known remains."""
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        values = []
        for value in node.values:
            if isinstance(value, ast.Constant) and value.value is decides:
                return value
            if not (isinstance(value, ast.Constant) and value.value is not decides):
                values.append(value)
        if not values:
            return ast.Constant(not decides)
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        """Of an `if` whose condition is known one branch remains."""
        self.generic_visit(node)
        if not (isinstance(node.test, ast.Constant) and isinstance(node.test.value, bool)):
            return node
        return (node.body if node.test.value else node.orelse) or ast.Pass()


def strip(source: str) -> tuple[str, int]:
    """A module without its instruments, and how many questions have been taken out."""
    transformer = WithoutInstruments()
    tree = transformer.visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree)), transformer.count


def measure(setting: Setting) -> Iterator[Row]:
    """The instructions for a node of a backward pass, with and without the branches."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotThereError("valgrind is not installed")
    nodes = 2_000 if setting.quick else 20_000
    package = Path(asyncgrad.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        counts = {}
        for name in ("as it is", "without"):
            # Both packages are copies with paths of equal length, so that only the lines differ.
            root = Path(folder) / name.replace(" ", "-").ljust(8, "-")
            copy = root / "asyncgrad"
            shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
            taken = 0
            for module in _MODULES if name == "without" else ():
                source, count = strip((copy / module).read_text(encoding="utf-8"))
                (copy / module).write_text(source, encoding="utf-8")
                taken += count
            if name == "without" and not taken:
                raise AssertionError("instruments: there is nothing to take out")
            forward, both = (
                _instructions(valgrind, root, nodes, what) for what in ("forward", "backward")
            )
            counts[name] = (both - forward) / nodes
    ours, without = (Spread.of([counts[name]]) for name in ("as it is", "without"))
    yield Row(
        "instruments",
        "one node of a backward pass, tracing and hooks off",
        "instructions",
        ours,
        {"branches removed": without},
        ratio=Spread.of([counts["as it is"] / counts["without"]]),
        to="branches removed",
        to_reach=1.03,
    )


def _instructions(valgrind: str, root: Path, nodes: int, what: str) -> int:
    """How many instructions a process executes."""
    environment = os.environ | {
        "PYTHONPATH": str(root),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", _SCRIPT, str(nodes), what]
    # Once without the counter, so that bytecode is written and caches are filled.
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd=root)
    counter = [valgrind, "--tool=callgrind", f"--callgrind-out-file={os.devnull}"]
    done = subprocess.run(
        [*counter, *command], check=True, capture_output=True, text=True, env=environment, cwd=root
    )
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if collected is None:
        raise AssertionError(f"instruments: callgrind has counted nothing: {done.stderr[-500:]}")
    return int(collected[1])
