"""Two ways to tell event loops that an event on a device has happened.

A thread that blocks in the driver costs a hand-over between threads for each await, and nothing
while it waits. Polling needs no thread but takes turns of the loop, and notices the event up to one
polling interval late.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from asyncgrad.aliases import Value
from asyncgrad.devices.base import NOT_READY, READY, Device

if TYPE_CHECKING:
    import asyncio

#: The first and the longest polling interval in seconds; each is twice the one before.
_FIRST, _LONGEST = 20e-6, 1e-3


def poll(
    device: Device, event: Value, loop: Any, happened: asyncio.Future[None], pause: float = _FIRST
) -> None:
    """Poll an event's raw status at growing intervals until it has happened."""
    if happened.done():
        # The waiting task was cancelled.
        return
    status = device.status(event)
    if status == NOT_READY:
        loop.call_later(pause, poll, device, event, loop, happened, min(2 * pause, _LONGEST))
    else:
        settle(happened, None if status == READY else device.failure(status))


class Waiter:
    """A thread that blocks until events happen, and notifies the loops that await them.

    CUDA's `launchHostFunc` is no alternative: its callbacks need the GIL while the driver holds its
    own lock, and they are never called after an error.
    """

    def __init__(self, device: Device) -> None:
        """Start the thread; as a daemon it ends with the process."""
        self._device = device
        self._queue: SimpleQueue[tuple[Any, Any, Any]] = SimpleQueue()
        Thread(target=self._run, name=f"asyncgrad {device}", daemon=True).start()

    def put(self, event: Value, loop: Any, happened: asyncio.Future[None]) -> None:
        """Complete a future when an event has happened."""
        self._queue.put((event, loop, happened))

    def _run(self) -> None:
        waiting: list[tuple[Any, Any, Any]] = []
        while True:
            if not waiting:
                waiting.append(self._queue.get())
            while not self._queue.empty():
                waiting.append(self._queue.get())
            # Block for the oldest event, then also notify the waiters of others that have happened.
            (event, loop, happened), *others = waiting
            error: Exception | None = None
            try:
                self._device.synchronize(event)
            except Exception as caught:
                error = caught
            tell_loop(loop, settle, happened, error)
            waiting = []
            for event, loop, happened in others:
                status = self._device.status(event)
                if status == NOT_READY:
                    waiting.append((event, loop, happened))
                else:
                    failed = None if status == READY else error or self._device.failure(status)
                    tell_loop(loop, settle, happened, failed)


def tell_loop(loop: Any, report: Callable[..., Any], *facts: object) -> None:
    """Call a function on a loop from another thread; does nothing if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(report, *facts)


def settle(happened: asyncio.Future[None], error: Exception | None = None) -> None:
    """Complete a future, unless the task that waits for it was cancelled."""
    if happened.done():
        return
    if error is None:
        happened.set_result(None)
    else:
        happened.set_exception(error)
