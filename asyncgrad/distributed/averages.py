"""A rank's part in averaging the gradients of one pass of a data parallel model."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import numpy as np

from asyncgrad.autograd import graph
from asyncgrad.autograd.modes import no_grad
from asyncgrad.core import modes
from asyncgrad.core.last_steps import Total
from asyncgrad.creation import from_numpy
from asyncgrad.distributed.errors import PassEndedError, WorkerLostError
from asyncgrad.distributed.group import Group
from asyncgrad.distributed.lifetimes import all_of, one_of
from asyncgrad.distributed.mail import decision
from asyncgrad.distributed.messages import MESSAGES
from asyncgrad.distributed.staging import Decision
from asyncgrad.distributed.sums import Held, KeepsBack
from asyncgrad.errors import AutogradError
from asyncgrad.ops.float32_compute import computing_dtype
from asyncgrad.scheduler import offload
from asyncgrad.scheduler.segments import retrieve

_UNKNOWN = (
    "this rank has voted for a pass of the model, and could not learn in time, or not do, what "
    "rank 0 has decided: the ranks' parameters may differ. Load a checkpoint."
)


def unlike(how: str) -> AutogradError:
    """The error for a model that was not awaited."""
    return AutogradError(
        f"DistributedDataParallel: the ranks' parameters {how}: await the model once, `model = "
        f"await DistributedDataParallel(module)`"
    )


class Part:
    """This rank's part in averaging the gradients of one pass."""

    def __init__(self, model: Any, group: Group, name: Any, *, adds: bool) -> None:
        #: Averages are added to `.grad`, and do not replace it.
        self._adds = adds
        #: A `Reducer`, whose module knows this one.
        self.model = model
        self._group = group
        #: What the tags of all messages about the pass begin with.
        self._tag = "gradients", model.number, name
        #: What messages about the pass are found by.
        self.key = self._tag[1:]
        #: The models of the pass, by such keys.
        self.together = {self.key: model.name}
        self._loop = model.group.site.loop
        # This may be a thread, which must not change what the loop compares with messages.
        self._loop.call_soon_threadsafe(group.standstill.begin, self.key)
        self._gradients: dict[int, Any] = {}
        self._missing = [set(places) for places in model.buckets]
        self._reducing: dict[int, asyncio.Task[Any]] = {}
        self._ended = False

    def _mail(self, what: Any) -> Any:
        return (*self._tag, what)

    def arrived(self, place: int, gradient: Any) -> None:
        """Take a gradient; a bucket that is full is reduced."""
        self._gradients[place] = gradient
        bucket = self.model.bucket_of[place]
        missing = self._missing[bucket]
        missing.discard(place)
        if not missing:
            # This hook may run in a thread.
            self._loop.call_soon_threadsafe(self._start, bucket)

    def _start(self, bucket: int) -> None:
        if bucket not in self._reducing and not self._ended:
            self._reducing[bucket] = reducing = self._loop.create_task(self._reduce(bucket))
            reducing.add_done_callback(retrieve)

    async def _reduce(self, bucket: int) -> dict[int, Any]:
        """The averages of a bucket's gradients, by place."""
        places = self.model.buckets[bucket]
        parameters = self.model.parameters
        flat = await offload(self._flat, places)
        total = await self._group.reduce(self._mail(bucket), flat)
        found, start = {}, 0
        for place in places:
            array = parameters[place]._array
            found[place] = total[start : start + array.size].reshape(array.shape)
            start += array.size
        return found

    def _flat(self, places: list[int]) -> Any:
        parts = []
        for place in places:
            gradient, array = self._sum(place), self.model.parameters[place]._array
            if gradient is None:
                parts.append(np.zeros(array.size, array.dtype))
            else:
                dense = gradient.to_dense()._array
                parts.append(np.ravel(dense).astype(array.dtype, copy=False))
        # As PyTorch does it: before the sum, which would overflow earlier in float16, and rounded
        # once, while a third that is itself of half precision would make all averages too small.
        flat = np.concatenate(parts)
        return np.multiply(flat, 1 / self._group.size, out=flat, dtype=computing_dtype(flat.dtype))

    def _sum(self, place: int) -> Any:
        """What is averaged: the gradient of this pass, or all that `.grad` would become."""
        gradient = self._gradients.get(place)
        known = None if self._adds else self.model.parameters[place].grad
        if gradient is None or known is None:
            return known if gradient is None else gradient
        with no_grad():
            return known + gradient

    async def _averages(self) -> dict[Any, Any]:
        """Reduce the rest; the averages by leaf, of parameters that any rank has used."""
        group, model = self._group, self.model
        for bucket in range(len(model.buckets)):
            self._start(bucket)
        places = range(len(model.parameters))
        used = np.array([self._gradients.get(p) is not None or p in model.used for p in places])
        # Its name has the other ranks notice that they put other models into the pass.
        tag = self._called(), *self._mail("used")[1:]
        own = used, None if model.compared is None else await offload(model.digest)
        everywhere = await group.exchange(tag, dict.fromkeys(range(group.size), own), own)
        if any(digest != own[1] for _, digest in everywhere):
            raise unlike("differ")
        used = np.logical_or.reduce([its for its, _ in everywhere])
        averages: dict[int, Any] = {}
        for bucket in range(len(model.buckets)):
            averages |= await self._reducing[bucket]
        return {
            model.parameters[place]: from_numpy(averages[place])
            for place in sorted(averages)
            if used[place]
        }

    def _called(self) -> str:
        return f"one pass of {' and '.join(name for _, name in sorted(self.together.items()))}"

    def _leave(self) -> None:
        """Reduce nothing more, and make way for the next pass."""
        self._ended = True
        if self.model.running is self:
            self.model.running = None
        for task in self._reducing.values():
            self._loop.call_soon_threadsafe(task.cancel)


class Kept(KeepsBack, Part):
    """Leaves a pass's gradients to the caller of the world, which decides for all ranks."""

    def __init__(self, model: Any, name: Any, key: Any, kept: dict[Any, Any], held: Held) -> None:
        KeepsBack.__init__(self, held, kept)
        Part.__init__(self, model, model.group.site.host.runs.group(key), name, adds=True)

    async def prepare(self, gradients: dict[Any, Any]) -> dict[Any, Any]:
        """Reduce the rest, and keep all gradients back."""
        self.held.check()
        if any(isinstance(member.participant, Decision) for member in self.held.members):
            raise AutogradError(
                "a pass of a replicated model has come to a part, whose gradients would not be "
                "averaged: call the part in a pass of the caller's"
            )
        return await super().prepare(gradients | await self._averages())

    async def commit(self) -> None:
        """Make way for the next pass."""
        self._leave()

    async def abort(self) -> None:
        """Keep nothing."""
        await super().abort()
        self._leave()


class Voting(Part):
    """Agrees with the other ranks whether a pass succeeds."""

    def __init__(self, model: Any, number: int) -> None:
        super().__init__(model, model.group, number, adds=False)
        # None for a pass that has failed before it came to the model.
        running = graph.current_pass()
        self._deadline = None if running is None else running.deadline
        self._voted = False
        #: What has failed here, for the other ranks.
        self._why: str | None = None
        #: What rank 0 has decided, as far as this rank knows.
        self._decision: bool | None = None

    async def prepare(self, gradients: dict[Any, Any]) -> dict[Any, Any]:
        """Reduce the rest; rank 0 collects the votes of all others."""
        task = modes.current().graph_task
        return await self._group.site.on_loop(self._prepare(task.future))  # type: ignore[no-any-return]

    async def decide(self) -> None:
        """Vote, and do as rank 0 decides; it does so by its commit."""
        if self._group.rank:
            await self._group.site.on_loop(self._vote())

    async def commit(self) -> None:
        """Tell the others, if this rank decides."""
        self.model.used.clear()
        self.model.compared = None
        self._leave()
        await self._group.site.on_loop(self._end("succeeds"))

    async def abort(self) -> None:
        """Tell the others."""
        # First what holds even if the engine's grace ends before the others have answered.
        if self._voted and self._decision is not False:
            self.model.broken = _UNKNOWN
        self._leave()
        await self._group.site.on_loop(self._end("gave_up", self._group.rank, self._why))

    async def _prepare(self, running: Any) -> dict[Any, Any]:
        group = self._group
        try:
            # If one of these waits is cancelled, the pass is, and `abort` tells the other ranks.
            with group.standstill.awaiting(set(self.together), self._called(), running):
                averages = await self._averages()
                if group.rank == 0:
                    for rank in group.others:
                        await group.mail.receive(rank, self._mail("vote"))
            # Where all messages had come already, no wait for one has failed.
            group.mail.check(self.together)
            return {leaf: Total(average) for leaf, average in averages.items()}
        except (AutogradError, TimeoutError) as error:
            self._why = str(error)
            raise
        finally:
            # The traceback of an error holds this frame, and the pass holds the error: a cycle.
            del running

    async def _vote(self) -> None:
        group = self._group
        self._voted = True
        learning = asyncio.ensure_future(self._learn())
        group.undecided.add(learning)
        # Longer than rank 0 waits for votes.
        left = inf if self._deadline is None else self._deadline - self._loop.time()
        try:
            if not await one_of(learning, seconds=min(left, group.site.timeout) + group.site.grace):
                raise PassEndedError(_UNKNOWN)
            self._decision = learning.result()
        finally:
            group.undecided.discard(learning)
            learning.cancel()
            # The traceback of its error holds this frame: a cycle.
            del learning
        if not self._decision:
            raise PassEndedError("rank 0 has given this pass up")

    async def _learn(self) -> bool:
        """Send the vote; returns what rank 0 decides, or raises if it is lost and nobody knows."""
        group = self._group
        deciding = group.mail.expected(0, decision(self.key))
        try:
            sending = group.send(0, self._mail("vote"), None)
            _, (_, succeeds) = await all_of([sending, deciding])
        except WorkerLostError:
            if not group.site.has_lost(0):
                # Rank 0 lives, and has lost this rank. So have all others, soon.
                raise
            succeeds = self._decision = await self._known_to_any()
            if not succeeds:
                raise
        finally:
            # The traceback of its error holds this frame: a cycle.
            del deciding
        return bool(succeeds)

    async def _known_to_any(self) -> bool | None:
        """Whether a rank knows that rank 0, which is lost, has committed; None if one is silent.

        Who is asked listens to no lost rank any more. So when all that live have said that they
        don't know, none of them learns it later. If one is lost meanwhile, it may have told some of
        the others that it knows, so these are asked again.
        """
        group, site = self._group, self._group.site
        this, succeeded = (group.run, self.key), site.host.runs.succeeded
        while this not in succeeded:
            lost = site.lost
            found, errors = await site.tell_all(group.others, "has_succeeded", *this, lost)
            if any(knows and not site.has_lost(rank) for rank, knows in found.items()):
                # This rank may be asked, too, and is not to answer otherwise than it acts.
                succeeded.add(this)
            elif site.lost == lost:
                return None if errors else False
        return True

    async def _end(self, method: str, *args: Any) -> None:
        # The task that tells the others goes on even if this wait is cancelled.
        await asyncio.wait([self._group.site.spawn(self._told(method, *args))])

    async def _told(self, method: str, *args: Any) -> None:
        """Tell the other ranks of the end, as far as they can be reached within the grace."""
        group = self._group
        decides = MESSAGES[method].decides
        if not decides or group.rank == 0:
            given = group.run, self.key, *args
            _, errors = await group.site.tell_all(group.others, method, *given)
            if decides and not group.mail.ended:
                # These ranks have promised to do as rank 0 decides, and may never hear of the
                # decision.
                for rank, error in errors.items():
                    if not isinstance(error, PassEndedError):
                        group.site.fence(rank, f"it has not confirmed a commit ({error})")
        await asyncio.gather(*self._reducing.values(), return_exceptions=True)
        # Their tracebacks hold this object: a cycle.
        self._reducing.clear()
        group.mail.close(self._tag)
