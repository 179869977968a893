"""Optimisers that treat each element of a parameter by itself: their state and their update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.together import Part, Together, is_small, joined
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
    #: The kernel depends on the options and the number of the step, and not on a parameter's state.
    _alike = True

    def _declare(self, given: Mapping[str, Any]) -> None:
        #: By the number of a group: where the states of its small parameters lie.
        self._together: dict[int, Together] = {}
        super()._declare(given)

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
        self._join(group, *self._operands(group, parameter, gradient))

    def _join(self, group: Group, state: State, step: int, arrays: list[Array]) -> None:
        """Run the update of one parameter, or leave it for all small ones of the group."""
        if self._alike and is_small(arrays):
            self._small.append((step, state, arrays))
        else:
            self._run_kernel(group, state, step, arrays)

    def _updates(self, beside: bool) -> dict[Any, Any]:
        self._small: list[Part] = []
        return super()._updates(beside)

    def _finish(self, number: int, group: Group) -> None:
        small, self._small = self._small, []
        together = joined(self._together, number, small, self._wanted(group))
        if together is None:
            for step, state, arrays in small:
                self._run_kernel(group, state, step, arrays)
        else:
            together.update(small, partial(self._run_kernel, group, {}, small[0][0]))

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what a copy makes anew: hooks, and the common memory of states."""
        return {**super().__getstate__(), "_together": {}}

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
