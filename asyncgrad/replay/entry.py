"""What is kept of one recorded call, and the block in which it is recorded."""

from __future__ import annotations

from typing import Any

from asyncgrad.core.modes import current, install
from asyncgrad.core.recording import recorders
from asyncgrad.replay.graph import Graph
from asyncgrad.replay.program import Program
from asyncgrad.replay.reach import Reached
from asyncgrad.replay.recorder import Recorder
from asyncgrad.replay.signature import Signature


class Entry:
    """One recorded call."""

    __slots__ = (
        "dtype", "failures", "graph", "looked_at", "looks", "mode", "program", "reached",
        "reason", "replays", "signature", "stream", "used",
    )  # fmt: skip

    def __init__(self, signature: Signature, reached: Reached, mode: Any, dtype: Any) -> None:
        self.signature = signature
        self.reached = reached
        #: Grad and inference mode, and the default dtype.
        self.mode = mode
        self.dtype = dtype
        #: The program, or why there is none.
        self.program: Program | None = None
        self.reason: str | None = None
        self.replays = 0
        #: How often the function had been replayed when this was recorded or last replayed.
        self.used = 0
        #: The lines at which Python has looked at values, and how often it has seen other values
        #: than in all recorded calls.
        self.looks: list[str] = []
        #: The places of these looks in the byte code.
        self.looked_at: list[int] = []
        self.failures = 0
        #: The default stream of the program's device. If a new simulation has replaced it, the
        #: program can't be used.
        self.stream: Any = None
        #: The graph of the results, if one of them requires grad.
        self.graph: Graph | None = None


class Recording:
    """A block in which a recorder is told of all operations of this context."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        """Install the recorder."""
        self._found = current()
        recorder = self._recorder
        self._own = self._found.replace(recorder=recorder, before_change=recorder.changing)
        install(self._own)
        recorders.append(recorder)

    def __exit__(self, *error: object) -> None:
        """Remove the recorder; a mode that the block has left in force stays."""
        recorders.remove(self._recorder)
        self._recorder.leave_passes()
        if error[0] is not None:
            self._recorder.forget()
        left, found = current(), self._found
        if left is self._own:
            install(found)
            return
        install(left.replace(recorder=None, before_change=found.before_change))
        if error[0] is None:
            self._recorder.refuse("it leaves another mode than it found")
