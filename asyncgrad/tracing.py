"""A trace of passes that opens in Perfetto or chrome://tracing."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from asyncgrad.core.modes import Mode
from asyncgrad.devices.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike


class Recorder:
    """Notes the nodes and waits of the passes it observes.

    For every node: its name, thread, start, duration and the bytes of the gradient that came in;
    one that waits for a coroutine has a row of its own.
    For every turn that a pass has waited for: from when to when. And the bytes of memory that are
    kept for the next large arrays.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.events: list[dict[str, Any]] = []
        self._origin = perf_counter_ns()
        #: The numbers of the passes: where one was in memory the next may be.
        self._passes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._numbers = count(1)

    def _number(self, task: Any) -> int:
        number = self._passes.get(task)
        if number is None:
            # Two threads may come first.
            number = self._passes.setdefault(task, next(self._numbers))
        return number

    def enter(self, task: Any, node: Any) -> int:
        """A node starts."""
        return perf_counter_ns()

    def leave(self, task: Any, node: Any, start: int) -> None:
        """A node has ended."""
        now = perf_counter_ns()
        number = self._number(task)
        about: dict[str, Any] = {
            "name": node.name(),
            "cat": "node",
            "ts": (start - self._origin) / 1e3,
            "pid": 1,
            "tid": threading.get_native_id(),
            "args": {
                "pass": number,
                "sequence_nr": node.sequence_nr,
                "output": repr(node.output_metadata),
                "bytes": _bytes_of(node.output_metadata),
            },
        }
        if node in task.launched:
            # It has waited, and others ran in between: in one thread's row they would overlap.
            about["id"] = f"{number}, {node.sequence_nr}"
            self.events.append(about | {"ph": "b"})
            self.events.append(about | {"ph": "e", "ts": (now - self._origin) / 1e3})
        else:
            self.events.append(about | {"ph": "X", "dur": (now - start) / 1e3})
        self.events.append(
            {
                "name": "memory kept",
                "ph": "C",
                "ts": (now - self._origin) / 1e3,
                "pid": 1,
                "args": {"bytes": POOL.unused},
            }
        )

    def waited(self, task: Any, nanoseconds: int) -> None:
        """A pass has waited for its turn, and gets it."""
        now = (perf_counter_ns() - self._origin) / 1e3
        # A track of its own for each pass: its waits have no thread.
        about = {"name": "waits for its turn", "cat": "wait", "pid": 1, "id": self._number(task)}
        self.events.append(about | {"ph": "b", "ts": now - nanoseconds / 1e3})
        self.events.append(about | {"ph": "e", "ts": now})

    def save(self, path: str | PathLike[str]) -> None:
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
        text = json.dumps({"traceEvents": threads + self.events})
        Path(path).write_text(text, encoding="utf-8")


def _bytes_of(metadata: Any) -> int:
    """What arrays with these facts hold; a node with several outputs has a tuple of them."""
    if metadata.__class__ is tuple:
        return sum(_bytes_of(one) for one in metadata)
    return int(metadata.size * metadata.dtype.itemsize)


@contextmanager
def trace_passes(path: str | PathLike[str]) -> Iterator[Recorder]:
    """Trace the passes started in this context and write them to a file at its end.

    On a running loop, leave the context where a short stop does no harm: writing the file is one.

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
