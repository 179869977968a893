"""Traces of passes that can be opened in Perfetto or chrome://tracing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from os import PathLike
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary

from asyncgrad.core.modes import Mode
from asyncgrad.core.node import name_of
from asyncgrad.devices.pool import POOL


class Recorder:
    """Records the nodes and waits of the passes that it observes.

    For each node: its name, thread, start, duration and the bytes of the incoming gradient. A node
    that awaits a coroutine gets its own row. For each wait of a pass for its turn: start and end.
    And the bytes of memory kept for the next large arrays.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        #: The time of the events' zero, by `perf_counter_ns`.
        self.origin = perf_counter_ns()
        #: A number for each pass; an id would be reused when a pass is freed.
        self._passes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._numbers = count(1)

    def __repr__(self) -> str:
        nodes = [one for one in self.events if one.get("cat") == "node" and one["ph"] != "e"]
        passes = len({one["args"]["pass"] for one in nodes})
        return f"<Recorder: {len(nodes)} nodes of {passes} passes>"

    def _number(self, task: Any) -> int:
        number = self._passes.get(task)
        if number is None:
            # Two threads may get here at once; `setdefault` keeps the first number.
            number = self._passes.setdefault(task, next(self._numbers))
        return number

    def enter(self, task: Any, node: Any) -> int:
        """Called when a node starts; returns the time."""
        return perf_counter_ns()

    def leave(self, task: Any, node: Any, start: int) -> None:
        """Called when a node has ended; records it."""
        now = perf_counter_ns()
        number = self._number(task)
        about: dict[str, Any] = {
            "name": name_of(node),
            "cat": "node",
            "ts": (start - self.origin) / 1e3,
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
            # While this node waited others ran: in one thread's row they would overlap.
            about["id"] = f"{number}, {node.sequence_nr}"
            self.events.append(about | {"ph": "b"})
            self.events.append(about | {"ph": "e", "ts": (now - self.origin) / 1e3})
        else:
            self.events.append(about | {"ph": "X", "dur": (now - start) / 1e3})
        self.events.append(
            {
                "name": "memory kept",
                "ph": "C",
                "ts": (now - self.origin) / 1e3,
                "pid": 1,
                "args": {"bytes": POOL.unused},
            }
        )

    def waited(self, task: Any, nanoseconds: int) -> None:
        """Called when a pass gets its turn; records how long it waited."""
        now = (perf_counter_ns() - self.origin) / 1e3
        # Each pass has its own track, because its waits belong to no thread.
        about = {"name": "waits for its turn", "cat": "wait", "pid": 1, "id": self._number(task)}
        self.events.append(about | {"ph": "b", "ts": now - nanoseconds / 1e3})
        self.events.append(about | {"ph": "e", "ts": now})

    def named(self) -> list[dict[str, Any]]:
        """The events, after the names of the threads."""
        about = {"name": "thread_name", "ph": "M", "pid": 1, "ts": 0.0}
        threads = [
            about | {"tid": one.native_id, "args": {"name": one.name}}
            for one in threading.enumerate()
        ]
        return threads + self.events

    def save(self, path: str | PathLike[str]) -> None:
        """Write the events to a file in the Trace Event format."""
        write(path, self.named())


def write(path: str | PathLike[str], events: list[dict[str, Any]]) -> None:
    """Write events to a file."""
    import json  # Few programs write a file, which takes longer than this import.

    text = json.dumps({"traceEvents": events})
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _bytes_of(metadata: Any) -> int:
    """The bytes of an array with the given metadata; a tuple belongs to several outputs."""
    if metadata.__class__ is tuple:
        return sum(_bytes_of(one) for one in metadata)
    return int(metadata.size * metadata.dtype.itemsize)


@contextmanager
def trace_passes(path: str | PathLike[str]) -> Iterator[Recorder]:
    """Trace the passes started in this context and write them to a file at its end.

    Writing the file blocks the thread: on a running loop, leave the context where that is harmless.

    Args:
        path: the file to write; open it in https://ui.perfetto.dev.

    Yields:
        The recorder, with its `events`.
    """
    recorder = Recorder()
    try:
        with Mode(observer=recorder):
            yield recorder
    finally:
        recorder.save(path)
