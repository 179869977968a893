"""Kernels that go along lines of arrays: as Python that Numba compiles, and how they are called.

A line lies along the last axis, or is a channel of all images of a batch. Lines along another axis
lie side by side, and many are computed at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Value
from asyncgrad.devices.cuda_lines import Lines
from asyncgrad.devices.host_kernels.calls import DTYPES, Unfit, empty, flat, ranges, share
from asyncgrad.devices.host_kernels.functions import ADDED
from asyncgrad.devices.pieces import in_pieces

#: So many lines that lie side by side are computed at a time, and the fewest for which that pays.
#: Channels are computed if they have as many elements beside one another.
_WIDTH, _FEWEST = 256, 8
#: Lines whose sums for each place are added up in the arrays' dtype.
_LINES = 32

#: A line may be `runs` runs of `beside` elements that are `apart`; totals may cut it differently.
_LINE = """
@compiled()
def {name}_line({given}):{loops}
    return {results}
"""
_LOOP = """
    {before}
    for run in range({runs}):
        for first in range(0, {beside}, {piece}):
            size = min({piece}, {beside} - first)
            start = begin + run * apart + first
            out = there + run * distance + first
            {parts}
            for at in range(size): {work}
            {after_piece}
    {after}"""
_ROWS = """
@kernel({kinds})
def {name}(low, high, length, {given}):
    for line in range(low, high):
        {call}
"""
#: Also the sums for each place over all lines, if there is room for them.
_ROWS_WITH_SUMS = """
@kernel({kinds}, sums)
def {name}(low, high, length, {given}, sums_):
    columns = len(sums_) // {count}
    {made}
    for group in range(low, high, {lines}):
        {zero}
        for line in range(group, min(group + {lines}, high)):
            {call}
            {parts}
            for at in range(columns): {work}
        {totals}
        for at in range(columns): {added}
"""
#: What channels of small images have in each image is copied to one place first: a loop over it has
#: the same length for small images and large ones, and the copy stays in the cache.
_CHANNELS = """
@kernel({kinds})
def {name}(low, high, runs, count, beside, {given}):
    length, small = runs * beside, beside < {piece}
    {made}
    for line in range(low, high):
        if small:
            for run in range(runs):
                start = (run * count + line) * beside
                {copied}
            {call_of_copies}
        else:
            {call}
"""
_SIDE_BY_SIDE = """
@kernel({kinds})
def {name}_beside(low, high, length, beside, {given}):
    {made}
    groups = (beside + {width} - 1) // {width}
    for group in range(low, high):
        first = group % groups * {width}
        size = min({width}, beside - first)
        line = group // groups * beside + first
        begin = group // groups * length * beside + first
        {lines}{loops}
"""
_LOOP_BESIDE = """
        {before}
        for start in range(begin, begin + length * beside, beside):
            {parts}
            for at in range(size): {work}"""
_VALUES_BESIDE = """
        for at in range(size): {work}"""

#: What a step adds to a loop: before it; before, within and after a piece of a line; after it. `{0}`
#: is the step's name, `{1}` its expression, and `{2}` the array that keeps its values.
_ALONG = {
    "sum": (
        "{0}_sum = 0.0", "{0}_part = T(0)", "{0}_part += {1}", "{0}_sum += {0}_part",
        "{0} = T({0}_sum)",
    ),
    "max": (
        "{0}_part = order(T(-np.inf))", "", "{0}_part = max({0}_part, order({1}))", "",
        "{0} = value({0}_part)",
    ),
    "each": ("", "", "{0} = {1}; {2}_part[at] = {0}", "", ""),
    "out": ("", "", "{0}_part[at] = {1}", "", ""),
}  # fmt: skip
#: What it adds to a loop over lines side by side: before it, and within.
_BESIDE = {
    "sum": ("{0}_line[:] = T(0)", "{0}_line[at] += {1}"),
    "max": ("{0}_line[:] = T(-np.inf)", "{0}_line[at] = {0} if {0} > {1} else {1}"),
    "let": ("", "{0} = T({1}); {0}_line[at] = {0}"),
    "each": ("", "{0} = {1}; {2}_part[at] = {0}"),
    "out": ("", "{0}_part[at] = {1}"),
}

_Steps = list[tuple[str, str, str]]


# -- from a declaration to Python ----------------------------------------------------------------


def _all(*statements: Iterable[str]) -> str:
    return "; ".join(statement for group in statements for statement in group if statement)


def _each(text: str, names: Iterable[str]) -> list[str]:
    """A text for each of some names."""
    return [text.format(name) for name in names]


class LinesText:
    """The text of the kernels of a declaration.

    What it has of the kind "each" is kept where a result is written to later.
    """

    def __init__(self, name: str, declared: Lines) -> None:
        self._name, self._declared = name, declared
        self._arrays, self._lines = declared.arrays.split(), declared.lines.split()
        self._places, self._numbers = list(declared.defaults()), declared.numbers.split()
        self._outs, self._results = [n for n, _ in declared.elements], declared.results.split()
        each = [n for n, how, _ in declared.steps if how == "each"]
        #: The arrays in which values for each place are.
        self._held = {n: n for n in (*self._arrays, *self._places)}
        self._held |= dict(zip(each, self._outs, strict=False))
        steps = [*declared.steps, *((n, "out", value) for n, value in declared.elements)]
        #: The steps that one loop computes, of one kind.
        self._loops: list[tuple[str, _Steps]] = [
            (kind, list(group))
            for kind, group in groupby(steps, lambda s: "sum" if s[1] == "each" else s[1])
        ]

    def __str__(self) -> str:
        if self._declared.over_batch:
            return self._line() + self._channels()
        return self._line() + self._rows() + ("" if self._places else self._side_by_side())

    def _filled(self, template: str, integers: int, **parts: Any) -> str:
        """A kernel of so many integers, whose arrays have names that end with `_`."""
        arrays = [*self._arrays, *self._lines, *self._places]
        outs = [*self._outs, *self._results]
        kinds = [["integer"] * integers, ["array"] * len(arrays), ["number"] * len(self._numbers)]
        return template.format(
            kinds=", ".join([*sum(kinds, []), *["out"] * len(outs)]),
            given=", ".join([*_each("{}_", arrays), *self._numbers, *_each("{}_", outs)]),
            name=self._name,
            **parts,
        )

    def _touched(self, steps: _Steps, starts: dict[str, str]) -> tuple[str, list[str]]:
        """The parts of arrays that steps go through, and what they read at a place."""
        kept = [n for n, how, _ in steps if how == "each"]
        text = " ".join(value for *_, value in steps)
        read = [n for n in self._held if n not in kept and re.search(rf"\b{n}\b", text)]
        arrays = dict.fromkeys([self._held[n] for n in (*read, *kept)])
        arrays |= dict.fromkeys(n for n, how, _ in steps if how == "out")
        parts = [f"{n}_part = {n}_[{starts[n]} : {starts[n]} + size]" for n in arrays]
        return _all(parts), [f"{n} = {self._held[n]}_part[at]" for n in read]

    def _added(self, steps: _Steps, kinds: dict[str, tuple[str, ...]]) -> list[list[str]]:
        """What steps add to a loop."""
        added = [
            [part.format(n, value, self._held.get(n)) for part in kinds[how]]
            for n, how, value in steps
        ]
        return [list(parts) for parts in zip(*added, strict=True)]

    def _line(self) -> str:
        """A function that computes one line."""
        starts = dict.fromkeys(self._arrays, "start") | dict.fromkeys(self._places, "first")
        starts |= dict.fromkeys(self._outs, "out")
        totals = "|".join(n for n, how, _ in self._declared.steps if how == "sum")
        loops = ""
        for kind, steps in self._loops:
            if kind == "let":
                # Totals are still in double precision.
                values = [(n, re.sub(rf"\b({totals})\b", r"\1_sum", it)) for n, _, it in steps]
                loops += "".join(f"\n    {n} = T({value})" for n, value in values)
                continue
            before, before_piece, within, after_piece, after = self._added(steps, _ALONG)
            parts, reads = self._touched(steps, starts)
            runs, beside = ("runs", "beside") if kind == "out" else ("total_runs", "total_beside")
            loops += _LOOP.format(
                before=_all(before), runs=runs, beside=beside,
                piece=ADDED if kind == "sum" else beside, parts=_all([parts], before_piece),
                work=_all(reads, within), after_piece=_all(after_piece), after=_all(after),
            )  # fmt: skip
        given = [
            *_each("{}_", self._arrays), "begin", "apart", "total_runs", "total_beside", "runs",
            "beside", "length", *self._lines, *_each("{}_", self._places), *self._numbers,
            *_each("{}_", self._outs), "there", "distance",
        ]  # fmt: skip
        return _LINE.format(
            name=self._name, given=", ".join(given), loops=loops, results=", ".join(self._results)
        )

    def _call(self, arrays: str, cut: str, to: str) -> str:
        """A call for one line, whose results are written."""
        given = [
            *_each(arrays, self._arrays), cut, "length", *_each("{}_[line]", self._lines),
            *_each("{}_", self._places), *self._numbers, *_each("{}_", self._outs), to,
        ]  # fmt: skip
        target = ", ".join(_each("{}_[line]", self._results))
        return f"{target}{' = ' * bool(target)}{self._name}_line({', '.join(given)})"

    def _rows(self) -> str:
        """Lines along the last axis."""
        call = self._call("{}_", "line * length, 0, 1, length, 1, length", "line * length, 0")
        columns = [n for n, _ in self._declared.columns]
        if not columns:
            return self._filled(_ROWS, 3, call=call)
        parts = _each("{0}_part = {0}_[line * length : (line + 1) * length]", self._arrays)
        sums = enumerate(columns)
        return self._filled(
            _ROWS_WITH_SUMS, 3, call=call, count=len(columns), lines=_LINES,
            made=_all(_each("{} = np.empty(columns, T)", columns)),
            zero=_all(_each("{}[:] = T(0)", columns)),
            parts=_all(parts, _each("{0} = {0}_[line]", self._lines)),
            work=_all(
                _each("{0} = {0}_part[at]", self._arrays),
                [f"{n}[at] += {value}" for n, value in self._declared.columns],
            ),
            totals=_all(f"{n}_sums = sums_[{i} * columns : {i + 1} * columns]" for i, n in sums),
            added=_all(_each("{0}_sums[at] += {0}[at]", columns)),
        )  # fmt: skip

    def _channels(self) -> str:
        """Channels, the second of three axes of `runs`, `count` and `beside` elements."""
        made = f"{{}}_own = np.empty(length if beside < {ADDED} else 0, T)"
        copied = "copy({0}_, address({0}_, start), address({0}_own, run * beside), beside)"
        cut, to = "runs, beside, runs, beside", "line * beside, count * beside"
        return self._filled(
            _CHANNELS, 5, piece=ADDED, made=_all(_each(made, self._arrays)),
            copied=_all(_each(copied, self._arrays)),
            call_of_copies=self._call("{}_own", "0, beside, 1, length, runs, beside", to),
            call=self._call("{}_", f"{to}, {cut}", to),
        )  # fmt: skip

    def _side_by_side(self) -> str:
        """Groups of lines along another axis."""
        starts = dict.fromkeys([*self._arrays, *self._outs], "start")
        values = [n for n, how, _ in self._declared.steps if how != "each"]
        given = [*self._lines, *self._results]
        own = [n for n in values if n not in given]
        loops = ""
        for kind, steps in self._loops:
            before, within = self._added(steps, _BESIDE)
            parts, reads = self._touched(steps, starts)
            text = " ".join(
                [*(value for *_, value in steps), *(n for n, how, _ in steps if how == "max")]
            )
            new = [n for n, *_ in steps] if kind == "let" else []
            read = [
                f"{n} = {n}_line[at]"
                for n in dict.fromkeys([*values, *self._lines])
                if n not in new and re.search(rf"\b{n}\b", text)
            ]
            template = _VALUES_BESIDE if kind == "let" else _LOOP_BESIDE
            loops += template.format(
                before=_all(before), parts=parts, work=_all(read, reads, within)
            )
        return self._filled(
            _SIDE_BY_SIDE, 4, width=_WIDTH, loops=loops,
            made=_all(_each(f"{{}}_own = np.empty({_WIDTH}, T)", own)),
            lines=_all(
                _each("{0}_line = {0}_own[:size]", own),
                _each("{0}_line = {0}_[line : line + size]", given),
            ),
        )  # fmt: skip


# -- from Python to functions --------------------------------------------------------------------


class LinesKernel:
    """A declared kernel for all its dtypes.

    Args:
        name: the kernel's name.
        declared: what it computes.
        modules: the compiled kernels by dtype.
    """

    def __init__(self, name: str, declared: Lines, modules: dict[Any, Any]) -> None:
        self._declared = declared
        self._defaults = list(declared.defaults().values())
        self._counts = len(declared.arrays.split()), len(declared.lines.split())
        self._results = len(declared.results.split())
        self._along = {dtype: getattr(module, name) for dtype, module in modules.items()}
        self._beside = {
            dtype: getattr(module, f"{name}_beside", None) for dtype, module in modules.items()
        }

    def __call__(self, axis: int, *arguments: Value, sums: list[Any] | None = None) -> Any:
        """Compute it, as `LinesKernel` of `cuda_lines` does.

        Args:
            axis: the axis of the lines.
            arguments: the inputs, and then the numbers, in the declared order.
            sums: the declared sums for each place are appended to it.
        """
        declared = self._declared
        first: Array = arguments[0]
        shape, dtype, size = first.shape, first.dtype, first.size
        before, length, beside = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        if dtype not in DTYPES or not size:
            raise Unfit
        kernel = self._along[dtype]
        of_lines: tuple[int, ...] = (*shape[:axis], 1, *shape[axis + 1 :])
        cut: tuple[int, ...]
        if declared.over_batch:
            lines, cut, of_lines = length, (before, length, beside), (length,)
            arguments = tuple(
                np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for v in arguments
            )
        else:
            lines, cut = before, (length,)
        if beside < _FEWEST and (beside > 1 or declared.over_batch):
            raise Unfit
        if beside > 1 and not declared.over_batch:
            kernel = self._beside[dtype]
            lines, cut = before * -(-beside // _WIDTH), (length, beside)
        arrays, of_line = self._counts
        shapes = [shape] * arrays + [of_lines] * of_line
        given = [flat(v, of, dtype) for v, of in zip(arguments, shapes, strict=False)]
        rest = arguments[len(shapes) :]
        for value, default in zip(rest, self._defaults, strict=False):
            given.append(
                _level(default, length, dtype) if value is None else flat(value, (length,), dtype)
            )
        given += rest[len(self._defaults) :]
        outs = [empty(shape, dtype, size) for _ in declared.elements]
        outs += [np.empty(of_lines, dtype) for _ in range(self._results)]
        given += [out.ravel() for out in outs]
        if not declared.columns:
            share(lambda low, high: kernel(low, high, *cut, *given), lines, size)
        else:
            parts, count = ranges(lines, size), len(declared.columns)
            totals = np.zeros((len(parts), 0 if sums is None else count * length))
            in_pieces(lambda at: kernel(*parts[at], *cut, *given, totals[at]), range(len(parts)))
            if sums is not None:
                sums.append(tuple(totals.sum(axis=0).astype(dtype).reshape(count, length)))
        return outs if len(outs) > 1 else outs[0]


@lru_cache(64)
def _level(number: str, length: int, dtype: Any) -> Any:
    return np.full(length, float(number), dtype)
