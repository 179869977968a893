"""Snapshots: a forward pass that awaits never mixes old and new weights.

In the task that has entered a snapshot, a module returns its parameters with the values from that
time. These are separate tensors over the old arrays, with edges to the parameters' accumulators. As
long as they exist, they count as holders of the arrays, so optimisers write to new memory.
"""

from __future__ import annotations

from typing import Any, Self

from asyncgrad.core.array_holders import weights_lock
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import counter_of, gradient_edge
from asyncgrad.nn.module_tree import Members
from asyncgrad.nn.parameter import Parameter
from asyncgrad.tensor import Tensor


class Parameters(dict[str, Any]):
    """A module's parameters by name; look-ups return what the task's snapshot holds.

    It replaces a module's plain dictionary at the first snapshot, so other modules pay nothing.
    """

    def __getitem__(self, name: str) -> Any:
        """The parameter, or the tensor that the current snapshot holds for it."""
        parameter = super().__getitem__(name)
        weights = current().weights
        return parameter if weights is None else weights.get(parameter, parameter)


class _Weights(dict[Any, Any]):
    """By parameter, the tensor that a snapshot holds for it."""

    def __init__(self, outer: _Weights | None) -> None:
        super().__init__(outer or {})
        #: Edges to the accumulators, which the snapshot's tensors do not keep alive.
        self.accumulators: list[Any] = []


class Snapshot(Mode):
    """A context manager that fixes the values of a module's parameters.

    It applies to the task that enters it and to tasks started within. Snapshots can be nested; the
    values of the outer one win.
    """

    def __init__(self, module: Members) -> None:
        """Keep the module; the values are taken in `__enter__`."""
        super().__init__()
        self._module = module

    def __enter__(self) -> Self:
        """Hold the present values of all parameters that no outer snapshot holds."""
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


def _taken(parameter: Parameter) -> Any:
    """A tensor with a parameter's present array and the same accumulator."""
    taken = Tensor.__new__(type(parameter))
    taken._array = parameter._array
    taken._metadata = parameter._metadata
    taken._edge = None
    taken._counter = counter_of(parameter)
    taken._autograd = parameter._autograd
    vars(taken).update(vars(parameter))
    return taken
