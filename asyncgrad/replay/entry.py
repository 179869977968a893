"""What is kept of one recorded call, the block in which it is recorded, and the modes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asyncgrad.core.modes import DEFAULT, Modes, current, install
from asyncgrad.core.recording import recorders
from asyncgrad.core.variable import requires_grad
from asyncgrad.devices.fp_errors import fp_error_state
from asyncgrad.ops.promotion import default_dtype
from asyncgrad.replay.changes import CALLERS, calls_users_code
from asyncgrad.replay.graph import Graph
from asyncgrad.replay.program import Program
from asyncgrad.replay.reach import Reached
from asyncgrad.replay.recorder import Recorder
from asyncgrad.replay.returned import Returned
from asyncgrad.replay.signature import Signature
from asyncgrad.replay.steps import (
    CHANGED,
    Again,
    Commit,
    Gradient,
    Made,
    Place,
    Same,
    Source,
    UnrepeatableError,
)

#: Modes in which programs work: those that tell them apart, and others that they do not depend on,
#: because these concern passes as a whole, or change nothing. Streams: a program puts its work into
#: those that are current at its replay.
_FREE = frozenset({
    "blocking", "checkpoints", "deadline", "grad", "inference", "multithreading", "nesting_limit",
    "plain", "priority", "starts", "streams", "variants",
})  # fmt: skip
_NEUTRAL = [(x, getattr(DEFAULT, x)) for x in Modes.__dataclass_fields__ if x not in _FREE]
#: Gradients are recorded, outside of inference mode.
PLAIN = (True, False)
_quiet_states: list[Any] = [None]


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """One recorded call."""

    signature: Signature
    reached: Reached
    #: Grad and inference mode, and the default dtype.
    mode: Any
    dtype: Any
    #: The program, or why there is none.
    program: Program | None = None
    reason: str | None = None
    #: What may call user code, which may change what the function reads after that: optimisers and
    #: schedules, which may get hooks later; True stands for hooks and `Function`s.
    callers: list[Any] = field(default_factory=list)
    replays: int = 0
    #: How often the function had been replayed when this was recorded or last replayed.
    used: int = 0
    #: The lines at which Python has looked at values, the places of these looks in the byte code,
    #: and how often it has seen other values than in all recorded calls.
    looks: list[str] = field(default_factory=list)
    looked_at: list[int] = field(default_factory=list)
    failures: int = 0
    #: The default stream of the program's device. If a new simulation has replaced it, the program
    #: can't be used.
    stream: Any = None
    #: The graph of the results, if one of them requires grad.
    graph: Graph | None = None

    def make_program(self, recorder: Recorder, result: Any, *, unchanged: bool) -> None:
        """Make the program of a call that was recorded, and has returned a result."""
        found = Returned(recorder)
        try:
            outputs = returned = found.template(result)
        except RecursionError:
            raise UnrepeatableError("what it returns is nested too deeply") from None
        if len(found.values) < len(recorder.values):
            raise UnrepeatableError("Python sees a number that is not returned")
        if recorder.running():
            raise UnrepeatableError("it does not await its passes")
        flagged = any(requires_grad(grad) for grad, _ in recorder.gradients.values())
        same_dtype = default_dtype() is self.dtype
        if flagged or not (unchanged and same_dtype and self.signature.holds()):
            raise UnrepeatableError(CHANGED)
        if found.with_graph:
            self.graph = Graph(recorder, found, outputs)
            outputs = self.graph.template
        self.program = Program(recorder, outputs, returned)
        if self.program.anew:
            self._find_callers(recorder.steps, returned)
        self.looks = recorder.looks
        self.looked_at = recorder.looked_at
        if self.program.device is not None:
            self.stream = self.program.device.default_stream

    def words(self) -> list[str]:
        """The lines that `explain()` has on the call."""
        program = self.program
        mode = "" if self.mode == PLAIN else f", grad={self.mode[0]}"
        head = f"{self.signature.words()}{mode}: "
        if program is None:
            return [f"{head}not replayed: {self.reason}"]
        place = "" if program.device is None else f" on {program.device}"
        lines = [f"{head}{program.length} instructions{place}, replayed {self.replays} times"]
        if self.looks:
            lines.append(f"  if Python sees the same values: {', '.join(self.looks)}")
        if self.graph is not None:
            count = len(self.graph.backwards)
            lines.append(f"  with a graph, through which {count} kinds of passes are known")
        return lines + [f"  {words}" for words in program.words()]

    def _find_callers(self, steps: list[Any], returned: Any) -> None:
        """Find `callers`: those before the last step that reads, or all if values are returned."""
        found: list[Any] = []
        for step in steps:
            callers: list[Any] = []
            if step.__class__ is Again and step.effect:
                given = *step.arguments, *step.keywords.values()
                held = [x.value for x in given if x.__class__ is Same]
                callers = [True] if step.user_call else [x for x in held if isinstance(x, CALLERS)]
            if callers:
                found += [x for x in callers if x not in found]
            elif step.__class__ is not Commit:
                self.callers = [*found]
        if _holds_values(returned):
            self.callers = found

    @property
    def calls_users_code(self) -> bool:
        """Whether a replay calls user code before the function reads more."""
        return any(caller is True or calls_users_code(caller) for caller in self.callers)


def _holds_values(template: Any) -> bool:
    """Whether a function returns more than tensors, and containers of them."""
    kind = template.__class__
    if kind is list:
        return any(map(_holds_values, template[1]))
    if kind is dict:
        ((_, pairs),) = template.items()
        return any(_holds_values(part) for _, part in pairs)
    return kind not in {Made, Source, Gradient, Place, type(None)}


class Recording:
    """A block in which a recorder is told of all operations of this context, for an entry."""

    def __init__(self, entry: Entry, recorder: Recorder) -> None:
        self.entry = entry
        self.recorder = recorder

    def __enter__(self) -> None:
        """Install the recorder."""
        self._found = current()
        recorder = self.recorder
        self._own = self._found.replace(recorder=recorder, before_change=recorder.changing)
        install(self._own)
        recorders.append(recorder)

    def __exit__(self, *error: object) -> None:
        """Remove the recorder; a mode that the block has left in force stays."""
        recorders.remove(self.recorder)
        self.recorder.leave_passes()
        if error[0] is not None:
            self.recorder.forget()
        left, found = current(), self._found
        if left is self._own:
            install(found)
            return
        install(left.replace(recorder=None, before_change=found.before_change))
        if error[0] is None:
            self.recorder.refuse("it leaves another mode than it found")


def mode_of(modes: Modes) -> tuple[bool, bool] | None:
    """The modes that tell programs apart; None if a mode is on in which only eager calls work."""
    for name, value in _NEUTRAL:
        if getattr(modes, name) is not value:
            return None
    return modes.grad, modes.inference


def is_quiet() -> bool:
    """Whether NumPy's floating-point errors are no more than warnings here."""
    state = fp_error_state(None)
    if state is _quiet_states[0] or state is None:
        return True
    if "raise" in (found := np.geterr().values()) or "call" in found:
        return False
    _quiet_states[0] = state
    return True
