"""Optimisers that treat each element of a parameter by itself: their state and their update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncgrad.core.variable import bump_version
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.together import Part, Together, is_small, joined
from asyncgrad.optim.updates import Array, Group, State, count_step, in_tiles, zeros_like

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

#: The update of one step, a function of arrays.
Kernel: TypeAlias = Callable[..., Array]
#: The numbers of one step.
Numbers: TypeAlias = Sequence[Any]


class ElementwiseOptimizer(Optimizer):
    """The base of optimisers that declare the tensors of their state and a kernel."""

    #: Tensors of the state that have the parameter's shape, in the order of the kernel's arguments.
    _entries: tuple[str, ...] = ()
    #: Options of which only `_numbers` takes notice.
    _moving = frozenset({"lr"})
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

    def _numbers(self, group: Group, state: State, step: int) -> Numbers:
        """The numbers of a step's kernel that may change from step to step.

        How many they are may say what the kernel does.
        """
        return (float(group["lr"]),)

    def _kernel(self, group: Group, numbers: Numbers) -> Kernel:
        """The update of one step.

        Args:
            group: the options, of which it uses those that seldom change.
            numbers: floats, or arrays without dimensions on the device.

        Returns:
            A function of arrays: the values, the direction to descend along (the gradient with
            weight decay, negated to maximise) and the entries. It changes the entries, and returns
            what is to be subtracted from the values. If all parameters are `_alike`, it does not
            use the values.
        """
        raise NotImplementedError

    def _coming(self, state: State) -> int:
        """The number of a parameter's next step."""
        step = state.get("step")
        return 1 if step is None else int(step._array) + 1

    def _count(self, state: State) -> int:
        """Count a step of a parameter; returns its number."""
        return count_step(state)

    def _operands(
        self, group: Group, parameter: Tensor, gradient: Array | None
    ) -> tuple[State, int, list[Array]]:
        """Count the step; returns the state, the step's number and the arrays of the update."""
        state = self.state[parameter]
        step = self._count(state)
        arrays: list[Any] = [self._values(parameter), gradient]
        for name in self._wanted(group):
            if name not in state:
                state[name] = self._initial(name, group, parameter)
            arrays.append(state[name]._array)
        return state, step, arrays

    def _update(self, group: Group, parameter: Tensor, gradient: Array) -> None:
        """Update one parameter, or leave it for all small ones of the group."""
        state, step, arrays = self._operands(group, parameter, gradient)
        if self._alike and is_small(*arrays[:2]):
            self._small.append((step, parameter, state, arrays))
        else:
            self._apply(group, parameter, self._all_numbers(group, state, step), arrays)

    def _update_group(self, number: int, group: Group, beside: bool) -> None:
        if not beside and self._update_at_once(number, group):
            return
        self._small: list[Part] = []
        try:
            super()._update_group(number, group, beside)
        finally:
            self._finish(number, group)

    def _update_at_once(self, number: int, group: Group) -> bool:
        """Update a whole group in place, if its states lie side by side; whether that was done."""
        together = self._together.get(number)
        parameters = group["params"]
        if together is None:
            return False
        gradients = together.gradients(parameters, self.state, self._wanted(group))
        if gradients is None:
            return False
        for parameter in parameters:
            bump_version(parameter)
        targets = [parameter._array for parameter in parameters]
        self._run_together(group, together, together.count(), targets, gradients)
        return True

    def _finish(self, number: int, group: Group) -> None:
        """Update the small parameters that were left, together if they can be."""
        small, self._small = self._small, []
        together = joined(self._together, number, small, self._wanted(group))
        if together is None:
            for step, _, state, arrays in small:
                self._run_kernel(group, self._all_numbers(group, state, step), arrays)
        else:
            values, gradients = ([arrays[n] for _, _, _, arrays in small] for n in range(2))
            self._run_together(group, together, small[0][0], values, gradients)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what a copy makes anew: hooks, and the common memory of states."""
        return {**super().__getstate__(), "_together": {}}

    def _all_numbers(self, group: Group, state: State, step: int) -> Numbers:
        """The numbers of a step, and last the factor of a decoupled weight decay."""
        weight_decay = group.get("weight_decay")
        shrink = 1.0
        if weight_decay and group.get("decoupled_weight_decay"):
            shrink -= float(group["lr"]) * weight_decay
        return (*self._numbers(group, state, step), shrink)

    def _descent(self, group: Group, numbers: Numbers) -> tuple[Any, bool, Kernel]:
        """The kernel of a gradient, and what else a step does to the values.

        Returns:
            The factor that they shrink by before, or None, whether the kernel uses them, and the
            kernel.
        """
        kernel = self._kernel(group, numbers)
        weight_decay, maximize = group.get("weight_decay"), group["maximize"]
        kept = None
        if weight_decay and group.get("decoupled_weight_decay"):
            kept = numbers[-1]
            weight_decay = 0
        if not (weight_decay or maximize):
            return kept, not self._alike, kernel

        def descend(p: Array, g: Array, *entries: Array) -> Array:
            if maximize:
                g = -g
            if weight_decay:
                g = g + weight_decay * p
            return kernel(p, g, *entries)

        return kept, bool(weight_decay) or not self._alike, descend

    def _apply(
        self, group: Group, parameter: Tensor, numbers: Numbers, arrays: list[Array]
    ) -> None:
        """Update one parameter by itself."""
        self._run_kernel(group, numbers, arrays)

    def _run_kernel(self, group: Group, numbers: Numbers, arrays: list[Array]) -> None:
        kept, _, kernel = self._descent(group, numbers)

        def change(p: Array, *others: Array) -> None:
            if kept is not None:
                p *= kept
            p -= kernel(p, *others)

        in_tiles(change, arrays)

    def _run_together(
        self, group: Group, together: Together, step: int, targets: list[Array],
        gradients: list[Array],
    ) -> None:  # fmt: skip
        """Update small parameters by one call of the kernel."""
        numbers = self._all_numbers(group, {}, step)
        kept, uses_values, kernel = self._descent(group, numbers)
        if uses_values:
            together.gather(0, targets)
        together.gather(1, gradients)

        def change(p: Array, *others: Array) -> None:
            p[...] = kernel(p, *others)

        in_tiles(change, together.arrays)
        if kept is not None:
            for values in targets:
                values *= kept
        together.subtract(targets)
