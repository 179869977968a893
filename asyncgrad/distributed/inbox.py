"""How a host takes messages, which may come late, twice, or not at all: see `messages.py`.

No method raises a CancelledError, because that would cut the connection.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

from asyncgrad.core.modes import Mode
from asyncgrad.distributed.errors import (
    PassEndedError,
    WorkerLostError,
    late,
    note_traceback,
    sendable,
)
from asyncgrad.distributed.lifetimes import Memory, cancelled
from asyncgrad.distributed.messages import Message
from asyncgrad.distributed.runs import Runs
from asyncgrad.distributed.site import Site, here
from asyncgrad.distributed.trace import Trace
from asyncgrad.distributed.values import awaited
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.completion import for_another


class Inbox:
    """Takes messages, and runs the methods `on_...` that they name: its own or its runs'."""

    def __init__(self, session: str, rank: int) -> None:
        self._session = session
        self._rank = rank
        #: None until the world is open.
        self._site: Site | None = None
        self._runs: Runs | None = None
        self._trace: Trace | None = None
        #: What runs for each message.
        self._requests: dict[tuple[int, int], asyncio.Task[Any]] = {}
        self._taken = Memory()

    @property
    def site(self) -> Site:
        """The site of this worker."""
        assert self._site is not None
        return self._site

    @property
    def runs(self) -> Runs:
        """The runs of this worker, which take messages, too."""
        assert self._runs is not None
        return self._runs

    async def take(self, message: Message) -> tuple[bool, Any]:
        """Run the method that a message names: whether it succeeded, and its result or error."""
        if message.session != self._session:
            return False, AutogradError("a message of another world was refused")
        site = self._site
        if site is None and message.method != "open":
            lost = WorkerLostError(self._rank, message.method, "its host was made anew")
            lost._session = self._session
            return False, lost
        if site is not None and site.ended is not None:
            return False, site.error()
        if self._taken.add((message.sender, message.number)):
            return False, PassEndedError("the message has been taken before")
        # The method runs in a task of its own, which can be cancelled without the connection.
        working = asyncio.create_task(self._run(message), name=message.method)
        request = message.sender, message.number
        self._requests[request] = working
        try:
            # If this wait is cancelled, nobody will read the answer, so the method is cancelled.
            await asyncio.wait([working])
        except asyncio.CancelledError:
            working.cancel()
            return False, late("what was asked for")
        finally:
            del self._requests[request]
        if working.cancelled():
            site = self._site
            if site is not None and site.ended is not None:
                return False, site.error()
            if site is not None and site.has_lost(message.sender):
                # Lost meanwhile, for this worker only, so that its caller can still be told.
                return False, site.lost_error(message.sender, message.method)
            return False, late(f"{message.method} was cancelled: its pass or call")
        error = working.exception()
        if error is None:
            return True, working.result()
        try:
            note_traceback(error, f"on worker {self._rank}")
            return False, sendable(error)
        finally:
            # The error's traceback may hold this frame: a cycle.
            del error

    async def _run(self, message: Message) -> Any:
        site = self._site
        if site is not None and site.has_lost(message.sender):
            # Its caller, to whom it will tell this, has everybody ignore it. Asked here, because
            # the sender may have been lost after the message was taken and before this began.
            raise site.lost_error(message.sender, message.method)
        here.set(site)
        for_another.set(True)
        name = f"on_{message.method}"
        take = getattr(self, name, None) or getattr(self.runs, name)
        recording = nullcontext() if self._trace is None else Mode(observer=self._trace.recorder)
        with Mode(**message.modes), recording:
            try:
                return await awaited(take(*message.args))
            except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                # The first two would stop the worker's loop, and with it the work of others on the
                # worker; by the last a user's code says that something else was cancelled.
                raise AutogradError(f"{message.method} raised {error!r} on a worker") from error

    async def on_give_up(self, sender: int, number: int) -> None:
        """End what a message has asked for, or will ask for if it comes later."""
        self._taken.add((sender, number))
        working = self._requests.get((sender, number))
        if working is not None:
            await cancelled([working])

    async def on_watch(self, known: set[int], seconds: float) -> dict[int, str]:
        """Which workers this one has lost, when there is news, or at the end of some seconds."""
        return await self.site.losses(known, seconds)

    async def on_trace(self) -> None:
        """Record all passes from now on."""
        self._trace = Trace(f"worker {self._rank}")

    async def on_traced(self) -> Any:
        """End the recording; returns what has been recorded."""
        trace, self._trace = self._trace, None
        return None if trace is None else trace.collected()


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the running task, of which an error's frame must not know."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
