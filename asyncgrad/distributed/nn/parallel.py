"""Data parallelism: every rank computes with its share of a batch, and gradients are averaged.

Gradients are gathered into buckets by plain hooks on the parameters. A full bucket is reduced while
the pass goes on. When the last node has run, what is missing is reduced, too, and the ranks agree
whether all of them succeed: rank 0 collects their votes, and its own commit decides.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.autograd import graph
from asyncgrad.autograd.modes import no_grad
from asyncgrad.creation import from_numpy, zeros
from asyncgrad.distributed.errors import PassEndedError
from asyncgrad.distributed.group import Group, current_group
from asyncgrad.errors import AutogradError
from asyncgrad.nn.module import Module
from asyncgrad.scheduler import offload

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

#: The models whose gradients are not reduced here.
_unsynced: ContextVar[frozenset[int]] = ContextVar("asyncgrad_unsynced", default=frozenset())


class DistributedDataParallel(Module):
    """A module of which every rank has a copy, with gradients averaged over the ranks.

    Make it within `World.run`, on all ranks in the same order, and await it once: it then has rank
    0's parameters and buffers. Every pass reduces its gradients while it goes on, in buckets; they
    have the same bits on all ranks. A pass succeeds on all ranks, or on none. Passes of one model
    follow one another. A parameter that no rank has used gets no gradient.

    Args:
        module: this rank's copy, of the same structure on all.
        bucket_cap_mb: the size of a bucket in megabytes.

    Raises:
        RuntimeError: outside of `World.run`, if no parameter requires grad, or if one is not on
            the CPU.
        ValueError: if buckets would be empty.

    Example:
        >>> import asyncgrad as ag
        >>> from asyncgrad import distributed as dist
        >>> async def train(batches):
        ...     model = await dist.nn.parallel.DistributedDataParallel(ag.nn.Linear(4, 1))
        ...     optimizer = ag.optim.SGD(model.parameters(), lr=0.1)
        ...     for x in batches[dist.get_rank()]:
        ...         optimizer.zero_grad()
        ...         await model(x).square().mean().backward()
        ...         optimizer.step()
    """

    def __init__(self, module: Module, *, bucket_cap_mb: float = 25.0) -> None:
        """Make the buckets, in the order in which gradients will come: from the last on."""
        super().__init__()
        if not bucket_cap_mb > 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb={bucket_cap_mb}: no bucket")
        self.module = module
        group = current_group()
        parameters = [p for p in module.parameters() if p.requires_grad]
        if not parameters:
            raise AutogradError(
                "DistributedDataParallel: no parameter of the module requires grad, so there is "
                "nothing to average"
            )
        for p in parameters:
            if not isinstance(p._array, np.ndarray):
                raise AutogradError(
                    f"DistributedDataParallel: a parameter is on {p.device}: the parameters have "
                    f"to be dense and on the CPU"
                )
        self._state = _Model(group, parameters, _buckets(parameters, bucket_cap_mb * 1e6))
        self._is_open = False
        for place, parameter in enumerate(parameters):
            parameter.register_hook(partial(self._state.arrived, place))

    def __await__(self) -> Generator[Any, None, DistributedDataParallel]:
        """Take rank 0's parameters and buffers."""
        return self._open().__await__()

    async def _open(self) -> DistributedDataParallel:
        group = self._state.group
        own = [tensor.detach() for tensor in (*self.parameters(), *self.buffers())]
        facts = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in own]
        tag = "open", self._state.number
        found = await group.exchange(
            tag, dict.fromkeys(range(group.size), (facts, own if group.rank == 0 else None)), None
        )
        if group.rank:
            theirs, values = found[0]
            if theirs != facts:
                raise AutogradError(
                    f"DistributedDataParallel: rank 0's module has tensors {theirs}, that of rank "
                    f"{group.rank} {facts}: make the same module on all ranks"
                )
            with no_grad():
                for tensor, value in zip(own, values, strict=True):
                    tensor.copy_(value)
        self._is_open = True
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        if not self._is_open:
            raise AutogradError(
                "DistributedDataParallel: the ranks' parameters may differ: await the model once, "
                "`model = await DistributedDataParallel(module)`"
            )
        self._state.check()
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes started in the block are not reduced.

        Their gradients are kept back, and added to those of the next pass outside of it.
        """
        before = _unsynced.get()
        _unsynced.set(before | {id(self._state)})
        try:
            yield
        finally:
            _unsynced.set(before)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of this rank."""
        return self._state.group.site.loop

    def name_pass(self, name: Any) -> None:
        """Say what the next pass is called on all ranks, instead of counting passes on each."""
        self._state.tag = "named", name

    async def skip(self) -> None:
        """Take part in a pass of the other ranks without a batch: with gradients of zero."""
        self._state.check()
        start = zeros(1).requires_grad_()
        end = start * 1

        def enter(gradient: Any) -> None:
            self._state.enter()

        end.register_hook(enter)
        await end.sum().backward()


def _buckets(parameters: Sequence[Any], cap: float) -> list[list[int]]:
    """Numbers of parameters, from the last on, in buckets of one dtype."""
    buckets: list[list[int]] = []
    size, dtype = 0.0, None
    for place in reversed(range(len(parameters))):
        array = parameters[place]._array
        if not buckets or array.dtype != dtype or size + array.nbytes > cap:
            buckets.append([])
            size, dtype = 0.0, array.dtype
        buckets[-1].append(place)
        size += array.nbytes
    return buckets


class _Model:
    """What the hooks of a model share."""

    def __init__(self, group: Group, parameters: list[Any], buckets: list[list[int]]) -> None:
        self.group = group
        self.number = next(group.models)
        self.parameters = parameters
        self.buckets = buckets
        self.bucket_of = {place: i for i, places in enumerate(buckets) for place in places}
        self.passes = count()
        #: What the next pass is called on all ranks, if it is not counted.
        self.tag: Any = None
        #: Gradients of passes that were not reduced.
        self.pending: dict[int, Any] = {}
        self.running: _Reduction | _Withheld | None = None
        self._running_id = -1
        #: Why the ranks are no longer equal.
        self.broken: str | None = None

    def check(self) -> None:
        """Raise if this rank has missed what the others have committed."""
        if self.broken is not None:
            raise PassEndedError(self.broken)

    def enter(self) -> _Reduction | _Withheld:
        """Take part in the current pass."""
        running = graph.current_pass()
        assert running is not None
        found = self.running
        if found is not None and self._running_id == running.id:
            return found
        if found is not None:
            raise AutogradError(
                "DistributedDataParallel: two passes of one model at the same time, which the "
                "ranks could not tell apart: await one before the next"
            )
        self.check()
        if id(self) in _unsynced.get():
            found = _Withheld(self)
        else:
            tag, self.tag = self.tag, None
            found = _Reduction(self, next(self.passes) if tag is None else tag)
        graph.join(found)
        self.running, self._running_id = found, running.id
        return found

    def arrived(self, place: int, gradient: Any) -> None:
        """Take a parameter's gradient; called by its hook, perhaps in a thread."""
        running = graph.current_pass()
        if running is not None:
            self.enter().arrived(place, gradient, early=running.accumulates)


class _Withheld:
    """Keeps the gradients of a pass back."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._gradients: dict[int, Any] = {}

    def arrived(self, place: int, gradient: Any, *, early: bool) -> None:
        """They are all there in the end."""

    async def prepare(self, gradients: dict[Any, Any]) -> dict[Any, Any]:
        places = {p: place for place, p in enumerate(self._model.parameters)}
        own = {p: gradient for p, gradient in gradients.items() if p in places}
        self._gradients = {places[p]: gradient.clone() for p, gradient in own.items()}
        return dict.fromkeys(own)

    async def commit(self) -> None:
        pending = self._model.pending
        for place, gradient in self._gradients.items():
            known = pending.get(place)
            pending[place] = gradient if known is None else known + gradient
        self._model.running = None

    async def abort(self) -> None:
        self._model.running = None


class _Reduction:
    """Averages the gradients of one pass."""

    def __init__(self, model: _Model, tag: Any) -> None:
        self._model = model
        self._group = model.group
        self._tag = ("gradients", model.number, tag)
        self._loop = model.group.site.loop
        self._gradients: dict[int, Any] = {}
        self._missing = [set(places) for places in model.buckets]
        self._reducing: dict[int, asyncio.Task[Any]] = {}
        self._others = [rank for rank in range(self._group.size) if rank != self._group.rank]
        self._voted = self._decided = False
        self._ended = False

    def _mail(self, what: Any) -> Any:
        return (*self._tag, what)

    def arrived(self, place: int, gradient: Any, *, early: bool) -> None:
        """Take a gradient; a bucket that is full is reduced."""
        self._gradients[place] = gradient
        if not early:
            return
        bucket = self._model.bucket_of[place]
        missing = self._missing[bucket]
        missing.discard(place)
        if not missing:
            # From a thread, too.
            self._loop.call_soon_threadsafe(self._start, bucket)

    def _start(self, bucket: int) -> None:
        if bucket not in self._reducing and not self._ended:
            self._reducing[bucket] = self._loop.create_task(self._reduce(bucket))

    async def _reduce(self, bucket: int) -> dict[int, Any]:
        """The averages of a bucket's gradients, by place."""
        places = self._model.buckets[bucket]
        parameters = self._model.parameters
        flat = await offload(self._flat, places)
        total = await self._group.reduce(self._mail(bucket), flat)
        total /= self._group.size
        found, start = {}, 0
        for place in places:
            array = parameters[place]._array
            found[place] = total[start : start + array.size].reshape(array.shape)
            start += array.size
        return found

    def _flat(self, places: list[int]) -> Any:
        parts = []
        for place in places:
            gradient, array = self._sum(place), self._model.parameters[place]._array
            if gradient is None:
                parts.append(np.zeros(array.size, array.dtype))
            else:
                parts.append(np.ravel(gradient._array).astype(array.dtype, copy=False))
        return np.concatenate(parts)

    def _sum(self, place: int) -> Any:
        """The gradient of this pass, and of those that were not reduced."""
        gradient, pending = self._gradients.get(place), self._model.pending.get(place)
        if gradient is None or pending is None:
            return pending if gradient is None else gradient
        with no_grad():
            return pending + gradient

    async def prepare(self, gradients: dict[Any, Any]) -> dict[Any, Any]:
        """Reduce the rest, and agree with the other ranks."""
        running = graph.current_pass()
        assert running is not None
        if not running.accumulates:
            if gradients:
                raise AutogradError(
                    "DistributedDataParallel: backward(inputs=) is not reduced: do without inputs="
                )
            # A pass of grad() concerns this rank alone.
            self._others = []
            return {}
        alarm = asyncio.ensure_future(self._alarm())
        agreeing = asyncio.ensure_future(self._agree())
        try:
            # If cancelled here, `abort` tells the others.
            await asyncio.wait((alarm, agreeing), return_when=asyncio.FIRST_COMPLETED)
            if not agreeing.done():
                # Another rank has given up: that is its error.
                await alarm
            return await agreeing
        finally:
            for task in (alarm, agreeing):
                task.cancel()

    async def _agree(self) -> dict[Any, Any]:
        group, model = self._group, self._model
        for bucket in range(len(model.buckets)):
            self._start(bucket)
        used = np.array([self._sum(place) is not None for place in range(len(model.parameters))])
        tag = self._mail("used")
        everywhere = await group.exchange(tag, dict.fromkeys(range(group.size), used), used)
        used = np.logical_or.reduce(everywhere)
        averages: dict[int, Any] = {}
        for bucket in range(len(model.buckets)):
            averages |= await self._reducing[bucket]
        if group.rank == 0:
            for rank in self._others:
                await group.receive(rank, self._mail("vote"))
        else:
            self._voted = True
            await group.send(0, self._mail("vote"), None)
            if not await group.receive(0, self._mail("decision")):
                raise PassEndedError("rank 0 has given this pass up")
        self._decided = True
        return {
            model.parameters[place]: from_numpy(averages[place]) if used[place] else None
            for place in sorted(averages)
            if used[place]
        }

    async def _alarm(self) -> None:
        """Raise when another rank gives the pass up; after its own vote, only rank 0 decides."""
        group = self._group
        waiting = {
            asyncio.ensure_future(group.receive(rank, self._mail("abort"))): rank
            for rank in self._others
        }
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    rank = waiting.pop(one)
                    if not self._voted:
                        error = one.exception()
                        raise error or PassEndedError(f"rank {rank} has given this pass up")
            await asyncio.Event().wait()
        finally:
            for one in waiting:
                one.cancel()

    async def commit(self) -> None:
        self._model.running = None
        self._model.pending.clear()
        if self._group.rank == 0:
            await self._tell("decision", True)

    async def abort(self) -> None:
        self._ended = True
        tasks = tuple(self._reducing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._model.running = None
        group = self._group
        if group.rank == 0:
            await self._tell("decision", False)
        await self._tell("abort", None)
        if self._voted and not self._decided:
            # The others may have committed what this rank has not.
            try:
                async with asyncio.timeout(group.site.grace):
                    committed = await group.receive(0, self._mail("decision"))
            except Exception:
                committed = True
            if committed:
                self._model.broken = (
                    "this rank gave up a pass of the model after it had voted for it, and the "
                    "others have committed it: the ranks' parameters differ. Load a checkpoint."
                )

    async def _tell(self, what: str, content: Any) -> None:
        """Tell the other ranks, as far as they can be reached within the grace."""
        group = self._group
        mail = (group.run, self._mail(what), group.rank, content)
        await group.site.tell_all(self._others, "mail", *mail)
