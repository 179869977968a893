"""Optimisers that treat each element of a parameter by itself: their state and their update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asyncgrad.autograd.modes import enable_grad
from asyncgrad.core.variable import Variable, bump_version, requires_grad
from asyncgrad.devices import CPU
from asyncgrad.devices.updates import UPDATES
from asyncgrad.ops.api.complex_parts import view_as_complex, view_as_real
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.optim.array_updates import array_update
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.recorded_updates import recorded_update
from asyncgrad.optim.together import Part, Together, is_small, joined
from asyncgrad.optim.updates import (
    Gradients,
    Group,
    State,
    Step,
    in_tiles,
    next_number,
    steps_of,
    zeros_like,
)
from asyncgrad.types import Array, Tensor


class ElementwiseOptimizer(Optimizer):
    """The base of optimisers that name a declared update, its arrays and its numbers."""

    #: Tensors of the state that have the parameter's shape, in the order of the declaration.
    _entries: tuple[str, ...] = ()
    #: Options that may change from step to step, because only a step's numbers depend on them.
    _changing = frozenset({"lr"})
    #: Parameters with the same number of steps take the same step: it depends on the options and
    #: that number, and not on a parameter's state or values.
    _same_for_all = True

    def _declare(self, given: Mapping[str, Any]) -> None:
        #: By the number of a group: where the states of its small parameters lie.
        self._together: dict[int, Together] = {}
        super()._declare(given)

    def _entries_of(self, group: Group) -> tuple[str, ...]:
        """The entries that the group's options ask for."""
        return self._entries

    def _initial(self, name: str, group: Group, parameter: Tensor) -> Tensor:
        """An entry of the state before the first step."""
        return zeros_like(parameter)

    def _planned_step(self, group: Group, state: State, step: int) -> Step:
        """What the step of a number does, apart from a decoupled weight decay."""
        raise NotImplementedError

    _next_number = staticmethod(next_number)

    def _count_step(self, group: Group, state: State, step: int) -> None:
        """Note in a parameter's state that a step was taken."""
        steps_of(state).fill(step)

    def _operands(
        self, group: Group, parameter: Tensor, gradient: Array | None
    ) -> tuple[State, int, list[Array]]:
        """The state, the number of the next step and the arrays of the update."""
        names = self._entries_of(group)
        state = self.state[parameter] if names else {}
        step = self._next_number(state)
        arrays: list[Any] = [self._values(parameter), gradient]
        for name in names:
            if name not in state or state[name] is None:
                state[name] = self._initial(name, group, parameter)
            arrays.append(state[name]._array)
        return state, step, arrays

    def _update(self, group: Group, parameter: Tensor, gradient: Array) -> None:
        """Update one parameter, or leave it for all small ones of the group."""
        state, step, arrays = self._operands(group, parameter, gradient)
        if self._waits and is_small(*arrays[:2]):
            self._small.append((step, parameter, state, arrays))
        else:
            self._apply(parameter, self._full_step(group, state, step), arrays)
            self._count_step(group, state, step)

    def _record(self, group: Group, parameter: Any, gradient: Any) -> None:
        """Update one parameter in place, and its state, with functions that record."""
        if isinstance(group["lr"], Variable) and requires_grad(group["lr"]):
            raise NotImplementedError(
                f"{type(self).__name__}: a step with differentiable=True has no gradient of lr. "
                f"Detach it."
            )
        state, number, _ = self._operands(group, parameter, None)
        step = self._full_step(group, state, number)
        *numbers, shrink = step.numbers
        declared = UPDATES[step.update].of_gradient()
        names = self._entries_of(group)
        held: tuple[Any, ...] = (parameter, gradient, *[state[name] for name in names])
        real: Any
        kind: Any
        real, kind = _PAIRS if parameter.is_complex() else (_same, _same)
        p, g, *entries = map(real, held)
        if step.shrinks:
            p = p * shrink
        words = ("p", "g", *declared.entries.split(), *declared.numbers.split())
        known = (p, g, *entries, *map(float, numbers), step.decay)
        values = dict(zip(words, known, strict=True))
        recorded_update(declared, step.all_flags(), values)
        # The graph may use the old entries.
        state.update(zip(names, [kind(values[x]) for x in declared.entries.split()], strict=True))
        parameter.copy_(kind(values["p"] - values["change"]))
        self._count_step(group, state, number)

    def _update_group(self, number: int, group: Group, gradients: Gradients, beside: bool) -> None:
        if group.get("differentiable"):
            with enable_grad():
                for parameter, gradient in gradients:
                    self._record(group, parameter, gradient)
            return
        if not beside and self._update_at_once(number, group, gradients):
            return
        self._small: list[Part] = []
        # The second step of a parameter that is listed twice goes on from the first.
        self._waits = self._same_for_all and len(dict(gradients)) == len(gradients)
        try:
            super()._update_group(number, group, gradients, beside)
        finally:
            self._finish(number, group)

    def _update_at_once(self, number: int, group: Group, gradients: Gradients) -> bool:
        """Update a whole group in place, if its states lie side by side; whether that was done."""
        together = self._together.get(number)
        if together is None:
            return False
        arrays = together.arrays_of(gradients, self.state, self._entries_of(group))
        if arrays is None:
            return False
        step = self._full_step(group, {}, together.next_number())
        for parameter, _ in gradients:
            bump_version(parameter)
        together.take(step, *arrays)
        return True

    def _finish(self, number: int, group: Group) -> None:
        """Update the small parameters that were left, together if they can be."""
        small, self._small = self._small, []
        together = joined(self._together, number, small, self._entries_of(group))
        if together is None:
            for step in dict.fromkeys([step for step, _, _, _ in small]):
                self._apply_all(group, step, [part for part in small if part[0] == step])
        else:
            values, gradients = ([arrays[n] for _, _, _, arrays in small] for n in range(2))
            full = self._full_step(group, {}, together.next_number())
            together.take(full, values, gradients)

    def _apply_all(self, group: Group, step: int, small: list[Part]) -> None:
        """Update small parameters that have the same number of a step."""
        full = self._full_step(group, {}, step)
        compiled = CPU.compiled.get(full.update)
        if compiled is None:
            change = _changes(full)
            for _, _, state, arrays in small:
                in_tiles(change, arrays)
                self._count_step(group, state, step)
            return
        lists = [list(arrays) for arrays in zip(*[part[3] for part in small], strict=True)]
        done = _run(compiled, full, lists)
        for _, parameter, state, arrays in small:
            if not done:
                self._apply(parameter, full, arrays)
            self._count_step(group, state, step)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what a copy makes anew: hooks, and the common memory of states."""
        return {**super().__getstate__(), "_together": {}}

    def _full_step(self, group: Group, state: State, step: int) -> Step:
        """What a step does, with what all optimisers have in common."""
        decay, shrink = float(group.get("weight_decay", 0.0)), 1.0
        shrinks = bool(decay and group.get("decoupled_weight_decay"))
        if shrinks:
            shrink -= float(group["lr"]) * decay
            decay = 0.0
        own = self._planned_step(group, state, step)
        numbers, maximize = (*own.numbers, shrink), bool(group["maximize"])
        return Step(own.update, numbers, own.flags, shrinks, decay, maximize)

    def _update_rows(self, group: Group, parameter: Tensor, gradient: Rows) -> None:
        """Update those rows of a parameter, and of its state, that a gradient has."""
        rows = gradient.coalesce()
        state, step, (values, _, *entries) = self._operands(group, parameter, None)
        held = [values, *entries]
        parts = [array[rows.indices] for array in held]
        parts.insert(1, rows.values.copy())
        self._apply(parameter, self._full_step(group, state, step), parts)
        for array, part in zip(held, [parts[0], *parts[2:]], strict=True):
            array[rows.indices] = part
        self._count_step(group, state, step)

    def _apply(self, parameter: Tensor, step: Step, arrays: list[Array]) -> None:
        """Update one parameter by itself."""
        compiled = parameter._metadata.device.compiled.get(step.update)
        if compiled is None or not _run(compiled, step, arrays):
            in_tiles(_changes(step), arrays)


#: From complex numbers to pairs of real ones, and back.
_PAIRS = (view_as_real, view_as_complex)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _run(compiled: Callable[..., Any], step: Step, arrays: Sequence[Any]) -> bool:
    """Let a compiled kernel take a step, unless it does not support an array; whether it did."""
    return compiled(*arrays, *step.for_kernel()) is not NotImplemented


def _changes(step: Step) -> Callable[..., None]:
    """A step as a function that changes arrays: the values, and the entries."""
    *numbers, shrink = step.numbers
    function = array_update(step.update, step.all_flags())

    def change(p: Array, *others: Array) -> None:
        if step.shrinks:
            p *= shrink
        p -= function(p, *others, *numbers, step.decay)

    return change
