"""What the parts of an engine know of it: its loop and clock, timers, and event logs of passes."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextvars import Context
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from asyncgrad.aliases import Value
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import Outcome, Suspended
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.statistics import EngineStatistics

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task, TimerHandle

#: How many events of a pass are remembered.
_LENGTH = 24
#: The longest time of a slice.
SLICE_NS = 550_000


class EventLog:
    """The last events of a pass, which become a note on its error."""

    __slots__ = ("_events", "_start")

    def __init__(self, now: int) -> None:
        """Start without events, at a time in nanoseconds of any clock."""
        self._start = now
        #: Of each: when it happened last, its text, and how often in a row.
        self._events: deque[tuple[int, str, int]] = deque(maxlen=_LENGTH)

    def add(self, now: int, what: str) -> None:
        """Add an event; equal ones in a row are counted."""
        events = self._events
        times = events.pop()[2] + 1 if events and events[-1][1] == what else 1
        events.append((now, what, times))

    def __str__(self) -> str:
        lines = [
            f"  {(when - self._start) / 1e6:+.3f} ms  {what}" + (f" ({times} times)" * (times > 1))
            for when, what, times in self._events
        ]
        return "\n".join(["the last of what happened to this pass:", *lines])


def call_later(
    loop: AbstractEventLoop, seconds: float, callback: Callable[..., object], *args: object
) -> TimerHandle:
    """Call a function after some seconds, in an empty context.

    A loop keeps timers for a while after they were cancelled. The caller's context may lead to a
    pass, and would keep its graph.
    """
    return loop.call_later(seconds, callback, *args, context=Context())


class Host:
    """An event loop, the clock by which its passes are measured, and the length of their slices.

    The parts of an engine get the host with each call. They keep neither the host nor the loop,
    because that would be a reference cycle.
    """

    # `RunningPasses` and `Engine` have what follows. Parts call it, and can't import these classes.
    #: Its `CoroutineNodes`.
    coroutine_nodes: Any
    #: Runs a slice of a pass, whose cost is given in nanoseconds.
    run_slice: Callable[[GraphTask, int], None]
    #: Asks a pass to drain; False if it is too late.
    cancel: Callable[[GraphTask], bool]
    #: Takes a pass's next step if an interrupt has cut off whoever was to take it.
    revive: Callable[[GraphTask], None]
    #: Takes the result or error of a coroutine node; both are None for one that has given up.
    node_ended: Callable[[GraphTask, Suspended, Value, BaseException | None], None]
    #: Takes a pass back from a thread, with the outcome of the segment or its error.
    returned: Callable[[GraphTask, Outcome | None, BaseException | None], None]

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self.slice_ns = SLICE_NS
        self.clock: Callable[[], int] = perf_counter_ns
        self.closed = False
        #: Passes that were not finished by their first slice.
        self.live: set[GraphTask] = set()
        #: For `EngineStatistics`, in nanoseconds; what the engine can count at any time stays 0.
        self.counts = dict.fromkeys(EngineStatistics.__annotations__, 0)
        #: By the `id` of each future whose outcome nobody has looked at, the `id` of the task that
        #: started the pass. The future keeps its starter alive, and a starter may hold the future
        #: (a cancelled task has the frame that started the pass), so references in here would leak.
        #: Futures may die in any thread; each changes only its own entry.
        self.unobserved: dict[int, int] = {}
        #: The starters of such passes whose futures are gone.
        self.lost_starters: weakref.WeakSet[Any] = weakref.WeakSet()
        #: This turn's budget is used up, so awaiting even a finished pass yields to the loop.
        self.spent = False
        #: Running asyncio tasks, kept alive here because the loop refers to them only weakly.
        self.background_tasks: set[Task[Any]] = set()

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop."""
        loop = self._loop()
        if loop is None:
            raise AutogradError("the engine's event loop is gone")
        return loop

    def is_abandoned(self) -> bool:
        """Whether its loop was closed, or is gone."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    def log(self, task: GraphTask, what: str, now: int | None = None) -> None:
        """Add an event to the log of a pass."""
        if now is None:
            now = self.clock()
        if task.event_log is None:
            task.event_log = EventLog(now)
        task.event_log.add(now, what)
