"""The passes that wait for a turn on a device, in order of urgency."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from asyncgrad.core.modes import current
from asyncgrad.records import NamedTuple
from asyncgrad.scheduler.fair_queue import FairQueue

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask

#: How many turns of others the pass that has waited longest waits before it gets one.
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


class DeviceQueue:
    """The passes that wait for a turn."""

    __slots__ = ("_alone", "_clock", "_queue", "_since", "_waiting", "longest_ns", "waited_ns",
                 "waits")  # fmt: skip

    def __init__(self) -> None:
        #: The passes, each with its time of arrival.
        self._queue: FairQueue[Urgency, tuple[GraphTask, int]] = FairQueue(_PATIENCE)
        #: How many there are, including any that have ended meanwhile.
        self._waiting = 0
        #: The only waiting pass and its time of arrival, kept here while there is no other with
        #: which the queue would compare it.
        self._alone: GraphTask | None = None
        self._since = 0
        #: The time used by the family that had the last turn; newcomers start from it.
        self._clock = 0
        #: The number of waits for a turn, and their total and longest time.
        self.waits = self.waited_ns = self.longest_ns = 0

    def enter(self, task: GraphTask, now: int) -> None:
        """Queue a pass."""
        if self._alone is None and not self._waiting:
            self._alone, self._since = task, now
        else:
            self._compare()
            self._push(task, now)

    def _compare(self) -> None:
        """Move the single waiting pass into the queue."""
        if self._alone is not None:
            task, self._alone = self._alone, None
            self._push(task, self._since)

    def _push(self, task: GraphTask, since: int) -> None:
        self._waiting += 1
        self._queue.push(self.urgency(task), (task, since))

    def empty(self) -> bool:
        """Whether no pass waits."""
        return self._alone is None and not self._waiting

    def qsize(self) -> int:
        """How many passes wait, including any that have ended meanwhile."""
        return self._waiting + (self._alone is not None)

    def waiting(self) -> int:
        """How many waiting passes have not ended."""
        tasks = [task for task, _ in self._queue.items()]
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
        """Add nanoseconds to the time that a pass's family has used, and return the sum."""
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
            self._queue.taken += 1
            since = self._since
            task.queued = False
            if task.future is None:
                return None
        else:
            for _ in range(_PASSED_OVER):
                if not self._waiting:
                    return None
                self._waiting -= 1
                task, since = self._queue.pop(self._renewed)
                task.queued = False
                if task.future is not None:
                    break
            else:
                return None
        used = task.virtual_time
        if used < 0 or task.parent is not None:
            used = self.charge(task, 0)
        if used > self._clock:
            self._clock = used
        waited = now - since
        self.waits += 1
        self.waited_ns += waited
        if waited > self.longest_ns:
            self.longest_ns = waited
        return task, waited

    def _renewed(self, urgency: Urgency, entry: tuple[GraphTask, int]) -> Urgency:
        """The present urgency of a pass: others of its family may have run since it was queued."""
        used = self.charge(entry[0], 0)
        return urgency if used == urgency.used else urgency._replace(used=used)


def _first_of_family(task: GraphTask) -> GraphTask:
    """The outermost pass around this one."""
    while task.parent is not None:
        task = task.parent
    return task
