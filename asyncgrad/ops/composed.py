"""Derivatives of an op that is also a composition of others.

Its tangents, and its gradients in a pass that records itself, are those of the composition. Other
passes call the op's own kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from asyncgrad.core.forward import UNKNOWN, Level
from asyncgrad.core.modes import Mode, current, install
from asyncgrad.core.node import OpNode, as_edge, next_sequence_nr, stored_edges
from asyncgrad.core.saved import values_as_tensors
from asyncgrad.core.variable import Variable, autograd_meta, wrap
from asyncgrad.ops.op import Part, fused_together, parameters
from asyncgrad.ops.recorded import RECORDED


def composed(
    inputs: str, function: Callable[..., Any], kernel: Callable[..., Any]
) -> dict[str, Any]:
    """The fields `pushes` and `together` of an op, whose inputs are named.

    `function(F, inputs..., attributes...)` computes the same as the op, and the kernel all
    gradients, as that of `fused_together` does.
    """
    together = fused_together(kernel, _back_through(function, parameters(kernel)[3:]))
    return {"pushes": through(inputs, function), "together": together}


def through(inputs: str, function: Callable[..., Any]) -> dict[str, Part]:
    """The pushes by some inputs of an op, which compute it anew by ops that have pushes."""
    names = parameters(function)[1:]

    def by(place: int) -> Part:
        def push(F: Any, t: Any, *values: Any) -> Any:
            modes = current()
            level = Level(modes.dual_level)
            given = list(values)
            # In another view, because another input may have the same array, and not this tangent.
            given[place] = x = F.reshape(values[place], values[place].shape)
            level.set(x._array, t)
            install(modes.replace(dual_level=level))
            try:
                out = function(F, *given)
            finally:
                install(modes)
            tangent = level.get(out._array)
            return F.zeros_of(out) if tangent is UNKNOWN else tangent

        return Part(names, push)

    return {key: by(names.index(key)) for key in inputs.split()}


def _back_through(function: Callable[..., Any], given: tuple[str, ...]) -> Callable[..., Any]:
    """The rule that differentiates a composition; `given` names the values that it gets."""

    def rule(F: Any, g: Any, wanted: tuple[str, ...], *values: Any) -> Any:
        known = dict(zip(given, values, strict=True))
        if isinstance(g, Variable):
            return _gradients(function, g, wanted, known)
        # Arrays of complex numbers, which kernels do not take.
        for name, value in known.items():
            if value.__class__ is F.array_type:
                known[name] = wrap(value, F.metadata_of(value))
        for name in wanted:
            autograd_meta(known[name]).requires_grad = True
        with Mode(grad=False):
            made = _gradients(function, wrap(g, F.metadata_of(g)), wanted, known)
        return tuple([each._array for each in made])

    return rule


def _gradients(
    function: Callable[..., Any], g: Any, wanted: tuple[str, ...], known: dict[str, Any]
) -> tuple[Any, ...]:
    """The gradients of a composition, by the rules of its ops, which record."""
    first = next_sequence_nr()
    with Mode(grad=True, saved_hooks=None):
        # Other paths may lead to the inputs themselves, but none to views made here.
        views = {name: RECORDED.reshape(known[name], known[name].shape) for name in wanted}
        given = {**known, **views}
        out = function(RECORDED, *[given[name] for name in parameters(function)[1:]])
    ends = [view._edge for view in views.values()]
    arrived = {out._edge: g}
    # The latest node first, as in a pass; those of `out` and `ends` are None if nothing records.
    ready = [] if out._edge is None else [(-out._edge.sequence_nr, out._edge)]
    while ready:
        _, node = heappop(ready)
        if node in ends:
            continue
        saved = values_as_tensors(node) if node.rule.arrays else node.saved
        received = node.rule.run(RECORDED, arrived.pop(node), saved)
        edges = stored_edges(node)
        for edge, part in zip(edges, received if len(edges) > 1 else (received,), strict=True):
            to = as_edge(edge).node
            if part is not None and to.__class__ is OpNode and to.sequence_nr > first:
                if to in arrived:
                    arrived[to] = RECORDED.add(arrived[to], part)
                else:
                    arrived[to] = part
                    heappush(ready, (-to.sequence_nr, to))
    return tuple([arrived.get(end) for end in ends])
