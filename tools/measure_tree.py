"""Measure the package's source: how long it is, how well typed, and how often it repeats itself.

    python tools/measure_tree.py            prints a table
    python tools/measure_tree.py --list     also what is counted: pairs, files, circles

Needs `grimp`, which import-linter brings along.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import grimp

from asyncgrad.ops.registry import OPS

PACKAGE = Path(__file__).parent.parent / "asyncgrad"
#: The length of the shortest repetition that counts, in lines.
REPEATED = 6
#: Files with more lines are listed, except the table's chapters and their public functions.
LONG = 400
_CHAPTERS = {"table", "api"}


def sources(*folders: str) -> list[Path]:
    """The package's files, or those of some of its folders."""
    roots = [PACKAGE / folder for folder in folders] or [PACKAGE]
    return sorted(path for root in roots for path in root.rglob("*.py"))


def lines(paths: list[Path]) -> int:
    """The number of lines of files, with comments and blank lines."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def any_share(paths: list[Path]) -> float:
    """The share of parameters that are annotated with `Any` and nothing else."""
    total = untyped = 0
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = node.args
                named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                named += [one for one in (given.vararg, given.kwarg) if one is not None]
                annotations = [one.annotation for one in named if one.annotation is not None]
                total += len(annotations)
                untyped += sum(isinstance(a, ast.Name) and a.id == "Any" for a in annotations)
    return untyped / total


def _shapes(path: Path, *, imports: bool) -> list[tuple[int, str]]:
    """The lines of code of a file, with the same mark for every name, string and number."""
    shaped: dict[int, list[str]] = defaultdict(list)
    left_out = {
        line
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, (ast.Import, ast.ImportFrom)) and not imports)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.NAME, tokenize.STRING, tokenize.NUMBER}:
            shaped[token.start[0]].append("x")
        elif token.type == tokenize.OP:
            shaped[token.start[0]].append(token.string)
    return [
        (number, " ".join(shape))
        for number, shape in sorted(shaped.items())
        if number not in left_out and len(shape) > 1
    ]


def repetitions(*, imports: bool = False) -> list[tuple[str, int, str, int, int]]:
    """Pairs of places that have the same shape in `REPEATED` lines or more: where, and how many.

    Imports are left out unless they are asked for: sorted lists of names are alike in all modules.
    """
    shapes = {path: _shapes(path, imports=imports) for path in sources()}
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, found in shapes.items():
        for start in range(len(found) - REPEATED + 1):
            window = tuple(shape for _, shape in found[start : start + REPEATED])
            # Short lines, and lists of names or numbers, always look alike.
            if len(set(window)) > REPEATED // 2 and sum(map(len, window)) > 12 * REPEATED:
                places[window].append((path, start))
    pairs = {
        (one, other) for same in places.values() for one, other in combinations(sorted(same), 2)
    }
    found_pairs = []
    for one, other in sorted(pairs):
        if ((one[0], one[1] - 1), (other[0], other[1] - 1)) in pairs:
            continue
        length = 0
        while ((one[0], one[1] + length), (other[0], other[1] + length)) in pairs:
            length += 1
        if one[0] == other[0] and other[1] - one[1] < length + REPEATED:
            continue
        where = [
            (str(path.relative_to(PACKAGE.parent)), shapes[path][start][0])
            for path, start in (one, other)
        ]
        found_pairs.append((*where[0], *where[1], length + REPEATED - 1))
    return found_pairs


def _members(value: ast.expr) -> list[str]:
    """The strings in a literal collection; the keys of a dictionary."""
    if isinstance(value, ast.Dict):
        return [name for key in value.keys if key is not None for name in _members(key)]
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return [name for element in value.elts for name in _members(element)]
    if isinstance(value, (ast.Call, ast.BinOp, ast.Starred, ast.comprehension)):
        return [
            name
            for part in ast.iter_child_nodes(value)
            if isinstance(part, ast.expr)
            for name in _members(part)
        ]
    if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        tests = [test for loop in value.generators for test in loop.ifs]
        return [name for test in tests for name in _members(test)]
    if isinstance(value, ast.Compare):
        return [name for part in value.comparators for name in _members(part)]
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    return []


#: Collections that hold no facts about functions, and what their words are instead.
_NO_FACTS = {
    "asyncgrad/devices/cuda_lines.py: _JOINED": "kinds of totals",
    "asyncgrad/devices/host_kernels/convolution.py: FUNCTIONS": "the kernels themselves",
    "asyncgrad/devices/pointwise.py: POINTWISE": "the kernels themselves",
    "asyncgrad/native.py: _REDUCTIONS": "values of `reduction`",
    "asyncgrad/nn/init.py: _GAINS": "values of `nonlinearity`",
    "asyncgrad/nn/init.py: _LINEAR": "values of `nonlinearity`",
    "asyncgrad/ops/api/loss.py: _REDUCTIONS": "values of `reduction`",
    "asyncgrad/ops/api/loss.py: _REDUCED": "values of `reduction`",
    "asyncgrad/ops/api/scatter.py: _NEUTRAL": "values of `reduce`",
    "asyncgrad/ops/api/scatter.py: _KINDS": "values of `reduce`",
    "asyncgrad/ops/return_types.py: aminmax": "names of its fields",
    "asyncgrad/ops/table/activation.py: _NORMAL": "how formulas of kernels are written",
    "asyncgrad/ops/table/loss.py: _HELPERS": "how formulas of kernels are written",
    "asyncgrad/ops/written.py: _NAMES": "how formulas of kernels are written",
    "asyncgrad/ops/written.py: _BOUNDS": "how formulas of kernels are written",
    "asyncgrad/ops/written.py: _COMPARISONS": "how formulas of kernels are written",
    "asyncgrad/optim/array_updates.py: _NAMES": "how formulas of kernels are written",
}
#: Chapters list functions here that they write out; those made from rows are not listed.
_WRITTEN_OUT = {"__all__", "METHODS", "IN_PLACE"}


def repeated_facts() -> list[tuple[str, int, str, int]]:
    """Collections in modules that mostly name functions of the table: where, and how many.

    What is true of some functions of the table is a field of their rows, and nowhere else. The
    tests' samples are their own.
    """
    found = []
    for path in sources():
        where = str(path.relative_to(PACKAGE.parent))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                continue
            target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if f"{where}: {target}" in _NO_FACTS or (target == "OPS" and "table" in path.parts):
                continue
            names = {name.removesuffix("_") for name in _members(node.value or ast.Tuple(elts=[]))}
            known = names & OPS.keys()
            if target in _WRITTEN_OUT:
                known = {name for name in known if OPS[name].doc}
            if len(known) > 1 and 2 * len(known) > len(names):
                found.append((where, node.lineno, target, len(known)))
    return found


def circles() -> list[set[str]]:
    """Groups of modules that import one another, also if only for type checkers."""
    graph = grimp.build_graph("asyncgrad", cache_dir=None)
    reach = {
        name: graph.find_downstream_modules(name) & graph.find_upstream_modules(name)
        for name in graph.modules
    }
    found: list[set[str]] = []
    for name, others in sorted(reach.items()):
        if others and not any(name in circle for circle in found):
            found.append({name, *others})
    return found


def main() -> int:
    """Print the table."""
    long = [
        path
        for path in sources()
        if lines([path]) > LONG and not _CHAPTERS & set(path.relative_to(PACKAGE).parts)
    ]
    repeated, circular, facts = repetitions(), circles(), repeated_facts()
    heart = sources("core", "scheduler", "autograd")
    engine = sources("core", "scheduler")
    rows = {
        "lines of the package": lines(sources()),
        "lines of core, scheduler and autograd": lines(heart),
        "parameters typed Any": f"{any_share(sources()):.0%}",
        "parameters typed Any in core and scheduler": f"{any_share(engine):.0%}",
        f"pairs of places alike in {REPEATED} lines": len(repeated),
        "the same, imports counted": len(repetitions(imports=True)),
        f"files above {LONG} lines": len(long),
        "circles among modules": len(circular),
        "sets of names that repeat a row's fact": len(facts),
    }
    for name, value in rows.items():
        print(f"{name:45} {value}")
    if "--list" in sys.argv[1:]:
        for one, at, other, there, length in sorted(repeated, key=lambda pair: -pair[-1]):
            print(f"{length:4} lines: {one}:{at} and {other}:{there}")
        for path in long:
            print(f"{lines([path]):4} lines: {path.relative_to(PACKAGE.parent)}")
        for circle in circular:
            print("circle:", ", ".join(sorted(circle)))
        for where, line, name, count in facts:
            print(f"{count:4} names of rows: {where}:{line} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
