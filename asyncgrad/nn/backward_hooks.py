"""Hooks on the gradients that enter and leave a module.

A node that passes gradients on is put behind the module's outputs, and one before its inputs: the
gradients of the outputs pass through the first, those of the inputs through the second. As in
PyTorch, where they are Functions, undefined gradients leave them as zeros.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from asyncgrad.core.modes import current
from asyncgrad.core.node import Edge, Identity, as_stored
from asyncgrad.core.variable import Variable, counter_of, gradient_edge, wrap, zeros_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncgrad.nn.module import Module

#: How many values there are, and the places of those that have gradients.
_Places = tuple[int, tuple[int, ...]]


class Passage(Identity):
    """Passes its gradients on, zeros for those that are undefined."""

    __slots__ = ()

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """What came in."""
        full = [
            zeros_of(metadata) if gradient is None else gradient
            for gradient, metadata in zip(gradients, self.output_metadata, strict=True)
        ]
        return tuple(full) if task is None or task.recorded is not None else _arrays(full)


class BackwardHooks:
    """The hooks of one call of a module."""

    def __init__(self, module: Module, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
        """Keep the hooks that are registered now."""
        self._module = module
        self._before = before
        self._after = after
        self._inputs: _Places = (0, ())
        #: What the tensors among the inputs are like, at their places.
        self._facts: tuple[Any, ...] = ()
        self._outputs: _Places = (0, ())
        #: The gradients of the outputs, in each pass that is under way.
        self._arrived: WeakKeyDictionary[Any, tuple[Any, ...]] = WeakKeyDictionary()

    def around_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with a node between them and the module."""
        if not self._after:
            return args
        self._facts = tuple([a._metadata if isinstance(a, Variable) else None for a in args])
        passed, node, self._inputs = _passed_on(args)
        if node is not None:
            node.register_hook(lambda grads, _: _run(self._leaving(grads)))
        return passed

    def around_outputs(self, output: Any) -> Any:
        """The output, with a node between it and the module."""
        if not isinstance(output, (Variable, tuple, list)):
            return output
        parts = (output,) if isinstance(output, Variable) else tuple(output)
        passed, node, self._outputs = _passed_on(parts)
        if node is not None:
            node.register_prehook(lambda grads: _run(self._entering(grads)))
        if isinstance(output, Variable):
            return passed[0]
        return type(output)(*passed) if hasattr(output, "_fields") else type(output)(passed)

    def _entering(self, gradients: tuple[Any, ...]) -> Generator[Any, Any, tuple[Any, ...]]:
        """The gradients of the outputs have arrived."""
        full = _spread(gradients, self._outputs)
        for hook in self._before:
            full = _replaced(hook, (yield hook(self._module, full)), full)
        if self._inputs[1]:
            self._arrived[current().graph_task] = full
        else:
            nothing = (None,) * self._inputs[0]
            for hook in self._after:
                result = yield hook(self._module, nothing, full)
                if any(part is not None for part in _as_tuple(result)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should "
                        "always return None or None for all gradients."
                    )
        return tuple(full[place] for place in self._outputs[1])

    def _leaving(self, gradients: tuple[Any, ...]) -> Generator[Any, Any, tuple[Any, ...]]:
        """The gradients of the inputs are there."""
        arrived = self._arrived.pop(current().graph_task, None)
        if arrived is None:
            # They have come past the module's outputs: this is a derivative of its derivative.
            return gradients
        full = tuple(
            [
                zeros_of(facts) if gradient is None and facts is not None else gradient
                for gradient, facts in zip(
                    _spread(gradients, self._inputs), self._facts, strict=True
                )
            ]
        )
        for hook in self._after:
            full = _replaced(hook, (yield hook(self._module, full, arrived)), full)
        return tuple(full[place] for place in self._inputs[1])


def _passed_on(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Passage | None, _Places]:
    """The values, those that need gradients with a node behind them, and the node."""
    edges = [gradient_edge(v) if isinstance(v, Variable) else None for v in values]
    places = tuple(place for place, edge in enumerate(edges) if edge is not None)
    passed = list(values)
    node = None
    if places and current().grad:
        node = Passage(
            [edges[place] for place in places],
            tuple(values[place]._metadata for place in places),
        )
        for number, place in enumerate(places):
            value = values[place]
            passed[place] = wrap(value._array, value._metadata, as_stored(Edge(node, number)))
            passed[place]._counter = counter_of(value)
    return tuple(passed), node, (len(values), places)


def _arrays(gradients: list[Any]) -> tuple[Any, ...]:
    """Gradients as a pass carries them that does not record itself."""
    return tuple([g._array if isinstance(g, Variable) else g for g in gradients])


def _spread(gradients: tuple[Any, ...], to: _Places) -> tuple[Any, ...]:
    """The gradients at their places, None at the others."""
    count, places = to
    full: list[Any] = [None] * count
    for place, gradient in zip(places, gradients, strict=True):
        full[place] = gradient
    return tuple(full)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _replaced(hook: Any, result: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a hook put in the place of gradients, if anything."""
    if result is None:
        return gradients
    result = _as_tuple(result)
    if len(result) != len(gradients):
        raise RuntimeError(
            f"Backward hook {getattr(hook, '__name__', hook)!r} returned an invalid number of "
            f"grads, got {len(result)}, but expected {len(gradients)}"
        )
    checked: tuple[Any, ...] = result
    return checked


def _run(steps: Generator[Any, Any, Any]) -> Any:
    """What a generator of calls returns in the end; a coroutine if it has to wait for one."""
    result = None
    try:
        while True:
            result = steps.send(result)
            if _waits(result):
                return _wait(steps, result)
    except StopIteration as stop:
        return stop.value


async def _wait(steps: Generator[Any, Any, Any], result: Any) -> Any:
    try:
        while True:
            result = steps.send(await result if _waits(result) else result)
    except StopIteration as stop:
        return stop.value


def _waits(result: Any) -> bool:
    return isawaitable(result) and not isinstance(result, (Variable, tuple))
