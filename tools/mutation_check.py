"""Break single lines of the package at random, and see whether the tests notice.

    python tools/mutation_check.py --count 30 --seed 0
    python tools/mutation_check.py --count 30 --seed 0 --first 12 --last 15      a share of them

Each break is tried by itself, in a copy of the tree, with the tests that `tools/tests_of.py` names
for its module. The same seed breaks the same places of the same package, whatever its tests are.
Prints a line for each break, and ends with status 1 if one was missed.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests_of import ROOT, tests_of

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The folders of the package in which lines are broken.
FOLDERS = ("core", "scheduler", "ops/table", "optim", "replay")
#: Not copied with the tree: environments, caches, and what is not tested.
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "dist", "build")
_SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.BitOr: ("|", "&"), ast.BitAnd: ("&", "|"),
    ast.MatMult: ("@", "*"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


class Break(NamedTuple):
    """A change of a module: `text` in the place of its bytes from `start` to `end`."""

    module: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def of(self, source: bytes) -> bytes:
        """The module's text with the change made."""
        return source[: self.start] + self.text.encode() + source[self.end :]


class _Finder:
    """All breaks of one module."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module = module
        self.source = source
        self.found: list[Break] = []
        lines = source.splitlines(keepends=True)
        self.offsets = [0]
        for line in lines:
            self.offsets.append(self.offsets[-1] + len(line))
        self.visit(ast.parse(source))

    def place(self, node: ast.AST, *, end: bool = False) -> int:
        """The offset in bytes at which a node begins or ends."""
        if end:
            return self.offsets[node.end_lineno - 1] + node.end_col_offset
        return self.offsets[node.lineno - 1] + node.col_offset

    def add(self, node: ast.AST, kind: str, text: str, start: int = -1, end: int = -1) -> None:
        start = self.place(node) if start < 0 else start
        end = self.place(node, end=True) if end < 0 else end
        self.found.append(Break(self.module, node.lineno, kind, start, end, text))

    def visit(self, node: ast.AST) -> None:
        self.consider(node)
        for child in _running(node):
            self.visit(child)

    def consider(self, node: ast.AST) -> None:
        """Note how a node can be broken."""
        if isinstance(node, ast.BinOp):
            self.swap(node.op, node.left, node.right)
        elif isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for operator, (left, right) in zip(node.ops, pairwise(operands), strict=True):
                self.swap(operator, left, right)
        elif isinstance(node, ast.BoolOp):
            self.swap(node.op, *node.values[:2])
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                self.add(node, "constant", str(not node.value))
            elif isinstance(node.value, (int, float)):
                self.add(node, "constant", f"({node.value!r} + 1)")
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
            if not (endless or _is_for_types(node)):
                condition = self.source[self.place(node.test) : self.place(node.test, end=True)]
                self.add(node.test, "condition", f"(not ({condition.decode()}))")
        elif isinstance(node, ast.Return) and node.value is not None:
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                self.add(node, "return", "return None")
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Delete, ast.Raise)):
            # To drop the binding of a name would be noticed at once, as a NameError. So only
            # statements are dropped that change something.
            binds = isinstance(node, ast.Assign) and any(
                isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets
            )
            if not binds and not _is_text(node):
                self.add(node, "dropped", "pass")

    def swap(self, operator: ast.AST, left: ast.AST, right: ast.AST) -> None:
        """Put another operator between two operands."""
        sign, other = _SWAPPED.get(type(operator), ("", ""))
        start, end = self.place(left, end=True), self.place(right)
        between = self.source[start:end]
        place = between.find(sign.encode())
        if sign and place >= 0 and b"#" not in between:
            start += place
            self.add(left, "operator", other, start, start + len(sign))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that run, without annotations, docstrings, type checking, and slots."""
    if _is_for_types(node):
        return
    for name, value in ast.iter_fields(node):
        parts = [] if name in {"annotation", "returns", "decorator_list"} else value
        for part in parts if isinstance(parts, list) else [parts]:
            texts = isinstance(part, ast.JoinedStr) or _is_text(part)
            if isinstance(part, ast.AST) and not texts and not _of_slots(part):
                yield part


def _is_for_types(node: ast.AST) -> bool:
    """Whether a block is for type checkers alone, so that running it would change nothing."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _of_slots(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"


def breaks(seed: int, count: int) -> list[Break]:
    """Draw `count` different breaks at random."""
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / "asyncgrad" / folder).rglob("*.py")):
            module = path.relative_to(ROOT / "asyncgrad").as_posix()
            found += _Finder(module, path.read_bytes()).found
    return random.Random(seed).sample(sorted(set(found)), count)


def is_caught(one: Break, tree: Path, limit: float) -> bool:
    """Whether the tests of the broken module fail, or do not end; its own files run first."""
    path = tree / "asyncgrad" / one.module
    source = path.read_bytes()
    path.write_bytes(one.of(source))
    tests = tests_of(one.module)
    files = [name for name in tests if name.endswith(".py")]
    folders = [name for name in tests if name not in files]
    try:
        return any(_fail(group, tree, limit) for group in (files, folders) if group)
    finally:
        path.write_bytes(source)


def _fail(tests: list[str], tree: Path, limit: float) -> bool:
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "worksteal",
        "-p", "no:cacheprovider", "--hypothesis-profile=ci", *tests,
    ]  # fmt: skip
    # No bytecode is written: Python compares size and time of a source with those of its bytecode,
    # and two breaks within one second may have both in common.
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    # The tests get a process group of their own, by which all their processes can be ended.
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit) != 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True


def main() -> int:
    """Try the breaks of one seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30, help="how many places are broken")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--first", type=int, default=1, help="the first one tried, from 1")
    parser.add_argument("--last", type=int, help="the last one tried")
    parser.add_argument("--limit", type=float, default=900, help="seconds for the tests of one")
    parser.add_argument("--list", action="store_true", help="only say what would be broken")
    options = parser.parse_args()
    tried = breaks(options.seed, options.count)[options.first - 1 : options.last]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        if not options.list:
            shutil.copytree(ROOT, tree, ignore=_NOT_COPIED)
            compileall.compile_dir(tree / "asyncgrad", quiet=1)
        for number, one in enumerate(tried, options.first):
            source = (ROOT / "asyncgrad" / one.module).read_bytes()
            old = " ".join(source[one.start : one.end].decode().split())
            change = f"{one.kind}: {old[:50]} -> {one.text[:50]}"
            said = f"{number:2}: asyncgrad/{one.module}:{one.line}  {change}"
            if options.list:
                print(said)
                continue
            begun = time.monotonic()
            caught = is_caught(one, tree, options.limit)
            missed += not caught
            took = time.monotonic() - begun
            print("caught" if caught else "MISSED", f"{took:4.0f} s ", said, flush=True)
    if not options.list:
        print(f"{len(tried) - missed} of {len(tried)} caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
