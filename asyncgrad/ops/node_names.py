"""Give nodes the names and saved values that PyTorch's nodes have."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from asyncgrad.core.node import Edge, OpNode, extras_of
from asyncgrad.core.variable import counter_of, is_inference, wrap


def renamed(
    result: Any, node: str, *, saves: bool | None = None, watched: tuple[Any, ...] = ()
) -> Any:
    """Rename the node of a result that was just made, which is a view only if PyTorch's is.

    Args:
        node: PyTorch's name of the node.
        saves: whether PyTorch's node saves tensors, and can't run again once they are freed;
            None keeps what the function's own node does.
        watched: tensors that must not change before the node runs.
    """
    rename(result._edge, node, saves=saves, watched=watched)
    return result if result._autograd is None or node in _OF_VIEWS else no_view(result)


#: Nodes of functions that return a view in PyTorch, too.
_OF_VIEWS = {"AliasBackward0", "SqueezeBackward1"}


def rename(
    made: Any, node: str, *, saves: bool | None = None, watched: tuple[Any, ...] = ()
) -> None:
    """Rename a node that was just made; None, if nothing was recorded, is ignored."""
    if made.__class__ is OpNode:
        made.rule = _known_as(made.rule, node, saves)
        if watched:
            watch(made, watched)


def joined(
    first: Any, second: Any, node: str, out: str, pull: Callable[[Any, Any, Any, Any, Any], Any]
) -> None:
    """Give two reductions of one tensor, whose nodes have just been made, one node.

    Args:
        first: a result whose node saves the operand `x`, `dims` and `keepdim`.
        second: a result of the same operand.
        out: the name of the first result among what is saved.
        pull: the operand's gradient from the second result's, `pull(F, g, x, dims, keepdim)`.
    """
    made, other = first._edge, second._edge
    if made.__class__ is OpNode and other.__class__ is OpNode:
        made.rule = _of_two(made.rule, node, out, pull)
        made.output_metadata = (made.output_metadata, other.output_metadata)
        # The engine runs a rule with several gradients only where a node has extras.
        extras_of(made)
        second._edge = Edge(made, 1)


def no_view(result: Any) -> Any:
    """A result that is no longer known as a view; only its function has seen the tensor so far.

    It shares the version of what it was a view of, which a node may have saved.
    """
    if result._batched or is_inference(result):
        return result
    made = wrap(result._array, result._metadata, result._edge)
    made._counter = result._counter
    return made


def watch(made: Any, tensors: tuple[Any, ...]) -> None:
    """Make a new node, if one was recorded, raise if tensors change before it runs.

    The node keeps their values as attributes; saved operands are watched anyway.
    """
    if made.__class__ is OpNode:
        counters = tuple([tensor._counter or counter_of(tensor) for tensor in tensors])
        versions = tuple([counter.value for counter in counters])
        guard = made.guard
        if guard is not None:
            several = guard.__class__ is tuple
            counters = (guard if several else (guard,)) + counters
            versions = (made.version if several else (made.version,)) + versions
        made.guard, made.version = counters, versions


@functools.cache
def _of_two(rule: Any, node: str, out: str, pull: Any) -> Any:
    """A rule for the gradients of two results, from that of the first."""
    x, dims, keepdim = [rule.names.index(name) for name in ("x", "dims", "keepdim")]

    def run(F: Any, gradients: Any, saved: Any) -> Any:
        one, two = gradients
        if two is not None:
            two = pull(F, two, saved[x], saved[dims], saved[keepdim])
        if one is None:
            return two
        one = rule.run(F, one, saved)
        return one if two is None else F.add(one, two)

    known = copy.copy(rule)
    known.name, known.run, known.fresh = node, run, False
    known.names = tuple([out if name == "out" else name for name in rule.names])
    return known


@functools.cache
def _known_as(rule: Any, node: str, saves: bool | None) -> Any:
    """A copy of a rule with another name, and with another answer to whether it saves tensors."""
    known = copy.copy(rule)
    known.name, known.variant = node, None
    if saves is not None:
        known.saves = saves
    return known
