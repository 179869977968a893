"""Optimisers that treat each element of a parameter by itself: their state and their update."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import Array, Group, count_step, in_tiles, zeros_like

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

#: A parameter's state by the names of its entries.
State: TypeAlias = dict[str, Any]
#: The update of one step, a function of arrays.
Kernel: TypeAlias = Callable[..., None]


class ElementwiseOptimizer(Optimizer):
    """The base of optimisers that declare the tensors of their state and a kernel."""

    #: Tensors of the state that have the parameter's shape, in the order of the kernel's arguments.
    _entries: tuple[str, ...] = ()

    def _wanted(self, group: Group) -> tuple[str, ...]:
        """The entries that the group's options ask for."""
        return self._entries

    def _initial(self, name: str, group: Group, parameter: Tensor) -> Tensor:
        """An entry of the state before the first step."""
        return zeros_like(parameter)

    def _kernel(self, group: Group, state: State, step: int) -> Kernel:
        """The update of one step.

        Returns:
            A function of arrays: the values, the direction to descend along (the gradient with
            weight decay, negated to maximise) and the entries. It changes all but the direction.
        """
        raise NotImplementedError

    def _operands(
        self, group: Group, parameter: Tensor, gradient: Array | None
    ) -> tuple[State, int, list[Array]]:
        """Count the step; returns the state, the step's number and the arrays of the update."""
        state = self.state[parameter]
        step = count_step(state)
        arrays: list[Any] = [self._values(parameter), gradient]
        for name in self._wanted(group):
            if name not in state:
                state[name] = self._initial(name, group, parameter)
            arrays.append(state[name]._array)
        return state, step, arrays

    def _update(self, group: Group, parameter: Tensor, gradient: Array) -> None:
        self._run_kernel(group, *self._operands(group, parameter, gradient))

    def _run_kernel(self, group: Group, state: State, step: int, arrays: list[Array]) -> None:
        kernel = self._kernel(group, state, step)
        weight_decay, maximize = group.get("weight_decay"), group["maximize"]
        if not (weight_decay or maximize):
            in_tiles(kernel, arrays)
            return
        decoupled = group.get("decoupled_weight_decay")
        kept = 1 - float(group["lr"]) * weight_decay if decoupled and weight_decay else 1.0

        def descend(p: Array, g: Array, *entries: Array) -> None:
            if maximize:
                g = -g
            if weight_decay:
                if decoupled:
                    p *= kept
                else:
                    g = g + weight_decay * p
            kernel(p, g, *entries)

        in_tiles(descend, arrays)
