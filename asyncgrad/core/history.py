"""Changes of where a tensor's gradient flows: after changes in place, for views, by `detach_()`."""

from __future__ import annotations

from asyncgrad.aliases import StoredEdge, Value
from asyncgrad.core.hooks import NO_EXTRAS
from asyncgrad.core.node import as_edge, extras_of
from asyncgrad.core.variable import (
    AccumulateGrad,
    AutogradMeta,
    Variable,
    View,
    autograd_meta,
    counter_of,
    creation_meta_of,
    gradient_edge,
    requires_grad,
    retain,
)
from asyncgrad.core.versions import stop_retaining
from asyncgrad.errors import AutogradError


def note_view(
    variable: Variable, source: Variable, name: str, attributes: Value,
    creation_meta: str | None = None,
) -> None:  # fmt: skip
    """Note that a result is a view of the tensor it was taken from.

    `name` is the table's name of the view function, `creation_meta` the reason why the view
    can't be changed in place while recording, or None.
    """
    # Inlined `looks_into`: this runs for every view.
    array, held = source._array, variable._array.base
    if held is not array and (held is None or held is not array.base):
        # The function returned a copy.
        if creation_meta == "inference_mode":
            autograd_meta(variable).inference = True
        return
    meta = source._autograd
    parent = None
    if meta is not None:
        if meta.inference:
            if variable._edge is None:
                autograd_meta(variable).inference = True
            return
        parent = meta.view
    counter = source._counter or counter_of(source)
    variable._counter = counter
    if parent is None:
        view = View(source, (None, name, attributes), counter.value, creation_meta)
    else:
        known = creation_meta_of(parent)
        path = None if parent.path is None else (parent.path, name, attributes)
        view = View(parent.base, path, counter.value, known or creation_meta)
    variable._autograd = view  # type: ignore[assignment]
    if variable._edge is not None:
        counter.register(variable)
    elif counter.aliases is not None or (meta is not None and meta.requires_grad):
        counter.register_alias(variable)


def rebase_history(variable: Variable, edge: StoredEdge) -> None:
    """Give a variable that was changed in place a new history; it must not be a view."""
    replace_edge(variable, edge)
    counter_of(variable).forget_edges()


def replace_edge(variable: Variable, edge: StoredEdge) -> None:
    """Replace a variable's edge. If it retains its gradient, it retains that of its new values."""
    meta = variable._autograd
    retains = meta is not None and meta.retains_grad
    if retains:
        stop_retaining(variable)
    variable._edge = edge
    if retains and edge is not None:
        retain(variable)


def make_constant(variable: Variable) -> None:
    """Remove a variable's edge, as `detach_()` does, and tell nodes that have saved it."""
    edge, counter = variable._edge, variable._counter
    variable._edge = None
    stop_requiring(variable)
    if edge is not None and counter is not None:
        node, input_nr = as_edge(edge)
        assert node is not None
        counter.cut(node, input_nr)


def stop_requiring(variable: Variable) -> None:
    """Stop gradients to a leaf, also from graphs that lead to it already."""
    if variable._autograd is None:
        return
    meta = autograd_meta(variable)
    meta.requires_grad = False
    accumulator = _accumulator(meta)
    if accumulator is not None and accumulator.extras is None:
        # Passes run a node that has extras in the general way, and that checks whether the leaf
        # requires grad.
        accumulator.extras = NO_EXTRAS


def start_requiring(variable: Variable) -> None:
    """Have gradients accumulated for a leaf."""
    meta = autograd_meta(variable)
    meta.requires_grad = True
    accumulator = _accumulator(meta)
    if accumulator is not None and accumulator.extras is NO_EXTRAS:
        accumulator.extras = None


def leave_graphs(variable: Variable) -> None:
    """Drop a leaf's accumulator, so that later graphs lead to the leaf by a new one.

    By the accumulator, `grad()` tells later graphs from earlier ones. `backward()` through earlier
    graphs still reaches the leaf, and calls its hooks.
    """
    meta = variable._autograd
    if meta.__class__ is AutogradMeta:
        accumulator = _accumulator(meta)
        if accumulator is not None:
            meta.extras = extras_of(accumulator)
        meta.accumulator = None


def _accumulator(meta: AutogradMeta) -> AccumulateGrad | None:
    """A leaf's accumulator, if a graph leads to it."""
    return None if meta.accumulator is None else meta.accumulator()


def retain_grad(variable: Variable) -> None:
    """Keep a computed tensor's gradient in its `.grad`; leaves do so anyway."""
    if not requires_grad(variable):
        raise AutogradError(
            "can't retain_grad on Tensor that has requires_grad=False. Call requires_grad_() first."
        )
    is_computed = gradient_edge(variable) is not None and variable._edge is not None
    if is_computed and not autograd_meta(variable).retains_grad:
        retain(variable)
        autograd_meta(variable).retains_grad = True
