"""The passes that have something ready on a device, in order of urgency."""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from asyncgrad.core.modes import current
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask

#: One turn in so many goes to the pass that has waited longest, if that was for more than
#: `_PATIENCE` turns: whatever keeps coming, nothing starves.
_EVERY = 16
_PATIENCE = 400
#: How many passes that have ended while they waited are passed over in one turn of the loop.
_PASSED_OVER = 64


class Urgency(NamedTuple):
    """Who goes before whom, on the loop and in threads: the smallest."""

    #: Minus the priority.
    laxness: int
    #: Among equals, who has to be done first; infinite where there is no hurry.
    deadline: float
    #: The time that its family of nested passes has used: who has had least goes next.
    used: int
    #: Minus the depth of nesting: a nested pass must end before its parent can go on.
    shallowness: int


ORDINARY = Urgency(0, inf, 0, 0)


class Turn(NamedTuple):
    """A pass in the queue; sorts by who goes next."""

    urgency: Urgency
    order: int
    task: GraphTask
    #: When it came, on the clock and in turns.
    since: int
    turn: int


class DeviceQueue(asyncio.PriorityQueue[Turn]):
    """An asyncio priority queue of passes."""

    #: The heap that `PriorityQueue` has made.
    _queue: list[Turn]

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        #: The only one that waits, and since when: it has nobody to be compared with.
        self._alone: GraphTask | None = None
        self._since = 0
        self._order = 0
        self._turn = 0
        #: The time used by the family that had the last turn: newcomers start there.
        self._clock = 0
        #: How many turns were waited for, for how long, and the longest.
        self.waits = self.waited_ns = self.longest_ns = 0

    def enter(self, task: GraphTask, now: int) -> None:
        """Queue a pass."""
        if self._alone is None and not self._queue:
            self._alone, self._since = task, now
        else:
            self._compare()
            self._enqueue(task, now)

    def _compare(self) -> None:
        """Have the only one that waits be compared with others."""
        if self._alone is not None:
            task, self._alone = self._alone, None
            self._enqueue(task, self._since)

    def _enqueue(self, task: GraphTask, since: int) -> None:
        self._order += 1
        self.put_nowait(Turn(self.urgency(task), self._order, task, since, self._turn))

    def empty(self) -> bool:
        """Whether no pass waits."""
        return self._alone is None and not self._queue

    def qsize(self) -> int:
        """How many passes wait, with those that have ended meanwhile."""
        return len(self._queue) + (self._alone is not None)

    def waiting(self) -> int:
        """How many of them have not ended while they waited."""
        tasks = [turn.task for turn in self._queue]
        if self._alone is not None:
            tasks.append(self._alone)
        return sum(task.future is not None for task in tasks)

    def urgency(self, task: GraphTask) -> Urgency:
        """That of a pass at this moment."""
        deadline = inf if task.deadline is None else task.deadline
        return Urgency(-task.priority, deadline, self.charge(task, 0), -task.depth)

    def urgency_here(self) -> Urgency:
        """That of a function that is called now, among the passes."""
        modes = current()
        deadline = inf if modes.deadline is None else modes.deadline
        return Urgency(-modes.priority, deadline, self._clock, 0)

    def charge(self, task: GraphTask, used: int) -> int:
        """Note that a pass has run for so many nanoseconds.

        Returns:
            What its family has used.
        """
        first = _first_of_family(task)
        if first.virtual_time < 0:
            first.virtual_time = self._clock
        first.virtual_time += used
        return first.virtual_time

    def next_turn(self, now: int) -> tuple[GraphTask, int] | None:
        """The pass whose turn it is and for how long it has waited, None if none has been found."""
        task = self._alone
        if task is not None:
            self._alone = None
            self._turn += 1
            since = self._since
            used = task.virtual_time
            if used < 0 or task.parent is not None:
                used = self.charge(task, 0)
            task.queued = False
            if task.future is None:
                return None
        else:
            for _ in range(_PASSED_OVER):
                if not self._queue:
                    return None
                turn = self.get_nowait()
                task, since, used = turn.task, turn.since, turn.urgency.used
                task.queued = False
                if task.future is not None:
                    break
            else:
                return None
        if used > self._clock:
            self._clock = used
        waited = now - since
        self.waits += 1
        self.waited_ns += waited
        if waited > self.longest_ns:
            self.longest_ns = waited
        return task, waited

    def _put(self, turn: Turn) -> None:
        """Put a turn into the heap."""
        heappush(self._queue, turn)

    def _get(self) -> Turn:
        """Take out the next one."""
        self._compare()
        queue = self._queue
        self._turn += 1
        if self._turn % _EVERY == 0:
            oldest = min(queue, key=lambda turn: turn.order)
            if self._turn - oldest.turn > _PATIENCE:
                queue.remove(oldest)
                heapify(queue)
                return oldest
        while True:
            turn: Turn = heappop(queue)
            used = self.charge(turn.task, 0)
            if used == turn.urgency.used:
                return turn
            # Others of its family have run meanwhile.
            heappush(queue, turn._replace(urgency=turn.urgency._replace(used=used)))


def _first_of_family(task: GraphTask) -> GraphTask:
    """The pass that others are nested in, and these in turn."""
    while task.parent is not None:
        task = task.parent
    return task
