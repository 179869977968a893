"""How a checkpoint saves tensors: it keeps holders, and recomputes the tensors when needed."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from asyncgrad.core.anomaly import users_stack
from asyncgrad.core.hook_calls import finished
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.recording import made_anew, modes_of, recorders
from asyncgrad.core.saved import SavedTensor
from asyncgrad.core.states import HEAVY_NS
from asyncgrad.core.variable import Variable
from asyncgrad.ops.arguments import is_expandable
from asyncgrad.ops.tensors.rng import Generator
from asyncgrad.scheduler import awaits, offload
from asyncgrad.types import Tensor


class CheckpointError(RuntimeError):
    """The second run of a checkpointed function differed from the first."""


class _Enough(BaseException):
    """Ends a second run that has computed everything needed; user code must not catch it.

    A group of tasks, which users' code may have, raises it in a group: `except*` catches both.
    """


class Holder:
    """Stands for a tensor that a checkpointed function saved."""

    __slots__ = ("__weakref__",)


@dataclass(eq=False)
class Frame:
    """One call of `checkpoint`: the saved-tensor hooks of its first run."""

    function: Callable[..., Any]
    #: The arguments, until the first run has ended.
    given: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: The context of the second run.
    again: AbstractContextManager[Any]
    #: The random generator's state for the second run, or None for any.
    source: Generator | None
    #: Stop the second run once everything needed is there.
    early_stop: bool
    #: Require the second run to save similar tensors to the first.
    compare: bool
    #: Where each tensor is saved, for errors; or None.
    places: list[str] | None
    #: The function is a coroutine function.
    later: bool

    def __post_init__(self) -> None:
        #: Tensors are packed by the hooks in force outside, such as an outer checkpoint's. An
        #: example of a batch has no memory of its own to pack.
        hooks = current().saved_hooks
        self._args: list[Any] = [
            SavedTensor(a, hooks) if isinstance(a, Variable) and not a._batched else a
            for a in self.given
        ]
        self.holders: list[weakref.ref[Holder]] = []
        #: The metadata of each tensor.
        self.facts: list[Any] = []
        self.completed = False
        self._cost = 0
        self._recorder = current().recorder
        self._batch, self._dual_level = current().batch, current().dual_level
        #: Second runs whose tensors are not all used yet, by pass; an entry goes with its pass.
        self._runs: weakref.WeakKeyDictionary[Any, Run] = weakref.WeakKeyDictionary()

    # -- the hooks --------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether what `unpack` returns may have to be awaited."""
        return self.later or self._cost > HEAVY_NS or any(_waits(a) for a in self._args)

    def pack(self, tensor: Tensor) -> Holder:
        """Make a holder for a tensor."""
        holder = Holder()
        self.holders.append(weakref.ref(holder))
        self.facts.append(tensor._metadata)
        self._cost += tensor._metadata.cost
        if self.places is not None:
            self.places.append(_here())
        return holder

    def unpack(self, holder: Holder) -> Any:
        """The tensor; the first call in a pass runs the function again."""
        modes = current()
        task = modes.graph_task
        #: Whom the second run serves: one pass, or a group of passes.
        whose = (modes.checkpoints or {}).get("group", task)
        run = None if whose is None else self._runs.get(whose)
        if run is None:
            run = Run(self)
            if whose is not None:
                self._runs[whose] = run
        if not run.ended:
            if self.later or any(_waits(a) for a in self._args):
                return self._unpack_later(run, holder, self._repeat_later)
            if self._cost > HEAVY_NS and awaits(task) and self._recorder not in recorders:
                return self._unpack_later(run, holder, lambda run: offload(self._repeat, run))
            self._repeat(run)
        return run.take(holder)

    async def _unpack_later(
        self, run: Run, holder: Holder, repeat: Callable[[Run], Coroutine[Any, Any, None]]
    ) -> Any:
        async with run.lock:
            # Another node of the pass may have finished the second run while this one waited.
            if not run.ended:
                await repeat(run)
        return run.take(holder)

    # -- the second run ---------------------------------------------------------------------------

    def complete(self) -> None:
        """Note that the first run has ended."""
        self.completed = True
        self.given = ()

    def differ(self, before: Metadata, after: Metadata) -> bool:
        """Whether tensors differ; without `compare`, whether their shapes do not broadcast."""
        if self.compare:
            return before is not after
        return not is_expandable(after.shape, before.shape)

    def name(self) -> str:
        """Used by errors that name a node."""
        return "checkpoint"

    def _mode(self, run: Run) -> Mode:
        changes: dict[str, Any] = {
            "grad": True, "inference": False, "saved_hooks": run, "batch": self._batch,
            "dual_level": self._dual_level,
        }  # fmt: skip
        changes |= modes_of(self._recorder)
        if self.source is not None:
            clone = type(self.source).clone_state
            changes["generator"] = made_anew(self._recorder, clone, self.source)
        return Mode(**changes)

    def _repeat(self, run: Run) -> None:
        """Run the function again, in this thread."""
        args = [a.unpack(self) if _saved(a) else a for a in self._args]
        try:
            with self._mode(run), self.again:
                self.function(*args, **self.kwargs)
        except* _Enough:
            pass
        run.end()

    async def _repeat_later(self, run: Run) -> None:
        """Run the function again, awaiting it, or the hooks that packed its arguments."""
        args = [await finished(a.unpack_steps(self)) if _saved(a) else a for a in self._args]
        try:
            with self._mode(run), self.again:
                result = self.function(*args, **self.kwargs)
                if self.later:
                    await result
        except* _Enough:
            pass
        run.end()


class Run:
    """A second run for one pass: its saved-tensor hooks, and the tensors that it saved."""

    waits = False

    def __init__(self, frame: Frame) -> None:
        # Weak, because the frame holds the run.
        self._frame = weakref.ref(frame)
        self._values: weakref.WeakKeyDictionary[Holder, Any] = weakref.WeakKeyDictionary()
        self._facts: list[Any] = []
        self._places: list[str] = []
        #: Whether the second run has saved more than the first run had when backward started.
        self._beyond = False
        self.ended = False
        self.lock = asyncio.Lock()

    def pack(self, tensor: Tensor) -> Any:
        """Keep a tensor, if the first run's holder at this position still exists."""
        frame = self._frame()
        assert frame is not None
        place = len(self._facts)
        self._facts.append(tensor._metadata)
        if frame.places is not None:
            self._places.append(_here())
        if place >= len(frame.holders):
            if frame.completed:
                raise CheckpointError(
                    f"checkpoint: trying to save more tensors during recomputation than during "
                    f"the original forward pass, where it was {len(frame.holders)}."
                    f"{self._story(frame)}"
                )
            self._beyond = True
            return tensor
        holder = frame.holders[place]()
        if holder is not None:
            self._values[holder] = tensor
        if frame.early_stop and place + 1 == len(frame.holders):
            raise _Enough
        return tensor

    def unpack(self, tensor: Tensor) -> Any:
        """The tensor itself, for passes started by the function in the second run."""
        return tensor

    def end(self) -> None:
        """Raise CheckpointError if the second run saved other tensors than the first."""
        frame = self._frame()
        assert frame is not None
        if not self._beyond:
            expected, found = frame.facts, self._facts
            if len(expected) != len(found):
                raise CheckpointError(
                    f"checkpoint: A different number of tensors was saved during the original "
                    f"forward and recomputation.\nNumber of tensors saved during forward: "
                    f"{len(expected)}\nNumber of tensors saved during recomputation: "
                    f"{len(found)}.{self._story(frame)}"
                )
            differing = [
                f"tensor at position {place}:\nsaved metadata: {before!r}\n"
                f"recomputed metadata: {after!r}\n"
                for place, (before, after) in enumerate(zip(expected, found, strict=True))
                if frame.differ(before, after) and frame.holders[place]() is not None
            ]
            if differing:
                raise CheckpointError(
                    f"checkpoint: Recomputed values for the following tensors have different "
                    f"metadata than during the forward pass.\n{''.join(differing)}"
                    f"{self._story(frame)}"
                )
        self._facts.clear()
        self._places.clear()
        self.ended = True

    def take(self, holder: Holder) -> Any:
        """Hand out the tensor of a holder, once; raises CheckpointError the second time."""
        try:
            return self._values.pop(holder)
        except KeyError:
            overlap = ""
            if "group" in (current().checkpoints or {}):
                overlap = (
                    "Performing two backward calls that overlap (i.e. require the same saved "
                    "activation in order to compute gradients) is not allowed within "
                    "GraphExecGroup. "
                )
            raise CheckpointError(
                f"{overlap}checkpoint: Unpack is being triggered for a tensor that was already "
                f"unpacked once. If you are calling ctx.saved_tensors in backward, make sure to do "
                f"so only once. Otherwise please open an issue with details on your use case."
            ) from None

    def _story(self, frame: Frame) -> str:
        """For errors: where both runs saved tensors, if `debug` is on."""
        if frame.places is None:
            return (
                "\nTip: To see where each tensor was saved, pass debug=True to checkpoint(), or "
                "use set_checkpoint_debug_enabled(True)."
            )
        parts = [
            "\nERROR: Detected non-determinism while running activation checkpointing\n"
            "You are seeing this error because you passed `debug=True` to checkpoint, or used "
            "set_checkpoint_debug_enabled(True).\n"
        ]
        for title, facts, places in (
            ("the original forward", frame.facts, frame.places),
            ("recomputation", self._facts, self._places),
        ):
            parts.append(f"\nOperations executed during {title}, which have saved a tensor:\n")
            parts += [
                f"\n{number}. {fact!r}, saved here:\n{where}"
                for number, (fact, where) in enumerate(zip(facts, places, strict=True))
            ]
        return "".join(parts)


def _saved(argument: object) -> bool:
    return hasattr(argument, "unpack_steps")


def _waits(argument: Any) -> bool:
    return _saved(argument) and argument.waits


def _here() -> str:
    """The user's innermost stack frames."""
    return "".join(users_stack()[-3:])
