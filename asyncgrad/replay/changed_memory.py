"""What a recorded call changes in place: memory that it has made, and memory that others see.

Nobody else sees the former. So a replay computes the new values in new arrays, or in the same where
nothing reads the old values, and later steps read those. The latter is changed for real.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from asyncgrad.core.modes import current
from asyncgrad.core.node import next_sequence_nr
from asyncgrad.core.variable import bump_version, is_inference, requires_grad
from asyncgrad.core.versions import owner_of
from asyncgrad.ops.memory import unlocked
from asyncgrad.replay.arrays import KnownArrays
from asyncgrad.replay.device_arrays import copying, is_array
from asyncgrad.replay.steps import (
    COPY,
    IN_PLACE,
    Again,
    Gradient,
    Place,
    Put,
    Recorded,
    Region,
    Same,
    Source,
    UnrepeatableError,
    report,
)

#: Why a call can't be repeated that changes what others may see.
_SHARED = "it changes a tensor in place that shares its memory"


class ChangedMemory(KnownArrays):
    """The part of a recorder that is told of changes in place. Abstract, as `KnownArrays` is."""

    def __init__(self, call: Recorded) -> None:
        #: The tensors that were there, by the identity of the array that owns their memory now.
        self._by_root: dict[int, list[Source]] = {}
        super().__init__(call)
        #: Whether the call has changed which tensors have a `.grad`, so far.
        self._changed = False
        #: The tensor that is being changed in place.
        self._changing: Any = None
        #: By the identity of the array that owns some memory, and by their own: the arrays there
        #: that have got places since it was last changed. And how many places were looked at.
        self._in_memory = defaultdict[int, dict[int, tuple[Any, Place]]](dict)
        self._compared = 0

    @report
    def changing(self, tensor: Any) -> None:
        """Take note of a tensor that is about to be changed in place."""
        array = tensor._array
        if self._owners(array):
            own = tensor._edge is None and not (current().grad and requires_grad(tensor))
        else:
            array = self._owner(array)
            own = array is not None
        if not own or is_inference(tensor):
            raise UnrepeatableError(_SHARED)
        self._changing = tensor
        place = self.known.get(id(array))
        if place in self.constants:
            # A replay starts with the values that it has now.
            self.keep(array)
            place.sample = array.copy()

    def _owners(self, array: Any) -> tuple[Source | Gradient, ...]:
        """The tensors that were there before the call, and `.grad`s, in whose memory an array lies.

        A `.grad` counts as long as its leaf has it.
        """
        root = owner_of(array)
        if not self._by_root:
            for source in self.sources.values():
                self._by_root.setdefault(id(owner_of(source.tensor._array)), []).append(source)
        found: list[Source | Gradient] = [*self._by_root.get(id(root), ())]
        found += [
            Gradient(source)
            for grad, source in self.gradients.values()
            if owner_of(grad._array) is root and grad_of(source.tensor) is grad
        ]
        return tuple(found)

    def _write(self, tensor: Any, put: Any, values: tuple[Any, ...]) -> None:
        """Add a step that changes memory which others see, by `put(array, *values)`."""
        owners = self._owners(tensor._array)
        counter = tensor._counter
        holder: Any = None
        for owner in owners:
            held = owner.tensor if isinstance(owner, Source) else grad_of(owner.source.tensor)
            if held is tensor or (counter is not None and held._counter is counter):
                holder = owner
        arguments = (holder, owners, Same(put), self.array_of(tensor), *values)
        self.effect(Again(IN_PLACE, _put, arguments, {}, Same(None), True))

    def _owner(self, array: Any) -> Any:
        """The first known array that covers what is known of the memory in which another one lies.

        None if there is none, or if others see that memory.
        """
        held = self._in_memory_of(array)
        arrays, places = [one for one, _ in held], {place for _, place in held}
        if not (places.isdisjoint(self.there) and places.isdisjoint(self.given)):
            return None
        for owner in arrays:
            place = self.known.get(id(owner))
            alone = owner is array and len(arrays) == 1
            if place is not None and (alone or _covers(owner, arrays)):
                # A replay starts with the values of constants before the change.
                return owner if self.constants.isdisjoint(places - {place}) else None
        return None

    def _in_memory_of(self, array: Any) -> list[tuple[Any, Place]]:
        """The arrays in the memory of an array that have got places since it was last changed."""
        for place in self.places[self._compared :]:
            found = place.sample
            if is_array(found) and not isinstance(found, np.generic):
                held = self._in_memory[id(owner_of(found))]
                if id(found) in held and place not in self.there:
                    # It was added to in a pass, or changed on a device: nobody else reads it.
                    for key in held.keys() - {id(found)}:
                        self.known.pop(key, None)
                    held.clear()
                held[id(found)] = found, place
        self._compared = len(self.places)
        return [*self._in_memory[id(owner_of(array))].values()]

    @report
    def assigned(self, tensor: Any, result: Any) -> None:
        """Take the report of the values that a tensor gets in place."""
        changing, self._changing = self._changing, None
        array = tensor._array
        outside = bool(self._owners(array))
        if changing is not tensor or (outside and current().grad and requires_grad(result)):
            raise UnrepeatableError("it changes a tensor in place")
        values = self.array_of(result)
        if outside:
            self._write(tensor, partial(_assign, tensor._metadata.F), (values,))
        elif result._array.dtype != array.dtype:
            raise UnrepeatableError("it changes a tensor in place by values of another dtype")
        else:
            self._assign(array, values)

    def put(
        self, inputs: tuple[Any, ...], name: str, kernel: Any, arguments: Any, cost: int
    ) -> None:
        """Take the report of an op that changes elements of its first input.

        If nobody else can see that memory, the step makes a new array, which later steps read.
        """
        changing, self._changing = self._changing, None
        tensor, array = inputs[0], inputs[0]._array
        if self._owners(array):
            if changing is not tensor or (current().grad and any(map(requires_grad, inputs))):
                raise UnrepeatableError(_SHARED)
            self._write(tensor, kernel, arguments[1:])
            return
        function = partial(_of_copy, kernel)
        owner = self._owner(array)
        if owner is None:
            raise UnrepeatableError(_SHARED)
        if owner is array:
            self._change(owner)
            self.compute(name, function, arguments, owner, cost)
        else:
            made = self.compute(name, function, arguments, array.copy(), cost)
            self._assign(array, made)

    def _assign(self, array: Any, values: Place) -> None:
        """Add a step that gives an array other values."""
        owner = self._owner(array)
        if owner is array:
            if not array.flags.c_contiguous:
                raise UnrepeatableError("it changes a tensor in place by values of another layout")
            self._change(owner)
            self._copy(values, array)
        else:
            before = self._change(owner)
            put = Put(Region(owner, array))
            self.compute("put", put, (before, values), owner, 500 + array.size)

    def _change(self, owner: Any) -> Place:
        """Give what was read so far of an array memory of its own; returns its place so far."""
        before = self.known[id(owner)]
        if isinstance(owner, np.ndarray):
            held = self._in_memory_of(owner)
            # Their identities are known.
            self._kept += [before.sample, *[one for one, _ in held]]
            if before not in self.constants:
                before.sample = np.empty_like(owner)
            for view, place in held:
                if view is not owner:
                    if self.known.pop(id(view), None) is not None:
                        self.views[id(view)] = (owner, view)
                    place.sample = Region(owner, view).of(before.sample)
            self._in_memory[id(owner_of(owner))].clear()
        return before

    @report
    def copied(self, array: Any, copy: Any) -> None:
        """Take the report of a copy of an array that is known."""
        if (known := self.found(array)) is not None:
            self._copy(known, copy)

    def _copy(self, place: Place, copy: Any) -> None:
        function = copying(copy)
        if place.strides != copy.strides:
            function = partial(function, order="C")
        self.compute(COPY, function, (place,), copy, 500 + copy.size)

    def effect(self, step: Again) -> None:
        """Add a step after which arrays have to be read again."""
        if step.name != IN_PLACE:
            self._changed = True
        if self._shared:
            self.refuse("it changes something, and two of its tensors are one array")
        self.load_again()
        self.foreign.update(step.made)
        self.steps.append(step)

    def find_holders(self) -> None:
        """Note which source has which array now."""
        super().find_holders()
        self._by_root.clear()

    def load_again(self) -> None:
        """Forget which arrays tensors have: a replay may find others there."""
        if self.loaded:
            self.earlier.append((next_sequence_nr(), [*self.loaded.values()]))
        for source, place in tuple(self.loaded.items()):
            self.known.pop(id(place.sample), None)
            del self.loaded[source]
        self.find_holders()


def _covers(owner: Any, arrays: list[Any]) -> bool:
    """Whether an array of NumPy's has each element of others, which `Region` then finds in it."""
    if not (isinstance(owner, np.ndarray) and owner.flags.c_contiguous):
        return False
    start, end = byte_bounds(owner)
    return all(start <= low and high <= end for low, high in map(byte_bounds, arrays))


def _put(holder: Any, owners: Any, put: Any, array: Any, *args: Any) -> None:
    """Change an array in place by `put`; `holder` has the version counter, if others see that.

    What orders steps reads `owners`: all tensors that are known to lie in that memory.
    """
    if holder is not None:
        bump_version(holder)
        if holder._counter.views:
            holder._counter.forget_edges()
    try:
        put(array, *args)
    except IndexError:
        # As in an eager call, an index out of range is no change.
        if holder is not None:
            holder._counter.value -= 1
        raise


def _assign(F: Any, array: Any, values: Any) -> None:
    F.assign(unlocked(array), values)


def _of_copy(function: Any, x: Any, *args: Any) -> Any:
    """The result of a function that changes its first argument."""
    return function(x.copy(), *args)


def grad_of(tensor: Any) -> Any:
    """The `.grad` of a tensor, of which no recorder is told."""
    meta = tensor._autograd
    return None if meta is None else meta.grad
