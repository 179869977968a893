"""What the parts of an engine know of it."""

from __future__ import annotations

import weakref
from time import perf_counter_ns
from typing import TYPE_CHECKING

from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.story import Story

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.core.states import Ended, Outcome, Suspended

#: The longest time of a slice.
SLICE_NS = 550_000


class Host:
    """An event loop, the clock by which its passes are measured, and the length of their slices.

    The parts of an engine get the host with each call. They keep neither the host nor the loop,
    because that would be a reference cycle.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self.slice_ns = SLICE_NS
        self.clock: Callable[[], int] = perf_counter_ns
        self.closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        loop = self._loop()
        if loop is None:
            raise AutogradError("the engine's event loop is gone")
        return loop

    def is_abandoned(self) -> bool:
        """Whether its loop was closed, or is gone."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    def run_slice(self, task: GraphTask, budget: int) -> None:
        """Run a slice of a pass, whose cost is given in nanoseconds."""
        raise NotImplementedError

    def node_ended(self, task: GraphTask, suspended: Suspended, ended: Ended) -> None:
        """Take the report of a coroutine node."""
        raise NotImplementedError

    def returned(
        self, task: GraphTask, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Take a pass back from a thread, with the outcome of the segment or its error."""
        raise NotImplementedError

    def tell(self, task: GraphTask, what: str, now: int | None = None) -> None:
        """Add an event to the story of a pass."""
        if now is None:
            now = self.clock()
        if task.story is None:
            task.story = Story(now)
        task.story.add(now, what)
