"""Saved-tensor hooks that are awaited, and ahead of time where that is possible."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from asyncio.events import _get_running_loop
from typing import TYPE_CHECKING, Any

from asyncgrad.core.modes import current
from asyncgrad.scheduler import awaits, portal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Packed:
    """What is kept in the place of one tensor."""

    __slots__ = ("__weakref__", "before", "value")

    def __init__(self, value: Any, before: weakref.ref[Packed] | None) -> None:
        """Keep what the hook has returned.

        Args:
            value: that, or the task that runs the hook.
            before: what was packed just before, which backward will want next.
        """
        self.value = value
        self.before = before


class AwaitedHooks:
    """A pair of hooks of which one is a coroutine function at least."""

    waits = True

    def __init__(
        self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any], prefetch: int
    ) -> None:
        """Keep the pair.

        Args:
            pack: packs a tensor; runs beside the forward pass.
            unpack: unpacks it.
            prefetch: how many others to unpack meanwhile.
        """
        self._pack = pack
        self._unpack = unpack
        self._prefetch = prefetch
        self._last: weakref.ref[Packed] | None = None
        self._ahead: weakref.WeakKeyDictionary[Any, Ahead] = weakref.WeakKeyDictionary()

    def pack(self, tensor: Any) -> Packed:
        """Start packing a tensor."""
        value = self._pack(tensor)
        packed = Packed(_begun(value) if inspect.iscoroutine(value) else value, self._last)
        self._last = weakref.ref(packed)
        return packed

    async def unpack(self, packed: Packed) -> Any:
        """The tensor, which others of its pass may have begun to unpack."""
        task = current().graph_task
        if not self._prefetch or not awaits(task):
            return await self.read(packed)
        ahead = self._ahead.get(task)
        if ahead is None:
            ahead = self._ahead[task] = Ahead(self, task)
        return await ahead.take(packed, self._prefetch)

    async def read(self, packed: Packed) -> Any:
        """Unpack a tensor now."""
        value = packed.value
        if isinstance(value, asyncio.Task):
            # Several may wait for it: none of them may cancel it.
            value = await asyncio.shield(value)
        tensor = self._unpack(value)
        return await tensor if inspect.iscoroutine(tensor) else tensor


class Ahead:
    """What one pass unpacks before it is asked for."""

    def __init__(self, hooks: AwaitedHooks, task: Any) -> None:
        """Belong to a pass: nothing goes on when that has ended."""
        self._hooks = hooks
        #: None for what has been taken.
        self._running: weakref.WeakKeyDictionary[Packed, asyncio.Task[Any] | None] = (
            weakref.WeakKeyDictionary()
        )
        # Not the future's own method, by which somebody seems to look at the outcome.
        asyncio.Future.add_done_callback(task.future, self._stop)

    def take(self, packed: Packed, count: int) -> Any:
        """What gives a tensor when awaited; starts to unpack those that come next."""
        running = self._running.get(packed)
        self._running[packed] = None
        before = packed.before
        for _ in range(count):
            other = None if before is None else before()
            if other is None:
                break
            if other not in self._running:
                self._running[other] = asyncio.ensure_future(self._hooks.read(other))
            before = other.before
        return self._hooks.read(packed) if running is None else running

    def _stop(self, future: Any) -> None:
        """The pass has ended without asking for these."""
        for running in tuple(self._running.values()):
            if running is not None and not running.cancel() and not running.cancelled():
                # Its error is nobody's: mark it as seen.
                running.exception()
        self._running.clear()


def _begun(packing: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine, running beside the forward pass; its result where no loop runs."""
    if _get_running_loop() is not None:
        return asyncio.ensure_future(packing)

    async def wait() -> Any:
        return await packing

    return portal().call(wait)
