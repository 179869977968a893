"""A world: some workers of a cluster, and the caller who has them compute."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction
from itertools import count
from math import inf
from operator import index
from os import PathLike
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from asyncgrad.core.modes import Mode
from asyncgrad.distributed.engine import Engine
from asyncgrad.distributed.host import Host
from asyncgrad.distributed.lifetimes import cancelled, one_of
from asyncgrad.distributed.metrics import counted, text
from asyncgrad.distributed.remote import RemoteModule, check_given
from asyncgrad.distributed.remote_optimizer import RemoteOptimizer
from asyncgrad.distributed.replicated import ReplicatedModel
from asyncgrad.distributed.site import CALLER, Site
from asyncgrad.distributed.trace import Trace, save
from asyncgrad.errors import AutogradError, add_note
from asyncgrad.nn.module import Module
from asyncgrad.scheduler import offload

_P = ParamSpec("_P")
_R = TypeVar("_R")
#: PyTorch's for a process group.
_TIMEOUT = 1800.0
#: Clients, and other engines, of worlds that have not ended. Two worlds can't share one: a Dask
#: client has only one handler for the topic that tells of a worker's loss.
_used: weakref.WeakSet[Any] = weakref.WeakSet()


class World:
    """Some workers, by rank; `connect` makes it, and it ends with that block."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._numbers = count()
        self._is_traced = False

    @property
    def size(self) -> int:
        """The number of workers; their ranks are 0 to `size - 1`."""
        return self._site.size

    @property
    def lost(self) -> dict[int, str]:
        """The ranks of lost workers, each with the reason."""
        return self._site.lost

    def _rank(self, given: Any) -> int:
        self._site.check()
        if not hasattr(given, "__index__"):
            raise TypeError(f"remote: {given!r} is no rank: that comes first, and then a factory")
        rank: int = index(given)
        if not 0 <= rank < self.size:
            raise ValueError(f"there is no worker {rank}: the ranks are 0 to {self.size - 1}")
        return rank

    async def remote(
        self, rank: int, factory: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> RemoteModule:
        """Make a module on a worker.

        Args:
            rank: which worker.
            factory: makes the module there: a `Module` class, or a function or coroutine function
                that can be pickled.
            args: its arguments, by keyword also `rank` or `factory`; other parts may be among them,
                for modules that call them.

        Returns:
            A part: `await part(x)` in graphs of the caller's, or in other parts.

        Raises:
            ValueError: for a rank that there is not.
            RuntimeError: if a tensor that requires grad is among the arguments: gradients would
                not find their way back; or a part of another world.
            WorkerLostError: if the worker is lost.
            Exception: what the factory raised.
        """
        rank = self._rank(rank)
        _check_factory("remote", factory)
        number = next(self._numbers)
        parts = check_given("remote", self._site, (args, kwargs))
        # The object is made first. If the call fails or is cancelled, the object goes, and so the
        # worker is told to drop the module.
        part = RemoteModule(self._site, rank, number)
        part._given = tuple(parts)
        await self._site.call(rank, "remote", number, factory, args, kwargs)
        return part

    async def optimizer(
        self, kind: Callable[..., Any], models: Sequence[Any], **defaults: Any
    ) -> RemoteOptimizer:
        """Make an optimizer of parts on workers, and of modules of the caller's.

        Args:
            kind: the class of an optimizer, `asyncgrad.optim.Adam` for example.
            models: parts, and modules.
            defaults: its arguments: `lr`, for example.

        Returns:
            What steps them all: `await optimizer.step_async()`.
        """
        self._site.check()
        return await RemoteOptimizer.make(self._site, next(self._numbers), kind, models, defaults)

    async def run(
        self, function: Callable[_P, Awaitable[_R]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> list[_R]:
        """Run a function on all workers, as one program with many ranks; return results by rank.

        Within it `get_rank`, `get_world_size` and the collectives work. If it fails on one worker,
        or a worker is lost, or the caller is cancelled, it is cancelled on all.

        Args:
            function: a coroutine function that can be pickled.
            args: its arguments, the same on all.

        Raises:
            RuntimeError: if a tensor that requires grad is among the arguments: gradients would
                not find their way back; or a part of another world.
            WorkerLostError: if a worker is lost.
            Exception: the first error on a worker, with a note that names it.
        """
        self._site.check()
        if not iscoroutinefunction(function):
            raise TypeError(
                f"run: {function!r} is no coroutine function: write `async def`, and give the "
                f"function itself, followed by its arguments"
            )
        check_given("run", self._site, (args, kwargs))
        run = "run", next(self._site.numbers)
        given = dict.fromkeys(range(self.size), (run, function, args, kwargs))
        return await self._site.call_each("run", given, run)

    async def replicate(
        self, make_model: Callable[..., Any], *, bucket_cap_mb: float = 25.0
    ) -> ReplicatedModel:
        """Make a model on every worker, whose gradients are averaged over all of them.

        Args:
            make_model: makes the module: a function or coroutine function that can be pickled.
            bucket_cap_mb: how many megabytes of gradients are reduced together.

        Returns:
            The model: `await model.forward_backward(loss_fn, shards)`. Its copies have the
            parameters of that on worker 0.
        """
        self._site.check()
        _check_factory("replicate", make_model)
        number = next(self._numbers)
        run = "group", next(self._site.numbers)
        call = "call", next(self._site.numbers)
        given = call, run, number, make_model, bucket_cap_mb
        parts = [RemoteModule(self._site, rank, number) for rank in range(self.size)]
        model = ReplicatedModel(self._site, run, parts)
        await self._site.call_each("replicate", dict.fromkeys(range(self.size), given), call)
        return model

    @asynccontextmanager
    async def trace_passes(self, path: str | PathLike[str]) -> AsyncIterator[None]:
        """Trace passes on all workers, and those started in this context, into one file.

        The machines' clocks are taken as they are set. One trace of a world at a time.

        Args:
            path: the file, written at the end of the block; open it in https://ui.perfetto.dev.
                Workers that are lost, or do not answer within the grace, are missing in it.

        Raises:
            RuntimeError: if another trace of the world has not ended.
            OSError: at the end, if the file can't be written.
        """
        site = self._site
        if self._is_traced:
            raise AutogradError("trace_passes: the world is traced already: leave that block first")
        self._is_traced = True
        living = [rank for rank in range(self.size) if not site.has_lost(rank)]
        own = Trace("caller")
        try:
            await site.call_each("trace", dict.fromkeys(living, ()))
            with Mode(observer=own.recorder):
                yield
        finally:
            self._is_traced = False
            found, _ = await site.tell_all(range(self.size), "traced")
            await offload(save, path, [own.collected(), *filter(None, found.values())])

    async def statistics(self) -> list[dict[str, int] | None]:
        """How much each worker keeps of this world: None for one that is lost or does not answer.

        Answers are awaited for the grace at most.
        """
        self._site.check()
        answers, _ = await self._site.tell_all(range(self.size), "statistics")
        return [answers.get(rank) for rank in range(self.size)]

    async def metrics(self) -> str:
        """What the caller and all workers count, in Prometheus' text format, by label `worker`.

        `asyncgrad_world_up` is 0 for a lost worker, and for one that does not answer within the
        grace.
        """
        self._site.check()
        answers, _ = await self._site.tell_all(range(self.size), "metrics")
        figures: dict[str, dict[str, float]] = {"caller": counted({"up": 1})}
        for rank in range(self.size):
            up = {"asyncgrad_world_up": int(rank in answers)}
            figures[str(rank)] = up | answers.get(rank, {})
        return text(figures)


def _check_factory(who: str, factory: Any) -> None:
    if isinstance(factory, Module):
        raise TypeError(
            f"{who}: got a module, {type(factory).__name__}, and not what makes it on a worker: "
            f"give its class or a function"
        )


@asynccontextmanager
async def open_world(
    engine: Engine, grace: float, timeout: float = _TIMEOUT,  # noqa: ASYNC109  of later waits
) -> AsyncIterator[World]:  # fmt: skip
    """A world on an engine; the engine is closed at the end of the block."""
    session = uuid4().hex
    site: Site | None = None
    try:
        starting = asyncio.ensure_future(engine.start(partial(Host, session)))
        try:
            # If this wait is cancelled, or too long, the start is given up.
            if not await one_of(starting, seconds=timeout):
                raise TimeoutError(
                    f"connect: not all workers have started within {timeout:g} s: one may hang, or "
                    f"the cluster have no room for it"
                )
            size = starting.result()
        finally:
            await cancelled([starting])
            # The traceback of its error holds this frame: a cycle.
            del starting
        site = Site(session, CALLER, size, engine, grace, timeout)
        for rank in range(size):
            engine.lost(rank).add_done_callback(partial(_lost, site, rank))
        given = size, engine.peers(), grace, timeout
        await site.call_each("open", dict.fromkeys(range(size), given))
        for rank in range(size):
            site.spawn(site.watch(rank))
        yield World(site)
    finally:
        try:
            if site is not None:
                try:
                    # If this wait is cancelled, the engine closes the hosts.
                    await site.tell_all(range(site.size), "close")
                finally:
                    await site.end("its block, `async with dist.connect(...)`, has been left")
        finally:
            await engine.close()


def _lost(site: Site, rank: int, reason: asyncio.Future[str]) -> None:
    if not reason.cancelled():
        site.fence(rank, reason.result())


def _on_dask(client: Any, workers: int | Sequence[str] | None) -> Engine:
    try:
        # Imported here: asyncgrad can do without Dask.
        from asyncgrad.distributed.dask_engine import DaskEngine
    except ImportError as error:
        raise ImportError(
            "connect: Dask distributed can't be imported: pip install 'asyncgrad[dask]'"
        ) from error
    return DaskEngine(client, workers)


@asynccontextmanager
async def connect(
    client: Any, *, workers: int | Sequence[str] | None = None, grace: float = 5.0,
    timeout: float | None = _TIMEOUT,  # noqa: ASYNC109  PyTorch's name
) -> AsyncIterator[World]:  # fmt: skip
    """Use workers of a Dask cluster, until the end of the block.

    Peers trust one another: their messages are pickles, which can run any code. Let only trusted
    machines connect, by TLS for example.

    Args:
        client: an asynchronous `distributed.Client` of the running loop; or another engine,
            a `RayEngine`.
        workers: how many of the Dask cluster's workers, or their addresses or names; None for all.
        grace: how many seconds a worker has to confirm what has been decided, and to end what was
            cancelled, before it is declared lost or left alone.
        timeout: how many seconds others have to answer, and to come to a collective; None for no
            limit. A worker that gives no sign of life for so long is lost. The function of
            `World.run` may take longer.

    Raises:
        ImportError: if Dask is not installed: `pip install asyncgrad[dask]`.
        ValueError: if there are too few workers, or none of a name, or `grace` is not positive.
        RuntimeError: if a worker lacks asyncgrad or has another version of it, of Python or NumPy,
            or the client is used by another world.
        TimeoutError: if the workers do not start in time.

    Example:
        >>> from asyncgrad import distributed as dist
        >>> async def main(client, x):
        ...     async with dist.connect(client, workers=2) as world:
        ...         part = await world.remote(1, make_encoder, 512)
        ...         await (await part(x)).sum().backward()
    """
    if not grace > 0:
        raise ValueError(
            f"connect: grace={grace}: it is a positive number of seconds, in which workers confirm "
            f"that they have committed a pass; those that don't are lost"
        )
    if timeout is not None and not timeout > 0:
        raise ValueError(
            f"connect: timeout={timeout}: it is a positive number of seconds, or None for no limit"
        )
    engine = client if isinstance(client, Engine) else _on_dask(client, workers)
    if client in _used:
        raise AutogradError(
            "connect: the client is used by another world: leave that first, or make a client for "
            "each"
        )
    _used.add(client)
    try:
        async with open_world(engine, grace, inf if timeout is None else timeout) as world:
            yield world
    except BaseException as error:
        add_note(error, f"in a world of {engine}")
        raise
    finally:
        _used.discard(client)
