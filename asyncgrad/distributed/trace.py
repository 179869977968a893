"""One trace of what the caller and all workers compute, on one axis of time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any

from asyncgrad.core.modes import Mode
from asyncgrad.tracing import Recorder


class Trace:
    """What one process has recorded, with the time of its clock's zero."""

    def __init__(self, name: str) -> None:
        """Start; the traces of machines are put together by their clocks as they are set."""
        self.name = name
        self.recorder = Recorder()
        self.origin_ns = time_ns() - (perf_counter_ns() - self.recorder.origin)

    def collected(self) -> tuple[str, int, list[dict[str, Any]]]:
        """Its name, the time of its zero, and the events."""
        return self.name, self.origin_ns, self.recorder.events


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Record the passes started in the block."""
    if recorder is None:
        yield
    else:
        with Mode(observer=recorder):
            yield


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
    Path(path).write_text(json.dumps({"traceEvents": joined}), encoding="utf-8")
