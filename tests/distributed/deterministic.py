"""An engine in one process whose messages are delayed, doubled and lost as a test says.

Everything is pickled on its way, as between processes. Who calls does not end what was called: a
cancelled await leaves the host working, as Dask does.
"""

from __future__ import annotations

import asyncio
import pickle
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncgrad.distributed.engine import answered, sent
from asyncgrad.distributed.world import World, open_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from asyncgrad.distributed.host import Host
    from asyncgrad.distributed.messages import Message

_engines: dict[int, Engine] = {}


class Peers:
    def __init__(self, number: int) -> None:
        self.number = number

    async def call(self, rank: int, message: Message) -> tuple[bool, Any]:
        return await _engines[self.number].call(rank, message)


class Engine:
    def __init__(self, count: int, choose: Callable[[int], int] = lambda most: 0) -> None:
        """Run hosts.

        Args:
            count: how many.
            choose: gives a number from 0 to `most`: how many turns a message takes, and whether it
                is doubled.
        """
        self.count = count
        self.choose = choose
        self.hosts: list[Host] = []
        self.log: list[tuple[int, str, int]] = []
        self.dead: set[int] = set()
        self.stopped: dict[int, asyncio.Event] = {}
        #: Called with each message before it arrives.
        self.on_message: Callable[[int, Message], Any] = lambda rank, message: None
        self.tasks: set[asyncio.Task[Any]] = set()
        _engines[id(self)] = self

    def __repr__(self) -> str:
        return f"<{self.count} hosts>"

    async def start(self, factory: Callable[[int], Host]) -> int:
        loop = asyncio.get_running_loop()
        self.hosts = [factory(rank) for rank in range(self.count)]
        self._lost = [loop.create_future() for _ in self.hosts]
        return self.count

    async def _turns(self, most: int = 3) -> None:
        for _ in range(self.choose(most)):
            await asyncio.sleep(0)

    async def call(self, rank: int, message: Message) -> tuple[bool, Any]:
        pickled = sent(message, pickle.dumps)
        self.log.append((message.sender, message.method, rank))
        await self._turns()
        found = self.on_message(rank, message)
        if found is not None:
            await found
        if message.sender in self.dead:
            # Who has sent it is gone.
            await asyncio.Event().wait()
        if rank in self.stopped:
            await self.stopped[rank].wait()
        self._check(rank)
        copies = 1 + (self.choose(4) == 4)
        working = [self._spawn(self._arrive(rank, pickled, copy)) for copy in range(copies)]
        for one in working:
            one.set_name(message.method)
        answer = await asyncio.shield(working[0])
        if rank in self.stopped:
            await self.stopped[rank].wait()
        await self._turns()
        self._check(rank)
        return pickle.loads(answer)

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _arrive(self, rank: int, pickled: bytes, copy: int) -> bytes:
        for _ in range(copy):
            await self._turns(20)
        return await answered(self.hosts[rank], partial(pickle.loads, pickled), pickle.dumps)

    def _check(self, rank: int) -> None:
        if rank in self.dead:
            raise ConnectionResetError("killed")

    def kill(self, rank: int) -> None:
        """End a host at once; the news comes at once, too."""
        if rank not in self.dead:
            self.dead.add(rank)
            # It sends nothing more.
            self.site(rank).ended = "killed"
            for tasks in (*self.hosts[rank]._lives.working.values(), self.site(rank)._background):
                for task in tuple(tasks):
                    task.cancel()
            self._lost[rank].set_result("killed")

    def stop(self, rank: int) -> None:
        """Let a host hang, as by SIGSTOP."""
        self.stopped[rank] = asyncio.Event()

    def wake(self, rank: int) -> None:
        """Let it go on."""
        self.stopped.pop(rank).set()

    def lost(self, rank: int) -> asyncio.Future[str]:
        return self._lost[rank]

    def peers(self) -> Peers:
        return Peers(id(self))

    async def close(self) -> None:
        del _engines[id(self)]
        for lost in self._lost:
            lost.cancel()
        tasks = tuple(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def site(self, rank: int) -> Any:
        return self.hosts[rank]._site

    def part(self, part: Any) -> Any:
        """The module of a part."""
        return self.hosts[part.rank]._parts[part.number]


@asynccontextmanager
async def world_of(
    engine: Engine, grace: float = 5.0, limit: float = 1800.0
) -> AsyncIterator[World]:
    async with open_world(engine, grace, limit) as world:
        yield world
