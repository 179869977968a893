"""The step of an optimiser as work that a device captures once and then repeats.

What changes from step to step are numbers: rates, and what follows from the number of the step. The
captured work reads them from arrays of the device, which are filled before each launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from operator import is_
from typing import Any

from asyncgrad.core.array_holders import holders
from asyncgrad.core.variable import Variable, bump_version
from asyncgrad.devices import Device
from asyncgrad.optim.elementwise import ElementwiseOptimizer
from asyncgrad.optim.updates import Group, Step
from asyncgrad.records import NamedTuple
from asyncgrad.types import Array, Tensor

#: Entries of a group that say nothing of the update.
_OTHERS = frozenset({"params", "initial_lr"})


class Slots(list[Any]):
    """Arrays of a device without dimensions, each with a number that is written before launches."""

    def __init__(self, device: Device, count: int, dtype: Any) -> None:
        array = device.xp.zeros(count, dtype)
        super().__init__([array[index] for index in range(count)])
        self._device = device
        self._filled: list[Any] = [None] * count

    def fill(self, numbers: Sequence[float]) -> None:
        """Write numbers that differ from those of the last launch."""
        for index, number in enumerate(numbers):
            # Zeros are written again, because they have signs.
            if number != self._filled[index] or not number:
                self._device.launching(self[index].fill)(number)
                self._filled[index] = number


class StepFacts(NamedTuple):
    """What the next step of an optimiser is going to use."""

    #: Arrays, parameters and states, which a captured step needs to be the same.
    fixed: list[Any]
    #: What it needs to be equal.
    equal: list[Any]
    #: The steps, and for each parameter that has a gradient its group and which step it takes.
    steps: list[Step]
    members: list[tuple[Group, Tensor, int]]

    def fits(self, known: StepFacts) -> bool:
        """Whether what was captured with `known` does this step with other numbers."""
        return (
            len(self.fixed) == len(known.fixed)
            and all(map(is_, self.fixed, known.fixed))
            and len(self.equal) == len(known.equal)
            and all(map(_equal, self.equal, known.equal))
        )


class CapturedStep:
    """The steps of an optimiser, which a device may capture."""

    def __init__(self, optimizer: ElementwiseOptimizer, device: Device) -> None:
        self._optimizer = optimizer
        self._device = device
        self._members: list[tuple[Group, Tensor, Step]] = []
        #: By the number of a step, and the dtype of parameters.
        self._slots: dict[tuple[int, Any], Slots] = {}

    def facts(self, graded: Set[Tensor]) -> StepFacts | None:
        """What the next step of parameters with gradients uses; None if it can't be captured."""
        optimizer = self._optimizer
        recorded = any(group.get("differentiable") for group in optimizer.param_groups)
        if recorded or optimizer._steps_have_hooks() or optimizer._stepping is not None:
            return None
        optimizer._check_awaited("step")
        facts = StepFacts([], [], [], [])
        for group in optimizer.param_groups:
            free = _OTHERS | optimizer._changing
            options = [value for name, value in group.items() if name not in free]
            facts.equal.extend(options)
            if any(map(_is_tensor, options)):
                return None
            known: dict[Any, int] = {}
            for parameter in group["params"]:
                if parameter not in graded:
                    if parameter._autograd is not None and parameter._autograd.grad is not None:
                        return None
                    continue
                if holders(parameter) or not self._add(facts, group, parameter, known):
                    return None
        # Parameters that are listed twice are updated twice, which one captured step does not do.
        if len({id(parameter) for _, parameter, _ in facts.members}) < len(facts.members):
            return None
        return facts

    def _add(self, facts: StepFacts, group: Group, parameter: Tensor, known: Any) -> bool:
        """Add what a parameter's step uses; False if its state is not there yet."""
        optimizer = self._optimizer
        state = optimizer.state.get(parameter, {})
        wanted = optimizer._entries_of(group)
        entries: list[Any] = [state.get(name) for name in wanted]
        if parameter._metadata.device is not self._device or any(x is None for x in entries):
            return False
        if not optimizer._same_for_all and any(
            _is_away(state[name]) for name in state.keys() - wanted
        ):
            # A number of the state, which `load_state_dict` has put beside the parameter.
            return False
        step = optimizer._next_number(state)
        key = step if optimizer._same_for_all else parameter
        number = known.get(key)
        if number is None:
            number = known[key] = len(facts.steps)
            found = optimizer._full_step(group, state, step)
            facts.steps.append(found)
            facts.equal.append((found.update, found.flags))
        facts.equal.append(number)
        facts.fixed.extend([parameter, parameter._array, *[one._array for one in entries]])
        facts.members.append((group, parameter, number))
        return True

    def begin(self, facts: StepFacts) -> None:
        """Make room for numbers, and have kernels compiled that take them from there."""
        self._slots, self._members = {}, []
        zeros = self._device.xp.zeros_like
        for group, parameter, number in facts.members:
            step, dtype = facts.steps[number], parameter._array.real.dtype
            if (number, dtype) not in self._slots:
                self._slots[number, dtype] = Slots(self._device, len(step.numbers), dtype)
            step = step._replace(numbers=self._slots[number, dtype])
            self._members.append((group, parameter, step))
            arrays = self._arrays(group, parameter, parameter._array)
            self._put(parameter, step, list(map(zeros, arrays)))

    def _arrays(self, group: Group, parameter: Tensor, gradient: Array) -> list[Array]:
        state = self._optimizer.state.get(parameter, {})
        entries = [state[name]._array for name in self._optimizer._entries_of(group)]
        return [parameter._array, gradient, *entries]

    def _put(self, *what: Any) -> None:
        self._device.launching(self._optimizer._apply)(*what)

    def put(self, gradients: Mapping[Tensor, Array]) -> None:
        """Put the step into the current stream."""
        for group, parameter, step in self._members:
            arrays = self._arrays(group, parameter, gradients[parameter])
            self._put(parameter, step, arrays)

    def fill(self, facts: StepFacts) -> None:
        """Write the numbers of a step to the device."""
        for (number, _), slots in self._slots.items():
            slots.fill(facts.steps[number].numbers)

    def finish(self, facts: StepFacts) -> None:
        """Count a step that was launched."""
        optimizer = self._optimizer
        for group, parameter, _ in facts.members:
            bump_version(parameter)
            state = optimizer.state.get(parameter, {})
            optimizer._count_step(group, state, optimizer._next_number(state))
        optimizer.steps_taken += 1


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and one == other and repr(one) == repr(other))


def _is_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_is_tensor, value))
    return isinstance(value, Variable)


def _is_away(value: Any) -> bool:
    """Whether a value can't be read without waiting for a device."""
    return isinstance(value, Variable) and value._metadata.device.streamed
