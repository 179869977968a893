"""Tenants' training on the workers of a cluster.

The process that answers keeps a state of each tenant, and the few batches that the tenant has sent
since. With them another worker takes the place of a lost one. A tenant that waits for a worker that
hangs gives it up after at most `PATIENCE` and twice the world's grace, long before the deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from asyncgrad import distributed as dist
from asyncgrad.serving import Overloaded
from examples.training_api.model import Base
from examples.training_api.training import Trainer, ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

T = TypeVar("T")
#: The longest time of a request's work, in seconds.
TIMEOUT = 30.0
#: After so many seconds without an answer, a worker is asked for a sign of life.
PATIENCE = 1.0
#: The seconds that it has for that sign, and for confirming a decision.
GRACE = 2.0
#: After so many batches without a step, the worker is asked for the state.
KEPT = 16


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[dist.World]:
    """All workers of a Dask cluster; its certificates are those of Dask's configuration."""
    # Imported here, because the service needs Dask only with workers.
    from distributed import Client

    async with (
        Client(address, asynchronous=True) as client,
        dist.connect(client, grace=GRACE) as world,
    ):
        yield world


class Cluster:
    """Which workers live, and how many tenants each has."""

    def __init__(self, world: dist.World) -> None:
        self._world = world
        self._tenants: Counter[int] = Counter()
        #: The workers that gave no sign of life when all were last asked for one.
        self._silent: set[int] = set()

    async def is_silent(self, rank: int) -> bool:
        """Whether a worker gives no sign of life within the grace: it hangs, or is lost."""
        found = await self._world.statistics()
        self._silent = {other for other, kept in enumerate(found) if kept is None}
        return rank in self._silent

    def _living(self) -> list[int]:
        dead = self._silent | set(self._world.lost)
        return [rank for rank in range(self._world.size) if rank not in dead]

    async def choose(self) -> int:
        """The living worker with the fewest tenants.

        Raises:
            Overloaded: if no worker lives.
        """
        if not self._living():
            # Ask again: a worker that was silent may have gone on since.
            await self.is_silent(0)
        if not self._living():
            raise Overloaded("no worker is left: the service has to be started anew")
        return min(self._living(), key=lambda rank: self._tenants[rank])

    async def place(self, rank: int, seed: int, state: Any) -> dist.RemoteModule:
        """Make a trainer on a worker."""
        self._tenants[rank] += 1
        try:
            return await self._world.remote(rank, _trainer, seed, state)
        except BaseException:
            self._tenants[rank] -= 1
            raise

    def drop(self, part: dist.RemoteModule) -> None:
        """Note that a trainer is no longer needed."""
        self._tenants[part.rank] -= 1


class ClusterTraining:
    """A tenant's training on some worker, and on another when that one dies."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._seed = cluster, seed
        self.part: dist.RemoteModule | None = None
        #: The worker that was chosen last.
        self._rank: int | None = None
        self.reset()

    def reset(self) -> None:
        """Begin anew with an adapter that changes nothing."""
        self._forget()
        self._state: Any = None
        self._since: list[tuple[Any, Any]] = []

    def _forget(self) -> None:
        """Let the next request make a trainer from the kept state and batches."""
        if self.part is not None:
            self._cluster.drop(self.part)
        self.part = None

    async def _begun(self) -> dist.RemoteModule:
        if self.part is None:
            self._rank = await self._cluster.choose()
            part = await self._cluster.place(self._rank, self._seed, self._state)
            try:
                for inputs, labels in self._since:
                    loss, _ = await part(inputs, labels)
                    await loss.backward()
            except BaseException:
                self._cluster.drop(part)
                raise
            self.part = part
        return self.part

    async def _attempt(self, work: Callable[[dist.RemoteModule], Awaitable[T]]) -> T:
        """Do some work on the tenant's worker, unless that is lost or gives no sign of life."""

        async def attempt() -> T:
            return await work(await self._begun())

        trying = asyncio.ensure_future(attempt())
        try:
            while not (await asyncio.wait([trying], timeout=PATIENCE))[0]:
                if self._rank is not None and await self._cluster.is_silent(self._rank):
                    break
        finally:
            trying.cancel()
            # Wait for the end: work that is cancelled too late succeeds, and its result counts.
            with anyio.CancelScope(shield=True):
                await asyncio.gather(trying, return_exceptions=True)
        if trying.cancelled():
            assert self._rank is not None
            raise dist.WorkerLostError(self._rank, "a tenant's work", "it gives no sign of life")
        return trying.result()

    async def _retried(self, work: Callable[[dist.RemoteModule], Awaitable[T]]) -> T:
        """Do some work, on one worker after another until one survives it."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                try:
                    return await self._attempt(work)
                except dist.WorkerLostError:
                    self._forget()

    async def forward_backward(self, inputs: Any, labels: Any) -> tuple[float, int]:
        """Add a batch's gradients; all or nothing: cancelled, it leaves no part of them."""

        async def work(part: dist.RemoteModule) -> tuple[float, int]:
            loss, right = await part(inputs, labels)
            await ended(loss.backward())
            self._since.append((inputs, labels))
            return loss.item(), right

        answer = await self._retried(work)
        if len(self._since) >= KEPT and self.part is not None:
            await self._keep()
        return answer

    async def _keep(self) -> None:
        """Replace the kept batches by a state, because their number would grow without end."""
        try:
            async with asyncio.timeout(TIMEOUT):
                self._state = await self._attempt(lambda part: part.apply(Trainer.state))
        except (dist.WorkerLostError, TimeoutError):
            # The request has succeeded: its batch has been added, and is kept.
            self._forget()
        else:
            self._since.clear()

    async def step(self, lr: float) -> None:
        """Take a step, and keep the state after it."""
        try:
            self._state = await self._retried(lambda part: part.apply(_stepped, lr))
        except BaseException:
            # The worker may or may not have taken the step, so its trainer is of no use.
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
