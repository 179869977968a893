"""What an engine has done, for those who operate it."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from asyncgrad.devices.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.scheduler.engine import Engine


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """What an engine has done since it was made. Times are in seconds."""

    #: Passes started, those of them that run, and those that wait because of the limit.
    passes: int
    in_flight: int
    held_back: int
    #: Nodes of all passes started, as their walks have counted them.
    nodes: int
    #: Turns of passes on the loop, and segments of passes in threads.
    slices: int
    segments: int
    #: Passes that wait for a turn now; the turns that were waited for, and how long.
    queued: int
    queue_waits: int
    queue_wait: float
    longest_queue_wait: float
    #: Functions given to `offload`.
    offloads: int
    #: Runs of the garbage collector, by any thread: they hold everything.
    collections: int
    collector_pause: float
    longest_collector_pause: float
    #: Bytes of memory kept for the next large arrays.
    bytes_held: int
    #: How long the engine has held the loop: in turns of waiting passes, the longest of them, and
    #: the longest turn of the loop in which passes were started, with what else happened in it.
    loop_held: float
    longest_hold: float
    longest_turn: float


class Collections:
    """Counts the garbage collector's pauses from `watch` to `unwatch`."""

    def __init__(self, after: Callable[[], None]) -> None:
        """Nothing is counted yet.

        Args:
            after: called at the end of each that looks at more than the youngest objects.
        """
        self._after = after
        self.count = 0
        self.total_ns = 0
        self.longest_ns = 0
        self._start = 0

    def watch(self) -> None:
        """Begin to count."""
        gc.callbacks.append(self._note)

    def unwatch(self) -> None:
        """End it."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        """The collector begins or ends; it runs in one thread at a time."""
        if phase == "start":
            self._start = perf_counter_ns()
            return
        if not self._start:
            # Watched since the middle of one.
            return
        took = perf_counter_ns() - self._start
        self.count += 1
        self.total_ns += took
        self.longest_ns = max(self.longest_ns, took)
        if info["generation"]:
            self._after()


def statistics_of(engine: Engine) -> EngineStatistics:
    """What an engine has done so far."""
    queue, collections, thread_segments = engine.queue, engine.collections, engine.thread_segments
    held = len(engine.admission.held)
    return EngineStatistics(
        passes=engine.passes,
        in_flight=len(engine.live) - held,
        held_back=held,
        nodes=engine.node_count,
        slices=engine.slices,
        segments=thread_segments.segments,
        queued=queue.waiting(),
        queue_waits=queue.waits,
        queue_wait=queue.waited_ns / 1e9,
        longest_queue_wait=queue.longest_ns / 1e9,
        offloads=thread_segments.offloads,
        collections=collections.count,
        collector_pause=collections.total_ns / 1e9,
        longest_collector_pause=collections.longest_ns / 1e9,
        bytes_held=POOL.unused,
        loop_held=engine.worker.held_ns / 1e9,
        longest_hold=engine.worker.longest_hold_ns / 1e9,
        longest_turn=engine.longest_turn_ns / 1e9,
    )
