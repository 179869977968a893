"""One trace of what the caller and all workers compute, on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from time import perf_counter_ns, time_ns
from typing import Any

from asyncgrad.tracing import Recorder, write


class Trace:
    """What one process has recorded, with the time of its clock's zero.

    The traces of machines are put together by their clocks as they are set.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.recorder = Recorder()
        self.origin_ns = time_ns() - (perf_counter_ns() - self.recorder.origin)

    def collected(self) -> tuple[str, int, list[dict[str, Any]]]:
        """Its name, the time of its zero, and the events."""
        return self.name, self.origin_ns, self.recorder.named()


def save(
    path: str | PathLike[str], traces: Sequence[tuple[str, int, list[dict[str, Any]]]]
) -> None:
    """Write traces of several processes to one file in the Trace Event format."""
    first = min(origin for _, origin, _ in traces)
    joined: list[dict[str, Any]] = []
    for number, (name, origin, events) in enumerate(traces, 1):
        joined.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": name}})
        shift = (origin - first) / 1e3
        joined += [event | {"pid": number, "ts": event["ts"] + shift} for event in events]
    write(path, joined)
