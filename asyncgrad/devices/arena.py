"""One block of memory for the large arrays of a program that is repeated.

A program takes the same arrays each time, so their places in one block can be planned: its first
runs note the `Lives` of what they take from the pool, and `BlockPlan` gives each array a place
that no other has meanwhile. An array may live until the next run, as gradients do.

The plan says no more than where an array may be. It gets its place if all arrays that overlap with
it have died, otherwise memory of the pool.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

import numpy as np

from asyncgrad.devices.pieces import here
from asyncgrad.devices.pool import ALIGNMENT, POISON, POOL, lease_of, rounded
from asyncgrad.records import NamedTuple

#: The most arrays that are planned, the greatest: finding their places takes 30 ms.
_MOST = 500


class Life(NamedTuple):
    """An array that was taken: its bytes, and the moments between which it was alive.

    If `last` is earlier than `first`, it outlived its run: it is dead between `last` and `first`.
    """

    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are alive at some moment."""
        begun, ended = self.first < other.last, other.first >= self.last
        outlived = (self.first > self.last) + (other.first > other.last)
        if outlived == 0:
            return begun and not ended
        # Two that outlived their run meet between runs. One does, unless the other is in its gap.
        return outlived == 2 or begun or not ended


class Lives:
    """Lends memory of the pool to a run of a program, and notes how long it is used.

    If arrays outlive the run, the next one is noted, too: perhaps they die there.
    """

    def __init__(self) -> None:
        #: By array, in the order in which they were taken: the bytes, the moment, and that of its
        #: end, which is 0 until it comes. Those of the run before are apart.
        self.found: list[list[int]] = []
        self._before: list[list[int]] | None = None
        #: The blocks that were lent, and what is in them now.
        self._blocks: dict[Any, list[int]] = {}
        self._ended = False
        self._now = self._start = 0

    def start(self) -> None:
        """Note that a run begins."""
        self._start = self._now

    def lease(self, size: int) -> Any:
        """Lend a number of bytes."""
        lease = POOL.lease(rounded(size))
        lease.pool = self
        self._now += 1
        life = [size, self._now, 0]
        self.found.append(life)
        self._blocks[lease.block] = life
        return lease

    def give_back(self, block: Any) -> None:
        """Note that an array has died."""
        self._now += 1
        self._blocks[block][2] = self._now
        POOL.give_back(block)
        if self._ended:
            POOL.drop((block,))

    def end(self) -> bool:
        """Note that the run has ended; returns whether enough is known.

        The blocks are then freed, because another one takes their place.
        """
        if self._before is None and not all(last for *_, last in self.found):
            self._before, self.found = self.found, []
            return False
        self._ended = True
        POOL.drop(self._blocks)
        # An array that is alive holds this object. It must not keep blocks of other arrays alive.
        self._blocks = {block: life for block, life in self._blocks.items() if not life[2]}
        return True

    def known(self) -> list[Life]:
        """The lives of the arrays of the last run; 0 is the end of those that may live for ever."""
        ends: dict[int, list[int]] = {}
        for size, _, last in self._before or ():
            ends.setdefault(size, []).append(last)
        lives = []
        for size, first, last in self.found:
            earlier = ends.get(size)
            own = earlier.pop(0) if earlier else 0
            if not last and self._start < own < first:
                # The array will die when, in this run, the array of the run before has died.
                last = own
            lives.append(Life(size, first, last))
        return lives


class BlockPlan:
    """Where the arrays of a program are in its block."""

    def __init__(self, lives: Lives) -> None:
        """Find a place for each array: the greatest come first, each into the smallest gap."""
        #: By size, the arrays in the order in which they are taken; None for those of the pool.
        self.turns: dict[int, list[int | None]] = {}
        #: By array: where it starts, the class of its lease, and which arrays overlap with it.
        self.starts: list[int] = []
        self.leases: list[Any] = []
        self.overlapping: list[list[int]] = []
        #: The bytes of the block.
        self.size = 0
        found = lives.known()
        order = [number for number, life in enumerate(found) if life.last]
        order.sort(key=lambda number: -found[number].size)
        numbers: dict[int, int] = {}
        placed: list[tuple[int, int, Life]] = []
        for each in order[:_MOST]:
            life = found[each]
            start = _gap(life, placed)
            end = start - (-life.size // ALIGNMENT) * ALIGNMENT
            overlapping = [n for n, one in enumerate(placed) if one[0] < end and one[1] > start]
            number = numbers[each] = len(placed)
            for other in overlapping:
                self.overlapping[other].append(number)
            placed.append((start, end, life))
            self.overlapping.append(overlapping)
            self.starts.append(start)
            self.leases.append(lease_of(life.size))
            self.size = max(self.size, end)
        for each, life in enumerate(found):
            self.turns.setdefault(life.size, []).append(numbers.get(each))


def _gap(life: Life, placed: list[tuple[int, int, Life]]) -> int:
    """The start of the smallest gap between what is there meanwhile, or the end of it."""
    meanwhile: list[tuple[int, int]] = []
    for start, end, other in placed:
        if other.meets(life):
            insort(meanwhile, (start, end))
    gaps = []
    top = 0
    for start, end in meanwhile:
        if start - top >= life.size:
            gaps.append((start - top, top))
        top = max(top, end)
    return min(gaps)[1] if gaps else top


class Arena:
    """The block of one run at a time. What is in it holds it, and it is free when all has died."""

    def __init__(self, plan: BlockPlan) -> None:
        self._plan = plan
        self._lease = POOL.lease(plan.size)
        assert self._lease.block is not None
        self._block = self._lease.block
        #: By array, whether it is alive; by size, how many were taken.
        self._alive = [False] * len(plan.starts)
        self._taken: dict[int, int] = {}

    def start(self) -> None:
        """Note that a run begins: arrays are taken from the first on."""
        self._taken = dict.fromkeys(self._plan.turns, 0)

    def lease(self, size: int) -> Any:
        """Lend an array's place, or memory of the pool."""
        turn = self._taken.get(size)
        if turn is None:
            return POOL.lease(rounded(size))
        self._taken[size] = turn + 1
        plan, alive = self._plan, self._alive
        turns = plan.turns[size]
        number = turns[turn] if turn < len(turns) else None
        if number is None or alive[number]:
            return POOL.lease(rounded(size))
        # Noted before the others are checked, because a finaliser may take memory in between.
        alive[number] = True
        for other in plan.overlapping[number]:
            if alive[other]:
                alive[number] = False
                return POOL.lease(rounded(size))
        lease = plan.leases[number].from_address(self._block.address + plan.starts[number])
        lease.pool = self
        lease.block = number
        return lease

    def give_back(self, number: int) -> None:
        """Note that an array has died."""
        if POOL.poison:
            start = self._plan.starts[number]
            self._block.memory[start : start + self._plan.leases[number]._length_].fill(POISON)
        self._alive[number] = False


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """`x.reshape(shape)`; a large copy of it is in the arena, if this thread has one."""
    if here.arena is not None and x.nbytes >= POOL.large and x.__class__ is np.ndarray:
        try:
            return x.reshape(shape, copy=False)
        except ValueError:
            out = POOL.take(shape, x.dtype)
            out.reshape(x.shape)[...] = x
            return out
        except TypeError:  # pragma: no cover
            # NumPy 2.0 can't refuse to copy.
            pass
    return x.reshape(shape)
