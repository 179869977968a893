"""Calls hooks, awaits them where they are coroutines, and checks what they return."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, Self

from asyncgrad.aliases import Gradient, Steps, Value
from asyncgrad.core.hooks import NO_EXTRAS, Hooks
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.node import Node, extras_of, metadata_at
from asyncgrad.core.pass_state import PassState
from asyncgrad.core.variable import Variable, autograd_meta, wrap
from asyncgrad.errors import AutogradError, class_of


class Settled:
    """A result that is there already. Awaiting it gives itself, and never waits."""

    __slots__ = ()

    def __await__(self) -> Steps[Self]:
        yield from ()
        return self


def tensor_hooks(task: PassState, node: Node, gradients: list[Any]) -> Steps[list[Any]]:
    """Call the hooks on the node's forward outputs, then stage what `retain_grad` asked for."""
    extras = node.extras or NO_EXTRAS
    for position, hooks in tuple(extras.tensor.items()):
        if hooks:
            gradients[position] = yield from _call_hooks(
                task, hooks, gradients[position], metadata_at(node, position)
            )
    for position, retain in extras.retain.items():
        gradient = gradients[position]
        if gradient is not None:
            variable = retain()
            # A batch of gradients (`is_grads_batched`) is no gradient of one tensor.
            batched = isinstance(gradient, Variable) and gradient._batched
            if variable is not None and not batched:
                # Copied, because later hooks may change the gradient in place.
                F = task.recorded or metadata_at(node, position).F
                task.staged.append((variable, F.own_copy(gradient), True))
    return gradients


def _call_hooks(
    task: PassState, hooks: Hooks, gradient: Gradient, metadata: Metadata
) -> Steps[Any]:
    """Pass a gradient through hooks, each of which may replace it unless it `only_sees` it."""
    value = as_tensor(gradient, metadata)
    for hook in tuple(hooks.values()):
        result = yield from awaited(hook(value))
        if result is not None and result is not value and not getattr(hook, "only_sees", False):
            _check_replacement(hook, value, result)
            value = result
    return _from_tensor(task, value)


def pre_hooks(task: PassState, node: Node, gradients: list[Any]) -> Steps[list[Any]]:
    """Call the hooks that run before the node, and may replace its gradients."""
    values = tuple(as_tensor(g, metadata_at(node, i)) for i, g in enumerate(gradients))
    for hook in tuple(extras_of(node).pre.values()):
        result = yield from awaited(hook(values))
        if result is not None:
            values = _replaced(hook, values, result)
    return [_from_tensor(task, value) for value in values]


def post_hooks(
    task: PassState, node: Node, received: Value, gradients: list[Any]
) -> Steps[tuple[Any, ...]]:
    """Call the hooks that run after the node, and may replace the gradients it returned."""
    following = node.next_edges
    rule = node.rule
    places = range(len(following)) if rule is None else rule.places
    by_place = dict(zip(places, received, strict=True))
    inputs = tuple(
        None if edge.node is None else as_tensor(by_place[i], metadata_at(edge.node, edge.input_nr))
        for i, edge in enumerate(following)
    )
    outputs = tuple(as_tensor(g, metadata_at(node, i)) for i, g in enumerate(gradients))
    for hook in tuple(extras_of(node).post.values()):
        result = yield from awaited(hook(inputs, outputs))
        if result is not None:
            inputs = _replaced(hook, inputs, result)
    return tuple(_from_tensor(task, inputs[place]) for place in places)


def post_accumulate_hooks(variable: Variable) -> Steps[None]:
    """Call the hooks on a leaf whose `.grad` has just been changed."""
    # While the commit waited for its turn, they may all have been removed.
    for hook in tuple((autograd_meta(variable).post_accumulate or {}).values()):
        result = yield from awaited(hook(variable))
        if result is not None and result is not variable:
            if not isinstance(result, Variable):
                raise TypeError(f"expected Variable, but hook returned '{class_of(result)}'")
            raise AutogradError(
                f"Tensor post accumulate grad hooks should return None. But {_name(hook)!r}, "
                f"registered with register_post_accumulate_grad_hook, returned "
                f"{class_of(result)}"
            )


def awaited(result: Value) -> Steps[Any]:
    """The value that a hook or node returned; awaited if it is awaitable."""
    if isinstance(result, Settled):
        result = yield from result.__await__()
    elif isawaitable(result) and not isinstance(result, Variable):
        result = yield result
    return result


async def finished(steps: Steps[Any], waiting: Value = None) -> Any:
    """Run steps to their end, and await what they wait for; `waiting`, which they gave, first."""
    try:
        value = None if waiting is None else await waiting
        while True:
            value = await steps.send(value)
    except StopIteration as stop:
        return stop.value


def _check_replacement(hook: Value, value: Value, result: Value) -> None:
    """Raise unless a hook's result can replace the gradient it was given."""
    if value is None:
        raise AutogradError(
            f"hook {_name(hook)!r} can't replace a None gradient with a non-None value"
        )
    if not isinstance(result, Variable):
        raise TypeError(
            f"expected Variable, but hook returned '{class_of(result)}': hook {_name(hook)!r} has "
            f"to return a gradient, or None"
        )
    for what, label in (("shape", "size"), ("dtype", "type"), ("device", "device")):
        before, after = getattr(value._metadata, what), getattr(result._metadata, what)
        if before != after:
            raise AutogradError(
                f"hook {_name(hook)!r} has changed the {label} of value: {what} {before} came in "
                f"and {after} came back. Return a gradient like the one it was given, or None."
            )


def _replaced(hook: Value, values: tuple[Any, ...], result: Value) -> tuple[Any, ...]:
    """The tuple that a hook returned, checked against the one it was given."""
    if not isinstance(result, tuple):
        raise TypeError(
            f"expected tuple, but hook returned '{class_of(result)}': hook {_name(hook)!r} has to "
            f"return all gradients, or None"
        )
    if len(result) != len(values):
        raise AutogradError(
            f"hook {_name(hook)!r} has returned an incorrect number of values (got "
            f"{len(result)}, but expected {len(values)})"
        )
    for value, replacement in zip(values, result, strict=True):
        if replacement is not None:
            _check_replacement(hook, value, replacement)
    return result


def as_tensor(gradient: Gradient, metadata: Metadata) -> Any:
    """A gradient as users see it: a tensor or None."""
    if gradient is None or isinstance(gradient, Variable):
        return gradient
    F = metadata.F
    array = F.as_array(gradient)
    return wrap(array, metadata if array.dtype == metadata.dtype else F.metadata_of(array))


def _from_tensor(task: PassState, gradient: Gradient) -> Any:
    """A hook's result in the form in which the pass carries gradients."""
    if gradient is None or task.recorded is not None:
        return gradient
    return gradient._array


def _name(hook: Value) -> str:
    return getattr(hook, "__name__", None) or type(hook).__name__
