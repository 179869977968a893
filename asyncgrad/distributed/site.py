"""One end of a world: its caller, or the host on a worker. It calls the hosts of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import count
from typing import Any

from asyncgrad.distributed.engine import Message, Peers
from asyncgrad.distributed.errors import WorkerLostError, received
from asyncgrad.errors import AutogradError, WrongLoopError, add_note
from asyncgrad.scheduler.segments import retrieve

#: The rank of the caller of a world.
CALLER = -1

#: In how many parts the grace is waited for; a loop that is held makes no more than one pass.
_PARTS = 20

#: The site whose code runs: set while a host computes.
here: ContextVar[Site | None] = ContextVar("asyncgrad_site", default=None)


class Site:
    """Calls hosts, remembers which are lost, and tells them what is no longer needed."""

    def __init__(self, session: str, rank: int, size: int, peers: Peers, grace: float) -> None:
        """Make one end of a world on the running loop.

        Args:
            session: names the world; hosts of another world refuse its messages.
            rank: 0 to `size - 1` on workers, `CALLER` for the caller.
            peers: calls hosts.
            grace: how many seconds a worker has to confirm what has been decided.
        """
        self.session = session
        self.rank = rank
        self.size = size
        self.grace = grace
        self.loop = asyncio.get_running_loop()
        self.numbers = count()
        #: The host on this worker; None for the caller.
        self.host: Any = None
        #: Why the world can't be used any more, or None.
        self.ended: str | None = None
        self._peers = peers
        #: For each lost worker the reason.
        self.lost: dict[int, str] = {}
        #: Resolved when the worker of that rank is lost.
        self._fences = [self.loop.create_future() for _ in range(size)]
        #: A message is sent with this lock held, which is released in the next turn of the loop.
        self._gate = asyncio.Lock()
        #: Calls that nobody awaits, kept alive here.
        self._background: set[asyncio.Task[Any]] = set()
        #: What hosts may drop, by rank, told in one message.
        self._unneeded: dict[int, list[Any]] = {}
        #: The coordinators of this site's passes.
        self.coordinators: dict[int, Any] = {}

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
            RuntimeError: if the world has ended, or belongs to another loop.
        """
        if self.ended is not None:
            raise self.error()
        running = asyncio.events._get_running_loop()
        if running is not self.loop:
            raise WrongLoopError(
                "a world was used on another event loop than the one it was made on, or on none: "
                "await its calls and the passes that cross it there, in a part by an `async def "
                "forward`"
            )

    def check_living(self, ranks: Iterable[int], during: str) -> None:
        """Raise, before anything has changed, unless the world and all these workers can be used.

        Raises:
            WorkerLostError: if one is lost.
        """
        self.check()
        for rank in ranks:
            if rank in self.lost:
                raise self.lost_error(rank, during)

    def lost_error(self, rank: int, during: str) -> WorkerLostError:
        """The error for whoever uses a lost worker."""
        error = WorkerLostError(rank, during, self.lost.get(rank, "the world is ending"))
        error._session = self.session
        return error

    async def call(self, rank: int, method: str, *args: Any) -> Any:
        """Await a method of the host of a rank.

        Raises:
            WorkerLostError: if that worker is lost.
            Exception: what the method raised, with a note that names the worker.
        """
        self.check()
        message = Message(self.session, self.rank, next(self.numbers), method, args)
        succeeded, value = await self._reach(rank, message)
        if succeeded:
            return value
        value = received(value)
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

    async def _reach(self, rank: int, message: Message) -> tuple[bool, Any]:
        """Call a host, or raise when it is known to be lost, whatever comes first."""
        fence = self._fences[rank]
        own = rank == self.rank
        if not own and not fence.done():
            # One message is sent in each turn of the loop: other tasks wait for no more than one.
            # If this wait is cancelled, the message has not been sent.
            await self._gate.acquire()
            self.loop.call_soon(self._gate.release)
        if not fence.done():
            # A task of its own also for this host, whose `take` can't be cancelled. In a context of
            # its own: a connection that is made in it stays, and keeps the context, which refers to
            # this site and what runs here.
            calling: asyncio.Task[tuple[bool, Any]] = (
                self.loop.create_task(self.host.take(message))
                if own
                else self.loop.create_task(self._peers.call(rank, message), context=Context())
            )
            calling.add_done_callback(retrieve)
            try:
                # If this wait is cancelled, the host does not notice. So another message asks it to
                # give up.
                await asyncio.wait((calling, fence), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                if self.ended is None and not calling.done() and not fence.done():
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
                self.fence(rank, f"it can't be reached ({error})")
            finally:
                # The traceback of its error holds this frame: a cycle.
                del calling
        raise self.lost_error(rank, message.method)

    def fence(self, rank: int, reason: str) -> None:
        """Never listen to a worker again; the caller tells the others."""
        if rank in self.lost or self.ended is not None:
            return
        self.lost[rank] = reason
        self._fences[rank].set_result(None)
        if self.rank == CALLER:
            for other in range(self.size):
                if other not in self.lost:
                    self.tell(other, "fence", rank, reason)
        else:
            self.host.drop_sender(rank)

    async def on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine on this site's loop: a pass that blocks its thread has another."""
        if asyncio.get_running_loop() is self.loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def tell(self, rank: int, method: str, *args: Any) -> asyncio.Task[Any]:
        """Call a host in the background; the task has the result."""
        return self.spawn(self.call(rank, method, *args))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background until the world ends."""
        task = self.loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(retrieve)
        return task

    async def tell_all(self, ranks: Iterable[int], method: str, *args: Any) -> dict[int, Any]:
        """Call hosts at the same time, and wait for the grace at most.

        A call that has not ended by then goes on in the background.

        Args:
            ranks: those of the hosts; lost ones are left out.

        Returns:
            By rank the error of each call that has failed, and a TimeoutError for a late one.
        """
        calls = {self.tell(rank, method, *args): rank for rank in ranks if rank not in self.lost}
        # If the wait below is cancelled, the calls go on.
        await self.wait(calls)
        errors: dict[int, Any] = {}
        for task, rank in calls.items():
            if not task.done():
                errors[rank] = TimeoutError(f"no answer to {method} in {self.grace} s")
            elif task.cancelled():
                errors[rank] = asyncio.CancelledError()
            elif task.exception() is not None:
                errors[rank] = task.exception()
        return errors

    async def wait(self, waiting: Iterable[asyncio.Future[Any]]) -> None:
        """Wait for all of these for the grace, in which the loop has to be free.

        While something else holds the loop, answers that have come can't be read.
        """
        pending = set(waiting)
        for _ in range(_PARTS):
            if pending:
                _, pending = await asyncio.wait(pending, timeout=self.grace / _PARTS)

    async def answers(self, method: str) -> dict[int, Any]:
        """By rank, what a method of each host gives, of those that answer within the grace."""
        ranks = [rank for rank in range(self.size) if rank not in self.lost]
        asking = {rank: self.tell(rank, method) for rank in ranks}
        try:
            # If this wait is cancelled, so are the calls.
            await self.wait(asking.values())
            return {
                rank: one.result()
                for rank, one in asking.items()
                if one.done() and not one.cancelled() and one.exception() is None
            }
        finally:
            for one in asking.values():
                one.cancel()

    async def call_each(
        self, method: str, arguments: Sequence[tuple[Any, ...]], call: Any = None
    ) -> list[Any]:
        """Call a method of each host; if it fails on one, it is ended on all.

        Args:
            method: the method, which takes a key under which it is ended.
            arguments: for each rank, the arguments that follow the key.
            call: the key.
        """
        call = ("call", next(self.numbers)) if call is None else call
        try:
            return await self.all_of(method, [(call, *given) for given in arguments])
        finally:
            if self.ended is None:
                await self.tell_all(range(self.size), "stop", call)

    async def all_of(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of each host, with the arguments of its rank; raise if one fails."""
        calls = [
            asyncio.ensure_future(self.call(rank, method, *arguments[rank]))
            for rank in range(self.size)
        ]
        try:
            # If this wait is cancelled, the calls are.
            await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            failed = [one for one in calls if one.done() and one.exception() is not None]
            # Calls that wait for a lost worker fail, too. The loss itself says more, so raise it.
            failed.sort(key=lambda one: not isinstance(one.exception(), WorkerLostError))
            if failed:
                await failed[0]
            return [one.result() for one in calls]
        finally:
            for one in calls:
                one.cancel()
                if one.done() and not one.cancelled():
                    one.exception()
            # The traceback of an error holds this frame, which would hold the error: a cycle.
            calls.clear()
            failed = one = None  # type: ignore[assignment]

    def drop(self, rank: int, kind: str, number: Any) -> None:
        """Tell a host soon that something is not needed any more; may be called in any thread."""
        with suppress(RuntimeError):
            # Raised if the loop is closed: then the host has ended, too.
            self.loop.call_soon_threadsafe(self._drop, rank, kind, number)

    def _drop(self, rank: int, kind: str, number: Any) -> None:
        if self.ended is not None or rank in self.lost:
            return
        unneeded = self._unneeded.get(rank)
        if unneeded is None:
            self._unneeded[rank] = unneeded = []
            self.loop.call_soon(self._tell_unneeded, rank)
        unneeded.append((kind, number))

    def _tell_unneeded(self, rank: int) -> None:
        unneeded = self._unneeded.pop(rank)
        if self.ended is None and rank not in self.lost:
            self.tell(rank, "release", unneeded)

    async def end(self, reason: str) -> None:
        """Refuse all further use, and end what runs in the background."""
        self.ended = reason
        running = tuple(self._background)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self.coordinators.clear()


def site_of(given: Site | None, session: str) -> Site:
    """The site that an object belongs to: the one it was made by, or that of the running host."""
    site = given or here.get()
    if site is None or site.session != session:
        raise AutogradError(
            "a part of another world, or one that was pickled, was used outside of its world's "
            "workers: use it where it was made, or in code that runs on its workers"
        )
    return site
