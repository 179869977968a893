"""The tangents of an op that is also a composition of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.core.forward import UNKNOWN, Level
from asyncgrad.core.modes import current, install
from asyncgrad.ops.op import Part, parameters


def through(inputs: str, function: Callable[..., Any]) -> dict[str, Part]:
    """The pushes by some inputs of an op, which compute it anew by ops that have pushes.

    Args:
        inputs: their names, separated by blanks.
        function: `function(F, inputs..., attributes...)` computes the same as the op.
    """
    names = parameters(function)[1:]

    def by(place: int) -> Part:
        def push(F: Any, t: Any, *values: Any) -> Any:
            modes = current()
            level = Level(modes.dual_level)
            given = list(values)
            # In another view, because another input may have the same array, and not this tangent.
            given[place] = x = F.reshape(values[place], values[place].shape)
            level.set(x._array, t)
            install(modes.replace(dual_level=level))
            try:
                out = function(F, *given)
            finally:
                install(modes)
            tangent = level.get(out._array)
            return F.zeros_of(out) if tangent is UNKNOWN else tangent

        return Part(names, push)

    return {key: by(names.index(key)) for key in inputs.split()}
