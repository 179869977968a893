"""From tensors inside of `vmap` to the tensors that hold their batches, and back.

Derivatives are taken of the latter: the examples do not depend on one another, so that a pass
gives each of them its own gradient. What is the same for all examples is repeated first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.accumulate_grad import AccumulateGrad
from asyncgrad.core.modes import current
from asyncgrad.core.node import Edge
from asyncgrad.core.variable import Variable, gradient_edge
from asyncgrad.ops.batching import held
from asyncgrad.ops.namespace import RECORDED

if TYPE_CHECKING:
    from asyncgrad.ops.batching import Level


def argument(x: Any, level: Level | None) -> Any:
    """A new tensor for an argument, of which derivatives are taken.

    The function may hold the same tensor as a constant. Where the tensor itself is part of a
    graph, or has a tangent, the new one leads to it.
    """
    bottom = held(x, level)
    if bottom.requires_grad or current().dual_level is not None:
        alias = RECORDED.reshape(bottom, bottom.shape)
        return alias if alias.requires_grad else alias.requires_grad_()
    return bottom.detach().requires_grad_()


def cut_off(x: Any) -> Any:
    """The same values without a graph; tangents stay."""
    if current().dual_level is None:
        return x.detach()
    with no_grad():
        return RECORDED.reshape(x, x.shape)


def leads_beyond(outputs: Any, arguments: Any) -> bool:
    """Whether a graph leads to leaves other than the arguments themselves."""
    own = {gradient_edge(x) for x in arguments if x._edge is None}
    pending = [gradient_edge(out) for out in outputs]
    seen: set[Any] = set()
    while pending:
        edge = pending.pop()
        node = edge.node if edge.__class__ is Edge else edge
        if node is None or node in seen:
            continue
        if node.__class__ is AccumulateGrad and node not in own:
            return True
        seen.add(node)
        following = node.following
        pending += following if following.__class__ is tuple else (following,)
    return False


def is_tensor(x: Any) -> bool:
    """Whether a leaf of a tree is a tensor."""
    return isinstance(x, Variable)
