"""Ray as the engine: hosts are asynchronous actors. It is imported where it is used, if at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from asyncgrad.distributed.engine import Host, answered, check_versions, sent, versions
from asyncgrad.distributed.messages import Message
from asyncgrad.errors import AutogradError

#: How many messages may wait in a host at once.
_WAITING = 100_000


class _Actor:
    """The actor around a host."""

    def __init__(self, factory: Callable[[int], Host], rank: int) -> None:
        self._host = factory(rank)

    async def versions(self) -> dict[str, str]:
        return versions()

    async def life(self) -> None:
        """Never return: a caller that awaits this gets an error when the actor dies."""
        await asyncio.Event().wait()

    async def take(self, sealed: bytes) -> bytes:
        return await answered(self._host, lambda: _opened(sealed), _sealed)


def _sealed(value: Any) -> bytes:
    """Pickle a value to bytes. Arrays that Ray itself unpickles would be read-only."""
    from ray import cloudpickle

    sealed: bytes = cloudpickle.dumps(value)
    return sealed


def _opened(sealed: bytes) -> Any:
    from ray import cloudpickle

    return cloudpickle.loads(sealed)


class RayPeers:
    """Calls hosts, from anywhere."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors

    async def call(self, rank: int, message: Message) -> tuple[bool, Any]:
        """Await `take(message)` of a host."""
        from ray.exceptions import RayError

        sealed = sent(message, _sealed)
        try:
            answer = await self._actors[rank].take.remote(sealed)
        except RayError as error:
            raise OSError(f"its actor can't be reached: {error!r}") from error
        succeeded, value = _opened(answer)
        return succeeded, value


class RayEngine(RayPeers):
    """Runs the workers of a world on a Ray cluster, for `connect`.

    Args:
        workers: how many.
        options: of their actors, for Ray: `num_cpus=4`, or `scheduling_strategy="SPREAD"`.

    Raises:
        ImportError: if Ray is not installed: `pip install asyncgrad[ray]`.
        ValueError: if there are to be no workers.
        RuntimeError: before `ray.init()`.

    Example:
        >>> from asyncgrad import distributed as dist
        >>> async def main(x):
        ...     async with dist.connect(dist.RayEngine(workers=4, num_cpus=2)) as world:
        ...         part = await world.remote(1, make_encoder, 512)
        ...         await (await part(x)).sum().backward()
    """

    def __init__(self, workers: int, **options: Any) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError(
                "RayEngine: Ray can't be imported: pip install 'asyncgrad[ray]'"
            ) from error
        if not ray.is_initialized():
            raise AutogradError("RayEngine: call ray.init() first")
        super().__init__([])
        self._ray = ray
        self._workers = index(workers)
        if self._workers < 1:
            raise ValueError(f"RayEngine: workers={workers}: at least one")
        self._options = options
        self._lost: list[asyncio.Future[str]] = []
        self._watching: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        """The name of the cluster's kind."""
        return "Ray"

    async def start(self, factory: Callable[[int], Host]) -> int:
        """Make the hosts; waits until Ray has room for them."""
        kind = self._ray.remote(_Actor).options(
            max_restarts=0, max_task_retries=0, max_concurrency=_WAITING, **self._options
        )
        self._actors = [kind.remote(factory, rank) for rank in range(self._workers)]
        for rank, actor in enumerate(self._actors):
            try:
                check_versions(f"of rank {rank}", await actor.versions.remote())
            except self._ray.exceptions.RayError as error:
                raise AutogradError(f"connect: worker {rank} has not started: {error}") from error
        loop = asyncio.get_running_loop()
        self._lost = [loop.create_future() for _ in self._actors]
        self._watching = [loop.create_task(self._watch(rank)) for rank in range(self._workers)]
        return self._workers

    async def _watch(self, rank: int) -> None:
        try:
            await self._actors[rank].life.remote()
        except self._ray.exceptions.RayActorError:
            if not self._lost[rank].done():
                self._lost[rank].set_result("Ray says that its actor has died")

    def lost(self, rank: int) -> asyncio.Future[str]:
        """Resolved with the reason when a worker is known to have died."""
        return self._lost[rank]

    def peers(self) -> RayPeers:
        """What hosts call one another with."""
        return RayPeers(self._actors)

    async def close(self) -> None:
        """Kill the actors."""
        for watching, lost in zip(self._watching, self._lost, strict=True):
            watching.cancel()
            lost.cancel()
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
