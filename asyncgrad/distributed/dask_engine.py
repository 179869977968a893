"""Dask distributed as the engine: hosts are actors, but are not called through Dask's `Actor`.

A call through `Actor` would never end if it were made after a worker's death and before the client
has learnt of it. Also, such calls go through the scheduler unless the client is told otherwise.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import index
from typing import Any

import distributed
from distributed.core import send_recv
from distributed.protocol.pickle import dumps, loads
from distributed.protocol.serialize import ToPickle

from asyncgrad.distributed.engine import Host, answered, check_versions, sent, versions
from asyncgrad.distributed.errors import WorkerLostError
from asyncgrad.distributed.messages import Message
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.segments import retrieve

#: How many bytes a connection sends in one turn of the loop: what takes about 0.2 ms.
_PIECE = 1 << 17


class _Sealed:
    """A value that its receiver unpickles, and not Dask, so that it can answer with an error."""

    __slots__ = ("_buffers", "_header")

    def __init__(self, header: bytes, buffers: Sequence[Any]) -> None:
        self._header = header
        self._buffers = buffers

    @classmethod
    def of(cls, value: Any, address: str) -> _Sealed:
        """Pickle a value, its arrays out of band."""
        buffers: list[Any] = []
        header = dumps(value, buffer_callback=buffers.append)
        if address.startswith("inproc"):
            # Within one process nothing is copied on the way, so both sides would share the arrays.
            return cls(header, [bytearray(buffer.raw()) for buffer in buffers])
        return cls(header, buffers)

    def open(self) -> Any:
        """Unpickle the value."""
        return loads(self._header, buffers=self._buffers)

    def __reduce__(self) -> Any:
        return _Sealed, (self._header, self._buffers)


class _Actor(distributed.WorkerPlugin):  # type: ignore[misc]
    """The actor around a host, and the plugin by which it learns that the host has to be closed.

    It is closed when its worker closes, or drops the actor because the caller's client is gone.
    Calls that the host works on keep the actor, so it would not end by itself.
    """

    def __init__(self, factory: Callable[[int], Host], rank: int, address: str, key: str) -> None:
        self._host = factory(rank)
        self._is_closed = False
        self._address = address
        self._key = key
        self._worker = distributed.get_worker()
        # The loop calls this before it learns that the actor is made, and so before it can drop it.
        self._worker.loop.add_callback(self._worker.plugin_add, self, key)

    async def take(self, sealed: _Sealed) -> _Sealed:
        found = await answered(self._host, sealed.open, partial(_Sealed.of, address=self._address))
        if self._is_closed:
            raise OSError("its worker has closed it")
        return found

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if key == self._key and finish in {"released", "forgotten"}:
            # Later, because the worker goes through its plugins just now.
            self._worker.loop.add_callback(self._drop)

    async def _drop(self) -> None:
        self._worker.plugins.pop(self._key, None)
        await self.teardown(self._worker)

    async def teardown(self, worker: distributed.Worker) -> None:
        self._is_closed = True
        await self._host.close()


def _send_in_pieces(comm: Any) -> None:
    """Have a connection send a piece in one turn of the loop, and the next one after others' turns.

    Tornado goes on in one turn as long as the socket takes more.
    """
    stream = getattr(comm, "stream", None)
    if stream is None or "write_to_fd" in vars(stream):
        # The connection is within a process, was closed, or sends in pieces already.
        return
    # Weakly: the connection has the function.
    known, kind = weakref.ref(stream), type(stream)
    has_sent = False

    def send(data: memoryview) -> int:
        nonlocal has_sent
        if has_sent:
            has_sent = False
            # 0 bytes sent: Tornado takes the socket for full and goes on in the next turn.
            return 0
        has_sent = len(data) > _PIECE
        sent: int = kind.write_to_fd(known(), data[:_PIECE])
        return sent

    stream.write_to_fd = send


class DaskPeers:
    """Calls hosts, from anywhere."""

    def __init__(self, addresses: Sequence[str], keys: Sequence[str], pool: Any) -> None:
        self._addresses = addresses
        self._keys = keys
        self._pool = pool

    def __reduce__(self) -> Any:
        return _peers_on_worker, (self._addresses, self._keys)

    async def call(self, rank: int, message: Message) -> tuple[bool, Any]:
        """Await `take(message)` of a host."""
        address = self._addresses[rank]
        packed = ToPickle(sent(message, partial(_Sealed.of, address=address)))
        # Pickling and sending take a turn of the loop each: others wait for the longer one only.
        await asyncio.sleep(0)
        try:
            comm = await self._pool.connect(address)
        except RuntimeError as error:
            # Dask says so if the client has been closed.
            raise OSError(str(error)) from error
        _send_in_pieces(comm)
        offloads, comm.allow_offload = comm.allow_offload, False
        try:
            # Without asking how large the message is, which takes long, because nothing is left to
            # do in a thread.
            answer = await send_recv(
                comm,
                op="actor_execute",
                actor=self._keys[rank],
                function="take",
                args=[packed],
                kwargs={},
            )
        finally:
            comm.allow_offload = offloads
            self._pool.reuse(address, comm)
        if answer["status"] != "OK":
            raise OSError(f"its actor failed: {answer['exception']!r}")
        succeeded, value = answer["result"].open()
        return succeeded, value


def _peers_on_worker(addresses: Sequence[str], keys: Sequence[str]) -> DaskPeers:
    return DaskPeers(addresses, keys, distributed.get_worker().rpc)


class DaskEngine(DaskPeers):
    """Runs hosts on workers of a Dask cluster."""

    def __init__(self, client: Any, workers: int | Sequence[str] | None) -> None:
        """Check a client.

        Args:
            client: an asynchronous client.
            workers: how many workers, or their addresses or names; None for all.
        """
        if not isinstance(client, distributed.Client) or not client.asynchronous:
            raise TypeError(
                "connect: expected an asynchronous client of the running loop: `async with "
                "distributed.Client(address, asynchronous=True) as client`"
            )
        if client.status != "running":
            raise AutogradError(
                f"connect: the client is {client.status}: await it, or make it anew"
            )
        super().__init__([], [], client.rpc)
        self._client = client
        #: Noted here because a client that is closed within the world has no scheduler any more.
        self._scheduler = client.scheduler.address
        self._wanted = workers
        self._actors: list[Any] = []
        self._lost: list[asyncio.Future[str]] = []

    def __repr__(self) -> str:
        """The scheduler's address."""
        return f"Dask at {self._scheduler}"

    async def start(self, factory: Callable[[int], Host]) -> int:
        """Make the hosts."""
        client = self._client
        loop = asyncio.get_running_loop()
        known = (await client.scheduler.identity(n_workers=-1))["workers"]
        self._addresses = _chosen(known, self._wanted)
        self._lost = [loop.create_future() for _ in self._addresses]
        for address, lost in zip(self._addresses, self._lost, strict=True):
            # The scheduler publishes what happens to a worker under the worker's address.
            client.subscribe_topic(address, partial(_notice, lost))
        await self._compare()
        name = f"asyncgrad-{id(self)}-{loop.time()}"
        self._keys = [f"{name}-{rank}" for rank in range(len(self._addresses))]
        for rank, (address, key) in enumerate(zip(self._addresses, self._keys, strict=True)):
            self._actors.append(
                client.submit(
                    _Actor,
                    factory,
                    rank,
                    address,
                    key,
                    actor=True,
                    # On another worker, or made again, an actor would have lost what it held.
                    workers=[address],
                    allow_other_workers=False,
                    pure=False,
                    key=key,
                    retries=0,
                )
            )
        # If a worker is gone, Dask waits for it to come back. So `_lost` is waited for, too.
        # Nothing is fetched: Dask fetches for all who wait at once, and if one of them is cancelled
        # (such as an earlier start), all are.
        made = asyncio.gather(*(actor.exception() for actor in self._actors))
        made.add_done_callback(retrieve)
        waited: list[asyncio.Future[Any]] = [made, *self._lost]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for rank, lost in enumerate(self._lost):
                if lost.done():
                    raise WorkerLostError(rank, "start", lost.result())
            await made
            for actor in self._actors:
                if actor.status != "finished":
                    await actor
        finally:
            made.cancel()
        return len(self._addresses)

    async def _compare(self) -> None:
        """Raise unless all workers have this process' versions."""
        found = await self._client.run(
            versions, workers=self._addresses, on_error="return", nanny=False
        )
        for address, its in found.items():
            if isinstance(its, OSError):
                rank = self._addresses.index(address)
                raise WorkerLostError(rank, "start", f"it can't be reached ({its})") from its
            if isinstance(its, BaseException):
                raise AutogradError(
                    f"connect: the worker at {address} can't import asyncgrad with its extra "
                    f"`dask` ({its!r}): install it there"
                ) from its
            check_versions(f"at {address}", its)

    def lost(self, rank: int) -> asyncio.Future[str]:
        """Resolved with the reason when a worker is known to have died."""
        return self._lost[rank]

    def peers(self) -> DaskPeers:
        """What hosts call one another with."""
        return DaskPeers(self._addresses, self._keys, self._pool)

    async def close(self) -> None:
        """Drop the hosts."""
        client = self._client
        for lost in self._lost:
            lost.cancel()
        for actor in self._actors:
            actor.release()
        self._actors.clear()
        for address in self._addresses:
            if client.status == "running" and address in client._event_handlers:
                client.unsubscribe_topic(address)
                del client._event_handlers[address]


def _notice(lost: asyncio.Future[str], event: Any) -> None:
    """Take an event of the scheduler's about a worker."""
    _, facts = event
    is_removed = isinstance(facts, dict) and facts.get("action") == "remove-worker"
    if is_removed and not lost.done():
        lost.set_result("the scheduler has removed it")


def _chosen(known: dict[str, Any], wanted: int | Sequence[str] | None) -> list[str]:
    """The addresses of the workers that are wanted."""
    # By length first: a local cluster's names are numbers.
    addresses = sorted(known, key=lambda a: (len(name := str(known[a]["name"])), name, a))
    if wanted is None:
        wanted = max(1, len(addresses))
    if isinstance(wanted, str):
        wanted = [wanted]
    if hasattr(wanted, "__index__"):
        count = index(wanted)
        if not 1 <= count <= len(addresses):
            remedy = f"start more, or await client.wait_for_workers({count})"
            raise ValueError(
                f"connect: {count} workers are wanted, and the cluster has {len(addresses)}: "
                f"{remedy if count > 0 else 'one is needed'}"
            )
        return addresses[:count]
    if not isinstance(wanted, Iterable):
        raise TypeError(
            f"connect: workers={wanted!r}: expected a number of workers, their addresses or names"
        )
    by_name = {str(known[address]["name"]): address for address in addresses}
    chosen = [by_name.get(str(name), str(name)) for name in wanted]
    missing = [name for name in chosen if name not in known]
    if missing or not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"connect: workers={list(wanted)!r}: each is the address or name of another worker of "
            f"the cluster, which has {addresses}"
        )
    return chosen
