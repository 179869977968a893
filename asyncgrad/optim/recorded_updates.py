"""The declared updates of `devices.updates` as functions of tensors, which autograd records."""

from __future__ import annotations

import ast
import functools
import operator
from typing import Any

from asyncgrad.core.variable import Variable
from asyncgrad.devices.updates import Update
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.optim.array_updates import statements

_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Lt: operator.lt, ast.Gt: operator.gt,
}  # fmt: skip
_statements = functools.cache(statements)


def _larger(x: Any, y: Any) -> Any:
    return R.maximum(x, y) if isinstance(y, Variable) else x.clamp(min=y)


def _smaller(x: Any, y: Any) -> Any:
    return R.minimum(x, y) if isinstance(y, Variable) else x.clamp(max=y)


#: The functions that operations do not have under the names in declarations.
_FUNCTIONS = {"larger": _larger, "smaller": _smaller}


def recorded_update(declared: Update, flags: tuple[bool, ...], values: dict[str, Any]) -> None:
    """Compute an update.

    Args:
        declared: the update.
        flags: the values of its flags.
        values: by the names of the declaration, the tensors and numbers that it uses. What it
            assigns is put there.
    """
    for target, (condition, *others) in _statements(declared, flags):
        found = _value(condition, values)
        values[target] = where(found, *[_value(one, values) for one in others]) if others else found


def _value(node: Any, values: dict[str, Any]) -> Any:
    """The value of an expression."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Compare):
        other = _value(node.comparators[0], values)
        return _OPERATORS[type(node.ops[0])](_value(node.left, values), other)
    function = _FUNCTIONS.get(node.func.id) or getattr(R, node.func.id)
    return function(*[_value(argument, values) for argument in node.args])
