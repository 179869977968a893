"""Counts in-place changes: a value saved before one must not be used after it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from asyncgrad.core.views import stop_retaining

if TYPE_CHECKING:
    from asyncgrad.core.node import Node
    from asyncgrad.core.views import HasEdge

#: Dead weak references are dropped only from lists of at least this length.
_PRUNE = 32


class VersionCounter:
    """Counts in-place changes; a tensor shares it with its views and with `detach()`."""

    __slots__ = ("_cuts", "aliases", "value", "views")

    #: For each `detach_()` of a computed tensor: `value` after it, and the edge, weakly. Unset
    #: before the first. Each adds one to `value`: so nodes that saved the tensor look here.
    _cuts: list[tuple[int, weakref.ref[Node], int]]

    def __init__(self) -> None:
        self.value = 0
        #: Weak references to views that have an edge to their base.
        self.views: list[weakref.ref[HasEdge]] | None = None
        #: Weak references to other tensors that share a leaf's memory.
        self.aliases: list[weakref.ref[HasEdge]] | None = None

    @property
    def version(self) -> int:
        """The number of changes."""
        return self.value - len(getattr(self, "_cuts", ()))

    def changed_since(self, value: int) -> int:
        """The number of changes since `value` was read."""
        return self.value - value - len(self.cuts_since(value))

    def cut(self, node: Node, input_nr: int) -> None:
        """Note that `detach_()` has removed a tensor's edge."""
        self.value += 1
        self._cuts = [*getattr(self, "_cuts", ()), (self.value, weakref.ref(node), input_nr)]

    def cuts_since(self, value: int) -> list[tuple[Node | None, int]]:
        """The edges that `detach_()` has removed since `value` was read."""
        cuts = getattr(self, "_cuts", ())
        return [(node(), number) for at, node, number in cuts if at > value]

    def register_alias(self, variable: HasEdge) -> None:
        """Register a tensor without an edge that shares a leaf's memory."""
        known = self.aliases
        self.aliases = [weakref.ref(variable)] if known is None else _added(known, variable)

    def sharers(self) -> set[HasEdge]:
        """The registered tensors that are alive."""
        known = [reference() for reference in (*(self.views or ()), *(self.aliases or ()))]
        return {variable for variable in known if variable is not None}

    def register(self, variable: HasEdge) -> None:
        """Register a view that has an edge."""
        known = self.views
        self.views = [weakref.ref(variable)] if known is None else _added(known, variable)

    def forget_edges(self) -> None:
        """Remove the edges of all views: the base's history has changed."""
        views, self.views = self.views, None
        for reference in views or ():
            variable = reference()
            if variable is not None:
                meta = variable._autograd
                if meta is not None and meta.retains_grad:
                    stop_retaining(variable)
                variable._edge = None


def _added(known: list[weakref.ref[HasEdge]], variable: HasEdge) -> list[weakref.ref[HasEdge]]:
    """Add a reference. At lengths that are powers of two, dead ones go: cheap on average."""
    known.append(weakref.ref(variable))
    length = len(known)
    if length < _PRUNE or length & (length - 1):
        return known
    return [reference for reference in known if reference() is not None]
