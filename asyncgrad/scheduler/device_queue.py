"""The passes that have something ready on a device, in order of urgency."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask


#: Nanoseconds of run time by which one step of priority goes ahead.
_STEP = 1_000_000_000


class Turn(NamedTuple):
    """A pass in the queue; sorts by who goes next."""

    #: The time that the pass has used, less what its priority is worth. Among equals, who has had
    #: least goes next; an urgent pass goes ahead until it has used that much more than others, so
    #: that nothing starves.
    virtual_time: int
    #: Minus the depth of nesting: a nested pass must end before its parent can go on.
    shallowness: int
    order: int
    task: GraphTask


class DeviceQueue(asyncio.PriorityQueue[Turn]):
    """An asyncio priority queue of passes."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._order = 0
        #: The time used by the pass that had the last turn: newcomers start there.
        self._clock = 0

    def enter(self, task: GraphTask) -> None:
        """Queue a pass. Nested passes share their parent's time."""
        self._order += 1
        self.charge(task, 0)
        urgency = task.virtual_time - task.priority * _STEP
        self.put_nowait(Turn(urgency, -task.depth, self._order, task))

    def charge(self, task: GraphTask, used: int) -> None:
        """Note that a pass has run for so many nanoseconds."""
        if task.virtual_time < 0:
            task.virtual_time = (
                self._clock if task.parent is None else max(0, task.parent.virtual_time)
            )
        task.virtual_time += used

    def next_turn(self) -> GraphTask | None:
        """The pass whose turn it is, None if none waits."""
        if self.empty():
            return None
        task = self.get_nowait().task
        self._clock = max(self._clock, task.virtual_time)
        return task
