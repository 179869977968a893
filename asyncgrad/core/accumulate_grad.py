"""The function behind a leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncgrad.core.node import Node

if TYPE_CHECKING:
    from asyncgrad.core.variable import Variable


class AccumulateGrad(Node):
    """Takes what arrives for the leaf's `.grad`; `commit` adds it when the pass has succeeded."""

    __slots__ = ("variable",)

    #: The leaf, which makes the accumulator where somebody asks for its edge.
    variable: Variable

    # The same for all of them. What is read often is in slots all the same, where Python finds it
    # more quickly.
    rule = None
    saved = None
    guard = None
