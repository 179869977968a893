"""Hooks on the gradients that enter and leave a module.

One identity node is inserted after the module's outputs and one before its inputs. The gradients of
the outputs pass through the first node, those of the inputs through the second, and the hooks are
called there. As in PyTorch, both nodes replace undefined gradients by zeros.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from asyncgrad.aliases import Steps
from asyncgrad.autograd.function_results import view_of_input
from asyncgrad.core.frames import warn
from asyncgrad.core.hook_calls import awaited, finished
from asyncgrad.core.modes import current
from asyncgrad.core.node import Edge, Identity, as_stored
from asyncgrad.core.variable import Variable, gradient_edge, zeros_of
from asyncgrad.nn.module_tree import Members

#: The number of values, and the indices of those that need gradients.
_Places = tuple[int, tuple[int, ...]]


class Passage(Identity):
    """An identity node: it returns its gradients, with zeros for undefined ones."""

    __slots__ = ()

    def name(self) -> str:
        """PyTorch's name, which errors of changes in place contain."""
        return "BackwardHookFunctionBackward"

    def apply(self, gradients: tuple[Any, ...], task: Any) -> Any:
        """Return the gradients as they are, the undefined ones as zeros."""
        full = [
            zeros_of(metadata) if gradient is None else gradient
            for gradient, metadata in zip(gradients, self.output_metadata, strict=True)
        ]
        if task is None or task.recorded is not None:
            return tuple(full)
        return tuple([g._array if isinstance(g, Variable) else g for g in full])


class BackwardHooks:
    """The hooks of one call of a module."""

    def __init__(self, module: Members, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
        self._module = module
        self._before = before
        self._after = after
        self._inputs: _Places = (0, ())
        #: The metadata of each input that is a tensor; None for others.
        self._facts: tuple[Any, ...] = ()
        self._outputs: _Places = (0, ())
        #: By running pass, the gradients of the outputs.
        self._arrived: WeakKeyDictionary[Any, tuple[Any, ...]] = WeakKeyDictionary()

    def around_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Insert a node between the arguments and the module, if there are hooks for it."""
        if not self._after:
            return args
        self._facts = tuple([a._metadata if isinstance(a, Variable) else None for a in args])
        passed, node, self._inputs = _passed_on(args)
        if node is not None:
            node.register_hook(lambda grads, _: _run(self._leaving(grads)))
        return passed

    def around_outputs(self, output: Any) -> Any:
        """Insert a node between the module and its output."""
        if not isinstance(output, (Variable, tuple, list)):
            warn(
                f"For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(output)}"
            )
            return output
        parts = (output,) if isinstance(output, Variable) else tuple(output)
        passed, node, self._outputs = _passed_on(parts)
        if node is not None:
            node.register_prehook(lambda grads: _run(self._entering(grads)))
        if isinstance(output, Variable):
            return passed[0]
        return type(output)(*passed) if hasattr(output, "_fields") else type(output)(passed)

    def _entering(self, gradients: tuple[Any, ...]) -> Steps[tuple[Any, ...]]:
        """Call the pre-hooks with the gradients of the outputs, and keep these for `_leaving`."""
        full = _spread(gradients, self._outputs)
        for hook in self._before:
            full = _replaced(hook, (yield from awaited(hook(self._module, full))), full)
        if self._inputs[1]:
            self._arrived[current().graph_task] = full
        elif self._after:
            warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients."
            )
            nothing = (None,) * self._inputs[0]
            for hook in self._after:
                result = yield from awaited(hook(self._module, nothing, full))
                if any(part is not None for part in _as_tuple(result)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should "
                        "always return None or None for all gradients."
                    )
        return tuple(full[place] for place in self._outputs[1])

    def _leaving(self, gradients: tuple[Any, ...]) -> Steps[tuple[Any, ...]]:
        """Call the hooks with the gradients of the inputs and of the outputs."""
        arrived = self._arrived.pop(current().graph_task, None)
        if arrived is None:
            # This pass did not reach the node after the outputs: it is a double backward.
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
            result = yield from awaited(hook(self._module, full, arrived))
            full = _replaced(hook, result, full)
        return tuple(full[place] for place in self._inputs[1])


def _passed_on(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Passage | None, _Places]:
    """Insert a node after the values that need gradients; also return it and their places."""
    edges = [gradient_edge(v) if isinstance(v, Variable) else None for v in values]
    places = tuple(place for place, edge in enumerate(edges) if edge is not None)
    passed = list(values)
    node = None
    if places and current().grad:
        node = Passage(
            [edges[place] for place in places], tuple(values[place]._metadata for place in places)
        )
        for number, place in enumerate(places):
            # The value is marked as a view, so that a change in place raises an error: the tensor
            # before the node would keep its old history.
            passed[place] = view_of_input(values[place], as_stored(Edge(node, number)))
    return tuple(passed), node, (len(values), places)


def _spread(gradients: tuple[Any, ...], to: _Places) -> tuple[Any, ...]:
    """A tuple with the gradients at their indices and None elsewhere."""
    count, places = to
    full: list[Any] = [None] * count
    for place, gradient in zip(places, gradients, strict=True):
        full[place] = gradient
    return tuple(full)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _replaced(hook: Any, result: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients after a hook: its result, or the unchanged ones if that is None."""
    if result is None:
        return gradients
    result = _as_tuple(result)
    if len(result) != len(gradients):
        raise RuntimeError(
            f"Backward hook {getattr(hook, '__name__', hook)!r} returned an invalid number of "
            f"grads, got {len(result)}, but expected {len(gradients)}"
        )
    return result  # type: ignore[no-any-return]


def _run(steps: Steps[Any]) -> Any:
    """Run a generator of hook calls to its end; return a coroutine if a hook has to be awaited."""
    try:
        return finished(steps, next(steps))
    except StopIteration as stop:
        return stop.value
