"""Gradient edges: where the gradient of a tensor goes, without the tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from asyncgrad.core.node import Edge, Node, as_edge, as_stored, shown
from asyncgrad.core.variable import gradient_edge
from asyncgrad.errors import AutogradError
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor goes; a root or an input of `backward` and `grad`.

    It keeps the node alive, and with it what lies behind, but not the tensor.
    """

    node: Node
    #: Which output of the node's forward function the tensor was.
    output_nr: int
    #: Only for programs that unpack three: here the node keeps the graph alive.
    ownership_token: Node | None = None


#: What a pass starts from or is asked for.
Root: TypeAlias = "Tensor | GradientEdge"


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor goes.

    Raises:
        RuntimeError: if the tensor needs no gradient.

    Example:
        >>> import asyncgrad as ag
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
    """A gradient edge in the form in which nodes store edges.

    Raises:
        RuntimeError: if its node has no such output.
    """
    if not 0 <= root.output_nr < root.node.num_inputs:
        raise AutogradError(
            f"{root.node.name()} has {root.node.num_inputs} outputs, there is no gradient edge to "
            f"output {root.output_nr}"
        )
    return as_stored(Edge(root.node, root.output_nr))


def metadata_at(root: GradientEdge) -> Any:
    """Shape, dtype and device of the tensor that a gradient edge was taken from."""
    return root.node._input_metadata[root.output_nr]
