"""The queues of passes: what waits for a turn or for admission, in order of urgency."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Generic, TypeVar

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import deciding
from asyncgrad.core.modes import current
from asyncgrad.records import NamedTuple

_U = TypeVar("_U")
_T = TypeVar("_T")

#: One turn in so many may go to the oldest instead of the most urgent.
_EVERY = 16
#: How many passes are admitted before the one that has waited longest.
_HELD_BACK = 64
#: How many turns of others the pass that has waited longest waits before it gets one.
_PATIENCE = 400
#: How many passes that have ended in the queue are skipped in one turn of the loop.
_PASSED_OVER = 64


def take(box: list[_T]) -> _T | None:
    """Pop the last entry of a list; None if another thread has done so."""
    try:
        return box.pop()
    except IndexError:
        return None


class FairQueue(Generic[_U, _T]):
    """The most urgent goes first; one turn in 16 goes to the oldest, if it was overtaken too often.

    `push` must not block, not even for a lock, so each of its steps is atomic in the interpreter.
    An item is in a box (a list), which is in a heap and in a line. Popping the item from its box
    takes it, and empty boxes are skipped. Only one thread at a time may call `pop`.
    """

    __slots__ = ("_line", "_numbers", "_patience", "_urgent", "taken")

    def __init__(self, patience: int) -> None:
        """Start empty; after `patience` turns of others the oldest may get one."""
        self._patience = patience
        self._urgent: list[tuple[_U, int, list[_T]]] = []
        #: The boxes in order of arrival, with the number of items taken up to then.
        self._line: deque[tuple[int, list[_T]]] = deque()
        self._numbers = count()
        #: How many items have been taken.
        self.taken = 0

    def push(self, urgency: _U, item: _T) -> list[_T]:
        """Add an item; whoever empties the box that is returned withdraws it."""
        box = [item]
        try:
            self._line.append((self.taken, box))
            heappush(self._urgent, (urgency, next(self._numbers), box))
        except BaseException:
            # An interrupt. In only one of the two the item would be missed in the other.
            box.clear()
            raise
        return box

    def pop(self, renewed: Callable[[_U, _T], _U] | None = None) -> _T:
        """Take the next item; there must be one. `renewed` gives the urgency that one has now."""
        self.taken += 1
        line, urgent = self._line, self._urgent
        while not line[0][1]:
            line.popleft()
        came, box = line[0]
        if self.taken % _EVERY == 0 and self.taken - came > self._patience:
            return box.pop()
        while True:
            urgency, number, box = heappop(urgent)
            if not box:
                continue
            now = urgency if renewed is None else renewed(urgency, box[0])
            if now == urgency:
                return box.pop()
            heappush(urgent, (now, number, box))

    def first(self) -> _U | None:
        """The urgency of the most urgent item; None if there is none."""
        try:
            return self._urgent[0][0]
        except IndexError:
            # The heap is empty: a thread has just taken its last entry.
            return None


class Admission:
    """Admits passes to one engine, or makes them wait."""

    def __init__(self, live: set[GraphTask]) -> None:
        """Start without a limit; `live` are the passes that have not ended, held ones, too."""
        #: How many passes run at once, None for any number.
        self.limit: int | None = None
        self._live = live
        #: The waiting passes, by their urgency: minus the priority, and the deadline.
        self._queue: FairQueue[tuple[int, float], GraphTask] = FairQueue(_HELD_BACK)
        #: The box of each in the queue, which is emptied if the pass ends while it waits.
        self.held: dict[GraphTask, list[GraphTask]] = {}
        #: Passes that the limit does not count.
        self._uncounted: weakref.WeakSet[GraphTask] = weakref.WeakSet()

    def set_limit(self, limit: int | None) -> None:
        """Limit how many passes run at once."""
        self.limit = limit
        # While there was no limit, nobody noted these.
        self._uncounted.update(filter(_never_waits, self._live))

    def must_wait(self, task: GraphTask) -> bool:
        """Whether a new pass must wait; notes one that never does."""
        if task.inbox or _never_waits(task):
            self._uncounted.add(task)
            return False
        return not self._room()

    def _room(self) -> bool:
        if self.limit is None:
            return True
        running = len(self._live) - len(self.held)
        # Not a count of all that are live: thousands may be held.
        return running < self.limit or (
            running - sum(task in self._live for task in self._uncounted) < self.limit
        )

    def hold_back(self, task: GraphTask) -> None:
        """Make a new pass wait for others to end."""
        deadline = inf if task.deadline is None else task.deadline
        self.held[task] = self._queue.push((-task.priority, deadline), task)

    def note_end(self, task: GraphTask) -> None:
        """Note that a pass has ended, perhaps while it waited here."""
        place = self.held.pop(task, None)
        if place is not None:
            place.clear()

    def admitted(self) -> Iterator[GraphTask]:
        """Admit the most urgent of the waiting passes, as many as the limit allows."""
        while self.held and self._room():
            task = self._queue.pop()
            del self.held[task]
            yield task


def _never_waits(task: GraphTask) -> bool:
    """Whether others wait for a pass: parents, or the processes for which participants decide."""
    return task.parent is not None or bool(deciding(task))


class Urgency(NamedTuple):
    """The order of passes, on the loop and in threads: the smallest goes first."""

    #: Minus the priority.
    minus_priority: int
    #: The earlier goes first; infinite without a deadline.
    deadline: float
    #: The time that the pass's family (all passes nested in one) has used: the least goes first.
    used: int
    #: Minus the depth of nesting: a nested pass must end before its parent can go on.
    minus_depth: int


ORDINARY = Urgency(0, inf, 0, 0)


class PassQueue:
    """The passes that wait for a turn."""

    __slots__ = ("_clock", "_queue", "_waiting")

    def __init__(self) -> None:
        self._queue: FairQueue[Urgency, GraphTask] = FairQueue(_PATIENCE)
        #: When each that waits has come, including any that have ended meanwhile.
        self._waiting: dict[GraphTask, int] = {}
        #: The time used by the family that had the last turn; newcomers start from it.
        self._clock = 0

    def enter(self, task: GraphTask, now: int) -> None:
        """Queue a pass."""
        self._queue.push(self.urgency(task), task)
        # Not before: otherwise an interrupt could leave a pass that waits and is not in the queue.
        self._waiting[task] = now

    def __contains__(self, task: GraphTask) -> bool:
        return task in self._waiting

    def empty(self) -> bool:
        """Whether no pass waits."""
        return not self._waiting

    def waiting(self) -> int:
        """How many waiting passes have not ended."""
        return sum(task.future is not None for task in self._waiting)

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
        outermost = task.outermost or task
        if outermost.virtual_time < 0:
            outermost.virtual_time = self._clock
        outermost.virtual_time += used
        return outermost.virtual_time

    def next_turn(self, now: int) -> tuple[GraphTask, int] | None:
        """Take the next pass, with its waiting time; None if there is none that has not ended."""
        for _ in range(_PASSED_OVER):
            if not self._waiting:
                return None
            try:
                task = self._queue.pop(self._renewed)
                since = self._waiting.pop(task, None)
            except BaseException:
                # An interrupt, which may have left a pass that waits and is not in the queue.
                queue: FairQueue[Urgency, GraphTask] = FairQueue(_PATIENCE)
                for task in self._waiting:
                    queue.push(self.urgency(task), task)
                self._queue = queue
                raise
            if since is not None and task.future is not None:
                break
        else:
            return None
        used = self.charge(task, 0)
        if used > self._clock:
            self._clock = used
        return task, now - since

    def _renewed(self, urgency: Urgency, task: GraphTask) -> Urgency:
        """The present urgency of a pass: others of its family may have run since it was queued."""
        used = self.charge(task, 0)
        return urgency if used == urgency.used else urgency._replace(used=used)
