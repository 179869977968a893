"""The function behind a leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncgrad.core.node import MAX_SEQUENCE_NR, Node

if TYPE_CHECKING:
    from asyncgrad.core.variable import Variable


class AccumulateGrad(Node):
    """Takes what arrives for the leaf's `.grad`; `commit` adds it when the pass has succeeded."""

    __slots__ = ("variable",)

    def __init__(self, variable: Variable) -> None:
        """Stand behind `variable`."""
        # One for each leaf in each graph: made without a call.
        self.rule = None
        self.following = ()
        self.saved = None
        self.guard = None
        self.output_metadata = variable._metadata
        self.cost = 500
        self.extras = None
        self.sequence_nr = MAX_SEQUENCE_NR
        self.topological_nr = 0
        self.variable = variable
