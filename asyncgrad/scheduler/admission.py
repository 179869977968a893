"""Limits how many passes run at once; the others wait, in order of priority."""

from __future__ import annotations

import weakref
from collections import deque
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.scheduler.engine import Engine

#: One admission in `_EVERY` goes to the oldest pass, if more than `_PATIENCE` have overtaken it.
_EVERY = 16
_PATIENCE = 64


class Admission:
    """Admits passes to one engine, or makes them wait."""

    def __init__(self) -> None:
        """Start without a limit."""
        #: How many passes run at once, None for any number.
        self.limit: int | None = None
        #: The waiting passes.
        self.held: set[GraphTask] = set()
        #: The waiting passes as a heap (minus the priority, deadline, order, pass), and in order of
        #: arrival with the admissions up to then. Both may still hold passes that no longer wait.
        self._urgent: list[tuple[int, float, int, GraphTask]] = []
        self._line: deque[tuple[int, GraphTask]] = deque()
        self._order = self._entered = 0
        #: Passes nested in others, which the limit does not count.
        self._nested: weakref.WeakSet[GraphTask] = weakref.WeakSet()

    def is_full(self, engine: Engine, task: GraphTask) -> bool:
        """Whether a new pass must wait. A nested one never does, as its parents wait for it."""
        if task.parent is not None:
            self._nested.add(task)
            return False
        return not self._room(engine)

    def _room(self, engine: Engine) -> bool:
        if self.limit is None:
            return True
        running = len(engine.live) - len(self.held)
        if running < self.limit:
            return True
        return running - sum(task in engine.live for task in self._nested) < self.limit

    def hold_back(self, engine: Engine, task: GraphTask) -> None:
        """Make a new pass wait for others to end."""
        self.held.add(task)
        self._order += 1
        deadline = inf if task.deadline is None else task.deadline
        heappush(self._urgent, (-task.priority, deadline, self._order, task))
        self._line.append((self._entered, task))
        engine.tell(task, "waits for other passes to end")

    def left(self, engine: Engine, task: GraphTask) -> None:
        """Note that a pass has ended, and admit waiting ones."""
        self.held.discard(task)
        self.let_in(engine)

    def let_in(self, engine: Engine) -> None:
        """Admit the most urgent of the waiting passes, as many as the limit allows."""
        while self.held and self._room(engine):
            engine.enqueue(self._next())
        self._forget()

    def _next(self) -> GraphTask:
        """Choose the pass to admit; at least one must be waiting."""
        self._entered += 1
        self._forget()
        came, task = self._line[0]
        if self._entered % _EVERY or self._entered - came <= _PATIENCE:
            task = self._urgent[0][3]
        self.held.discard(task)
        return task

    def _forget(self) -> None:
        """Remove passes that no longer wait from the front of the heap and the queue."""
        urgent, line, held = self._urgent, self._line, self.held
        while urgent and urgent[0][3] not in held:
            heappop(urgent)
        while line and line[0][1] not in held:
            line.popleft()
