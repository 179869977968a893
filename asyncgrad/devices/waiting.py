"""Two ways to tell event loops that a device's events have happened.

A thread that blocks in the driver costs a hand-over between threads each time it is awaited, and
nothing while it waits. Polling costs no thread, but turns of the loop, and is late by what lies
between two looks.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from asyncgrad.devices.base import NOT_READY, READY

if TYPE_CHECKING:
    import asyncio

    from asyncgrad.devices.base import Device

#: Seconds between the first two looks, and at most; each pause is twice the one before.
_FIRST, _LONGEST = 20e-6, 1e-3


def poll(
    device: Device, event: Any, loop: Any, happened: asyncio.Future[None], pause: float = _FIRST
) -> None:
    """Look at an event's raw status until it has happened, ever more rarely."""
    if happened.done():
        # Nobody waits any more.
        return
    status = device.status(event)
    if status == NOT_READY:
        loop.call_later(pause, poll, device, event, loop, happened, min(2 * pause, _LONGEST))
    else:
        _end(happened, None if status == READY else device.failure(status))


class Waiter:
    """A thread that sleeps until events happen, and tells the loops that await them.

    Not `launchHostFunc`: its callbacks need the interpreter while the driver holds its lock, and
    after an error they are never called.
    """

    def __init__(self, device: Device) -> None:
        """Start the thread; it ends with the process."""
        self._device = device
        self._queue: SimpleQueue[tuple[Any, Any, Any]] = SimpleQueue()
        Thread(target=self._run, name=f"asyncgrad {device}", daemon=True).start()

    def put(self, event: Any, loop: Any, happened: asyncio.Future[None]) -> None:
        """Have a future ended when an event has happened."""
        self._queue.put((event, loop, happened))

    def _run(self) -> None:
        waiting: list[tuple[Any, Any, Any]] = []
        while True:
            if not waiting:
                waiting.append(self._queue.get())
            while not self._queue.empty():
                waiting.append(self._queue.get())
            # Whoever came first is waited for; whoever is done by then is told, too.
            error: Exception | None = None
            try:
                self._device.synchronize(waiting[0][0])
            except Exception as caught:
                error = caught
            pending = []
            for place, (event, loop, happened) in enumerate(waiting):
                status = self._device.status(event) if place else READY
                if status == NOT_READY:
                    pending.append((event, loop, happened))
                    continue
                failed = error if not place or status != READY else None
                if place and status != READY and failed is None:
                    failed = self._device.failure(status)
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_end, happened, failed)
            waiting = pending


def _end(happened: asyncio.Future[None], error: Exception | None) -> None:
    if happened.done():
        return
    if error is None:
        happened.set_result(None)
    else:
        happened.set_exception(error)
