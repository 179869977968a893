"""How many passes run at once: the others wait, in order of priority."""

from __future__ import annotations

import weakref
from collections import deque
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.scheduler.engine import Engine

#: One in so many is the one that has waited longest, if so many have overtaken it.
_EVERY = 16
_PATIENCE = 64


class Admission:
    """Lets passes into one engine, or has them wait."""

    def __init__(self) -> None:
        """Everybody may enter."""
        #: How many passes run at once, None for any number.
        self.limit: int | None = None
        #: Those that wait for others to end.
        self.held: set[GraphTask] = set()
        #: The same as a heap (minus the priority, deadline, order, pass) and in the order in which
        #: they came, with how many had been let in by then; some of these wait no more.
        self._urgent: list[tuple[int, float, int, GraphTask]] = []
        self._line: deque[tuple[int, GraphTask]] = deque()
        self._order = self._entered = 0
        #: Passes nested in others, which run besides.
        self._nested: weakref.WeakSet[GraphTask] = weakref.WeakSet()

    def is_full(self, engine: Engine, task: GraphTask) -> bool:
        """Whether a new pass has to wait. One nested in others never does: they wait for it."""
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
        """Let a new pass wait for others to end."""
        self.held.add(task)
        self._order += 1
        deadline = inf if task.deadline is None else task.deadline
        heappush(self._urgent, (-task.priority, deadline, self._order, task))
        self._line.append((self._entered, task))
        engine.tell(task, "waits for other passes to end")

    def left(self, engine: Engine, task: GraphTask) -> None:
        """A pass has ended: start the most urgent of those that wait."""
        self.held.discard(task)
        self.let_in(engine)

    def let_in(self, engine: Engine) -> None:
        """Start the most urgent of those that wait, as many as there is room for."""
        while self.held and self._room(engine):
            engine.enqueue(self._next())
        self._forget()

    def _next(self) -> GraphTask:
        """The pass that goes in next; there is one."""
        self._entered += 1
        self._forget()
        came, task = self._line[0]
        if self._entered % _EVERY or self._entered - came <= _PATIENCE:
            task = self._urgent[0][3]
        self.held.discard(task)
        return task

    def _forget(self) -> None:
        """Let go of those at the front that have gone in or have ended."""
        urgent, line, held = self._urgent, self._line, self.held
        while urgent and urgent[0][3] not in held:
            heappop(urgent)
        while line and line[0][1] not in held:
            line.popleft()
