"""A trace of passes that opens in Perfetto or chrome://tracing."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator


class Recorder:
    """Notes every node of the passes it observes: its name, thread, start and duration."""

    def __init__(self) -> None:
        """Start empty."""
        self.events: list[dict[str, Any]] = []
        self._origin = perf_counter_ns()

    def enter(self, task: Any, node: Any) -> int:
        """A node starts."""
        return perf_counter_ns()

    def leave(self, task: Any, node: Any, start: int) -> None:
        """A node has ended."""
        now = perf_counter_ns()
        self.events.append(
            {
                "name": node.name(),
                "cat": "node",
                "ph": "X",
                "ts": (start - self._origin) / 1e3,
                "dur": (now - start) / 1e3,
                "pid": 1,
                "tid": threading.get_native_id(),
                "args": {
                    "pass": id(task),
                    "sequence_nr": node.sequence_nr,
                    "output": repr(node.output_metadata),
                },
            }
        )

    def save(self, path: str | Path) -> None:
        """Write what was noted in the Trace Event format."""
        threads = [
            {
                "name": "thread_name",
                "ph": "M",
                "pid": 1,
                "tid": t.native_id,
                "args": {"name": t.name},
            }
            for t in threading.enumerate()
        ]
        Path(path).write_text(json.dumps({"traceEvents": threads + self.events}))


@contextmanager
def trace(path: str | Path) -> Iterator[Recorder]:
    """Trace the passes started in this context and write them to a file at its end.

    Args:
        path: the file; it opens in https://ui.perfetto.dev.

    Yields:
        The recorder, with its `events`.
    """
    recorder = Recorder()
    try:
        with Mode(observer=recorder):
            yield recorder
    finally:
        recorder.save(path)
