"""Statistics of an engine, for monitoring."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """What an engine has done since it was made. Times are in seconds."""

    #: Passes started; of these, the number running, the number held back by the limit, and the
    #: numbers that have failed and that were cancelled. The others have succeeded.
    passes: int
    in_flight: int
    held_back: int
    failed: int
    cancelled: int
    #: Nodes of all passes started, as counted by their walks.
    nodes: int
    #: Slices of passes on the loop, and segments of passes in threads.
    slices: int
    segments: int
    #: Passes that wait for a turn now; the number of such waits so far, their total and longest.
    queued: int
    queue_waits: int
    queue_wait: float
    longest_queue_wait: float
    #: Functions given to `offload`.
    offloads: int
    #: Runs of the garbage collector, in any thread, and their times: each stops the whole process.
    collections: int
    collector_pause: float
    longest_collector_pause: float
    #: Bytes of memory kept for future large arrays.
    bytes_held: int
    #: How long the engine has held the loop in slices of queued passes, the longest such slice, and
    #: the longest turn of the loop in which passes were started, including everything else in it.
    loop_held: float
    longest_hold: float
    longest_turn: float


class Collections:
    """Counts the garbage collector's pauses from `watch` to `unwatch`."""

    def __init__(self, counts: dict[str, int], after: Callable[[], None]) -> None:
        """Count in `counts`; `after` follows collections of more than the youngest generation."""
        self._counts = counts
        self._after = after
        self._start = 0

    def watch(self) -> None:
        """Start to count."""
        gc.callbacks.append(self._note)

    def unwatch(self) -> None:
        """Stop counting."""
        with suppress(ValueError):
            # It is not there if it was never added, or another thread closes the engine, too.
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        """Note a start or end of the collector, which runs in one thread at a time."""
        if phase == "start":
            self._start = perf_counter_ns()
            return
        if not self._start:
            # `watch` was called during this run.
            return
        took = perf_counter_ns() - self._start
        counts = self._counts
        counts["collections"] += 1
        counts["collector_pause"] += took
        counts["longest_collector_pause"] = max(counts["longest_collector_pause"], took)
        if info["generation"]:
            self._after()
