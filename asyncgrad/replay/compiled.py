"""A compiled function: whether a call of it is replayed, recorded, or made as it is.

This file is long because nearly all of it is the one class that decides this.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import warnings
from asyncio.events import _get_running_loop
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from asyncgrad.core.modes import DEFAULT, current
from asyncgrad.errors import AutogradError
from asyncgrad.ops.promotion import default_dtype
from asyncgrad.replay.arrays import ONE_ARRAY
from asyncgrad.replay.awaited import OtherPathError, replay, replay_blocking
from asyncgrad.replay.division import Cuts, CutsOfPart, Division, code_of
from asyncgrad.replay.entry import PLAIN, Entry, Recording, is_quiet, mode_of
from asyncgrad.replay.graph_node import give_node
from asyncgrad.replay.order import LASTING
from asyncgrad.replay.passes import GRAPH_OF_ARGUMENT, awaited_here
from asyncgrad.replay.reach import Reached, start_of
from asyncgrad.replay.recorder import Recorder
from asyncgrad.replay.signature import Signature
from asyncgrad.replay.steps import CHANGED, Recorded, UnrepeatableError, UnwritableError
from asyncgrad.replay.unchanged import same_objects
from asyncgrad.scheduler import engine_of, run_multi_pass, turn_of_caller, waits
from asyncgrad.scheduler.reentrant import is_in_node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Concatenate, Self

_I = TypeVar("_I")
_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
#: How many recorded calls a compiled function keeps.
LIMIT = 16
#: How many programs are kept for one signature, which differ in the values that Python sees.
_VARIANTS = 4
#: A function that was recorded so many times, and replayed less often, is not recorded any more.
_CHURN = 32
#: After this many recordings with fewer replays, a part is recorded no more.
_PART_CHURN = 12
#: Parts with fewer instructions take less time if they are called.
_SHORT = 8
_DIFFERS = "almost every call differs from all before"
_STALE = (
    "code that was called anew, such as a hook, has changed something that the function can read"
)


class Compiled(Generic[_P, _R]):
    """A function whose calls are recorded once and then replayed; made by `compile`."""

    def __init__(self, function: Callable[_P, _R], *, fullgraph: bool) -> None:
        """Keep the function; nothing is recorded yet."""
        functools.update_wrapper(self, function, updated=())
        self.__compiled__ = function
        self._name = getattr(function, "__qualname__", type(function).__name__)
        self._function: Any = function
        self._fullgraph = fullgraph
        #: Calls are awaited.
        self._waits = waits(function)
        #: What `ag.func` has made: its calls are several passes, awaited on an event loop.
        self._multi_pass = getattr(function, "_multi_pass", False)
        if hasattr(function, "_program"):
            # Other transforms call this.
            self._program = function._program
        elif self._waits:
            # Frameworks ask whether what they call has to be awaited.
            if hasattr(inspect, "markcoroutinefunction"):
                inspect.markcoroutinefunction(self)
            else:
                # Before Python 3.12 only `asyncio.iscoroutinefunction` can be told.
                self._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
        self._entries: tuple[Entry, ...] = ()
        self._recordings = self._replays = self._dropped = 0
        #: By reason, how many calls were eager.
        self._eager: dict[str, int] = {}
        #: Why it is recorded no more, if so.
        self._gave_up: str | None = None
        #: An awaited call is being recorded.
        self._recording = False
        self._cuts = Cuts(function, Part, LIMIT, divides=not (fullgraph or self._multi_pass))

    # -- calls ------------------------------------------------------------------------------------

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Replay the call if it was recorded; otherwise call the function, and record it."""
        division = self._cuts.division
        if division is not None:
            if division.flow.holds():
                return self._in_parts(division, args, kwargs)
            self._cuts.forget()
        if self._multi_pass:
            if self._waits or (awaited_here() and not is_in_node()):
                return run_multi_pass(self._awaited(args, kwargs), "compile", waits=self._waits)
        elif self._waits:
            return self._awaited(args, kwargs)  # type: ignore[return-value]
        tried: list[Entry] = []
        while True:
            entry, found = self._find(args, kwargs, tried)
            if entry is None:
                break
            state = [0]
            try:
                result = replay_blocking(entry.program, found, state)
            except UnrepeatableError as error:
                why = self._failed(entry, error, tried)
            else:
                why = self._stale(entry, state)
                if why is None:
                    return self._replayed(entry, result, found)
            if why is not None:
                return self._eagerly(why, args, kwargs)
        if found.__class__ is partial:
            return found(args, kwargs)
        with found:
            result = self._function(*args, **kwargs)
        self._keep(found, result)
        return result

    async def _awaited(self, args: Any, kwargs: Any) -> Any:
        """Replay, or record, a coroutine function's call."""
        loop, modes = _get_running_loop(), current()
        if loop is not None and self._entries and not (modes.blocking or is_in_node()):
            turn = turn_of_caller(engine_of(loop))
            if turn is not None:
                # A thousand calls may start in one turn of the loop. While this waits anything may
                # change, because what the function reads is compared afterwards. If this wait is
                # cancelled, nothing has to be cleaned up.
                await turn
        tried: list[Entry] = []
        while True:
            entry, found = self._find(args, kwargs, tried, awaited=True)
            if entry is None:
                break
            state = [0]
            watched = entry.reached if entry.callers and entry.calls_users_code else None
            try:
                # Other tasks may run meanwhile. A cancellation here ends the pass that runs.
                result = await replay(entry.program, found, state, watched)
            except UnrepeatableError as error:
                why = self._failed(entry, error, tried)
            else:
                why = self._stale(entry, state)
                if why is None:
                    return self._replayed(entry, result, found)
            if why is not None:
                return await self._eagerly(why, args, kwargs)
        if found.__class__ is partial:
            return await found(args, kwargs)
        self._recording = True
        try:
            with found:
                result = await self._function(*args, **kwargs)
        finally:
            self._recording = False
        self._keep(found, result)
        return result

    def _in_parts(self, division: Division, args: Any, kwargs: Any) -> Any:
        """Call the function in parts, or return what is to be awaited."""
        owner = getattr(self._function, "__self__", None)
        if owner is not None:
            args = owner, *args
        return division.call_awaited(args, kwargs) if self._waits else division.call(args, kwargs)

    def _begin(self, mode: Any, tried: list[Entry], args: Any, kwargs: Any) -> Any:
        """The recording of a call, or how the call is made instead."""
        why = self._missed(tried)
        if why is not None:
            return partial(self._eagerly, why)
        if mode is None:
            return partial(self._fallback, "a mode is on that only eager calls know")
        if self._recording:
            # Many calls may start before the first has ended.
            return partial(self._eagerly, "another call was being recorded")
        try:
            return self._prepare(mode, args, kwargs)
        except UnrepeatableError as error:
            return partial(self._fallback, str(error))

    def _find(
        self, args: Any, kwargs: Any, tried: list[Entry], *, awaited: bool = False
    ) -> tuple[Any, Any]:
        """The recorded call to be replayed, and its tensors; or None, and what `_begin` returns.

        Recorded calls in `tried` are left out.
        """
        modes = current()
        mode = PLAIN if modes is DEFAULT else mode_of(modes)
        if mode is not None:
            dtype = default_dtype()
            for entry in self._entries:
                tensors = entry.signature.match(args, kwargs)
                if (
                    tensors is not None
                    and entry.mode == mode
                    and entry.dtype is dtype
                    and entry not in tried
                    and entry.reached.holds()
                    and (entry.stream is None or entry.stream.device.default_stream is entry.stream)
                ):
                    why = self._obstacle(entry, awaited)
                    return (entry, tensors) if why is None else (None, partial(self._fallback, why))
        return None, self._begin(mode, tried, args, kwargs)

    def _obstacle(self, entry: Entry, awaited: bool) -> str | None:
        """Why a recorded call can't be replayed here, or None."""
        program, graph = entry.program, entry.graph
        if program is None:
            return str(entry.reason)
        if graph is not None and graph.reason is not None:
            return f"passes through the graph of its results: {graph.reason}"
        if program.passes and not awaited and awaited_here():
            return "a pass on an event loop is awaited"
        return None if is_quiet() else "NumPy's errors are raised"

    def _failed(self, entry: Entry, error: UnrepeatableError, tried: list[Entry]) -> str | None:
        """Why the function is called after a replay has failed; None if others may be tried."""
        if entry.looks and isinstance(error, OtherPathError):
            tried.append(entry)
            return None
        if isinstance(error, UnwritableError):
            entry.program, entry.reason = None, str(error)
        return str(error)

    def _stale(self, entry: Entry, state: list[int]) -> str | None:
        """Why the call is made again if user code has changed what the replay may have used."""
        if not entry.callers or state[1:] == [False] or not entry.calls_users_code:
            return None
        if entry.reached.holds() and entry.dtype is default_dtype():
            return None
        if state[0] == LASTING:
            raise AutogradError(f"compile: {_STALE}. Leave that code out of the compiled function.")
        return _STALE

    def _replayed(self, entry: Entry, result: Any, tensors: Any) -> Any:
        """Count a replay, and give its results their graph."""
        entry.replays += 1
        entry.used = self._replays = self._replays + 1
        return result if entry.graph is None else give_node(entry.graph, result, tensors)

    def _fallback(self, why: str, args: Any, kwargs: Any) -> Any:
        if self._fullgraph:
            modes = current()
            if modes.recorder is None and modes.batch is None:
                raise AutogradError(f"compile(fullgraph=True): {why}")
        return self._eagerly(why, args, kwargs)

    def _eagerly(self, why: str, args: Any, kwargs: Any) -> Any:
        """Call the function, and count the reason."""
        self._eager[why] = self._eager.get(why, 0) + 1
        return self._function(*args, **kwargs)

    # -- recorded calls ---------------------------------------------------------------------------

    def _prepare(self, mode: Any, args: Any, kwargs: Any) -> Any:
        """The recording of a call, or how the call is made in parts."""
        if self._gave_up is not None:
            raise UnrepeatableError(self._gave_up)
        self._recordings += 1
        if self._recordings >= _CHURN and self._replays < self._recordings:
            why = max(self._eager, key=lambda reason: self._eager[reason], default="")
            if self._eager.get(why, 0) <= self._recordings // 2:
                why = _DIFFERS
            self._gave_up = f"recorded no more: {why}"
            warnings.warn(
                f"compile: {self._recordings} calls of {self._name} were recorded and "
                f"{self._replays} replayed, because {why}. It is recorded no more. See explain().",
                RuntimeWarning,
                stacklevel=5,
            )
        if self._cuts.code is not code_of(self._function):
            self._cuts.forget()
        signature = Signature(args, kwargs)
        try:
            reached = self._reached(signature, args)
            signature.tell_apart(reached)
        except UnrepeatableError as error:
            if self._fullgraph:
                located = self._located(str(error), self._cuts.lines())
                raise UnrepeatableError(located) from None
            if self._cuts.divide_beside(error, args, kwargs):
                division = self._cuts.division
                if division is not None:
                    return partial(self._in_parts, division)
            raise
        if self._replays < self._recordings and self._cuts.divides:
            self._cuts.note_values(args, kwargs, reached)
        call = Recorded(
            signature.tensors,
            signature.containers,
            reached,
            self._cuts.code,
            strict=self._fullgraph,
            waits=self._waits or self._multi_pass,
        )
        return Recording(Entry(signature, reached, mode, default_dtype()), Recorder(call))

    def _reached(self, signature: Signature, args: Any) -> Reached:
        """What the function can read: as known of a recorded call, if all of that is as it was."""
        given = tuple(signature.others), signature.records, args
        for reached in {entry.reached for entry in self._entries}:
            if same_objects(reached.start, start_of(*given)) and reached.holds():
                return reached
        return Reached(self._function, *given)

    def _keep(self, found: Recording, result: Any) -> Entry | None:
        """Keep what was recorded, or why it can't be repeated; None if nothing is to be kept."""
        entry, recorder = found.entry, found.recorder
        signature, reached = entry.signature, entry.reached
        unchanged = reached.holds()
        try:
            if recorder.reason is None:
                entry.make_program(recorder, result, unchanged=unchanged)
        except UnrepeatableError as error:
            recorder.reason = str(error)
            if self._fullgraph:
                lines = ""
                if recorder.reason == CHANGED:
                    lines = self._cuts.changes(reached.changed(), reached.functions)
                located = self._located(recorder.reason, lines)
                raise AutogradError(f"compile(fullgraph=True): {located}") from None
        finally:
            entry.reason = recorder.reason
            if ONE_ARRAY in str(recorder.reason) or (
                entry.program is not None and entry.program.depends_on_sharing
            ):
                signature.tell_shared(reached)
            recorder.forget()
            signature.forget()
        why = str(entry.reason)
        if entry.program is None and (recorder.looked_at or why.startswith(CHANGED)):
            self._cuts.divide(why, recorder.looked_at, reached if why.startswith(CHANGED) else None)
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
            self._cuts.divide(why, last.looked_at)
            self._entries = tuple([x for x in self._entries if x is last or x not in tried])
        return why

    def _located(self, why: str, lines: str) -> str:
        """A reason with the lines, in words, or else with the function's own, if it names none."""
        code = self._cuts.code
        if code is None or f"({code.co_filename}:" in why:
            return why
        return why + (lines or f" ({code.co_filename}:{code.co_firstlineno})")

    # -- words ------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Which programs there are, how long they are, and why calls were not replayed."""
        lines = [f"{self._name}: {self._recordings} recorded, {self._replays} replayed"]
        lines += [f"  {line}" for entry in self._entries for line in entry.words()]
        if self._dropped:
            lines.append(f"  {self._dropped} signatures were dropped for later ones")
        lines += [f"  eager: {why} ({count} calls)" for why, count in self._eager.items()]
        lines += [f"  not one program: {why}" for why in self._cuts.reasons]
        division = self._cuts.division
        if division is not None:
            lines.append(f"  programs before, between and behind {division.lines()}:")
            for part in division.compiled_parts():
                lines += [f"    {line}" for line in part.explain().splitlines()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The function's name."""
        return f"<compiled {self._name}>"

    def __reduce__(self) -> Any:
        """A function of a module is pickled and copied by name; nothing recorded goes along."""
        name = vars(self).get("__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name
        return functools.partial(Compiled, fullgraph=self._fullgraph), (self._function,)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(
        self: Compiled[Concatenate[_I, _Q], _R], instance: _I, owner: Any = None
    ) -> Callable[_Q, _R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind as a method: the instance becomes the first argument."""
        return self if instance is None else MethodType(self, instance)


class Part(Compiled[Any, Any]):
    """A part of a compiled function, between looks."""

    _cuts: CutsOfPart

    def __init__(self, whole: Cuts, function: Any, takes: Sequence[str], start: int) -> None:
        """Keep the part, the cuts of the whole, the variables it takes, and its first point."""
        super().__init__(function, fullgraph=False)
        self._cuts = CutsOfPart(whole, function, takes, start)

    def _prepare(self, mode: Any, args: Any, kwargs: Any) -> Any:
        """Prepare a recording; what is another at each call is no part of programs any more."""
        if self._recordings >= _PART_CHURN and self._replays < self._recordings:
            self._cuts.without(_DIFFERS)
        return super()._prepare(mode, args, kwargs)

    def _keep(self, found: Recording, result: Any) -> Entry | None:
        """Keep what was recorded, if replaying it brings more than it costs."""
        entry = super()._keep(found, result)
        if entry is None:
            return None
        if entry.program is not None and entry.program.length < _SHORT:
            self._cuts.without("a part is too short to be replayed")
        elif entry.program is None and GRAPH_OF_ARGUMENT in str(entry.reason):
            # One node for a part before it, and a pass through that, take as long as many nodes.
            parts = self._cuts.parts
            graphs = [part for part in parts if any(x.graph is not None for x in part._entries)]
            self._cuts.without(
                "a look is between an operation and a pass through it", *[x._cuts for x in graphs]
            )
        return entry
