"""Forward mode: a level, and the tangents of what is computed while it is open.

A tangent belongs to an array: tensors that hold the same one, as a saved value and what it was
saved of do, have the same tangent. A level is reached by the record of modes alone. Whoever leaves
it leaves its tangents behind, and no other task or thread ever sees them.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.modes import Modes

#: What `Level.get` answers for an array that it knows nothing of.
UNKNOWN = object()


class _Key(weakref.ref):  # type: ignore[type-arg]
    """A reference to an array that remembers where it is filed."""

    __slots__ = ("number",)
    number: int


class Level:
    """The tangents of one level of forward mode."""

    __slots__ = ("__weakref__", "_forget", "_tangents", "outer", "recorded")

    def __init__(self, outer: Level | None = None, *, recorded: bool = False) -> None:
        """Open a level.

        Args:
            outer: the level that was open before, whose tangents go on.
            recorded: how tangents are computed is recorded in any grad mode.
        """
        self.recorded = recorded
        #: Tangents of this level have tangents of that one.
        self.outer = outer
        #: By the number of the array: the array, weakly, and its tangent or None.
        self._tangents: dict[int, tuple[_Key, Any]] = {}
        self._forget = _forgetting(weakref.ref(self))

    def get(self, array: Any) -> Any:
        """The tangent of an array, None if it has none for sure, or else `UNKNOWN`."""
        found = self._tangents.get(id(array))
        return UNKNOWN if found is None else found[1]

    def set(self, array: Any, tangent: Any) -> None:
        """Give an array its tangent: a tensor, or None for none, whatever it is a view of."""
        key = _Key(array, self._forget)
        key.number = id(array)
        self._tangents[key.number] = (key, tangent)

    def copy(self, array: Any, copied: Any) -> None:
        """Give a copy of an array copies of its tangents, at this level and those around it."""
        for level in self.chain():
            tangent = level.get(array)
            if tangent is not UNKNOWN and tangent is not None:
                level.set(copied, tangent.clone())

    def around(self, modes: Modes) -> Modes:
        """The record that tangents of this level are computed in.

        Args:
            modes: the record in force.
        """
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


def _forgetting(level: weakref.ref[Level]) -> Callable[[Any], None]:
    """What drops the tangents of arrays that are gone; it does not keep the level."""

    def forget(key: Any) -> None:
        holder = level()
        if holder is not None:
            holder._tangents.pop(key.number, None)

    return forget
