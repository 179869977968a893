"""Gradient edges: the place in the graph where a tensor's gradient goes."""

from __future__ import annotations

from typing import Any, TypeAlias

from asyncgrad.core.node import Edge, Node, as_edge, as_stored, name_of, shown
from asyncgrad.core.variable import gradient_edge
from asyncgrad.errors import AutogradError
from asyncgrad.records import NamedTuple
from asyncgrad.types import Tensor


class GradientEdge(NamedTuple):
    """Where a tensor's gradient goes; usable as root and as input of `backward` and `grad`.

    It keeps the node and the graph behind it alive, but not the tensor.
    """

    node: Node
    #: The number of the tensor among the outputs of the node's forward function.
    output_nr: int
    #: Always None here, for programs that unpack three fields: `node` keeps the graph alive.
    ownership_token: Node | None = None


#: A root or an input of a pass.
Root: TypeAlias = "Tensor | GradientEdge"


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The gradient edge of a tensor that needs a gradient.

    Raises:
        RuntimeError: if the tensor needs no gradient.

    Example:
        >>> x = ag.tensor(3.0, requires_grad=True)
        >>> squared = x * x
        >>> edge = ag.autograd.graph.get_gradient_edge(squared)
        >>> ag.grad(squared * 5, edge)
        (tensor(5.),)
    """
    edge = as_edge(gradient_edge(tensor))
    if edge.node is None:
        raise AutogradError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(shown(edge.node), edge.input_nr)


def stored(root: GradientEdge) -> Any:
    """A gradient edge as nodes store it; raises RuntimeError if its node has no such output."""
    if not 0 <= root.output_nr < root.node.num_inputs:
        raise AutogradError(
            f"{name_of(root.node)} has {root.node.num_inputs} outputs, there is no gradient edge "
            f"to output {root.output_nr}"
        )
    return as_stored(Edge(root.node, root.output_nr))
