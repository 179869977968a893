"""Which parts, passes, calls and runs have ended, and what runs for those that have not."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from asyncgrad.distributed.errors import WorkerLostError, late

#: How many keys of what has ended, and how many messages, a host remembers.
_REMEMBERED = 4_096
#: In how many parts others are waited for.
_PARTS = 20


class Memory(OrderedDict[Any, str]):
    """Remembers the latest keys, each with a word on how it ended."""

    def add(self, key: Any, word: str = "") -> bool:
        """Remember a key; True, with nothing changed, if it is known."""
        if key in self:
            return True
        self[key] = word
        if len(self) > _REMEMBERED:
            self.popitem(last=False)
        return False


class Lifetimes:
    """Cancels the work for what ends, and refuses work for it later."""

    def __init__(self) -> None:
        #: The keys of parts, optimizers, passes, calls and runs that have ended, each with how.
        self.ended = Memory()
        #: The asyncio tasks that work for each that has not.
        self.working: dict[Any, set[asyncio.Task[Any]]] = {}

    @contextmanager
    def scope(self, key: Any) -> Iterator[None]:
        """Cancel the block if what it works for ends; refuse it if that has ended."""
        if key in self.ended:
            raise late("the pass, call or run")
        task = asyncio.current_task()
        assert task is not None
        self.working.setdefault(key, set()).add(task)
        try:
            yield
        finally:
            tasks = self.working[key]
            tasks.discard(task)
            if not tasks:
                del self.working[key]

    async def stop(self, key: Any) -> None:
        """Cancel what runs for something that has ended, and wait for its end."""
        await cancelled(self.working.get(key, ()))


class Shared:
    """A task that several others await: it is cancelled once all of these are."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        """Start it; `ended` is called with the task when it has ended."""
        self._task = asyncio.ensure_future(coroutine)
        self._task.add_done_callback(ended)
        self._waiting = 0

    async def wait(self) -> Any:
        """Await its result; raises if all that awaited it have been cancelled."""
        if self._task.cancelling():
            raise late("the call")
        self._waiting += 1
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            if self._waiting == 1:
                self._task.cancel()
                # If this wait is cancelled, too, the task ends later.
                await asyncio.wait([self._task])
            raise
        finally:
            self._waiting -= 1
        try:
            return self._task.result()
        finally:
            # The traceback of its error holds this frame: a cycle.
            del self


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for their end."""
    tasks = [task for task in tasks if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def all_of(
    awaitables: Iterable[Awaitable[Any]], *, follow: tuple[type[Exception], ...] = ()
) -> list[Any]:
    """Await all; if one fails, cancel the others, wait for their end, and raise its error.

    Args:
        awaitables: what to await at the same time.
        follow: errors that follow from that of another, which is awaited, because it says more.
    """
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    waiting, errors = set(tasks), list[BaseException]()
    try:
        while waiting and all(isinstance(one, follow) for one in errors):
            # If this wait is cancelled, all tasks are.
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
            errors += [error for one in done if (error := one.exception()) is not None]
        if errors:
            # Calls that wait for a lost worker fail, too. The loss itself says more.
            errors.sort(key=lambda one: (isinstance(one, follow), type(one) is not WorkerLostError))
            raise errors[0]
        return [one.result() for one in tasks]
    finally:
        for one in tasks:
            one.cancel()
        if tasks:
            await asyncio.wait(tasks)
        # The tracebacks of errors hold this frame: a cycle.
        tasks, waiting, done, errors = [], set(), set(), []
        error = one = None  # type: ignore[assignment]


async def one_of(*futures: asyncio.Future[Any], seconds: float) -> bool:
    """Wait until one is done, for so many seconds at most: whether one is.

    While something else holds the loop, answers that have come can't be read. So the time is waited
    for in parts, of which no more than one passes meanwhile.
    """
    loop = asyncio.get_running_loop()
    for _ in range(_PARTS):
        late = loop.create_future()
        # In an empty context: asyncio keeps a cancelled timer, and its context, until its time.
        timer = loop.call_later(seconds / _PARTS, late.cancel, context=Context())
        try:
            # If this wait is cancelled, the futures are not.
            await asyncio.wait([*futures, late], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if any(one.done() for one in futures):
            return True
    return False
