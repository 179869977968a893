"""`AccumulateGrad`: the node of a leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncgrad.core.node import Node

if TYPE_CHECKING:
    from asyncgrad.core.variable import Variable


class AccumulateGrad(Node):
    """Stages the gradients that reach the leaf; `commit` adds them to `.grad` after success."""

    __slots__ = ("variable",)

    #: The leaf. It creates this node when its gradient edge is first needed.
    variable: Variable

    # Constants for all instances. Other attributes are in slots, where Python finds them faster.
    rule = None
    saved = None
    guard = None
