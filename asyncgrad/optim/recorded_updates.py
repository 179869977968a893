"""The declared updates of `devices.updates` as functions of tensors, which autograd records."""

from __future__ import annotations

from typing import Any

from asyncgrad.core.variable import Variable
from asyncgrad.devices.updates import Update
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.optim.array_updates import follow


def _larger(x: Any, y: Any) -> Any:
    return R.maximum(x, y) if isinstance(y, Variable) else x.clamp(min=y)


def _smaller(x: Any, y: Any) -> Any:
    return R.minimum(x, y) if isinstance(y, Variable) else x.clamp(max=y)


_FUNCTIONS = {name: getattr(R, name) for name in ("abs", "sign", "sqrt")} | {
    "larger": _larger, "smaller": _smaller, "where": where,
}  # fmt: skip


def recorded_update(declared: Update, flags: tuple[bool, ...], values: dict[str, Any]) -> None:
    """Compute an update of values by their names, where what it assigns is put."""
    follow(declared, flags, values, _FUNCTIONS)
