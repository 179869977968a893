"""What runs on each worker: parts of models, their graphs, and the gradients staged for passes.

`messages.py` lists what it is asked for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from asyncgrad.autograd.modes import no_grad, set_grad_enabled
from asyncgrad.core.variable import Variable
from asyncgrad.creation import full_like
from asyncgrad.distributed.calls import Entry, Promise, StagedPass, collected, entered
from asyncgrad.distributed.engine import Peers
from asyncgrad.distributed.errors import late
from asyncgrad.distributed.inbox import Inbox
from asyncgrad.distributed.lifetimes import Lifetimes, cancelled
from asyncgrad.distributed.messages import Place
from asyncgrad.distributed.metrics import counted
from asyncgrad.distributed.remote import Needed, Ref, RemoteCall, Reply, current_call
from asyncgrad.distributed.replicated import build, step
from asyncgrad.distributed.runs import Runs
from asyncgrad.distributed.site import Site
from asyncgrad.distributed.staging import PassRequest
from asyncgrad.distributed.values import applied, awaited, called, cut, without_graphs
from asyncgrad.errors import AutogradError


class Host(Inbox):
    """One worker's end of a world."""

    def __init__(self, session: str, rank: int) -> None:
        """Make a host, in any thread; `open` is its first call."""
        super().__init__(session, rank)
        self._parts: dict[int, Any] = {}
        #: By part that is a stage of a pipeline: held while it computes a micro-batch; and by
        #: optimizer: held while that is used.
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._entries: dict[Any, Entry] = {}
        self._staged: dict[Any, StagedPass] = {}
        self._optimizers: dict[int, Any] = {}
        self._lives = Lifetimes()

    # -- the world --------------------------------------------------------------------------------

    async def on_open(self, size: int, peers: Peers, *limits: float) -> None:
        """Begin: the loop runs, and the others can be reached."""
        self._site = Site(self._session, self._rank, size, peers, *limits)
        self._site.host = self
        self._runs = Runs(self._site, self._lives)

    async def on_fence(self, rank: int, reason: str) -> None:
        """Never listen to a worker again."""
        self.site.fence(rank, reason)

    def drop_sender(self, rank: int) -> None:
        """Drop what a lost worker had here; whoever waits for its mail gets an error."""
        self.runs.lose(rank)
        for key in {*self._entries, *self._staged, *self._lives.working}:
            if isinstance(key, tuple) and key[-2] == rank:
                # Noted now: it may end well before it is cancelled, and would be kept.
                self.site.spawn(self._stop(key, self._forget(key, "lost")))

    def _forget(self, key: Any, word: str) -> StagedPass | None:
        """Drop what is kept under a key, and refuse what comes for it later.

        What is returned has been staged for a pass.
        """
        self._lives.ended.add(key, word)
        for kept in (self._parts, self._turns, self._optimizers, self._entries):
            kept.pop(key, None)
        self.runs.forget(key)
        return self._staged.pop(key, None)

    async def _stop(self, key: Any, staged: StagedPass | None) -> None:
        """Cancel what runs under a key, and tell those that take part in a pass of its end."""
        telling = None
        try:
            # Those that take part in what is cancelled now are told with the others. They are also
            # if this wait is cancelled.
            await self._lives.stop(key)
        finally:
            if staged is not None:
                telling = staged.give_up()
        if telling is not None:
            # If this wait is cancelled, all are told nevertheless.
            await asyncio.wait([telling])

    async def on_close(self) -> None:
        """Drop everything, end what runs, and refuse what comes later; once, if it was opened."""
        if self._site is None or self._site.ended is not None:
            return
        self.site.ended = "its caller has left it"
        # First the runs: a pass that has voted waits for their mail, and can't be cancelled.
        for run in tuple(self.runs.groups):
            self._forget(run, "closed")
        passes = [(key, self._forget(key, "closed")) for key in tuple(self._staged)]
        await cancelled(self._requests.values())
        await self.site.wait([asyncio.ensure_future(self._stop(*one)) for one in passes])
        for kept in (self._parts, self._entries, self._optimizers):
            kept.clear()
        await self.site.end(self.site.ended)
        # A cycle. Also, asyncio keeps the contexts of timers that were cancelled, and with them the
        # site, until their time: those of a user's `asyncio.sleep`, for example.
        self.site.host = None

    close = on_close

    async def on_statistics(self) -> dict[str, int]:
        """How much the host keeps, and how many messages it works on."""
        current = asyncio.current_task()
        return {
            "parts": len(self._parts),
            "calls": len(self._entries),
            "passes": len(self._staged),
            "optimizers": len(self._optimizers),
            "runs": len(self.runs.groups),
            "working": sum(
                one is not current and one.get_name() != "watch" for one in self._requests.values()
            ),
        }

    async def on_metrics(self) -> dict[str, float]:
        """What this process counts."""
        return counted(await self.on_statistics())

    # -- parts ------------------------------------------------------------------------------------

    async def on_remote(self, number: int, factory: Callable[..., Any], args: Any, kw: Any) -> None:
        """Make a part."""
        with self._lives.scope(number):
            made = await called(factory, *args, **kw)
            if not callable(made):
                raise TypeError(
                    f"remote: the factory made a {type(made).__name__}, which can't be called: "
                    f"return a Module or a function of tensors"
                )
            self._parts[number] = made

    @asynccontextmanager
    async def _turn(self, place: Place, *, forward: bool) -> AsyncIterator[None]:
        """A micro-batch's turn at a stage; its forward comes after that of the one before it."""
        entered = self._pass(place.key).entered
        if forward and place.number:
            await entered[place].wait()
        async with self._turns[place.part]:
            if forward:
                entered[place._replace(number=place.number + 1)].set()
            yield

    def part(self, number: int) -> Any:
        """The module of a part."""
        if number not in self._parts:
            raise AutogradError("a part was used after the object that World.remote gave was gone")
        return self._parts[number]

    async def on_apply(self, number: int, function: Callable[..., Any], args: Any) -> Any:
        """Call a function with a part: whether it gave the part itself, which stays; what else."""
        part = self.part(number)
        with no_grad():
            found = await called(function, part, *args)
        return (True, None) if found is part else (False, without_graphs(found))

    async def on_release(self, unneeded: list[Any]) -> None:
        """Drop what the caller has dropped, and stop what still makes it."""
        for key in unneeded:
            # The message that makes it may arrive after this one.
            self._forget(key, "released")
        for key in unneeded:
            await self._lives.stop(key)

    # -- forward ----------------------------------------------------------------------------------

    async def on_forward(
        self, call: Any, number: int, structure: Any, leaves: Any, record: bool, fetch: bool,
        place: Place | None, at_once: tuple[float, PassRequest] | None,
    ) -> tuple[Reply, Any]:  # fmt: skip
        """Run a part, and keep its graph if it is recorded, or run its part of a pass at once."""
        scope = nullcontext() if place is None else self._lives.scope(place.key)
        with self._lives.scope(call), scope:
            current_call.set(call)
            entry = Entry(place)
            given: list[Any] = []
            fetched: dict[Ref, Any] = {}
            for leaf in leaves:
                if isinstance(leaf, Ref):
                    if leaf not in fetched:
                        fetched[leaf] = await self._fetched(entry, leaf, record)
                    given.append(fetched[leaf])
                    continue
                value = leaf.tensor.requires_grad_() if isinstance(leaf, Needed) else leaf
                if isinstance(value, Variable):
                    entry.inputs.append(value)
                given += entered([value])
            args, kwargs = structure.build(iter(given))
            part = self.part(number)
            async with nullcontext() if place is None else self._turn(place, forward=True):
                with set_grad_enabled(record):
                    output = await called(part, *args, **kwargs)
                    if isinstance(output, RemoteCall):
                        output = await output
                    entry.take(output)
                if at_once is not None:
                    share, asked = at_once
                    seeds = [full_like(x, share) if flows else None for x, flows in entry.outputs]
                    held = self._pass(asked.key).held
                    found, touched = await collected(self.site, entry, [seeds], asked, held)
            if call in self._lives.ended:
                raise late("the call")
            differentiable = [requires for _, requires in entry.outputs]
            sent = entry.values() if fetch else [None] * len(entry.outputs)
            reply = Reply(entry.structure, sent, differentiable)
            if at_once is not None:
                return reply, (await self._answer(entry, call, found, asked), touched)
            if not fetch or any(differentiable):
                self._entries[call] = entry
            return reply, None

    async def _fetched(self, entry: Entry, ref: Ref, record: bool) -> Any:
        """The results of another part's call, as new leaves."""
        structure, values = await self.site.call(ref.rank, "hand_over", ref.call)
        leaves = [
            cut(value).requires_grad_(requires and record) if isinstance(value, Variable) else value
            for value, requires in values
        ]
        entry.refs.append((ref, leaves))
        return structure.build(iter(entered(leaves)))

    def _entry(self, call: Any) -> Entry:
        entry = self._entries.get(call)
        if entry is None:
            raise AutogradError(
                "the graph of a part's call was released by an earlier backward(): specify "
                "retain_graph=True there if you need a second pass, or run the forward again"
            )
        return entry

    async def on_fetch(self, call: Any) -> list[Any]:
        """The results of a call."""
        return self._entry(call).values()

    async def on_hand_over(self, call: Any) -> Any:
        """The results of a call, for another part."""
        entry = self._entry(call)
        return entry.structure, [(cut(leaf), flows) for leaf, flows in entry.outputs]

    # -- passes -----------------------------------------------------------------------------------

    def _pass(self, key: Any) -> StagedPass:
        if key in self._lives.ended:
            raise late("the pass")
        staged = self._staged.get(key)
        if staged is None:
            staged = self._staged[key] = StagedPass()
        return staged

    async def on_deposit(self, key: Any, turn: Any, call: Any, consumer: Any, grads: Any) -> None:
        """Keep what a part on another worker gives for the results of a call."""
        self._pass(key).deposits.setdefault((turn, call), {})[consumer] = grads

    async def on_backward(
        self, call: Any, given: list[Any], asked: PassRequest
    ) -> tuple[list[Any], set[int]]:
        """Run a call's part of a pass; the gradients of its leaves are staged."""
        with self._lives.scope(asked.key):
            entry = self._entry(call)
            staged = self._pass(asked.key)
            deposits = staged.deposits.pop((asked.turn, call), {})
            # Gradients are summed as in one process: those of the last consumer come first.
            sources = [deposits[consumer] for consumer in sorted(deposits, reverse=True)]
            sources += [one for one in given if one]
            place = entry.place
            async with nullcontext() if place is None else self._turn(place, forward=False):
                found, touched = await collected(self.site, entry, sources, asked, staged.held)
            if not asked.retain_graph:
                self._entries.pop(call, None)
            return await self._answer(entry, call, found, asked), touched

    async def _answer(
        self, entry: Entry, call: Any, found: dict[Any, Any], asked: PassRequest
    ) -> list[Any]:
        """Send gradients to where their calls were computed, stage others; those of the inputs."""
        for ref, leaves in entry.refs:
            grads = [found.pop(x, None) if isinstance(x, Variable) else None for x in leaves]
            if ref.call in asked.reached:
                deposit = asked.key, asked.turn, ref.call, call, grads
                await self.site.call(ref.rank, "deposit", *deposit)
        answer = [found.pop(leaf, None) for leaf in entry.inputs]
        if asked.accumulates:
            gradients = self._pass(asked.key).gradients
            gradients.fold(asked.turn[0], asked.finished)
            gradients.add(asked.turn, call, found)
        return answer

    async def on_prepare(self, key: Any) -> None:
        """Promise to commit a pass."""
        with self._lives.scope(key):
            staged = self._pass(key)
            if staged.deposits:
                raise AutogradError(
                    "gradients have come for a call whose node the pass has not reached"
                )
            staged.promise = Promise(staged)
            await staged.promise.promised()

    async def on_commit(self, key: Any) -> None:
        """Add the gradients of a pass; a second message changes nothing."""
        if key in self._lives.ended:
            if self._lives.ended[key] != "committed":
                raise late("the pass")
            return
        staged = self._staged.get(key)
        if staged is None or staged.promise is None or not staged.promise.made.done():
            raise AutogradError("a pass is to be committed that was not prepared here")
        self._forget(key, "committed")
        # Whoever has decided waits for the grace.
        await staged.promise.keep(self.site.grace / 2)

    async def on_abort(self, key: Any) -> None:
        """Drop what is staged for a pass, and end what runs for it."""
        if key not in self._lives.ended:
            await self._stop(key, self._forget(key, "aborted"))

    # -- optimizers -------------------------------------------------------------------------------

    async def on_optimizer(
        self, number: int, kind: Callable[..., Any], parts: list[int], defaults: dict[str, Any]
    ) -> bool:
        """Make an optimizer of parts, unless these have no parameters."""
        with self._lives.scope(number):
            modules = [self.part(part) for part in parts]
            for module in modules:
                if not hasattr(module, "parameters"):
                    raise TypeError(
                        f"optimizer: a part is a {type(module).__name__}, which has no parameters: "
                        f"give the optimizer only parts that are Modules"
                    )
            parameters = [p for module in modules for p in module.parameters()]
            if parameters:
                self._optimizers[number] = kind(list(dict.fromkeys(parameters)), **defaults)
            return bool(parameters)

    async def on_optimize(self, number: int, method: Any, args: Any) -> Any:
        """Call a method of an optimizer, or a function with it."""
        optimizer = self._optimizers[number]
        # A function whose caller was cancelled may go on in its thread for a while.
        async with self._turns[number]:
            if callable(method):
                return await applied(method, optimizer, *args)
            return await awaited(getattr(optimizer, method)(*args))

    # -- runs -------------------------------------------------------------------------------------

    async def on_replicate(
        self, call: Any, run: Any, number: int, make: Callable[..., Any], bucket_cap_mb: float
    ) -> None:
        """Make a copy of a replicated model."""
        with self._lives.scope(call):
            self.runs.enter(run)
            self._parts[number] = await build(make, bucket_cap_mb)

    async def on_forward_backward(
        self, run: Any, key: Any, turn: Any, number: int, *args: Any
    ) -> Any:
        """Compute with a copy, as one of a group, and stage its gradients for the caller."""
        with self._lives.scope(key):
            self.runs.enter(run)
            staged = self._pass(key)
            loss, gradients = await step(self.part(number), key, staged.held, *args)
            staged.gradients.add(turn, (), gradients)
            return loss

    async def on_stop(self, run: Any) -> None:
        """End a run, after passes that this rank has voted for and rank 0 has committed."""
        if run in self.runs.groups:
            # If this wait is cancelled, the world ends.
            await self.site.wait(self.runs.groups[run].undecided)
        # First its mail: a pass that has voted waits for some, and can't be cancelled.
        self._forget(run, "stopped")
        await self._lives.stop(run)
