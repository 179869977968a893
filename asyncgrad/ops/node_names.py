"""Give nodes the names and saved values that PyTorch's nodes have."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, TypeVar

from asyncgrad.core.node import OpNode
from asyncgrad.core.variable import counter_of, is_inference, wrap

if TYPE_CHECKING:
    from collections.abc import Callable

_F = TypeVar("_F", bound="Callable[..., Any]")


def one_node(name: str) -> Callable[[_F], _F]:
    """Decorate a composed function that is one node in PyTorch: its last node gets that name."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            return renamed(function(*args, **kwargs), name)

        return named  # type: ignore[return-value]

    return decorate


def renamed(
    result: Any, node: str, *, saves: bool | None = None, watched: tuple[Any, ...] = ()
) -> Any:
    """Rename the node of a result that was just made.

    Args:
        result: the result.
        node: PyTorch's name of the node.
        saves: whether PyTorch's node saves tensors, and can't run again once they are freed;
            None keeps what the function's own node does.
        watched: tensors that must not change before the node runs.
    """
    rename(result._edge, node, saves=saves, watched=watched)
    return result


def rename(
    made: Any, node: str, *, saves: bool | None = None, watched: tuple[Any, ...] = ()
) -> None:
    """Rename a node that was just made; None, if nothing was recorded, is ignored."""
    if made.__class__ is OpNode:
        made.rule = _known_as(made.rule, node, saves)
        if watched:
            watch(made, watched)


def no_view(result: Any) -> Any:
    """A result that is no longer known as a view; only its function has seen the tensor so far."""
    if result._batched or is_inference(result):
        return result
    return wrap(result._array, result._metadata, result._edge)


def watch(made: Any, tensors: tuple[Any, ...]) -> None:
    """Make a new node raise if some tensors change before it runs.

    Args:
        made: the node, or None if nothing was recorded.
        tensors: whose values the node keeps as attributes; saved operands are watched anyway.
    """
    if made.__class__ is OpNode:
        counters: tuple[Any, ...] = ()
        versions: tuple[int, ...] = ()
        for tensor in tensors:
            counter = tensor._counter or counter_of(tensor)
            counters += (counter,)
            versions += (counter.value,)
        guard = made.guard
        if guard is not None:
            several = guard.__class__ is tuple
            counters = (guard if several else (guard,)) + counters
            versions = (made.version if several else (made.version,)) + versions
        made.guard, made.version = counters, versions


@functools.cache
def _known_as(rule: Any, node: str, saves: bool | None) -> Any:
    """A copy of a rule with another name, and with another answer to whether it saves tensors."""
    known = copy.copy(rule)
    known.name, known.variant = node, None
    if saves is not None:
        known.saves = saves
    return known
