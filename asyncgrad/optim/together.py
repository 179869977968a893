"""Small parameters whose states lie side by side, so that one kernel call updates all of them.

A call of an array function costs as much as some thousand elements. An update calls about ten.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from sys import getrefcount
from typing import Any, TypeAlias

import numpy as np

from asyncgrad.core.array_holders import is_held
from asyncgrad.devices.pool import aligned
from asyncgrad.optim.updates import Gradients, State
from asyncgrad.types import Array, Tensor

#: The update of a parameter: the number of the step, its state, and values, gradient and entries.
Part: TypeAlias = "tuple[int, Tensor, State, list[Array]]"
#: Parameters of more elements are updated alone: copying theirs costs more than the calls.
_MOST = 1 << 14


_held = [object()]
#: The reference count of an object to which one other refers.
_ALONE = getrefcount(_held[0])


def is_small(values: Array, gradient: Array) -> bool:
    """Whether a parameter and its gradient are small, and of the kind that can lie side by side."""
    return (
        values.__class__ is np.ndarray
        and values.size <= _MOST
        and values.dtype.kind == "f"
        and gradient.__class__ is np.ndarray
        and gradient.dtype == values.dtype
        and values.flags.c_contiguous
    )


class Together:
    """The memory of the states of some parameters, and room for their gradients and changes."""

    def __init__(self, parts: Sequence[Part], names: Sequence[str]) -> None:
        """Move the states into common memory; `names` are those of the entries, in order."""
        self._names = names
        shapes = self._shapes = [arrays[0].shape for _, _, _, arrays in parts]
        #: The changes of the values, the gradients, and each entry, of all parameters.
        dtype = parts[0][3][0].dtype
        size = sum(map(prod, shapes)) * dtype.itemsize
        # NumPy takes a sixth longer where vectors cross lines of the cache.
        self.arrays = [aligned((size,), np.uint8).view(dtype) for _ in range(2 + len(names))]
        for number in range(2, len(self.arrays)):
            self.gather(number, [arrays[number] for _, _, _, arrays in parts])
        pieces = [_pieces(whole, shapes) for whole in self.arrays]
        self._changes = pieces[0]
        self._entries = pieces[2:]
        #: The last kernel, the values that it was prepared for, and what it gave.
        self._prepared: tuple[Any, list[Array], Any] = (None, [], None)
        #: The number of the step, once for each parameter.
        self._steps = np.full(len(parts), parts[0][0], np.float32)
        steps = _pieces(self._steps, [()] * len(parts))
        self._members: list[tuple[Tensor, State, dict[str, Array]]] = []
        for place, (_, parameter, state, _) in enumerate(parts):
            entries = {name: of[place] for name, of in zip(names, pieces[2:], strict=True)}
            entries["step"] = steps[place]
            for name, piece in entries.items():
                state[name]._array = piece
            self._members.append((parameter, state, entries))

    def holds(self, pairs: Sequence[tuple[Tensor, State | None]], names: Sequence[str]) -> bool:
        """Whether these are the parameters, with these entries of their states still here."""
        if len(pairs) != len(self._members) or names != self._names:
            return False
        for (parameter, state), (member, its_state, entries) in zip(
            pairs, self._members, strict=True
        ):
            if parameter is not member or state is not its_state:
                return False
            for name, piece in entries.items():
                entry = state.get(name)
                if entry is None or entry._array is not piece:
                    return False
        return True

    def arrays_of(
        self, gradients: Gradients, states: Mapping[Tensor, State], names: Sequence[str]
    ) -> tuple[list[Array], list[Array]] | None:
        """The values of parameters, and their gradients.

        None if they are not its parameters, or can't be updated in place, all at once.
        """
        pairs = [(parameter, states.get(parameter)) for parameter, _ in gradients]
        if not self.holds(pairs, names):
            return None
        steps = self._steps.tolist()
        if steps.count(steps[0]) < len(steps):
            return None
        targets, found = [], []
        dtype = self._changes[0].dtype
        for (parameter, grad), shape in zip(gradients, self._shapes, strict=True):
            values, gradient = parameter._array, grad._array
            if not (
                values.__class__ is np.ndarray
                and gradient.__class__ is np.ndarray
                and values.shape == shape
                and values.dtype is dtype
                and gradient.dtype is dtype
                and values.flags.c_contiguous
            ) or is_held(parameter):
                return None
            targets.append(values)
            found.append(gradient)
        return targets, found

    def count(self) -> int:
        """Count a step of all parameters; returns its number."""
        self._steps += 1
        return int(self._steps[0])

    def gather(self, number: int, arrays: Sequence[Array]) -> None:
        """Copy the parameters' values (0), gradients (1) or entries to where they lie together."""
        np.concatenate([array.reshape(-1) for array in arrays], out=self.arrays[number])

    def prepared(self, kernel: Any, targets: list[Array]) -> Any:
        """What a compiled kernel gives for the states and some values; None if it can't be used."""
        known, values, found = self._prepared
        if known is not kernel or any(map(operator.is_not, values, targets)):
            found = kernel.prepare([targets, *self._entries])
            self._prepared = kernel, targets, found
        return found

    def subtract(self, targets: Iterable[Array]) -> None:
        """Subtract the changes from the values of the parameters."""
        for values, change in zip(targets, self._changes, strict=True):
            values -= change


def joined(
    known: dict[int, Together], number: int, parts: Sequence[Part], names: Sequence[str]
) -> Together | None:
    """Where the states of some parameters lie, which may be moved there; None if they stay alone.

    `known` holds what there is, by the number of a group.
    """
    if len(parts) < 2 or not names or any("step" not in state for _, _, state, _ in parts):
        return None
    if any(step != parts[0][0] for step, _, _, _ in parts):
        return None
    together = known.get(number)
    pairs = [(parameter, state) for _, parameter, state, _ in parts]
    if together is None or not together.holds(pairs, names):
        dtype = parts[0][3][0].dtype
        if any(array.dtype != dtype for _, _, _, arrays in parts for array in arrays):
            return None
        if not all(_is_alone(state, arrays[2:]) for _, _, state, arrays in parts):
            return None
        together = known[number] = Together(parts, names)
    return together


def _is_alone(state: State, entries: list[Array]) -> bool:
    """Whether nothing but its tensors, and the list of entries, refers to the memory of a state."""
    return (
        getrefcount(state["step"]._array) == _ALONE
        and state["step"]._array.base is None
        and all(
            # A part's list of arrays refers to it, too, and so does this one.
            getrefcount(entries[place]) == _ALONE + 2
            and entries[place].base is None
            and entries[place].flags.c_contiguous
            for place in range(len(entries))
        )
    )


def _pieces(whole: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Views of consecutive parts of a flat array."""
    ends = [*accumulate(map(prod, shapes), initial=0)]
    return [
        whole[start:end].reshape(shape)
        for start, end, shape in zip(ends, ends[1:], shapes, strict=False)
    ]
