"""Forward mode: compute the tangents of results with the pushes of the table's ops.

Pushes compute with recorded functions, so a tangent can be differentiated like any other tensor.
While a push runs, its level is closed and the outer levels stay open, so levels nest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.core.forward import UNKNOWN, Level
from asyncgrad.core.modes import Modes, current, install
from asyncgrad.core.saved_values import keep_old_values
from asyncgrad.core.variable import view_of, zeros_of
from asyncgrad.errors import AutogradError
from asyncgrad.ops.batching import bottom, for_each
from asyncgrad.ops.namespace import RECORDED
from asyncgrad.ops.op import Op
from asyncgrad.ops.table.in_place import steps_of


def tangent_of(x: Any, level: Level) -> Any:
    """A tensor's tangent at a level, None if it has none.

    A view taken before its base got a tangent has the same view of the base's tangent.
    """
    tangent = level.get(x._array)
    if tangent is not UNKNOWN:
        return tangent
    view = view_of(x)
    if view is None or view.path is None:
        return None
    whole = level.get(view.base._array)
    if whole is UNKNOWN or whole is None:
        return None
    modes = current()
    install(level.around(modes))
    try:
        tangent = follow(whole, view.path)
    finally:
        install(modes)
    level.set(x._array, tangent)
    return tangent


def check_tangent(shape: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Raise unless a tangent has the shape of its tensor."""
    if given != shape:
        raise AutogradError(
            f"Trying to set a forward gradient that has a different size than that of the "
            f"original Tensor, this is not supported. Tensor is of size {list(shape)} while the "
            f"given forward gradient is of size {list(given)}."
        )


def follow(base: Any, path: Any) -> Any:
    """Repeat the view operations of a path, starting from another base."""
    x = base
    for name, attributes in steps_of(path):
        x = getattr(RECORDED, name)(x, *attributes)
    return x


def push_tangents(
    op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...], out: Any, modes: Modes
) -> None:
    """Compute the tangents of an op's result at all open levels."""
    array = out._array
    if array.dtype.kind in "iub":
        return  # Integers and booleans have no derivative.
    changed = inputs[0]._array is array
    if any(x._array is array for x in inputs[1:]):
        return  # The result is that input itself and has its tangent.
    for level in modes.dual_level.chain():
        # Outermost level first: an inner push reads the outer tangents of its operands.
        install(level.around(modes))
        try:
            tangents = [tangent_of(x, level) for x in inputs]
            if all(t is None for t in tangents):
                continue
            tangent = _pushed(op, inputs, attributes, out, tangents)
            if changed:
                change_tangent(inputs[0], tangent, level)
            elif tangent is not None:
                level.set(array, tangent if op.view else _own(tangent, tangents))
        finally:
            install(modes)


def _pushed(
    op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...], out: Any, tangents: Any
) -> Any:
    values = {"out": out, "out_shape": out._metadata.shape}
    values.update(zip(op.attributes, attributes, strict=True))
    if op.inputs == ("*xs",):
        push = op.pushes["*xs"]
        filled = [
            zeros_of(x._metadata) if t is None else t for x, t in zip(inputs, tangents, strict=True)
        ]
        return push.function(RECORDED, filled, *[values[name] for name in push.names])
    for key, x in zip(op.inputs, inputs, strict=True):
        values[key] = x
        values[f"{key}_shape"] = x._metadata.shape
        values[f"{key}_dtype"] = x._metadata.dtype
    total = None
    for key, tangent in zip(op.inputs, tangents, strict=True):
        if tangent is None or key not in op.pulls:
            continue
        push = op.pushes.get(key)  # type: ignore[assignment]
        if push is None:
            raise NotImplementedError(
                f"Trying to use forward AD with {op.name} that does not support it: its entry "
                f"has no push for {key!r}."
            )
        if op.broadcasts and tangent._metadata.shape != out._metadata.shape:
            tangent = RECORDED.expand(tangent, out._metadata.shape)
        pushed = push.function(RECORDED, tangent, *[values[name] for name in push.names])
        total = pushed if total is None else RECORDED.add(total, pushed)
    if total is not None and total._metadata.shape != out._metadata.shape:
        total = RECORDED.expand(total, out._metadata.shape)
    return total


def _own(tangent: Any, others: list[Any]) -> Any:
    """Copy a tangent that shares memory with an input's, which may be changed in place."""
    if view_of(bottom(tangent)) is not None or any(tangent is other for other in others):
        return RECORDED.clone(tangent)
    return tangent


def change_tangent(tensor: Any, tangent: Any, level: Level) -> None:
    """Replace the tangent, by another or None, of a tensor that was changed in place.

    Views of the tensor have the same views of its tangent, so their tangents change with it.
    """
    held = tangent_of(tensor, level)
    if tangent is held:
        return
    if held is None:
        view = view_of(tensor)
        if view is None or view.path is None or level.get(view.base._array) is None:
            level.set(tensor._array, RECORDED.clone(tangent))
            return
        whole = for_each(zeros_of(view.base._metadata), tangent)
        level.set(view.base._array, whole)
        held = tangent_of(tensor, level)
        if level.get(tensor._array) is None:
            held = follow(whole, view.path)
            level.set(tensor._array, held)
    if tangent is None:
        held.zero_()
    else:
        held.copy_(tangent)


def carry(tensor: Any, result: Any) -> None:
    """Copy the tangents of a result to the tensor that takes its values in place."""
    modes = current()
    if tensor._metadata.dtype.kind in "iub":
        return
    for level in modes.dual_level.chain():
        install(level.around(modes))
        try:
            change_tangent(tensor, tangent_of(result, level), level)
        finally:
            install(modes)


def keep_old_of_tangents(tensor: Any, result: Any, since: int) -> None:
    """Before a change in place, copy the old values that the change's pushes have saved.

    Args:
        result: the tensor whose values and tangents it takes.
        since: the nodes of the change have greater sequence numbers.
    """
    modes = current()
    made, changed = [result], [tensor]
    # Innermost level first: a tangent may itself have tangents at the outer levels.
    for level in reversed(modes.dual_level.chain()):
        install(level.around(modes))
        try:
            for tensors in (made, changed):
                found = [tangent_of(x, level) for x in tensors]
                tensors += [bottom(tangent) for tangent in found if tangent is not None]
        finally:
            install(modes)
    for x in made[1:]:
        for y in changed:
            keep_old_values(x._edge, y, since)


def without_tangents(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function without computing tangents."""
    modes = current()
    install(modes.replace(forward=False))
    try:
        return function(*arguments)
    finally:
        install(modes)
