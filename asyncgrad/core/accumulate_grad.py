"""The function behind a leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncgrad.core.node import MAX_SEQUENCE_NR, Node

if TYPE_CHECKING:
    from asyncgrad.core.variable import Variable


class AccumulateGrad(Node):
    """Takes what arrives for the leaf's `.grad`; `commit` adds it when the pass has succeeded."""

    __slots__ = ("variable",)

    #: The leaf.
    variable: Variable

    # One is made for each leaf in each graph, by the leaf: what all have in common is the class's.
    rule = None
    following = ()
    saved = None
    guard = None
    cost = 500
    topological_nr = 0
    sequence_nr = MAX_SEQUENCE_NR
