"""Steps beside other tasks: they follow one another, and may run in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from threading import Lock, get_ident
from typing import Any

from asyncgrad.core.array_holders import rebind
from asyncgrad.optim.updates import Gradients, Group
from asyncgrad.types import Array, Tensor

#: Guards who is last, since tasks may run on the loops of several threads.
_LOCK = Lock()


class _Turn(Future[None]):
    """Done at the end of a step."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        # So that the cancellation of a step that waits for this one does not cancel the future.
        self.set_running_or_notify_cancel()

    def is_lost(self) -> bool:
        """Whether the loop was closed before the step could end."""
        return self._loop.is_closed()


class Turns:
    """The steps of an optimiser that other tasks may meet; a base class of `Optimizer` only."""

    #: The turn of the last step that runs in a thread or awaits its closure, or waits to do so;
    #: None if there is none.
    _stepping: _Turn | None = None
    #: Whether a thread changes the state, or is going to: others may neither copy nor replace it.
    _in_thread = False
    #: The number of that thread while it calls hooks, which may copy and replace the state.
    _hooked: int | None = None

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Wait for the steps that were begun before, and have later ones wait."""
        own = _Turn()
        with _LOCK:
            before, self._stepping = self._stepping, own
        if before is not None and before.is_lost():
            before = None
        try:
            if before is not None:
                await asyncio.wrap_future(before)
            yield
        finally:
            # A step that is cancelled while it waits leaves its place to those behind it.
            if before is None:
                self._pass_on(own)
            else:
                before.add_done_callback(lambda _: self._pass_on(own))

    def _pass_on(self, own: _Turn) -> None:
        with _LOCK:
            if self._stepping is own:
                self._stepping = None
        own.set_result(None)

    @contextmanager
    def _hooks_in_thread(self) -> Iterator[None]:
        """Call the hooks before a step in its thread."""
        self._hooked = get_ident()
        try:
            yield
        finally:
            self._hooked = None

    def _is_stepping(self) -> bool:
        return self._stepping is not None and not self._stepping.is_lost()

    def _refuse_to_meet(self, method: str, remedy: str) -> None:
        """Raise if another task's step, for which a call can't wait, is not complete."""
        if self._is_stepping():
            raise RuntimeError(
                f"{type(self).__name__}.{method}: another task's step_async() is not complete, and "
                f"this call can't wait for it. {remedy}"
            )

    def _check_state_is_whole(self, method: str) -> None:
        """Raise while another thread changes the state."""
        if self._in_thread and self._is_stepping() and self._hooked != get_ident():
            raise RuntimeError(
                f"{type(self).__name__}.{method}: another task's step_async() changes the state in "
                f"a thread. Await it before, or call this in a hook after the step."
            )


class StepInThread:
    """What a step in a thread has read, and what it is going to put into place on the loop."""

    def __init__(self) -> None:
        #: By parameter, its new array.
        self.drafts: dict[Any, Array] = {}
        #: By parameter, its gradient, and what both were like.
        self._seen: dict[Any, tuple[Tensor, Any, Any]] = {}
        #: Each group, its options at the start, and those that the step may change.
        self._groups: list[tuple[Group, Group, Group]] = []

    def begin(self, groups: list[Group]) -> list[Group]:
        """Copy the groups, since other tasks may set their options; returns the copies."""
        self._groups = [(group, group.copy(), group.copy()) for group in groups]
        return [own for _, _, own in self._groups]

    def note(self, gradients: list[Gradients]) -> None:
        """Note what the step is going to read."""
        self._seen = {p: (g, _seen(p), _seen(g)) for some in gradients for p, g in some}

    def end(self) -> int:
        """Put arrays and options into place, except where others have changed what was read.

        Returns:
            The number of parameters that are not updated.
        """
        unchanged = {p for p, (g, *seen) in self._seen.items() if seen == [_seen(p), _seen(g)]}
        rebind({p: array for p, array in self.drafts.items() if p in unchanged})
        for group, before, own in self._groups:
            group.update({
                name: value for name, value in own.items()
                if value is not before.get(name) and group.get(name) is before.get(name)
            })  # fmt: skip
        return len(self.drafts.keys() - unchanged)


def _seen(tensor: Tensor) -> tuple[int, int]:
    """What differs once a tensor has been changed in place, or has got another array."""
    counter = tensor._counter
    return id(tensor._array), 0 if counter is None else counter.version
