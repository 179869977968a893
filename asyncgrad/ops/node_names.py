"""Nodes of functions that are made of others, or keep what the table does not know of."""

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
    """Decorate a function that PyTorch has as one node, whose name the last of several gets."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            return renamed(function(*args, **kwargs), name)

        return named  # type: ignore[return-value]

    return decorate


def renamed(
    result: Any, node: str, *, saves: bool | None = None, watched: tuple[Any, ...] = ()
) -> Any:
    """A result whose node has just been made, under the name of PyTorch's.

    Args:
        result: the result.
        node: the node's name.
        saves: PyTorch's node saves tensors: it can't run again when a pass has freed them. None
            where the function at hand does what PyTorch's does.
        watched: tensors that must not change before it runs.
    """
    rename(result._edge, node, saves=saves, watched=watched)
    return result


def rename(
    made: Any, node: str, *, saves: bool | None = None, watched: tuple[Any, ...] = ()
) -> None:
    """The same for the node itself, None where nothing has been recorded."""
    if made.__class__ is OpNode:
        made.rule = _known_as(made.rule, node, saves)
        if watched:
            watch(made, watched)


def no_view(result: Any) -> Any:
    """A result without what it is a view of, which only the function that made it has seen."""
    if result._batched or is_inference(result):
        return result
    return wrap(result._array, result._metadata, result._edge)


def watch(made: Any, tensors: tuple[Any, ...]) -> None:
    """Have a node that has just been made refuse to run after a change of tensors.

    Args:
        made: the node, or None where nothing has been recorded.
        tensors: whose values it keeps as attributes; what it saves as operands it watches anyway.
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
    """A rule of another name that saves other values than its function does."""
    known = copy.copy(rule)
    known.name, known.variant = node, None
    if saves is not None:
        known.saves = saves
    return known
