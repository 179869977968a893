"""The declared updates of `devices.updates` as functions that call functions of arrays.

`source` writes such a function from a declaration. It keeps as few arrays beside the given ones as
it can: a result is written over a temporary array, or over the entry that the statement assigns.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from asyncgrad.devices.updates import UPDATES, Update
from asyncgrad.ops.generated import code_of

_OPERATORS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_NAMES = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "abs": "absolute",
    "larger": "maximum", "smaller": "minimum", "sign": "sign", "sqrt": "sqrt",
}  # fmt: skip
_FUNCTIONS = {name: getattr(np, name) for name in (*_NAMES.values(), "copyto")}


@functools.cache
def array_update(name: str, flags: tuple[bool, ...]) -> Callable[..., Any]:
    """The function of an update in `UPDATES`, for some values of its flags.

    It is a function of the values, the direction, the entries and the numbers. It changes the
    entries and returns what is to be subtracted from the values. That is in `room` if it gets an
    array of that name, and needs one.
    """
    code = code_of(source(UPDATES[name], flags), f"update {name}")
    return FunctionType(code, _FUNCTIONS, argdefs=(None,))


def source(declared: Update, flags: tuple[bool, ...]) -> str:
    """The text of an update's function, for some values of its flags."""
    return _Writer(declared, statements(declared, flags)).text()


def statements(declared: Update, values: tuple[bool, ...]) -> list[tuple[str, list[Any]]]:
    """What an update computes for some values of its flags.

    Returns:
        Of each statement, what is assigned, and its value or a choice's parts.
    """
    flags = dict(zip(declared.flags.split(), values, strict=True))
    found: list[tuple[str, list[Any]]] = []
    needed = {"p", "change", *declared.entries.split()}
    for statement in reversed(declared.body.split(";")):
        target, value = statement.split("=", 1)
        name = target.split()[-1]
        parts = re.split(r" [?:] ", re.sub(r"T\((\d+)\)", r"\1", value.strip()))
        if parts[0] in flags:
            parts = [parts[1 if flags[parts[0]] else 2]]
        if name in needed:
            nodes = [ast.parse(part, mode="eval").body for part in parts]
            needed.update(word for node in nodes for word in _words(node))
            found.insert(0, (name, nodes))
    return found


def _words(node: ast.AST) -> list[str]:
    """The names of values in an expression, as often as they occur."""
    names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    return [name for name in names if name not in _NAMES]


class _Writer:
    """Writes one function."""

    def __init__(self, declared: Update, statements: list[tuple[str, list[Any]]]) -> None:
        self._statements = statements
        #: Arrays that keep what is assigned to them.
        self._kept = ["p", *declared.entries.split()]
        self._given = ["p", "g", *declared.entries.split(), *declared.numbers.split()]
        self._lines: list[str] = []
        #: Where the value of a name is that is still needed.
        self._places = {name: name for name in self._given}
        #: Temporary arrays: all, and those that hold nothing that is needed.
        self._temporary: set[str] = set()
        self._free: list[str] = []

    def text(self) -> str:
        for number, (target, nodes) in enumerate(self._statements):
            coming = [node for _, others in self._statements[number + 1 :] for node in others]
            later = {"change", *self._given, *(word for node in coming for word in _words(node))}
            self._assign(target, nodes, later)
        lines = [*self._lines, f"return {self._places['change']}"]
        head = f"def update({', '.join(self._given)}, room=None):"
        return "\n".join([head, *(f"    {line}" for line in lines), ""])

    def _assign(self, target: str, nodes: list[Any], later: set[str]) -> None:
        """Write a statement, after which the names `later` are used."""
        words = [word for node in nodes for word in _words(node)]
        # What occurs once may be overwritten while it is read.
        single = {word for word in words if words.count(word) == 1}
        places = self._places
        needed = {place for name, place in places.items() if name in later}
        if len(nodes) > 1:
            self._choose(target, nodes)
        elif target in self._kept:
            over = self._temporary - needed | {target}
            self._value(nodes[0], {places[word] for word in single} & over, target)
        else:
            over = self._temporary - needed
            places[target] = self._value(nodes[0], {places[word] for word in single} & over)
        self._places = {name: place for name, place in places.items() if name in later}
        self._free = sorted(self._temporary - set(self._places.values()))

    def _choose(self, target: str, nodes: list[Any]) -> None:
        """Write a choice, whose condition is an array."""
        condition, one, other = nodes
        left, right = self._value(condition.left, set()), condition.comparators[0].value
        sign = "<" if isinstance(condition.ops[0], ast.Lt) else ">"
        self._lines.append(f"where = {left} {sign} {right}")
        found = self._value(one, set())
        if not (isinstance(other, ast.Name) and other.id == target):
            self._lines.append(f"copyto({target}, {self._value(other, set())})")
        self._lines.append(f"copyto({target}, {found}, where=where)")
        if found in self._temporary:
            self._free.append(found)

    def _value(self, node: Any, over: set[str], out: str | None = None) -> str:
        """Write what computes an expression, perhaps over arrays; returns the name of its value."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.Name):
            place = self._places[node.id]
            if out is not None:
                self._lines.append(f"copyto({out}, {place})")
            return place
        if isinstance(node, ast.BinOp):
            name, parts = _OPERATORS[type(node.op)], [node.left, node.right]
        else:
            name, parts = node.func.id, node.args
        known = set(self._places.values())
        values = [self._value(part, over) for part in reversed(parts)][::-1]
        # What was made for this value alone is free after it.
        spent = [v for v in dict.fromkeys(values) if v in self._temporary and v not in known]
        spare = spent + [v for v in values if v in over]
        target = out or next(iter(spare), None) or (self._free.pop() if self._free else None)
        # By place NumPy takes half the time that it takes for `out=` or an operator, but two of its
        # functions warn of that.
        word = "out=" if name in {"larger", "smaller"} else ""
        room = target or ("" if self._temporary else "room")
        call = f"{_NAMES[name]}({', '.join(values)}{f', {word}{room}' if room else ''})"
        if target is None:
            target = f"t{len(self._temporary)}"
            self._temporary.add(target)
            call = f"{target} = {call}"
        self._lines.append(call)
        self._free += [v for v in spent if v != target]
        return target
