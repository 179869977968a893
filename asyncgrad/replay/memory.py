"""Plans the memory of a program: which results are written into buffers that replays share.

A result gets a buffer if a universal function of NumPy's, or a product of matrices, makes it and
nobody can see it after the replay: it is not returned, not committed, not passed to a function that
is called anew, and shares its memory with no array that is. A buffer is used again when the last
array in it has been read, by an elementwise function even for its own result. Such a function, and
what changes a part of an array, also writes into the memory of an operand that a step of this
replay has made and that nothing else reads, whoever sees the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress, repeat
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.aliases import Array
from asyncgrad.devices.arena import Arena, Lives
from asyncgrad.devices.plain_numpy import plain_numpy
from asyncgrad.devices.pool import POOL
from asyncgrad.replay.device_arrays import shares_memory
from asyncgrad.replay.steps import Again, Commit, Compute, Place, Put, places_in

if TYPE_CHECKING:
    from asyncgrad.replay.arrays import KnownArrays

_dot = plain_numpy().dot
#: Products of matrices, by which of them are transposed before.
PRODUCTS: dict[tuple[bool, bool], Any] = {
    (False, False): _dot,
    (False, True): lambda x, y, out=None: _dot(x, y.T, out),
    (True, False): lambda x, y, out=None: _dot(x.T, y, out),
    (True, True): lambda x, y, out=None: _dot(x.T, y.T, out),
}


def turned(x: Array, out: Array | None = None) -> Any:
    """The transposed matrix, whose rows lie side by side: a copy, or in `out`."""
    if out is None:
        return x.T.copy()
    out[...] = x.T
    return out


#: Functions that write their result into the array that is their last argument.
_WRITING = frozenset({*PRODUCTS.values(), turned})


@dataclass(slots=True, eq=False, repr=False)
class Memory:
    """What one replay writes to."""

    buffers: tuple[Any, ...]
    #: Where its large arrays are, or what notes how long they live; None if it has none.
    arena: Arena | Lives | None = None
    #: The arena of the last replay, if anything in it is alive.
    last: Callable[[], Arena | None] = lambda: None


class Families:
    """Which places share memory: families of places, as disjoint sets."""

    def __init__(self, recorder: KnownArrays) -> None:
        """Compare the samples of each step's results with those that it has read."""
        self._parents: dict[Place, Place] = {}
        #: Places of memory that is not the program's own.
        self.foreign = recorder.constants | recorder.there | recorder.foreign
        places = recorder.places
        samples = [place.sample for place in places]
        lists = list in map(type, samples)
        bases = map(getattr, samples, repeat("base"), repeat(None))
        # In most calls few arrays are views.
        views = {*compress(places, map(is_not, bases, repeat(None)))}
        for step in recorder.steps if views or lists else ():
            if lists or not views.isdisjoint(step.made):
                self._compare(step, [place for place in step.made if place in views])

    def _compare(self, step: Any, views: list[Place]) -> None:
        """Join the families of places that share memory after a step, which has made `views`."""
        read = [x for x in step.read if not x.is_opaque]
        holding = [place for place in read if place.sample.__class__ is list]
        if holding:
            # The list may hold what the step has read, and what it gives.
            for place in (*step.made, *read) if step.made else ():
                self._join(place, holding[0])
            return
        for out in views:
            for place in read:
                if place is not out and shares_memory(out.sample, place.sample):
                    self._join(out, place)

    @property
    def shared(self) -> bool:
        """Whether any places share memory."""
        return bool(self._parents)

    def of(self, place: Place) -> Place:
        """The place that stands for its family."""
        while (parent := self._parents.get(place)) is not None:
            place = parent
        return place

    @property
    def joined(self) -> set[Place]:
        """The places that share their memory with others."""
        return {*self._parents, *self._parents.values()}

    def _join(self, one: Place, other: Place) -> None:
        one, other = self.of(one), self.of(other)
        if one is not other:
            self._parents[one] = other


def _target(step: Any) -> Place | None:
    """What a step makes, if the step can write it into memory that is there; else None."""
    if step.__class__ is Compute and (
        step.over or isinstance(step.function, (np.ufunc, Put)) or step.function in _WRITING
    ):
        out = step.outs
        if out.__class__ is Place and out.is_target:
            return out
    return None


def _is_elementwise(function: Any) -> bool:
    """Whether each element of the result depends on one element of each operand."""
    return isinstance(function, np.ufunc) and function.signature is None


def ends_of(steps: list[Any], outputs: Any) -> dict[Place, int]:
    """By place, the number of the last step that reads or makes it."""
    ends = {x: number for number, step in enumerate(steps) for x in (*step.read, *step.made)}
    return ends | dict.fromkeys(places_in(outputs), len(steps))


def last_uses(steps: list[Any], ends: dict[Place, int]) -> list[list[Place]]:
    """By step, the places that are not needed after it; the last are those of outputs."""
    found: list[list[Place]] = [[] for _ in range(len(steps) + 1)]
    for place, number in ends.items():
        found[number].append(place)
    return found


class Plan:
    """Which step writes into which buffer."""

    def __init__(self, steps: list[Any], outputs: Any, families: Families) -> None:
        """Choose buffers; `outputs` is the template of what the function returns."""
        ends = self.ends = ends_of(steps, outputs)
        #: By the place that is made there: the number of the buffer.
        self.buffers: dict[Place, int] = {}
        #: The shape and dtype of each buffer.
        self.kinds: list[tuple[Any, Any]] = []
        #: Places of arrays that are so large that they come from the pool.
        self.lent: set[Place] = set()
        #: By the place that is made there: the operand whose memory it takes.
        self.taken: dict[Place, Place] = {}
        self._families = families
        seen = {families.of(place) for place in (*families.foreign, *places_in(outputs))}
        staged: list[tuple[int, Place]] = []
        for number, step in enumerate(steps):
            if step.__class__ is Again:
                seen.update(map(families.of, step.read))
            elif step.__class__ is Commit:
                staged += [(number, place) for _, place in step.staged]
        committed = Counter([families.of(place) for _, place in staged])
        members: dict[Place, list[Place]] = {}
        #: By family: the number of the last step that reads or makes one of it.
        last: dict[Place, int] = {}
        for place, number in ends.items():
            root = families.of(place)
            members.setdefault(root, []).append(place)
            last[root] = max(last.get(root, -1), number)
        #: Places without a family that nobody else can see, with the last step of each.
        alone = {
            places[0]: last[root]
            for root, places in members.items()
            if len(places) == 1 and root not in seen and committed[root] < 2
        }
        #: Places whose arrays nothing else refers to: `commit` may keep them.
        self.owned = {x for number, x in staged if alone.get(x) == number and x.is_array}
        for _, place in staged:
            alone.pop(place, None)
        self._choose(steps, seen.union(committed), last, alone)

    def _choose(
        self, steps: list[Any], seen: set[Place], last: dict[Place, int], alone: dict[Place, int]
    ) -> None:
        """Choose where results go; `seen` are the families that others can see."""
        free: dict[Any, list[int]] = {}
        dying = last_uses(steps, last)
        for number, step in enumerate(steps):
            out = _target(step)
            operand = None if out is None else self._operand_to_take(step, number, alone)
            own = None
            if out is not None and operand is not None:
                self.taken[out] = operand
            elif out is None or step.over:
                pass
            elif out.on_host and out.nbytes >= POOL.large:
                self.lent.add(out)
            elif out not in seen and self._families.of(out) is out:
                own = out
            freed = [root for root in dying[number] if root in self.buffers]
            elementwise = own is not None and _is_elementwise(step.function)
            if elementwise:
                self._free(freed, free)
            if own is not None:
                kind = (own.shape, own.dtype)
                spare = free.setdefault(kind, [])
                if not spare:
                    spare.append(len(self.kinds))
                    self.kinds.append(kind)
                self.buffers[own] = spare.pop()
            if not elementwise:
                self._free(freed, free)
            if own is not None and last[own] == number:
                self._free([own], free)

    def _operand_to_take(self, step: Any, number: int, alone: dict[Place, int]) -> Place | None:
        """The operand in whose memory a step may put its result, None if there is none."""
        operands = step.arguments
        if step.over:
            operands = operands[1:2]
        elif step.function.__class__ is Put:
            operands = operands[:1]
        elif not _is_elementwise(step.function):
            return None
        key = step.outs.key
        for place in operands:
            if (
                place.__class__ is Place
                and alone.get(place) == number
                and place not in self.buffers
                and place.key == key
            ):
                return place
        return None

    def _free(self, roots: list[Place], free: dict[Any, list[int]]) -> None:
        for root in roots:
            free.setdefault(self.kinds[self.buffers[root]], []).append(self.buffers[root])

    def new_memory(self) -> Memory:
        """New memory, for one replay at a time."""
        return Memory(tuple([np.empty(shape, dtype) for shape, dtype in self.kinds]))
