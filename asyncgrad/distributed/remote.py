"""Parts of a model on workers, as nodes in the graphs of their callers.

What a call of a part has computed stays on the part's worker. It is sent to the caller when the
call is awaited, or straight to the worker of another part that the call is passed on to. In the
graph a token, a tensor without elements, stands for it. So the caller's graph decides the order of
a pass, and gradients go back from worker to worker as the activations have come.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from asyncgrad import creation
from asyncgrad.autograd.function import Function
from asyncgrad.autograd.graph import Pass
from asyncgrad.autograd.modes import is_grad_enabled, set_grad_enabled
from asyncgrad.core.modes import current, refuse_in_transform
from asyncgrad.core.node import next_sequence_nr, renumber
from asyncgrad.core.variable import Variable
from asyncgrad.distributed.errors import limited
from asyncgrad.distributed.lifetimes import Shared
from asyncgrad.distributed.messages import Place
from asyncgrad.distributed.site import Site, site_of
from asyncgrad.distributed.staging import Ambient, current_staging, pass_request
from asyncgrad.distributed.values import check_plain
from asyncgrad.errors import AutogradError
from asyncgrad.ops.tensors.pytree import Structure, flatten
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    import asyncio

#: The call that a host computes.
current_call: ContextVar[tuple[int, ...]] = ContextVar("asyncgrad_call", default=())


class Ref(NamedTuple):
    """What a call has computed, on the worker that holds it."""

    rank: int
    call: tuple[int, ...]


class Needed(NamedTuple):
    """A tensor for whose gradient the caller will ask."""

    tensor: Any


class Reply(NamedTuple):
    """What a forward has computed: its structure, its leaves, and which of them require grad."""

    structure: Structure
    #: None for those that stay on the worker.
    leaves: list[Any]
    differentiable: list[bool]


class RemoteModule:
    """A module on a worker: call it like a module, and await the result.

    A call that is not awaited can be an argument of another part's call, which then fetches its
    results from worker to worker: `await decoder(encoder(x))`.
    """

    def __init__(self, site: Site, rank: int, number: int) -> None:
        """Refer to a module; `World.remote` makes it."""
        self._site: Site | None = site
        self._session = site.session
        self.rank = rank
        self.number = number
        #: Parts that its factory was given, kept as long as it.
        self._given: tuple[RemoteModule, ...] = ()
        site.drop_with(self, rank, number)

    def __getstate__(self) -> dict[str, Any]:
        # Of a copy: the worker keeps the module as long as the caller has the original.
        return self.__dict__ | {"_site": None, "_given": ()}

    def __repr__(self) -> str:
        """The worker that it is on."""
        return f"<module {self.number} on worker {self.rank}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a part on a worker has no {name!r} here: `await part.apply(function, *args)` calls "
            f"`function(module, *args)` there"
        )

    @property
    def site(self) -> Site:
        """The site that calls it."""
        self._site = site_of(self._site, self._session)
        return self._site

    def __call__(self, *args: Any, **kwargs: Any) -> RemoteCall:
        """Call the module with tensors, calls of other parts, and plain data.

        As by a coroutine, the arguments are used when the call is awaited, or another to which it
        is passed on: with all changes that have been made in place by then.
        """
        return RemoteCall(self, (args, kwargs))

    async def apply(self, function: Callable[..., Any], *args: Any) -> Any:
        """Await `function(module, *args)` on the worker, where no gradients are recorded.

        Args:
            function: a function or coroutine function that can be pickled: `Module.state_dict`,
                or one that changes the module.
            args: its further arguments.

        Returns:
            What it returns; for the module itself, as `Module.eval` returns it, this part.
        """
        check_given("apply", self.site, args)
        is_module, found = await self.site.call(self.rank, "apply", self.number, function, args)
        return self if is_module else found


def check_given(who: str, site: Site, given: Any) -> list[RemoteModule]:
    """The parts in plain data; raises if one is of another world, or a tensor requires grad."""
    check_plain(who, given)
    parts = [leaf for leaf in flatten(given)[0] if isinstance(leaf, RemoteModule)]
    for part in parts:
        if part._session != site.session:
            raise AutogradError(
                f"{who}: was given {part!r}, of another world, whose workers are not called from "
                f"here: make the part in this world"
            )
    return parts


class Lease:
    """Keeps what a call has computed on its worker until both the call and its graph are gone."""

    __slots__ = ("__weakref__", "call", "found", "rank", "site", "spent")

    def __init__(self, site: Site, rank: int) -> None:
        self.site = site
        self.rank = rank
        #: Sorts calls in the order of one process: what a call itself calls comes right after it.
        self.call = (*current_call.get(), site.rank, next(site.numbers))
        if len(self.call) > 2 * sys.getrecursionlimit():
            raise RecursionError(
                f"parts call parts that call parts, and so on, more than "
                f"{sys.getrecursionlimit()} deep, sys.getrecursionlimit(): does one call itself?"
            )
        #: What the backward has given that the worker ran right after the forward.
        self.found: tuple[list[Any], set[int]] | None = None
        #: To be called when the worker has dropped everything, so that it need not be told.
        self.spent = site.drop_with(self, rank, self.call).detach


class RemoteCall:
    """A call of a part: await it for its result, or pass it on to another part."""

    def __init__(self, part: RemoteModule, arguments: Any) -> None:
        """Note the call; it is sent when it, or a call that it was passed to, is awaited."""
        refuse_in_transform("a part on a worker")
        self._part = part
        self._arguments = arguments
        self._site = part.site
        self._site.check()
        #: As of a module's call: how it is awaited later makes no difference.
        self._record = is_grad_enabled()
        self.lease = Lease(self._site, part.rank)
        #: The place of its node in the order of passes, whenever it is sent and answered.
        self._sequence_nr = next_sequence_nr()
        self.token: Any = None
        self._reply: Reply | None = None
        self._result: Shared | None = None
        self._sent: Shared | None = None
        self._values: Any = None
        #: The deadline of `asyncgrad.request`, at which an await of the result gives up; or None.
        self.deadline = current().deadline
        #: The place of the micro-batch, if the part is a stage of a pipeline.
        self.place: Place | None = None
        #: The pass whose backward follows on the worker at once, and the gradient it begins with.
        self.at_once: tuple[Ambient, float, float | None, int] | None = None

    def __reduce__(self) -> Any:
        raise AutogradError(
            "a part's call was sent as plain data: await it, or give it to another part's call as "
            "an argument, alone or in lists, tuples and dictionaries"
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a part's call has no {name!r}: await it for its result")

    @property
    def ref(self) -> Ref:
        """What it has computed."""
        return Ref(self._part.rank, self.lease.call)

    def __await__(self) -> Generator[Any, None, Any]:
        """Compute it, and fetch the result."""
        if self._result is None:
            self._result = Shared(self._fetched(), self._drop_failed)
        return self._result.wait().__await__()

    async def sent(self) -> RemoteCall:
        """Compute it, and leave the result on the worker."""
        await self._sending(fetch=False)
        return self

    async def _sending(self, *, fetch: bool) -> None:
        if self._sent is None:
            if self._arguments is None:
                raise AutogradError("a part's call that has failed was used again: call it anew")
            self._sent = Shared(self._forward(fetch), self._drop_failed)
        await self._sent.wait()

    def _drop_failed(self, task: asyncio.Task[Any]) -> None:
        """Forget an error, whose traceback leads back here: a cycle."""
        if task.cancelled() or task.exception() is not None:
            self._result = self._sent = None

    async def _fetched(self) -> Any:
        async with limited(f"a call of {self._part!r}", self.deadline):
            await self._sending(fetch=True)
            if self._values is None:
                with set_grad_enabled(self._record):
                    self._values = await _Fetch.apply(self, self.token)
        assert self._reply is not None
        structure = self._reply.structure
        return structure.build(iter(self._values))

    async def _forward(self, fetch: bool) -> None:
        arguments, self._arguments = self._arguments, None
        leaves, structure = flatten(arguments)
        check_plain("a part", [leaf for leaf in leaves if not isinstance(leaf, Variable)])
        inputs: list[Any] = []
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, RemoteCall):
                if leaf is self:
                    raise AutogradError(f"a call of {self._part!r} was given itself")
                if leaf._site is not self._site:
                    raise AutogradError(f"{self._part!r} got a call of a part of another world")
                await leaf.sent()
                inputs.append(leaf.token)
                # The lease keeps the worker from dropping it while this call may need it.
                leaves[place] = leaf
            elif isinstance(leaf, Variable):
                inputs.append(leaf)
        anchor = creation.zeros(0).requires_grad_(self._record)
        with set_grad_enabled(self._record):
            outputs = await _Forward.apply(self, leaves, structure, fetch, anchor, *inputs)
        self.token = outputs[0]
        if self.token.grad_fn is not None:
            # As if the node had been made with the call, so that sums have one order.
            renumber(self.token.grad_fn, self._sequence_nr)
        if fetch:
            self._values = outputs[1:]


class _Forward(Function):
    """The node of a call."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise AutogradError(
            "a part on a worker was called with a tangent, which does not go to workers: use "
            "forward mode within one part"
        )

    @staticmethod
    async def forward(
        ctx: Any, call: RemoteCall, leaves: list[Any], structure: Structure, fetch: bool,
        anchor: Any, *inputs: Any,
    ) -> Any:  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.lease = call.lease
        # Other workers keep what they have given to this call as long as the graph of this call.
        ctx.others = [leaf.lease for leaf in leaves if isinstance(leaf, RemoteCall)]
        ctx.is_token = []
        given, reached = list[Any](), set[Any]()
        # For each tensor and call: what stands for it, and whether its gradient is needed.
        stand_ins = iter(zip(inputs, ctx.needs_input_grad[5:], strict=True))
        for leaf in leaves:
            is_call = isinstance(leaf, RemoteCall)
            if not is_call and not isinstance(leaf, Variable):
                given.append(leaf)
                continue
            ctx.is_token.append(is_call)
            tensor, needs = next(stand_ins)
            if not is_call:
                cut = tensor.detach()
                given.append(Needed(cut) if needs and call._record else cut)
                continue
            given.append(leaf.ref)
            if needs:
                reached.add(leaf.lease.call)
        at_once = None
        if call.at_once is not None:
            within, share, deadline, priority = call.at_once
            at_once = share, pass_request(within, reached, deadline, priority=priority)
        part, lease = call._part, call.lease
        args = lease.call, part.number, structure, given, call._record, fetch, call.place, at_once
        reply, lease.found = await call._site.call(part.rank, "forward", *args)
        call._reply = reply
        token = creation.zeros(0)
        flat = [] if any(reply.differentiable) else [token]
        ctx.mark_non_differentiable(*flat, *_flat(reply, reply.leaves))
        return (token, *(reply.leaves if fetch else ()))

    @staticmethod
    async def backward(ctx: Any, token: Any, *gradients: Any) -> Any:
        lease = ctx.lease
        staging, running = _staging(lease)
        if lease.found is not None:
            found, touched = lease.found
        else:
            staging.touched.add(lease.rank)
            wanted = itertools.compress(ctx.wants_grad[5:], ctx.is_token)
            reached = {other.call for other in itertools.compress(ctx.others, wanted)}
            fetched = staging.fetched.pop(lease.call, None)
            asked = pass_request(
                staging, reached, running.deadline, running.retains_graph, running.priority
            )
            given = [list(gradients), fetched]
            found, touched = await lease.site.call(lease.rank, "backward", lease.call, given, asked)
        if not running.retains_graph:
            lease.spent()
        staging.touched.update(touched)
        received = iter(found)
        inputs = [creation.zeros(0) if is_token else next(received) for is_token in ctx.is_token]
        return (None, None, None, None, None, *inputs)


class _Fetch(Function):
    """Fetches the results of a call that was sent without them."""

    @staticmethod
    async def forward(ctx: Any, call: RemoteCall, token: Any) -> Any:
        ctx.set_materialize_grads(False)
        assert call._reply is not None
        site, lease = call._site, call.lease
        leaves = await site.call(lease.rank, "fetch", lease.call)
        ctx.lease = lease
        ctx.mark_non_differentiable(*_flat(call._reply, leaves))
        return tuple(leaves)

    @staticmethod
    async def backward(ctx: Any, *gradients: Any) -> Any:
        # A coroutine runs on the loop; a plain function might run in a thread.
        staging, _ = _staging(ctx.lease)
        staging.fetched[ctx.lease.call] = list(gradients)
        return None, creation.zeros(0)


def _flat(reply: Reply, leaves: list[Any]) -> list[Any]:
    """The results of a call that are tensors and require no grad."""
    found = zip(leaves, reply.differentiable, strict=True)
    return [value for value, flows in found if isinstance(value, Variable) and not flows]


def _staging(lease: Lease) -> tuple[Ambient, Pass]:
    """Where hosts stage what the current pass computes; raises where it can't go through a part."""
    if is_grad_enabled():
        raise AutogradError(
            "a pass with create_graph=True met a part on a worker, whose backward can't be "
            "recorded: differentiate twice within one part"
        )
    # This raises if the pass runs where it can't await the workers.
    lease.site.check()
    return current_staging(lease.site)
