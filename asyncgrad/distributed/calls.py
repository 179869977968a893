"""What a call of a part keeps on its worker for the pass, and how the pass goes through it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from asyncgrad.autograd import graph
from asyncgrad.autograd.function import Function
from asyncgrad.autograd.modes import enable_grad, is_grad_enabled
from asyncgrad.autograd.passes import backward
from asyncgrad.core.commit import check_staged
from asyncgrad.core.last_steps import Member, deciding
from asyncgrad.core.modes import current
from asyncgrad.core.saved import acting_as
from asyncgrad.core.variable import Variable
from asyncgrad.distributed.errors import late
from asyncgrad.distributed.lifetimes import one_of
from asyncgrad.distributed.messages import Place
from asyncgrad.distributed.remote import Ref
from asyncgrad.distributed.site import Site
from asyncgrad.distributed.staging import Ambient, PassRequest, ambient
from asyncgrad.distributed.sums import Held, KeepsBack, Staged
from asyncgrad.distributed.values import check_plain, cut, requires_grad
from asyncgrad.errors import AutogradError
from asyncgrad.ops.tensors.pytree import flatten
from asyncgrad.scheduler.segments import retrieve


@dataclass(slots=True, eq=False)
class Entry:
    """A call of a part: the leaves and results that its backward, or another part, needs."""

    #: The place of the micro-batch, if the part is a stage of a pipeline.
    place: Place | None
    #: The tensors that the caller has sent, as leaves.
    inputs: list[Any] = field(default_factory=list)
    #: What was fetched from other workers, as leaves.
    refs: list[tuple[Ref, list[Any]]] = field(default_factory=list)
    #: The results, with whether they require grad.
    outputs: list[tuple[Any, bool]] = field(default_factory=list)
    structure: Any = None

    def take(self, output: Any) -> None:
        """Keep the results of the part."""
        leaves, self.structure = flatten(output)
        if is_grad_enabled():
            check_plain("a part's result", [x for x in leaves if not isinstance(x, Variable)])
        flows = map(requires_grad, leaves)
        self.outputs = list(zip(_through(_Border, leaves), flows, strict=True))

    def values(self) -> list[Any]:
        """The results, cut from the graph."""
        return [cut(leaf) for leaf, _ in self.outputs]


@dataclass(slots=True, eq=False)
class StagedPass:
    """What a host has staged under one key."""

    gradients: Staged = field(default_factory=Staged)
    #: By `Place`: set when the micro-batch before it has its turn.
    entered: dict[Place, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    #: By turn and call: for each consumer, the gradients of the call's results.
    deposits: dict[Any, dict[Any, list[Any]]] = field(default_factory=dict)
    #: Participants and callbacks.
    held: Held = field(default_factory=Held)
    #: What commits it, once all is prepared.
    promise: Promise | None = None

    def give_up(self) -> asyncio.Future[Any] | None:
        """Drop it; the future is done when all that take part have been told."""
        promise, self.promise = self.promise, None
        telling = self.held.give_up() if promise is None else promise.give_up()
        # What the user's code has started may refer to this for a while.
        self.held.known.clear()
        return telling


class Promise:
    """Commits what a host has staged as soon as that is decided; takes part in the pass."""

    def __init__(self, staged: StagedPass) -> None:
        """Begin: add all up, and ask participants."""
        loop = asyncio.get_running_loop()
        self._task: Any = None
        #: Done when nothing is left that can fail, whatever happens to the leaves.
        self.made, self._decision, self._committed = (loop.create_future() for _ in range(3))
        staged.held.members.append(Member(self))
        self._running: asyncio.Future[None] = staged.held.commit(staged.gradients.total())
        self._running.add_done_callback(retrieve)

    def promised(self) -> Awaitable[None]:
        """Wait until it is made; raises what has failed."""
        # If this wait is cancelled, the pass is given up later.
        return self._until(self.made)

    async def keep(self, seconds: float) -> None:
        """Add the gradients; wait so long for those that take part."""
        self._decision.set_result(True)
        # If these waits are cancelled, the gradients are added all the same.
        await one_of(self._running, seconds=seconds)
        await self._until(self._committed)

    async def _until(self, step: asyncio.Future[Any]) -> None:
        """Wait until a step is done; raises if the pass ends before."""
        try:
            if not step.done():
                await asyncio.wait([step, self._running], return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                await self._running
        finally:
            # The traceback of an error holds this frame: a cycle.
            del self

    def give_up(self) -> asyncio.Future[Any]:
        """Drop all; the future is done when all that take part have been told."""
        if not self._decision.done():
            self._decision.set_result(False)
        self._running.cancel()
        return self._running

    async def prepare(self, gradients: dict[Any, Any]) -> None:
        """Agree."""
        self._task = current().graph_task

    async def decide(self) -> None:
        """Promise, and wait for the decision."""
        task, self._task = self._task, None
        if len(deciding(task)) > 1:
            raise AutogradError(
                "a participant with a method decide() has joined a pass on a worker, where nobody "
                "can wait for others' decisions: join a pass of the caller's"
            )
        # As in one process, where it is committed now, a leaf whose data are replaced after this
        # has a `.grad` like its old data.
        task.staged = [
            (acting_as(leaf, leaf._array, leaf._metadata), *rest) for leaf, *rest in task.staged
        ]
        check_staged(task.staged)
        self.made.set_result(None)
        if not await self._decision:
            raise late("the pass")

    async def commit(self) -> None:
        """Note that the gradients have been added."""
        self._committed.set_result(None)

    async def abort(self) -> None:
        """Change nothing."""


class _Border(Function):
    """The identity on results of a part: passes that enter there collect their gradients."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        graph.join(_collector.get())
        return gradients


class _Entrance(Function):
    """The identity on what a part is given, so that the part may change it in place."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        # What a pass does not reach gets no gradient, as in one process.
        ctx.set_materialize_grads(False)
        return tuple([one.detach() for one in tensors])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients


def entered(leaves: list[Any]) -> list[Any]:
    """What a part is given in place of leaves that require grad: tensors, or plain data."""
    with enable_grad():
        return _through(_Entrance, leaves)


def _through(identity: type[Function], leaves: list[Any]) -> list[Any]:
    """The leaves, with those that require grad behind a node."""
    places = [place for place, leaf in enumerate(leaves) if requires_grad(leaf)]
    found = list(leaves)
    if places:
        tensors = identity.apply(*[leaves[place] for place in places])
        for place, tensor in zip(places, tensors, strict=True):
            found[place] = tensor
    return found


#: What keeps the gradients of a host's pass back.
_collector: ContextVar[KeepsBack] = ContextVar("asyncgrad_collector")


async def collected(
    site: Site, entry: Entry, sources: list[Any], asked: PassRequest, held: Held
) -> tuple[dict[Any, Any], set[int]]:
    """Run a call's part of a pass: gradients by leaf, and the hosts that have staged something.

    Args:
        site: the host's.
        entry: what the call has kept.
        sources: gradients of its results, or None for each, to be added up in this order.
        asked: the pass.
        held: takes its participants.
    """
    touched = {site.rank}
    outputs, gradients = [], []
    for place, (output, differentiable) in enumerate(entry.outputs):
        found = [one for source in sources if (one := source[place]) is not None]
        if differentiable and found:
            outputs.append(output)
            gradients.append(sum(found[1:], start=found[0]))
    if not outputs:
        return {}, touched
    within = Ambient(site, asked.key, asked.turn, asked.accumulates, touched, asked.finished, {})
    deadline = None if asked.left is None else site.loop.time() + asked.left
    kept: dict[Any, Any] = {}

    async def collect() -> dict[Any, Any]:
        ambient.set(within)
        _collector.set(KeepsBack(held, kept))
        await backward(
            outputs, gradients, asked.retain_graph, priority=asked.priority, deadline=deadline
        )
        by_leaf = kept.copy()
        # A user's timer may keep the pass's context.
        kept.clear()
        return by_leaf

    # The task has a context of its own, so what is set there is set nowhere else.
    return await asyncio.ensure_future(collect()), touched
