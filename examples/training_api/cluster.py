"""Tenants' training on the workers of a cluster.

The front keeps what makes a lost worker good: a state of each tenant, and the few batches that it
has sent since. Another worker begins with them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from asyncgrad import distributed as dist
from asyncgrad.serving import Overloaded
from examples.training_api.model import Base
from examples.training_api.training import Trainer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

T = TypeVar("T")
#: A worker that hangs holds a request no longer, in seconds.
TIMEOUT = 30.0
#: After so many batches without a step, the worker is asked for the state.
KEPT = 16


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[dist.World]:
    """All workers of a Dask cluster; its certificates are those of Dask's configuration."""
    # Imported here: the service can do without.
    from distributed import Client

    async with Client(address, asynchronous=True) as client, dist.connect(client) as world:
        yield world


class Cluster:
    """Which workers live, and how many tenants each has."""

    def __init__(self, world: dist.World) -> None:
        self._world = world
        self._tenants: Counter[int] = Counter()

    async def place(self, seed: int, state: Any) -> dist.RemoteModule:
        """Make a trainer on the living worker with the fewest.

        Raises:
            Overloaded: if no worker lives.
        """
        living = [rank for rank in range(self._world.size) if rank not in self._world.lost]
        if not living:
            raise Overloaded("no worker is left: the service has to be started anew")
        rank = min(living, key=lambda rank: self._tenants[rank])
        self._tenants[rank] += 1
        try:
            return await self._world.remote(rank, _trainer, seed, state)
        except BaseException:
            self._tenants[rank] -= 1
            raise

    def drop(self, part: dist.RemoteModule) -> None:
        """A trainer is not needed any more."""
        self._tenants[part.rank] -= 1


class ClusterTraining:
    """A tenant's training on some worker, and on another when that one dies."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._seed = cluster, seed
        self.part: dist.RemoteModule | None = None
        self.reset()

    def reset(self) -> None:
        """Begin anew with an adapter that changes nothing."""
        self._forget()
        self._state: Any = None
        self._since: list[tuple[Any, Any]] = []

    def _forget(self) -> None:
        """The next request makes a trainer that begins with what is kept."""
        if self.part is not None:
            self._cluster.drop(self.part)
        self.part = None

    async def _begun(self) -> dist.RemoteModule:
        if self.part is None:
            part = await self._cluster.place(self._seed, self._state)
            try:
                for inputs, labels in self._since:
                    loss, _ = await part(inputs, labels)
                    await loss.backward()
            except BaseException:
                self._cluster.drop(part)
                raise
            self.part = part
        return self.part

    async def _retried(self, work: Callable[[dist.RemoteModule], Awaitable[T]]) -> T:
        """Do some work, on one worker after another until one survives it."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                try:
                    return await work(await self._begun())
                except dist.WorkerLostError:
                    self._forget()

    async def forward_backward(self, inputs: Any, labels: Any) -> tuple[float, int]:
        """Add a batch's gradients; all or nothing: cancelled, it leaves no part of them."""

        async def work(part: dist.RemoteModule) -> tuple[float, int]:
            loss, right = await part(inputs, labels)
            running = loss.backward()
            try:
                await running
            finally:
                # A pass that was cancelled too late has succeeded.
                if running.committed():
                    self._since.append((inputs, labels))
            return loss.item(), right

        answer = await self._retried(work)
        if len(self._since) >= KEPT and self.part is not None:
            await self._keep(self.part)
        return answer

    async def _keep(self, part: dist.RemoteModule) -> None:
        """Keep a state instead of batches, which would become more without end."""
        try:
            async with asyncio.timeout(TIMEOUT):
                self._state = await part.apply(Trainer.state)
        except (dist.WorkerLostError, TimeoutError):
            # The batch has been added, so that this is no error of the request.
            self._forget()
        else:
            self._since.clear()

    async def step(self, lr: float) -> None:
        """Take a step, and keep what it has made of the adapter."""
        try:
            self._state = await self._retried(lambda part: part.apply(_stepped, lr))
        except BaseException:
            # It may have been taken there, which nobody here can know.
            self._forget()
            raise
        self._since.clear()

    async def predict(self, inputs: Any) -> list[int]:
        """The likeliest classes."""
        return await self._retried(lambda part: part.apply(Trainer.predict, inputs))


@cache
def _base() -> Base:
    """The base, once in each worker."""
    return Base()


def _trainer(seed: int, state: Any) -> Trainer:
    return Trainer(_base(), seed, state)


async def _stepped(trainer: Trainer, lr: float) -> Any:
    """Take a step; what a trainer needs to go on elsewhere."""
    await trainer.step(lr)
    return trainer.state()
