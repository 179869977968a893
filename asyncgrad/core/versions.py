"""In-place changes are counted: what saved a value before one must not use it after."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from asyncgrad.core.views import stop_retaining

if TYPE_CHECKING:
    from asyncgrad.core.node import Node
    from asyncgrad.core.variable import Variable

#: At least so many weak references are kept before dead ones are looked for.
_PRUNE = 32


class VersionCounter:
    """Counts in-place changes; a tensor shares it with its views and with `detach()`."""

    __slots__ = ("_cuts", "aliases", "value", "views")

    #: When `detach_()` cut computed tensors off from the graph: `value` then, and the edge, weakly.
    #: Not there before the first. Each made `value` one greater: nodes that saved the tensor look.
    _cuts: list[tuple[int, weakref.ref[Node], int]]

    def __init__(self) -> None:
        """Start unchanged."""
        self.value = 0
        #: The views that lead to their base by an edge, weakly.
        self.views: list[weakref.ref[Variable]] | None = None
        #: What else shares a leaf's memory, weakly.
        self.aliases: list[weakref.ref[Variable]] | None = None

    @property
    def version(self) -> int:
        """The number of changes."""
        return self.value - len(getattr(self, "_cuts", ()))

    def changed_since(self, value: int) -> int:
        """The number of changes since `value` was read."""
        return self.value - value - len(self.cuts_since(value))

    def cut(self, node: Node, input_nr: int) -> None:
        """Note that a tensor no longer leads to its node."""
        self.value += 1
        self._cuts = [*getattr(self, "_cuts", ()), (self.value, weakref.ref(node), input_nr)]

    def cuts_since(self, value: int) -> list[tuple[Node | None, int]]:
        """Where tensors led that have been cut off since `value` was read."""
        cuts = getattr(self, "_cuts", ())
        return [(node(), number) for at, node, number in cuts if at > value]

    def register_alias(self, variable: Variable) -> None:
        """Remember a tensor without an edge that shares a leaf's memory."""
        living = [reference for reference in self.aliases or () if reference() is not None]
        self.aliases = [*living, weakref.ref(variable)]

    def sharers(self) -> set[Variable]:
        """The registered tensors that are alive."""
        known = [reference() for reference in (*(self.views or ()), *(self.aliases or ()))]
        return {variable for variable in known if variable is not None}

    def register(self, variable: Variable) -> None:
        """Remember a view that has an edge."""
        views = self.views
        if views is None:
            self.views = [weakref.ref(variable)]
            return
        views.append(weakref.ref(variable))
        count = len(views)
        # At powers of two: what is looked through has doubled since.
        if count >= _PRUNE and not count & (count - 1):
            self.views = [reference for reference in views if reference() is not None]

    def forget_edges(self) -> None:
        """The base's history has changed: take their edges from its views."""
        views, self.views = self.views, None
        for reference in views or ():
            variable = reference()
            if variable is not None:
                meta = variable._autograd
                if meta is not None and meta.retains_grad:
                    stop_retaining(variable)
                variable._edge = None
