"""How the gradients of a data parallel model are averaged, pass by pass.

Hooks on the parameters gather the gradients in buckets. A full bucket is reduced while the pass
goes on. When the last node has run, the other buckets are reduced, too, and the ranks agree whether
the pass succeeds on all of them: rank 0 collects their votes, and its own commit decides.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.autograd import graph
from asyncgrad.autograd.modes import is_grad_enabled, no_grad
from asyncgrad.creation import from_numpy
from asyncgrad.distributed.errors import PassEndedError
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler import offload
from asyncgrad.scheduler.segments import retrieve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncgrad.distributed.group import Group

#: The models whose gradients are not reduced here.
_unsynced: ContextVar[frozenset[int]] = ContextVar("asyncgrad_unsynced", default=frozenset())

_UNKNOWN = (
    "this rank gave up a pass of the model after it had voted for it, and the others have "
    "committed it, or may have: the ranks' parameters may differ. Load a checkpoint."
)


def _tag(model: Reducer, name: Any) -> Any:
    """What the tags of all messages about a pass begin with."""
    return "gradients", model.number, name


class Reducer:
    """What the hooks of a model share, on one rank."""

    def __init__(self, group: Group, parameters: list[Any], buckets: list[list[int]]) -> None:
        self.group = group
        self.number = next(group.models)
        self.parameters = parameters
        self.buckets = buckets
        self.bucket_of = {place: i for i, places in enumerate(buckets) for place in places}
        self.passes = count()
        #: The name of the next pass on all ranks; None if it gets the next number.
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

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes started in the block are not reduced."""
        before = _unsynced.get()
        _unsynced.set(before | {id(self)})
        try:
            yield
        finally:
            _unsynced.set(before)

    @contextmanager
    def named_pass(self, name: Any) -> Iterator[None]:
        """Name the first pass in the block, and drop what other ranks have sent for it."""
        self.tag = tag = "named", name
        try:
            yield
        finally:
            self.tag = None
            self.group.close(_tag(self, tag))

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
        if is_grad_enabled():
            raise AutogradError(
                "DistributedDataParallel: the averages of a pass with create_graph=True can't be "
                "recorded: differentiate a second time by autograd.grad() on each rank"
            )
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
        if running is None:
            return
        if running.accumulates or id(self) in _unsynced.get():
            self.enter().arrived(place, gradient)
        else:
            graph.join(_ALONE)


class _Alone:
    """Takes part in passes of grad(), which concern one rank, and refuses those with `inputs=`."""

    async def prepare(self, gradients: dict[Any, Any]) -> None:
        if any(tensor.is_leaf for tensor in gradients):
            raise AutogradError(
                "DistributedDataParallel: backward(inputs=) is not reduced: do without inputs="
            )

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...


_ALONE = _Alone()


class _Withheld:
    """Keeps the gradients of a pass back."""

    def __init__(self, model: Reducer) -> None:
        self._model = model
        self._gradients: dict[int, Any] = {}

    def arrived(self, place: int, gradient: Any) -> None:
        """Do nothing: `prepare` gets all gradients."""

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

    def __init__(self, model: Reducer, tag: Any) -> None:
        self._model = model
        self._group = model.group
        self._tag = _tag(model, tag)
        self._loop = model.group.site.loop
        self._gradients: dict[int, Any] = {}
        self._missing = [set(places) for places in model.buckets]
        self._reducing: dict[int, asyncio.Task[Any]] = {}
        self._others = [rank for rank in range(self._group.size) if rank != self._group.rank]
        #: Waits for rank 0's decision. A rank that has voted goes on waiting even if it gives up.
        self._decision: asyncio.Task[Any] | None = None
        self._ended = False

    def _mail(self, what: Any) -> Any:
        return (*self._tag, what)

    def arrived(self, place: int, gradient: Any) -> None:
        """Take a gradient; a bucket that is full is reduced."""
        self._gradients[place] = gradient
        bucket = self._model.bucket_of[place]
        missing = self._missing[bucket]
        missing.discard(place)
        if not missing:
            # This hook may run in a thread.
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
                dense = gradient.to_dense()._array
                parts.append(np.ravel(dense).astype(array.dtype, copy=False))
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
        found: dict[Any, Any] = await self._group.site.on_loop(self._prepare())
        return found

    async def commit(self) -> None:
        """Tell the others, if this rank decides."""
        await self._group.site.on_loop(self._commit())

    async def abort(self) -> None:
        """Tell the others, and learn whether they have committed without this rank."""
        # First what holds even if the engine's grace ends before the others have answered.
        self._ended = True
        self._model.running = None
        if self._decision is not None:
            self._model.broken = _UNKNOWN
        await self._group.site.on_loop(self._abort())

    async def _prepare(self) -> dict[Any, Any]:
        alarm = asyncio.ensure_future(self._alarm())
        agreeing = asyncio.ensure_future(self._agree())
        for task in (alarm, agreeing):
            task.add_done_callback(retrieve)
        try:
            # If this wait is cancelled, the pass is, and `abort` tells the other ranks.
            await asyncio.wait((alarm, agreeing), return_when=asyncio.FIRST_COMPLETED)
            if alarm.done() and not (agreeing.done() and agreeing.exception() is None):
                # Another rank has given up. Raise that, and not what has failed here because of it.
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
            decision = self._loop.create_task(group.receive(0, self._mail("decision")))
            decision.add_done_callback(retrieve)
            self._decision = decision
            await group.send(0, self._mail("vote"), None)
            if not await asyncio.shield(decision):
                raise PassEndedError("rank 0 has given this pass up")
        return {
            model.parameters[place]: from_numpy(averages[place]) if used[place] else None
            for place in sorted(averages)
            if used[place]
        }

    async def _alarm(self) -> None:
        """Raise when another rank gives the pass up; once this rank has voted, rank 0 decides."""
        group = self._group
        waiting = {
            asyncio.ensure_future(group.receive(rank, self._mail("abort"))): rank
            for rank in self._others
        }
        for one in waiting:
            one.add_done_callback(retrieve)
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    rank = waiting.pop(one)
                    if self._decision is None:
                        error = one.exception()
                        raise error or PassEndedError(f"rank {rank} has given this pass up")
            await asyncio.Event().wait()
        finally:
            for one in waiting:
                one.cancel()

    async def _commit(self) -> None:
        self._model.running = None
        self._model.pending.clear()
        if self._group.rank == 0:
            await self._tell("decision", True)
        self._group.close(self._tag)

    async def _abort(self) -> None:
        # It goes on even if this wait is cancelled.
        await asyncio.wait([self._group.site.spawn(self._give_up())])

    async def _give_up(self) -> None:
        telling = [self._tell("abort", None)]
        if self._group.rank == 0:
            telling.append(self._tell("decision", False))
        if self._decision is not None:
            telling.append(self._learn(self._decision))
        for task in self._reducing.values():
            task.cancel()
        await asyncio.gather(*telling, *self._reducing.values(), return_exceptions=True)
        self._group.close(self._tag)

    async def _learn(self, decision: asyncio.Task[Any]) -> None:
        """Go on with this rank if the others have not committed, as far as that can be learnt."""
        with suppress(Exception):
            async with asyncio.timeout(self._group.site.grace):
                if not await decision:
                    self._model.broken = None

    async def _tell(self, what: str, content: Any) -> None:
        """Tell the other ranks, as far as they can be reached within the grace."""
        group = self._group
        mail = (group.run, self._mail(what), group.rank, content)
        await group.site.tell_all(self._others, "mail", *mail)
