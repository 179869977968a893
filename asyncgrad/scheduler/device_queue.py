"""The passes that wait for a turn on a device, in order of urgency."""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from asyncgrad.core.modes import current
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask

#: One turn in `_EVERY` goes to the pass that has waited longest, if that was for more than
#: `_PATIENCE` turns: so no pass starves.
_EVERY = 16
_PATIENCE = 400
#: How many passes that have ended in the queue are skipped in one turn of the loop.
_PASSED_OVER = 64


class Urgency(NamedTuple):
    """The order of passes, on the loop and in threads: the smallest goes first."""

    #: Minus the priority.
    laxness: int
    #: The earlier goes first; infinite without a deadline.
    deadline: float
    #: The time that the pass's family (all passes nested in one) has used: the least goes first.
    used: int
    #: Minus the depth of nesting: a nested pass must end before its parent can go on.
    shallowness: int


ORDINARY = Urgency(0, inf, 0, 0)


class Turn(NamedTuple):
    """A pass in the queue; sorts by urgency, then by order of arrival."""

    urgency: Urgency
    order: int
    task: GraphTask
    #: When it came, by the clock and as a number of turns.
    since: int
    turn: int


class DeviceQueue(asyncio.PriorityQueue[Turn]):
    """An asyncio priority queue of passes."""

    #: The heap that `PriorityQueue` creates.
    _queue: list[Turn]

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        #: A single waiting pass and its time of arrival, kept out of the heap: nothing to compare.
        self._alone: GraphTask | None = None
        self._since = 0
        self._order = 0
        self._turn = 0
        #: The time used by the family that had the last turn; newcomers start from it.
        self._clock = 0
        #: The number of waits for a turn, and their total and longest time.
        self.waits = self.waited_ns = self.longest_ns = 0

    def enter(self, task: GraphTask, now: int) -> None:
        """Queue a pass."""
        if self._alone is None and not self._queue:
            self._alone, self._since = task, now
        else:
            self._compare()
            self._enqueue(task, now)

    def _compare(self) -> None:
        """Move the single waiting pass into the heap."""
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
        """How many passes wait, including any that have ended meanwhile."""
        return len(self._queue) + (self._alone is not None)

    def waiting(self) -> int:
        """How many waiting passes have not ended."""
        tasks = [turn.task for turn in self._queue]
        if self._alone is not None:
            tasks.append(self._alone)
        return sum(task.future is not None for task in tasks)

    def urgency(self, task: GraphTask) -> Urgency:
        """The urgency of a pass at this moment."""
        deadline = inf if task.deadline is None else task.deadline
        return Urgency(-task.priority, deadline, self.charge(task, 0), -task.depth)

    def urgency_here(self) -> Urgency:
        """The urgency of a function that is offloaded in the current context."""
        modes = current()
        deadline = inf if modes.deadline is None else modes.deadline
        return Urgency(-modes.priority, deadline, self._clock, 0)

    def charge(self, task: GraphTask, used: int) -> int:
        """Add nanoseconds to the time that a pass's family has used.

        Returns:
            What its family has used.
        """
        first = _first_of_family(task)
        if first.virtual_time < 0:
            first.virtual_time = self._clock
        first.virtual_time += used
        return first.virtual_time

    def next_turn(self, now: int) -> tuple[GraphTask, int] | None:
        """Take the next pass, with its waiting time; None if there is none that has not ended."""
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
        heappush(self._queue, turn)

    def _get(self) -> Turn:
        """Remove and return the next turn."""
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
            # Other passes of its family have run meanwhile, so its urgency is out of date.
            heappush(queue, turn._replace(urgency=turn.urgency._replace(used=used)))


def _first_of_family(task: GraphTask) -> GraphTask:
    """The outermost pass around this one."""
    while task.parent is not None:
        task = task.parent
    return task
