"""One end of a world: its caller, or the host on a worker. It calls the hosts of the others."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import count
from math import inf
from typing import Any

from asyncgrad.core.modes import current
from asyncgrad.distributed.engine import Peers, answered, copied, sent
from asyncgrad.distributed.errors import WorkerLostError, forget_tracebacks
from asyncgrad.distributed.lifetimes import all_of, one_of
from asyncgrad.distributed.messages import MESSAGES, Message
from asyncgrad.errors import AutogradError, WrongLoopError, add_note
from asyncgrad.scheduler.segments import retrieve

#: The rank of the caller of a world.
CALLER = -1

#: The site whose code runs: set while a host computes.
here: ContextVar[Site | None] = ContextVar("asyncgrad_site", default=None)


class Site:
    """Calls hosts, remembers which are lost, and tells them what is no longer needed."""

    def __init__(
        self, session: str, rank: int, size: int, peers: Peers, grace: float, timeout: float
    ) -> None:
        """Make one end of a world on the running loop.

        Args:
            session: names the world; hosts of another world refuse its messages.
            rank: 0 to `size - 1` on workers, `CALLER` for the caller.
            peers: calls hosts.
            grace: how many seconds a worker has to confirm what has been decided.
            timeout: how many seconds others have to answer.
        """
        self.session = session
        self.rank = rank
        self.size = size
        self.grace = grace
        self.timeout = timeout
        self.loop = asyncio.get_running_loop()
        self.numbers = count()
        #: The host on this worker; None for the caller.
        self.host: Any = None
        #: Why the world can't be used any more, or None.
        self.ended: str | None = None
        self._peers = peers
        #: By rank: resolved with the reason when the worker is lost, which the caller never is;
        #: cancelled at the end of the world, when no call is waited for any more.
        self._fences = {rank: self.loop.create_future() for rank in (CALLER, *range(size))}
        #: A message is sent with this lock held, which is released in the next turn of the loop.
        self._gate = asyncio.Lock()
        #: Calls that nobody awaits, kept alive here.
        self._background: set[asyncio.Task[Any]] = set()
        #: The keys of what hosts may drop, by rank, told in one message.
        self._unneeded: dict[int, list[Any]] = {}
        #: By running pass of this site's: where hosts stage what they compute for it.
        self.staging: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def __reduce__(self) -> Any:
        raise AutogradError(
            "a world, its optimizers and its replicated models can't be copied or sent: use them "
            "where the world was made, and send parts to code that runs on workers"
        )

    def error(self) -> AutogradError:
        """The error for whoever uses the world after its end."""
        return AutogradError(f"the world can't be used any more: {self.ended}")

    def check(self) -> None:
        """Raise unless the world can be used here and now.

        Raises:
            RuntimeError: if the world has ended, belongs to another loop, or is the caller's and is
                used by code on one of its workers, which may be in the same process.
        """
        if self.ended is not None:
            raise self.error()
        worker = here.get()
        if worker is not None and worker is not self and worker.session == self.session:
            raise AutogradError(
                f"a world was used by code that runs on its worker {worker.rank}, and not where it "
                f"was made: its caller may wait for that code. Give parts to code on workers"
            )
        running = asyncio.events._get_running_loop()
        if running is not self.loop:
            raise WrongLoopError(
                "a world was used on another event loop than the one it was made on, or on none: "
                "await its calls and the passes that cross it there, in a part by an `async def "
                "forward`"
            )

    @property
    def lost(self) -> dict[int, str]:
        """For each lost worker the reason."""
        return {
            rank: fence.result()
            for rank, fence in self._fences.items()
            if fence.done() and not fence.cancelled()
        }

    def has_lost(self, rank: int) -> bool:
        """Whether a worker is lost."""
        return self._fences[rank].done()

    def check_living(self, ranks: Iterable[int], during: str) -> None:
        """Raise, before anything has changed, unless the world and all these workers can be used.

        Raises:
            WorkerLostError: if one is lost.
        """
        self.check()
        for rank in ranks:
            if self.has_lost(rank):
                raise self.lost_error(rank, during)

    def lost_error(self, rank: int, during: str) -> WorkerLostError:
        """The error for whoever uses a lost worker."""
        error = WorkerLostError(rank, during, self.lost.get(rank, "the world is ending"))
        error._session = self.session
        return error

    async def call(self, rank: int, method: str, *args: Any, limit: float | None = None) -> Any:
        """Await a method of the host of a rank.

        Raises:
            WorkerLostError: if that worker is lost.
            TimeoutError: if it does not answer within a limit of seconds, by default the timeout.
            Exception: what the method raised, with a note that names the worker.
        """
        self.check()
        if limit is None:
            limit = inf if MESSAGES[method].is_unlimited else self.timeout
        modes = current()
        kept = {"anomaly": modes.anomaly, "check_nan": modes.check_nan}
        message = Message(self.session, self.rank, next(self.numbers), method, args, kept)
        succeeded, value = await self._reach(rank, message, limit)
        if succeeded:
            return value
        forget_tracebacks(value)
        add_note(value, f"on worker {rank}, during {method}")
        if (
            isinstance(value, WorkerLostError)
            and value._session == self.session
            and self.rank == CALLER
        ):
            # One worker ignores another as lost, so everybody has to.
            self.fence(value.rank, value.reason)
        try:
            raise value
        finally:
            # The traceback holds this frame: a cycle.
            del value

    async def _reach(self, rank: int, message: Message, limit: float) -> tuple[bool, Any]:
        """Call a host, or raise when it is known to be lost, whatever comes first."""
        fence, kind = self._fences[rank], MESSAGES[message.method]
        own = rank == self.rank
        if not own and not fence.done() and not kind.decides:
            # One message is sent in each turn of the loop: other tasks wait for no more than one.
            # If this wait is cancelled, the message has not been sent.
            await self._gate.acquire()
            self.loop.call_soon(self._gate.release)
        if not fence.done():
            # In a context of its own: a connection that is made in it stays, and keeps the context,
            # which refers to this site and what runs here.
            sending = self._to_own_host(message) if own else self._peers.call(rank, message)
            calling = self.loop.create_task(sending, context=Context())
            calling.add_done_callback(retrieve)
            try:
                # If this wait is cancelled, or too long, the host does not notice. So another
                # message asks it to give up.
                if not await one_of(calling, fence, seconds=limit):
                    raise TimeoutError(
                        f"worker {rank} has not answered to {message.method} within {limit:g} s, "
                        f"the timeout of the world"
                    )
            except (asyncio.CancelledError, TimeoutError):
                waits = self.ended is None and not calling.done() and not fence.done()
                if waits and not kind.is_stopped:
                    self.tell(rank, "give_up", self.rank, message.number)
                raise
            finally:
                if not calling.done():
                    calling.cancel()
            try:
                if not fence.done():
                    return calling.result()
            except (OSError, asyncio.CancelledError) as error:
                # An engine that is closed may cancel its calls, and nobody has cancelled this one.
                why = str(error) or "the connection has been closed"
                self.fence(rank, f"it can't be reached ({why})")
            finally:
                # The traceback of its error holds this frame: a cycle.
                del calling
        if rank not in self.lost:
            raise self.error()
        raise self.lost_error(rank, message.method)

    async def _to_own_host(self, message: Message) -> tuple[bool, Any]:
        """Call the host of this site, which gets a copy, as those on other workers do."""
        copy = sent(message, copied)
        return await answered(self.host, lambda: copy, copied)

    def fence(self, rank: int, reason: str) -> None:
        """Never listen to a worker again; the caller tells the others."""
        if self.has_lost(rank) or self.ended is not None:
            return
        self._fences[rank].set_result(reason)
        if self.rank == CALLER:
            for other in range(self.size):
                if not self.has_lost(other):
                    self.tell(other, "fence", rank, reason)
        else:
            self.host.drop_sender(rank)

    async def watch(self, rank: int) -> None:
        """Learn from a host that it lives, and which others it has lost, until it is lost."""
        with suppress(AutogradError):
            # Raised if it is lost, or the world has ended.
            while True:
                try:
                    lost = await self.call(rank, "watch", set(self.lost), self.timeout / 4)
                except TimeoutError:
                    return self.fence(rank, f"it has given no sign of life for {self.timeout:g} s")
                for other, reason in lost.items():
                    self.fence(other, reason)

    async def losses(self, known: set[int], seconds: float) -> dict[int, str]:
        """The lost workers with reasons, as soon as others than these are, or after a while."""
        if self.lost.keys() <= known:
            living = [fence for fence in self._fences.values() if not fence.done()]
            await one_of(*living, seconds=seconds)
        return self.lost

    async def on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine on this site's loop: a pass that blocks its thread has another."""
        if asyncio.get_running_loop() is self.loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def tell(self, rank: int, method: str, *args: Any) -> asyncio.Task[Any]:
        """Call a host in the background until it answers or is lost; the task has the result."""
        return self.spawn(self.call(rank, method, *args, limit=inf))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background until the world ends."""
        task = self.loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(retrieve)
        return task

    async def tell_all(
        self, ranks: Iterable[int], method: str, *args: Any
    ) -> tuple[dict[int, Any], dict[int, Any]]:
        """Call hosts at the same time, and wait for the grace at most.

        A call that has not ended by then goes on in the background.

        Args:
            ranks: those of the hosts; lost ones are left out.

        Returns:
            By rank what the calls give, and the error of each that has failed: a TimeoutError for a
            late one.
        """
        calls = {rank: self.tell(rank, method, *args) for rank in ranks if not self.has_lost(rank)}
        # If the wait below is cancelled, the calls go on.
        await self.wait(calls.values())
        late = TimeoutError(f"no answer to {method} in {self.grace} s")
        errors = {rank: _error(task) if task.done() else late for rank, task in calls.items()}
        found = {rank: calls[rank].result() for rank, error in errors.items() if error is None}
        return found, {rank: error for rank, error in errors.items() if error is not None}

    async def wait(self, waiting: Iterable[asyncio.Future[Any]]) -> None:
        """Wait for all of these for the grace, in which the loop has to be free: see `one_of`."""
        # If this wait is cancelled, or too long, what is waited for goes on.
        await one_of(asyncio.gather(*waiting, return_exceptions=True), seconds=self.grace)

    async def call_each(
        self, method: str, arguments: Mapping[int, tuple[Any, ...]], stops: Any = None
    ) -> list[Any]:
        """Call hosts at the same time; if one call fails, the others are cancelled.

        Args:
            method: the method of all.
            arguments: its arguments, by rank.
            stops: a run that is ended on all workers when the calls have ended.
        """
        try:
            return await all_of(self.call(rank, method, *args) for rank, args in arguments.items())
        finally:
            if stops is not None and self.ended is None:
                await self.tell_all(range(self.size), "stop", stops)

    def drop_with(self, owner: Any, rank: int, key: Any) -> Any:
        """Tell a host, soon after an object is gone, to drop what it stands for."""
        finalizer = weakref.finalize(owner, self._drop_soon, rank, key)
        # At exit the worker is not told: the world ends with its caller.
        finalizer.atexit = False
        return finalizer

    def _drop_soon(self, rank: int, key: Any) -> None:
        # An object may end in any thread.
        with suppress(RuntimeError):
            # Raised if the loop is closed: then the host has ended, too.
            # In an empty context: the object may end in code that runs on a worker.
            self.loop.call_soon_threadsafe(self._drop, rank, key, context=Context())

    def _drop(self, rank: int, key: Any) -> None:
        unneeded = self._unneeded.setdefault(rank, [])
        if not unneeded:
            self.loop.call_soon(self._tell_unneeded, rank)
        unneeded.append(key)

    def _tell_unneeded(self, rank: int) -> None:
        unneeded = self._unneeded.pop(rank)
        if self.ended is None and not self.has_lost(rank):
            self.tell(rank, "release", unneeded)

    async def end(self, reason: str) -> None:
        """Refuse all further use, and end what runs in the background."""
        self.ended = reason
        for fence in self._fences.values():
            fence.cancel()
        running = tuple(self._background)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


def _error(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def site_of(given: Site | None, session: str) -> Site:
    """The site that an object belongs to: the one it was made by, or that of the running host."""
    site = given or here.get()
    if site is None or site.session != session:
        raise AutogradError(
            "a part of another world, or one that was pickled, was used outside of its world's "
            "workers: use it where it was made, or in code that runs on its workers"
        )
    return site
