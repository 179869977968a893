"""Snapshots: a forward pass that spans awaits and mixes no old weights with new ones.

In the task that has entered one, a module gives out its parameters with the values they had then.
They are tensors of their own over the old arrays, and lead to the parameters' accumulators. As long
as they live, optimisers take them for holders and give the parameters new memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from asyncgrad.core.array_holders import weights_lock
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import counter_of, gradient_edge
from asyncgrad.tensor import Tensor

if TYPE_CHECKING:
    from asyncgrad.nn.module_tree import Members
    from asyncgrad.nn.parameter import Parameter


class Parameters(dict[str, Any]):
    """A module's parameters by name; one that is looked up is the one of the task's snapshot.

    A module's table becomes one when a first snapshot is taken of it: others pay nothing.
    """

    def __getitem__(self, name: str) -> Any:
        """The parameter, or what a snapshot of it holds."""
        parameter = super().__getitem__(name)
        weights = current().weights
        return parameter if weights is None else weights.get(parameter, parameter)


class _Weights(dict[Any, Any]):
    """By parameter, what a snapshot holds of it."""

    def __init__(self, outer: _Weights | None) -> None:
        """Hold what an outer snapshot holds."""
        super().__init__(outer or {})
        #: What the snapshot's parameters lead to, which they themselves do not keep alive.
        self.accumulators: list[Any] = []


class Snapshot(Mode):
    """A context manager: while it is entered, the module's parameters stay what they are.

    It holds for the task that enters it and those started within. Snapshots can be nested: what an
    outer one holds stays.
    """

    def __init__(self, module: Members) -> None:
        """Nothing is taken before `__enter__`."""
        super().__init__()
        self._module = module

    def __enter__(self) -> Self:
        """Take the parameters' present values."""
        for module in self._module.modules():
            own = module.__dict__
            if type(own["_parameters"]) is dict:
                own["_parameters"] = Parameters(own["_parameters"])
        weights = _Weights(current().weights)
        with weights_lock:
            for parameter in self._module.parameters():
                if parameter not in weights:
                    weights.accumulators.append(gradient_edge(parameter))
                    weights[parameter] = _taken(parameter)
        self._put({"weights": weights})
        return self

    def _again(self) -> Snapshot:
        return Snapshot(self._module)


def _taken(parameter: Parameter) -> Any:
    """A parameter with its present values, which leads to the same accumulator."""
    taken = Tensor.__new__(type(parameter))
    taken._array = parameter._array
    taken._metadata = parameter._metadata
    taken._edge = None
    taken._counter = counter_of(parameter)
    taken._autograd = parameter._autograd
    vars(taken).update(vars(parameter))
    return taken
