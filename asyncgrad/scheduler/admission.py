"""Limits how many passes run at once; the others wait, in order of priority."""

from __future__ import annotations

import weakref
from math import inf
from typing import TYPE_CHECKING

from asyncgrad.scheduler.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.core.graph_task import GraphTask

#: How many passes are admitted before the one that has waited longest.
_PATIENCE = 64


class Admission:
    """Admits passes to one engine, or makes them wait."""

    def __init__(self, live: set[GraphTask]) -> None:
        """Start without a limit; `live` are the passes that have not ended, held ones, too."""
        #: How many passes run at once, None for any number.
        self.limit: int | None = None
        self._live = live
        #: The waiting passes, by their urgency: minus the priority, and the deadline.
        self._queue: FairQueue[tuple[int, float], GraphTask] = FairQueue(_PATIENCE)
        #: The box of each in the queue, which is emptied if the pass ends while it waits.
        self.held: dict[GraphTask, list[GraphTask]] = {}
        #: Passes nested in others, which the limit does not count.
        self._nested: weakref.WeakSet[GraphTask] = weakref.WeakSet()

    def is_full(self, task: GraphTask) -> bool:
        """Whether a new pass must wait. A nested one never does, as its parents wait for it."""
        if task.parent is not None:
            self._nested.add(task)
            return False
        return not self._room()

    def _room(self) -> bool:
        if self.limit is None:
            return True
        running = len(self._live) - len(self.held)
        if running < self.limit:
            return True
        return running - sum(task in self._live for task in self._nested) < self.limit

    def hold_back(self, task: GraphTask) -> None:
        """Make a new pass wait for others to end."""
        deadline = inf if task.deadline is None else task.deadline
        self.held[task] = self._queue.push((-task.priority, deadline), task)

    def left(self, task: GraphTask) -> None:
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
