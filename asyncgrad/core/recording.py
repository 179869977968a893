"""What functions that are no ops tell the recorder of a compiled function, if one is active.

A recorder (`Modes.recorder`) is told of every op by `ops.mode_hooks` and of every pass by
`autograd.new_pass`. All else that a replay must repeat, or that makes a replay impossible, is
reported here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from asyncgrad.core.modes import Modes, current

_F = TypeVar("_F", bound="Callable[..., Any]")
_T = TypeVar("_T")

#: The recorders that are active in any context. Functions that take as little time as reading
#: `.grad` check this list before they report: that costs a tenth of reading the modes.
recorders: list[Any] = []


def note_look(what: str) -> None:
    """Report that Python sees values of a tensor, so that what follows may depend on them."""
    recorder = current().recorder
    if recorder is not None:
        recorder.looked(what)


def unrepeatable(why: str) -> None:
    """Report a change that a replay would leave out."""
    recorder = current().recorder
    if recorder is not None:
        recorder.refuse(why)


def note_constant(array: Any) -> None:
    """Report an array whose values depend on Python values alone, such as one of zeros."""
    recorder = current().recorder
    if recorder is not None:
        recorder.constant(array)


def note_copy(array: Any, copy: Any) -> None:
    """Report a copy of an array that no op has made."""
    recorder = current().recorder
    if recorder is not None:
        recorder.copied(array, copy)


def second_array(tensor: Any, modes: Modes) -> Any:
    """The array for a second tensor of the same memory, in modes that tell tensors by arrays."""
    if modes.dual_level is not None:
        # Tangents are kept by array: a new view of the memory has none.
        return tensor._array.view()
    recorder = modes.recorder
    return tensor._array if recorder is None else recorder.second_array(tensor)


def note_result(array: Any, function: Callable[..., Any], *args: Any) -> None:
    """Report an array that a function, and no op, has made. Callers check `recorders` first."""
    recorder = current().recorder
    if recorder is not None:
        recorder.followed(array, function, args)


def again(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of arrays and constants, without effects; a replay calls it, too.

    A replay goes on only if what the function returns besides arrays is the same as when it was
    recorded.
    """
    recorder = current().recorder
    return function(*args) if recorder is None else recorder.again(function, args, {}, False)


def made_anew(recorder: Any, make: Callable[..., _T], *args: Any) -> _T:
    """Make an array or another object of others; a recorder that is still active is told of it.

    Each replay makes the object anew.
    """
    value = make(*args)
    if recorder in recorders:
        recorder.made_anew(value, make, args)
    return value


def modes_of(recorder: Any) -> dict[str, Any]:
    """The modes in which code runs that a recorder, if it is still active, is told of."""
    if recorder not in recorders:
        return {}
    return {"recorder": recorder, "before_change": recorder.changing}


def watch_of(task: Any) -> Any:
    """The object that takes reports of user code in a pass; None if no recorder follows the pass.

    Callers check `recorders` first.
    """
    for recorder in recorders:
        watch = recorder.watch_of(task)
        if watch is not None:
            return watch
    return None


def drawn_anew(function: _F) -> _F:
    """Decorate a function that draws random numbers: a replay draws others in its place.

    The function uses the values of tensors, and not their history.
    """
    function.draws = True  # type: ignore[attr-defined]
    return called_anew(function, values=True)


def called_anew(function: _F, *, values: bool = False) -> _F:
    """Decorate a function with effects: a replay calls it in its place among the operations."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = current().recorder
        if recorder is None:
            return function(*args, **kwargs)
        return recorder.again(function, args, kwargs, True, values=values)

    return cast("_F", call)
