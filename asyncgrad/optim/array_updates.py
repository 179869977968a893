"""The declared updates of `devices.updates` as functions that call functions of arrays.

`source` writes such a function from a declaration, as kernels are written from formulas.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from asyncgrad.devices.updates import UPDATES, Update
from asyncgrad.ops.generated import code_of
from asyncgrad.ops.written import Formula

_NAMES = (
    "abs", "add", "copyto", "divide", "maximum", "minimum", "multiply", "negative", "positive",
    "sign", "sqrt", "subtract", "where",
)  # fmt: skip
#: What the texts call: to find a global name takes half the time of finding one in NumPy.
_GLOBALS = {name: getattr(np, name) for name in _NAMES}
_GLOBALS["bounded"] = lambda bound, x, limit, out: bound(x, limit, out=out)


@functools.cache
def array_update(name: str, flags: tuple[bool, ...]) -> Callable[..., Any]:
    """The function of an update in `UPDATES`, for some values of the flags of `of_gradient`.

    It is a function of the values, the gradient, the entries and the numbers. It changes the
    entries and returns what is to be subtracted from the values. That is in `out` if it gets an
    array of that name.
    """
    known = " ".join(map(str, ("update", name, *flags)))
    code = code_of(source(UPDATES[name].of_gradient(), flags), known)
    return FunctionType(code, _GLOBALS, argdefs=(None,))


def source(declared: Update, flags: tuple[bool, ...]) -> str:
    """The text of an update's function, for some values of its flags."""
    F = Formula({})
    kept = ["p", *declared.entries.split()]
    arrays, numbers = [*kept, "g"], declared.numbers.split()
    values = {name: F.given(name, name in arrays) for name in (*arrays, *numbers)}
    given = {**values}
    functions = {"larger": F.maximum, "smaller": F.minimum}
    functions |= {name: getattr(F, name) for name in ("abs", "sign", "sqrt", "where")}
    follow(declared, flags, values, functions)
    results = {
        name: values[name] if values[name].parts else F.copy(values[name])
        for name in ("change", *kept)
        if values[name] is not given.get(name)
    }
    names = ["p", "g", *kept[1:], *numbers]
    text = F.text(f"def update({', '.join(names)}, out=None):", arrays, results)
    return text.replace("xp.", "")


def follow(
    declared: Update, flags: tuple[bool, ...], values: dict[str, Any], functions: dict[str, Any]
) -> None:
    """Compute an update of values by their names, where what it assigns is put."""
    for target, parts in _compiled(declared, flags):
        value, *others = [eval(part, functions, values) for part in parts]
        values[target] = functions["where"](value, *others) if others else value


@functools.cache
def _compiled(declared: Update, flags: tuple[bool, ...]) -> list[tuple[str, list[CodeType]]]:
    """What is assigned in each statement of an update, and the code of its value's parts."""
    return [
        (target, [compile(ast.Expression(part), "<update>", "eval") for part in parts])
        for target, parts in statements(declared, flags)
    ]


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
    """The names in an expression."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
