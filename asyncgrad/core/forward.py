"""Forward mode: levels, and the tangents of arrays computed while a level is open.

A tangent belongs to an array, so tensors that hold the same array (a saved value and the tensor it
was saved from) have the same tangent. A level is reachable only through the record of modes, so
other tasks and threads never see its tangents, and they are dropped when the level is left.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

from asyncgrad.aliases import Array, Value
from asyncgrad.core.modes import Modes

#: What `Level.get` returns for an array with no entry.
UNKNOWN = object()


class Level:
    """The tangents of one level of forward mode."""

    __slots__ = ("__weakref__", "_own", "_tangents", "outer", "recorded")

    def __init__(self, outer: Level | None = None, *, recorded: bool = False) -> None:
        """Open a level within `outer`; `recorded`: record tangents in any grad mode."""
        self.recorded = recorded
        #: The enclosing level, in which this level's tangents have tangents.
        self.outer = outer
        #: By the array's id: a weak reference to the array, and its tangent or None.
        self._tangents: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._own = weakref.ref(self)

    def get(self, array: Array) -> Any:
        """The tangent of an array, None if it is known to have none, else `UNKNOWN`."""
        found = self._tangents.get(id(array))
        return UNKNOWN if found is None else found[1]

    def set(self, array: Array, tangent: Value) -> None:
        """Set an array's tangent: a tensor, or None for none, even if its base has one."""
        number = id(array)
        forget = partial(_forget, self._own, number)
        self._tangents[number] = weakref.ref(array, forget), tangent

    def copy(self, array: Array, copied: Array) -> None:
        """Give a copy of an array copies of its tangents, at this level and those around it."""
        for level in self.chain():
            tangent = level.get(array)
            if tangent is not UNKNOWN and tangent is not None:
                level.set(copied, tangent.clone())

    def around(self, modes: Modes) -> Modes:
        """The record of modes in which this level's tangents are computed."""
        if self.recorded:
            return modes.replace(dual_level=self.outer, grad=True, inference=False)
        return modes.replace(dual_level=self.outer)

    @property
    def depth(self) -> int:
        """How many levels are open around this one."""
        return 0 if self.outer is None else self.outer.depth + 1

    def chain(self) -> list[Level]:
        """All open levels, the outermost first."""
        level: Level | None = self
        levels = []
        while level is not None:
            levels.append(level)
            level = level.outer
        return levels[::-1]


def _forget(level: weakref.ref[Level], number: int, _: Value) -> None:
    """Drop a dead array's tangent; as a callback it does not keep the level alive."""
    holder = level()
    if holder is not None:
        holder._tangents.pop(number, None)
