"""Small parameters whose states lie side by side, so that one kernel call updates all of them.

A call of an array function costs as much as some thousand elements. An update calls about ten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import is_
from sys import getrefcount
from typing import Any, TypeAlias

import numpy as np

from asyncgrad.core.array_holders import UNHELD, holders
from asyncgrad.devices import CPU
from asyncgrad.devices.pool import aligned
from asyncgrad.ops.fused import ONES
from asyncgrad.ops.generated import code_of, function_of
from asyncgrad.optim.array_updates import array_update
from asyncgrad.optim.updates import Gradients, State, Step, in_tiles
from asyncgrad.types import Array, Tensor

#: An update: the step's number, the parameter, its state, and values, gradient and entries.
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
        and gradient.shape == values.shape
        and values.flags.c_contiguous
    )


class Together:
    """The memory of the states of some parameters, and room for their gradients and changes."""

    def __init__(self, parts: Sequence[Part], names: Sequence[str]) -> None:
        """Move the states into common memory; `names` are those of the entries, in order."""
        self._names = names
        shapes = [arrays[0].shape for _, _, _, arrays in parts]
        #: The changes of the values, the gradients, and each entry, of all parameters.
        dtype = parts[0][3][0].dtype
        size = sum(map(prod, shapes)) * dtype.itemsize
        # NumPy takes a sixth longer where vectors cross lines of the cache.
        self.arrays = [aligned((size,), np.uint8).view(dtype) for _ in range(2 + len(names))]
        for number in range(2, len(self.arrays)):
            self._gather(number, [arrays[number] for _, _, _, arrays in parts])
        pieces = [_pieces(whole, shapes) for whole in self.arrays]
        self._changes, self._gradients, *self._entries = pieces
        #: The values that were updated last, which need not be looked at again.
        self._values: list[Any] = [None] * len(parts)
        #: The last kernel, the values that it was prepared for, and what it gave.
        self._prepared: tuple[Any, list[Any], Any] = (None, [], None)
        #: The numbers of a step, in one array and each as an array without dimensions.
        self._numbers: tuple[Array, list[Array]] = (np.empty(0, dtype), [])
        #: How many steps were taken, once for each parameter.
        self._steps = np.full(len(parts), parts[0][0] - 1, np.float32)
        steps = _pieces(self._steps, [()] * len(parts))
        #: By state, the arrays of its entries and of its step.
        self._held = [[*own] for own in zip(*self._entries, steps, strict=True)]
        for (_, _, state, _), own in zip(parts, self._held, strict=True):
            for name, piece in zip((*names, "step"), own, strict=True):
                state[name]._array = piece
        #: Gives the arrays of parameters and gradients, or None if they can't take a step together.
        self._fit = _fitting((*names, "step"))

    def holds(self, states: Iterable[Any], names: Sequence[str]) -> bool:
        """Whether these are the states of the parameters, with the entries that are still here."""
        known = (*self._names, "step")
        try:
            found = [[state[name]._array for name in known] for state in states]
        except (AttributeError, KeyError, TypeError):
            return False
        same = names == self._names and len(found) == len(self._held)
        return same and all(map(_are, found, self._held))

    def arrays_of(
        self, gradients: Gradients, states: Mapping[Tensor, State], names: Sequence[str]
    ) -> tuple[list[Array], list[Array]] | None:
        """The values of parameters, and their gradients.

        None if they are not its parameters, or can't be updated in place, all at once.
        """
        if names != self._names or len(gradients) != len(self._held):
            return None
        try:
            found = self._fit(gradients, states, self._held, self.arrays[1].dtype)
        except (AttributeError, KeyError, TypeError):
            # A state is gone, or an entry of it.
            return None
        steps = self._steps.tolist()
        if found is None or steps.count(steps[0]) < len(steps):
            return None
        targets, _ = found
        if not _are(targets, self._values):
            if not all(map(self._fits, targets, self._changes)):
                return None
            self._values = targets
        return found

    @staticmethod
    def _fits(values: Array, change: Array) -> bool:
        """Whether an array can be updated in the place of a parameter's values."""
        return (
            values.__class__ is np.ndarray
            and values.shape == change.shape
            and values.dtype is change.dtype
            and values.flags.c_contiguous
        )

    def next_number(self) -> int:
        """The number of the next step of all parameters."""
        return int(self._steps[0]) + 1

    def take(self, step: Step, targets: list[Array], gradients: list[Array]) -> None:
        """Take a step of all parameters, with their values and gradients, and count it."""
        self._gather(1, gradients)
        compiled = CPU.compiled.get(step.update)
        prepared = None if compiled is None else self._prepare(compiled, targets)
        if prepared is None:
            self._change(step, targets)
        else:
            prepared(step.for_kernel())
        np.add(self._steps, ONES[self._steps.dtype], self._steps)

    def _change(self, step: Step, targets: list[Array]) -> None:
        """Change the values, and the states, by functions of arrays."""
        *numbers, shrink, decay = self._as_arrays((*step.numbers, step.decay))
        function = array_update(step.update, step.all_flags())
        if step.decay:
            self._gather(0, targets)

        def change(p: Array, *others: Array) -> None:
            found = function(p, *others, *numbers, decay, out=None if step.decay else p)
            if found is not p:
                p[...] = found

        in_tiles(change, self.arrays)
        for values, less in zip(targets, self._changes, strict=True):
            if step.shrinks:
                np.multiply(values, shrink, values)
            np.subtract(values, less, values)

    def _as_arrays(self, numbers: Sequence[float]) -> list[Array]:
        """The numbers of a step, which NumPy would convert anew in each call."""
        known, views = self._numbers
        if len(views) != len(numbers):
            known = np.empty(len(numbers), known.dtype)
            views = _pieces(known, [()] * len(numbers))
            self._numbers = known, views
        known[:] = numbers
        return views

    def _gather(self, number: int, arrays: Sequence[Array]) -> None:
        """Copy the parameters' values (0), gradients (1) or entries to where they lie together."""
        np.concatenate(arrays, axis=None, out=self.arrays[number])

    def _prepare(self, kernel: Any, targets: list[Array]) -> Any:
        """What a compiled kernel gives for the states and some values; None if it can't be used."""
        known, values, found = self._prepared
        if known is not kernel or not _are(targets, values):
            found = kernel.prepare([targets, self._gradients, *self._entries])
            self._prepared = kernel, targets, found
        return found


def _are(found: Sequence[Any], known: Sequence[Any]) -> bool:
    """Whether two sequences hold the same objects."""
    return len(found) == len(known) and all(map(is_, found, known))


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
    if together is None or not together.holds([state for _, _, state, _ in parts], names):
        dtype = parts[0][3][0].dtype
        for _, _, _, arrays in parts:
            if any(array.dtype != dtype or array.shape != arrays[0].shape for array in arrays):
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


@functools.cache
def _fitting(names: Sequence[str]) -> Callable[..., tuple[list[Array], list[Array]] | None]:
    """A function that gives the arrays of parameters and gradients if they fit a joint step.

    It is written for the names of a state's entries, because a loop over them takes twice as long.
    """
    arrays = [f"a{number}" for number in range(len(names))]
    same = [f"s[{name!r}]._array is {array}" for name, array in zip(names, arrays, strict=True)]
    text = f"""\
def fit(gradients, states, held, dtype, ndarray, refs, holders):
    targets, found = [], []
    for (p, g), ({", ".join(arrays)}) in zip(gradients, held):
        s = states.get(p)
        if not ({" and ".join(same)}):
            return None
        g = g._array
        if g.__class__ is not ndarray or g.dtype is not dtype or g.shape != a0.shape:
            return None
        if refs(p._counter) > {UNHELD} and holders(p):
            return None
        targets.append(p._array)
        found.append(g)
    return targets, found
"""
    code = code_of(text, f"joint step of {', '.join(names)}")
    made: Callable[..., tuple[list[Array], list[Array]] | None]
    made = function_of(code, (np.ndarray, getrefcount, holders))
    return made


def _pieces(whole: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Views of consecutive parts of a flat array."""
    ends = [*accumulate(map(prod, shapes), initial=0)]
    return [
        whole[start:end].reshape(shape)
        for start, end, shape in zip(ends, ends[1:], shapes, strict=False)
    ]
