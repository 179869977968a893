"""The declared updates of `devices.updates` as functions of tensors, which autograd records."""

from __future__ import annotations

import ast
import functools
from types import CodeType
from typing import Any

from asyncgrad.core.variable import Variable
from asyncgrad.devices.updates import Update
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.optim.array_updates import statements


def _larger(x: Any, y: Any) -> Any:
    return R.maximum(x, y) if isinstance(y, Variable) else x.clamp(min=y)


def _smaller(x: Any, y: Any) -> Any:
    return R.minimum(x, y) if isinstance(y, Variable) else x.clamp(max=y)


_FUNCTIONS = {name: getattr(R, name) for name in ("abs", "sign", "sqrt")} | {
    "larger": _larger, "smaller": _smaller,
}  # fmt: skip


@functools.cache
def _compiled(declared: Update, flags: tuple[bool, ...]) -> list[tuple[str, list[CodeType]]]:
    """What is assigned in each statement of an update, and the code of its value's parts."""
    return [
        (target, [compile(ast.Expression(part), "<update>", "eval") for part in parts])
        for target, parts in statements(declared, flags)
    ]


def recorded_update(declared: Update, flags: tuple[bool, ...], values: dict[str, Any]) -> None:
    """Compute an update of values by their names, where what it assigns is put."""
    for target, parts in _compiled(declared, flags):
        value, *others = [eval(part, _FUNCTIONS, values) for part in parts]
        values[target] = where(value, *others) if others else value
