"""Kernels that go along lines of arrays, as Python that Numba compiles.

A line lies along the last axis, or is a channel of all images of a batch. Lines along another axis
lie side by side, and many are computed at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from asyncgrad.devices.host_kernels.calls import LINES_BESIDE
from asyncgrad.devices.host_kernels.functions import ADDED
from asyncgrad.devices.kernels import Lines

#: Lines whose sums for each place are added up in the arrays' dtype.
_LINES = 32
#: A piece that is never too small.
_ALL = 1 << 62

#: What goes along a part of a line. In the text of a line such a loop is not always vectorised.
_PART = """
@compiled()
def {name}_{place}({given}, size):
    {before}
    for at in range(size): {work}
    return {made}
"""
#: A line may be `runs` runs of `beside` elements that are `apart`; totals may cut it differently.
_LINE = """
@compiled()
def {name}_line({given}):{loops}
    return {results}
"""
#: What is added up in the arrays' dtype in pieces of a line is added in double precision.
_LOOP = """
    {before}
    for run in range({runs}):
        for first in range(0, {beside}, {piece}):
            size = min({piece}, {beside} - first)
            start, out = begin + run * apart + first, there + run * distance + first
            {call}; {after_part}
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
    columns = sums_.shape[1]
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

#: What a step adds to a loop: before it; before, within and after a part of the line; after it.
#: `{0}` is the step's name, `{1}` its expression, and `{2}` the array that keeps its values.
_ALONG = {
    "sum": ("{0} = 0.0", "{0}_part = T(0)", "{0}_part += {1}", "{0} += {0}_part", ""),
    "max": (
        "{0}_order = order(T(-np.inf))", "{0}_part = order(T(-np.inf))",
        "{0}_part = max({0}_part, order({1}))", "{0}_order = max({0}_order, {0}_part)",
        "{0} = value({0}_order)",
    ),
    "each": ("", "", "{0} = {1}; {2}_part[at] = {0}", "", ""),
    "out": ("", "", "{0}_part[at] = {1}", "", ""),
}  # fmt: skip
#: What it adds to a loop over lines side by side: before it, and within.
_BESIDE = {
    "sum": ("{0}_line[:] = T(0)", "{0}_line[at] += {1}"),
    "max": (
        "{0}_line[:] = T(-np.inf)",
        "{0}_line[at] = {0}_line[at] if {0}_line[at] > {1} else {1}",
    ),
    "let": ("", "{0} = T({1}); {0}_line[at] = {0}"),
    "each": ("", "{0} = {1}; {2}_part[at] = {0}"),
    "out": ("", "{0}_part[at] = {1}"),
}

_Steps = list[tuple[str, str, str]]


def _all(*statements: Iterable[str]) -> str:
    return "; ".join(statement for group in statements for statement in group if statement)


def _named(names: Iterable[str], steps: _Steps) -> list[str]:
    """The names that occur in the expressions of steps."""
    text = " ".join(expression for *_, expression in steps)
    return [name for name in names if re.search(rf"\b{name}\b", text)]


def _each(text: str, names: Iterable[str]) -> list[str]:
    """A text for each of some names."""
    return [text.format(name) for name in names]


class LinesText:
    """The text of the kernels of a declaration.

    Values of the kind "each" are kept where results are written to later, each in its own.
    """

    def __init__(self, name: str, declared: Lines) -> None:
        self._name, self._declared = name, declared
        self._arrays, self._lines = declared.arrays.split(), declared.lines.split()
        self._places, self._numbers = list(declared.defaults()), declared.numbers.split()
        self._outs, self._results = declared.names("out"), declared.results.split()
        self._known = declared.names("sum", "max", "let")
        #: The arrays in which values for each place are.
        self._held = {n: n for n in (*self._arrays, *self._places)}
        self._held |= dict(zip(declared.names("each"), self._outs, strict=False))
        #: The steps that one loop computes, of one kind.
        self._loops: list[tuple[str, _Steps]] = [
            (kind, list(steps))
            for kind, steps in groupby(
                declared.steps("sum", "max", "let", "each", "out"),
                lambda step: "sum" if step[0] == "each" else step[0],
            )
        ]

    def __str__(self) -> str:
        if self._declared.over_batch:
            return self._line() + self._channels()
        return self._line() + self._rows() + ("" if self._places else self._side_by_side())

    def _filled(self, template: str, integers: int, **parts: Any) -> str:
        """A kernel of so many integers, whose arrays have names that end with `_`."""
        arrays = [*self._arrays, *self._lines, *self._places]
        outs = [*self._outs, *self._results]
        kinds = ["integer"] * integers + ["array"] * len(arrays)
        kinds += ["number"] * len(self._numbers) + ["out"] * len(outs)
        return template.format(
            kinds=", ".join(kinds),
            given=", ".join([*_each("{}_", arrays), *self._numbers, *_each("{}_", outs)]),
            name=self._name,
            **parts,
        )

    def _touched(self, steps: _Steps) -> tuple[list[str], list[str]]:
        """The arrays that steps go through, and what they read at a place."""
        kept = [n for how, n, _ in steps if how == "each"]
        read = [n for n in _named(self._held, steps) if n not in kept]
        written = [n for how, n, _ in steps if how == "out"]
        arrays = dict.fromkeys([*(self._held[n] for n in (*read, *kept)), *written])
        return list(arrays), [f"{n} = {self._held[n]}_part[at]" for n in read]

    def _added(self, steps: _Steps, kinds: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """What steps add to a loop."""
        added = [
            [part.format(n, value, self._held.get(n)) for part in kinds[how]]
            for how, n, value in steps
        ]
        return [list(parts) for parts in zip(*added, strict=True)]

    def _line(self) -> str:
        """A function that computes one line."""
        starts = dict.fromkeys(self._arrays, "start") | dict.fromkeys(self._places, "first")
        starts |= dict.fromkeys(self._outs, "out")
        totals = self._declared.names("sum")
        known = [*self._known, *self._lines, *self._numbers, "length"]
        parts = loops = ""
        for place, (kind, steps) in enumerate(self._loops):
            if kind == "let":
                loops += "".join(f"\n    {n} = T({value})" for _, n, value in steps)
                continue
            before, before_part, within, after_part, after = self._added(steps, _ALONG)
            arrays, reads = self._touched(steps)
            values = _named(known, steps)
            made = ", ".join(f"{n}_part" for how, n, _ in steps if how in {"sum", "max"})
            parts += _PART.format(
                name=self._name, place=place, made=made,
                given=", ".join([*_each("{}_part", arrays), *values]),
                before=_all(before_part), work=_all(reads, within),
            )  # fmt: skip
            # Results are whole lines: slices of places would take 2 ns each.
            whole = self._places if kind == "out" else ()
            given = [
                f"{n}_" if n in whole else f"{n}_[{starts[n]} : {starts[n]} + size]" for n in arrays
            ]
            given += [f"T({n})" if n in totals else n for n in values]
            call = f"{self._name}_{place}({', '.join(given)}, size)"
            cut = "" if kind == "out" else "total_"
            loops += _LOOP.format(
                before=_all(before), runs=f"{cut}runs", beside=f"{cut}beside",
                piece=ADDED if kind == "sum" else _ALL,
                call=f"{made} = {call}" if made else call,
                after_part=_all(after_part), after=_all(after),
            )  # fmt: skip
        given = [
            *_each("{}_", self._arrays), "begin", "apart", "total_runs", "total_beside", "runs",
            "beside", "length", *self._lines, *_each("{}_", self._places), *self._numbers,
            *_each("{}_", self._outs), "there", "distance",
        ]  # fmt: skip
        return parts + _LINE.format(
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
        columns = self._declared.names("column")
        if not columns:
            return self._filled(_ROWS, 3, call=call)
        parts = _each("{0}_part = {0}_[line * length : (line + 1) * length]", self._arrays)
        return self._filled(
            _ROWS_WITH_SUMS, 3, call=call, lines=_LINES,
            made=_all(_each("{} = np.empty(columns, T)", columns)),
            zero=_all(_each("{}[:] = T(0)", columns)),
            parts=_all(parts, _each("{0} = {0}_[line]", self._lines)),
            work=_all(
                _each("{0} = {0}_part[at]", self._arrays),
                [f"{n}[at] += {value}" for _, n, value in self._declared.steps("column")],
            ),
            totals=_all(f"{n}_sums = sums_[{i}]" for i, n in enumerate(columns)),
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
        given = [*self._lines, *self._results]
        own = [n for n in self._known if n not in given]
        loops = ""
        for kind, steps in self._loops:
            before, within = self._added(steps, _BESIDE)
            arrays, reads = self._touched(steps)
            new = [n for _, n, _ in steps if kind == "let"]
            known = [n for n in _named([*self._known, *self._lines], steps) if n not in new]
            loops += (_VALUES_BESIDE if kind == "let" else _LOOP_BESIDE).format(
                before=_all(before),
                parts=_all(_each("{0}_part = {0}_[start : start + size]", arrays)),
                work=_all(_each("{0} = {0}_line[at]", known), reads, within),
            )
        return self._filled(
            _SIDE_BY_SIDE, 4, width=LINES_BESIDE, loops=loops,
            made=_all(_each(f"{{}}_own = np.empty({LINES_BESIDE}, T)", own)),
            lines=_all(
                _each("{0}_line = {0}_own[:size]", own),
                _each("{0}_line = {0}_[line : line + size]", given),
            ),
        )  # fmt: skip
