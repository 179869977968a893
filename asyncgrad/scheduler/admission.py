"""How many passes run at once: the others wait, in order of priority."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.scheduler.engine import Engine


class Admission:
    """The door to one engine."""

    def __init__(self) -> None:
        """Everybody may enter."""
        #: How many passes run at once, None for any number.
        self.limit: int | None = None
        #: Those that wait for others to end.
        self.held: set[GraphTask] = set()
        #: The same as a heap (minus the priority, order, pass); some of these have ended.
        self._line: list[tuple[int, int, GraphTask]] = []
        self._order = 0

    def is_full(self, engine: Engine, task: GraphTask) -> bool:
        """Whether a new pass has to wait. One nested in others never does: they wait for it."""
        return task.parent is None and not self._room(engine)

    def _room(self, engine: Engine) -> bool:
        return self.limit is None or len(engine.live) - len(self.held) < self.limit

    def hold_back(self, engine: Engine, task: GraphTask) -> None:
        """Let a new pass wait for others to end."""
        self.held.add(task)
        self._order += 1
        heappush(self._line, (-task.priority, self._order, task))
        engine.tell(task, "waits for other passes to end")

    def left(self, engine: Engine, task: GraphTask) -> None:
        """A pass has ended: start the most urgent of those that wait."""
        self.held.discard(task)
        self.let_in(engine)

    def let_in(self, engine: Engine) -> None:
        """Start the most urgent of those that wait, as many as there is room for."""
        while self._line and (self._line[0][2] not in self.held or self._room(engine)):
            task = heappop(self._line)[2]
            if task in self.held:
                self.held.discard(task)
                engine.enqueue(task)
