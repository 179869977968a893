"""Saved-tensor hooks that are coroutine functions; tensors are unpacked ahead of time."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from asyncgrad.aliases import Value
from asyncgrad.core.modes import current
from asyncgrad.scheduler import awaits, call_on_portal
from asyncgrad.scheduler.segments import retrieve


class Packed:
    """The result of the pack hook, kept in place of a tensor."""

    __slots__ = ("__weakref__", "before", "value")

    def __init__(self, value: Value, before: weakref.ref[Packed] | None) -> None:
        """Keep the hook's result, or the task that runs the hook."""
        self.value = value
        self.before = before


#: The tasks that unpack tensors before the nodes of one pass ask for them; None for tensors that
#: have been taken.
Ahead: TypeAlias = weakref.WeakKeyDictionary[Packed, asyncio.Task[Any] | None]


class AwaitedHooks:
    """A pair of hooks of which at least one is a coroutine function."""

    waits = True

    def __init__(
        self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any], prefetch: int
    ) -> None:
        self._pack = pack
        self._unpack = unpack
        self._prefetch = prefetch
        self._last: weakref.ref[Packed] | None = None
        #: By pass.
        self._ahead: weakref.WeakKeyDictionary[Any, Ahead] = weakref.WeakKeyDictionary()

    def pack(self, tensor: Value) -> Packed:
        """Start packing a tensor."""
        value = self._pack(tensor)
        packed = Packed(_begun(value) if inspect.iscoroutine(value) else value, self._last)
        self._last = weakref.ref(packed)
        return packed

    async def unpack(self, packed: Packed) -> Any:
        """Unpack a tensor; its pass may have started to do so ahead of time."""
        task = current().graph_task
        if not self._prefetch or not awaits(task):
            return await self.read(packed)
        ahead = self._ahead.get(task)
        if ahead is None:
            ahead = self._ahead[task] = weakref.WeakKeyDictionary()
            # `BackwardFuture.add_done_callback` would mark the pass's outcome as looked at.
            asyncio.Future.add_done_callback(task.future, partial(_cancel, ahead))
        try:
            return await self._take(packed, ahead)
        except (Exception, asyncio.CancelledError):
            # The pass has failed or was cancelled. It ends when nothing of it runs any more.
            running = _cancel(ahead)
            if running:
                # Nothing below depends on what changes while this waits; a cancellation ends it.
                await asyncio.wait(running)
            raise

    def _take(self, packed: Packed, ahead: Ahead) -> Any:
        """An awaitable of the tensor; also starts to unpack tensors packed before it."""
        running = ahead.get(packed)
        ahead[packed] = None
        before = packed.before
        for _ in range(self._prefetch):
            other = None if before is None else before()
            if other is None:
                break
            if other not in ahead:
                ahead[other] = asyncio.ensure_future(self.read(other))
            before = other.before
        return self.read(packed) if running is None else running

    async def read(self, packed: Packed) -> Any:
        """Unpack a tensor, without any prefetching."""
        value = packed.value
        if isinstance(value, asyncio.Task):
            # Several passes may wait for this task; shield it, so that none of them cancels it.
            value = await asyncio.shield(value)
        tensor = self._unpack(value)
        return await tensor if inspect.iscoroutine(tensor) else tensor


def _cancel(ahead: Ahead, ended: object = None) -> list[asyncio.Task[Any]]:
    """Cancel what a pass still unpacks ahead; called at the end of the pass, too."""
    running = [task for task in ahead.values() if task is not None]
    ahead.clear()
    for task in running:
        task.add_done_callback(retrieve)
        task.cancel()
    return running


def _begun(packing: Coroutine[Any, Any, Any]) -> Any:
    """Start a coroutine beside the forward pass; without a loop, its result."""
    if _get_running_loop() is not None:
        return asyncio.ensure_future(packing)
    return call_on_portal(packing)
