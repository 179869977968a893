"""The recorded calls that a compiled function keeps, and what a recording needs."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from asyncgrad.errors import AutogradError
from asyncgrad.ops.promotion import default_dtype
from asyncgrad.replay.arrays import ONE_ARRAY
from asyncgrad.replay.divided import Divided
from asyncgrad.replay.entry import Entry
from asyncgrad.replay.reach import Reached, start_of
from asyncgrad.replay.recorder import Recorder
from asyncgrad.replay.signature import Signature, same_objects
from asyncgrad.replay.steps import CHANGED, Recorded, UnrepeatableError

#: How many recorded calls a compiled function keeps.
LIMIT = 16
#: How many programs are kept for one signature, which differ in the values that Python sees.
_VARIANTS = 4
#: A function that was recorded so many times, and replayed less often, is not recorded any more.
_CHURN = 32


class KeptCalls(Divided):
    """The part of a compiled function that keeps recorded calls. Abstract, as `Divided` is."""

    def __init__(self, function: Any, name: str, *, fullgraph: bool) -> None:
        """Keep the function and its name; nothing is recorded yet."""
        super().__init__(function, fullgraph=fullgraph)
        self._name = name
        self._entries: tuple[Entry, ...] = ()
        self._recordings = self._replays = self._dropped = 0
        #: By reason, how many calls were eager.
        self._eager: dict[str, int] = {}
        #: Why it is recorded no more, if so.
        self._gave_up: str | None = None

    def _prepare(self, args: Any, kwargs: Any) -> Any:
        """What a recording needs, or how the call is made in parts.

        Raises:
            UnrepeatableError: if there can be none.
        """
        if self._gave_up is not None:
            raise UnrepeatableError(self._gave_up)
        self._recordings += 1
        if self._recordings >= _CHURN and self._replays < self._recordings:
            why = max(self._eager, key=lambda reason: self._eager[reason], default="")
            if self._eager.get(why, 0) <= self._recordings // 2:
                why = "almost every call differs from all before"
            self._gave_up = f"recorded no more: {why}"
            warnings.warn(
                f"compile: {self._recordings} calls of {self._name} were recorded and "
                f"{self._replays} replayed, because {why}. It is recorded no more. See explain().",
                RuntimeWarning,
                stacklevel=4,
            )
        signature = Signature(args, kwargs)
        try:
            reached = self._reached(signature, args)
            signature.tell_apart(reached)
        except UnrepeatableError as error:
            if self._fullgraph:
                located = self._located(str(error), self._divider_of().lines())
                raise UnrepeatableError(located) from None
            if self._divide_beside(error, args, kwargs) and self._division is not None:
                return partial(self._in_parts, self._division)
            raise
        if self._replays < self._recordings and self._divides:
            self._note_values(args, kwargs, reached)
        call = Recorded(
            signature.tensors,
            reached.tensors,
            strict=self._fullgraph,
            waits=self._waits or self._passing,
            code=self._code,
            is_there=reached.has_met,
            holds=reached.holds,
            values_hold=reached.values_hold,
            containers=signature.containers,
        )
        return signature, reached, Recorder(call)

    def _reached(self, signature: Signature, args: Any) -> Reached:
        """What the function can read: as known of a recorded call, if all of that is as it was."""
        given = tuple(signature.others), signature.records, args
        start = start_of(*given)
        for reached in {entry.reached for entry in self._entries}:
            if same_objects(reached.start, start) and reached.holds():
                return reached
        return Reached(self._function, *given)

    def _keep(
        self, signature: Signature, reached: Reached, mode: Any, recorder: Recorder, result: Any
    ) -> Entry | None:
        """Keep what was recorded, or why it can't be repeated; None if nothing is to be kept."""
        entry = Entry(signature, reached, mode, default_dtype())
        unchanged = reached.holds()
        try:
            if recorder.reason is None:
                entry.make_program(recorder, result, unchanged=unchanged)
        except UnrepeatableError as error:
            recorder.reason = str(error)
            if self._fullgraph:
                lines = ""
                if recorder.reason == CHANGED:
                    lines = self._divider_of().changes(reached.changed(), reached.functions)
                located = self._located(recorder.reason, lines)
                raise AutogradError(f"compile(fullgraph=True): {located}") from None
        finally:
            entry.reason = recorder.reason
            if ONE_ARRAY in str(recorder.reason) or (
                entry.program is not None and entry.program.looks_at_memory
            ):
                signature.tell_shared(reached)
            recorder.forget()
            signature.forget()
        why = str(entry.reason)
        if entry.program is None and (recorder.looked_at or why.startswith(CHANGED)):
            self._divide(why, recorder.looked_at, reached if why.startswith(CHANGED) else None)
        if not unchanged:
            # The call has changed what the function reads, so no later call could match this one.
            self._eager[why] = self._eager.get(why, 0) + 1
            return None
        entry.used = self._replays
        others = self._entries
        if len(others) >= LIMIT:
            self._dropped += 1
            # Of those that were not used in the meantime: the oldest, or what can't be replayed.
            least = min(reversed(others), key=lambda one: one.used)
            others = tuple([one for one in others if one is not least])
        # If it can't be repeated because of what Python sees, calls like it may still be replayed.
        self._entries = (*others, entry) if entry.program is None else (entry, *others)
        return entry

    def _missed(self, tried: list[Entry]) -> str | None:
        """Why a call in which Python sees new values is eager; None if it is to be recorded."""
        if len(tried) < _VARIANTS:
            return None
        last = tried[0]
        last.failures += 1
        why = f"Python sees other values than before ({last.looks[0]})"
        if last.failures > sum(entry.replays for entry in tried) + _VARIANTS:
            last.program, last.reason = None, why
            self._divide(why, last.looked_at)
            self._entries = tuple([x for x in self._entries if x is last or x not in tried])
        return why

    def _located(self, why: str, lines: str) -> str:
        """A reason with the lines, in words, or else with the function's own, if it names none."""
        code = self._code
        if code is None or f"({code.co_filename}:" in why:
            return why
        return why + (lines or f" ({code.co_filename}:{code.co_firstlineno})")
