"""What runs on each worker: parts of models, their graphs, and the gradients staged for passes.

Messages may come late, twice, or not at all. Each is taken once; what belongs to something that has
ended is refused, because its key is remembered; and what comes from a lost worker is not listened
to. No method lets a CancelledError out, which would cut the connection.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from asyncgrad.autograd import graph
from asyncgrad.autograd.function import Function
from asyncgrad.autograd.modes import no_grad, set_grad_enabled
from asyncgrad.autograd.passes import backward
from asyncgrad.core.variable import Variable
from asyncgrad.distributed.errors import PassEndedError, sendable
from asyncgrad.distributed.group import Runs
from asyncgrad.distributed.remote import Ref, RemoteCall, Reply, late
from asyncgrad.distributed.site import Site, here
from asyncgrad.distributed.staging import Ambient, Staged, ambient, summed
from asyncgrad.distributed.trace import Trace, recording
from asyncgrad.errors import AutogradError
from asyncgrad.ops.tensors.pytree import flatten
from asyncgrad.scheduler import offload, waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from asyncgrad.distributed.engine import Message, Peers

#: How many ended passes, calls and runs, and how many messages, a host remembers.
_REMEMBERED = 4_096


class Host:
    """One worker's end of a world."""

    def __init__(self, session: str, rank: int) -> None:
        """Make a host, in any thread; `open` is its first call."""
        self._session = session
        self._rank = rank
        self._site: Site | None = None
        self._parts: dict[int, Any] = {}
        #: For parts that compute one thing at a time.
        self._turns: dict[int, asyncio.Lock] = {}
        self._entries: dict[Any, _Entry] = {}
        self._staged: dict[Any, _Pass] = {}
        self._optimizers: dict[int, Any] = {}
        self._runs: Runs | None = None
        self._trace: Trace | None = None
        #: What runs for each message.
        self._requests: dict[tuple[int, int], asyncio.Task[Any]] = {}
        #: The asyncio tasks that work for a pass, call or run.
        self._working: dict[Any, set[asyncio.Task[Any]]] = {}
        #: Keys of passes and runs that have ended, with how; calls released; messages taken.
        self._ended = _Memory()
        self._released = _Memory()
        self._taken = _Memory()

    async def take(self, message: Message) -> tuple[bool, Any]:
        """Run the method that a message names.

        Returns:
            Whether it has succeeded, and its result or error.
        """
        if message.session != self._session:
            return False, AutogradError("a message of another world was refused")
        site = self._site
        if site is None and message.method != "open":
            return False, AutogradError("the host was made anew, and what it held is gone")
        if site is not None and message.sender in site.lost:
            return False, PassEndedError(f"worker {message.sender} was declared lost")
        if self._taken.add((message.sender, message.number)):
            return False, PassEndedError("the message has been taken before")
        # In a task of its own, which can be cancelled while the connection lives on.
        working = asyncio.ensure_future(self._run(message))
        request = message.sender, message.number
        self._requests[request] = working
        try:
            # If cancelled here, nobody will read the answer.
            await asyncio.wait([working])
        except asyncio.CancelledError:
            working.cancel()
            return False, late("what was asked for")
        finally:
            del self._requests[request]
        if working.cancelled():
            return False, late(f"{message.method} was cancelled: its pass or call")
        error = working.exception()
        if error is None:
            return True, working.result()
        try:
            return False, sendable(error)
        finally:
            # The error's traceback may hold this frame: a cycle.
            del error

    async def _run(self, message: Message) -> Any:
        here.set(self._site)
        with recording(None if self._trace is None else self._trace.recorder):
            return await getattr(self, f"on_{message.method}")(*message.args)

    # -- the world --------------------------------------------------------------------------------

    @property
    def site(self) -> Site:
        """The site of this worker."""
        assert self._site is not None
        return self._site

    async def on_open(self, size: int, peers: Peers, grace: float) -> None:
        """Begin: the loop runs, and the others can be reached."""
        self._site = Site(self._session, self._rank, size, peers, grace)
        self._site.host = self
        self._runs = Runs(self._site, self._scope, self._ended)

    async def on_fence(self, rank: int, reason: str) -> None:
        """Never listen to a worker again."""
        self.site.fence(rank, reason)

    def drop_sender(self, rank: int) -> None:
        """Drop what a lost worker had here, and let those know that wait for its mail."""
        assert self._runs is not None
        self._runs.lose(rank)
        for kept in (self._entries, self._staged, self._working):
            for key in [key for key in kept if key[0] == rank]:
                (self._released if kept is self._entries else self._ended).add(key, "lost")
                if kept is not self._working:
                    del kept[key]
                else:
                    self.site.spawn(self._stop(key))

    async def on_give_up(self, sender: int, number: int) -> None:
        """End what a message has asked for, or will ask for if it comes later."""
        self._taken.add((sender, number))
        working = self._requests.get((sender, number))
        if working is not None:
            await _cancelled([working])

    async def on_close(self) -> None:
        """Drop everything, and end what runs."""
        running = [task for tasks in self._working.values() for task in tasks]
        await _cancelled(running)
        for kept in (self._parts, self._entries, self._staged, self._optimizers):
            kept.clear()
        await self.site.end("its caller has left it")

    async def on_statistics(self) -> dict[str, int]:
        """How much the host keeps, and how many messages it works on."""
        current = asyncio.current_task()
        return {
            "parts": len(self._parts),
            "calls": len(self._entries),
            "passes": len(self._staged),
            "optimizers": len(self._optimizers),
            "runs": 0 if self._runs is None else len(self._runs),
            "working": sum(task is not current for task in self._requests.values()),
        }

    async def on_trace(self) -> None:
        """Record all passes from now on."""
        self._trace = Trace(f"worker {self._rank}")

    async def on_traced(self) -> Any:
        """What has been recorded, and record no more."""
        trace, self._trace = self._trace, None
        return None if trace is None else trace.collected()

    @asynccontextmanager
    async def _scope(self, key: Any) -> AsyncIterator[None]:
        """What runs in the block belongs to a pass, call or run, and is cancelled with it."""
        if key in self._ended or key in self._released:
            raise late("the pass, call or run")
        task = asyncio.current_task()
        assert task is not None
        self._working.setdefault(key, set()).add(task)
        try:
            yield
        finally:
            tasks = self._working[key]
            tasks.discard(task)
            if not tasks:
                del self._working[key]

    async def _stop(self, key: Any) -> None:
        """Cancel what runs for a pass, call or run, and wait for its end."""
        await _cancelled(self._working.get(key, ()))

    # -- parts ------------------------------------------------------------------------------------

    async def on_build(self, number: int, factory: Callable[..., Any], args: Any, kw: Any) -> None:
        """Make a part."""
        made = await _called(factory, *args, **kw)
        if not callable(made):
            raise TypeError(
                f"remote: the factory made a {type(made).__name__}, which can't be called: return "
                f"a Module or a function of tensors"
            )
        self._parts[number] = made

    async def on_take_turns(self, number: int) -> None:
        """Let a part compute one forward or backward at a time, in the order of arrival."""
        self._turns.setdefault(number, asyncio.Lock())

    def _turn(self, number: int) -> AbstractAsyncContextManager[Any]:
        return self._turns.get(number) or nullcontext()

    def _part(self, number: int) -> Any:
        if number not in self._parts:
            raise AutogradError("a part was used after the object that World.remote gave was gone")
        return self._parts[number]

    async def on_apply(self, number: int, function: Callable[..., Any], args: Any) -> Any:
        """Call a function with a part."""
        with no_grad():
            found = await _called(function, self._part(number), *args)
        leaves, structure = flatten(found)
        return structure.build(iter([_cut(leaf) for leaf in leaves]))

    async def on_release(self, unneeded: list[tuple[str, Any]]) -> None:
        """Drop what the caller has dropped, and stop a forward that it does not wait for."""
        stopped = []
        for kind, key in unneeded:
            if kind == "part":
                self._parts.pop(key, None)
                self._turns.pop(key, None)
            elif kind == "optimizer":
                self._optimizers.pop(key, None)
            else:
                self._released.add(key)
                self._entries.pop(key, None)
                stopped.append(self._stop(key))
        for stop in stopped:
            await stop

    # -- forward ----------------------------------------------------------------------------------

    async def on_forward(
        self, call: Any, number: int, structure: Any, leaves: Any, record: bool, fetch: bool
    ) -> Reply:
        """Run a part, and keep its graph if it is recorded."""
        async with self._scope(call):
            entry = _Entry()
            given: list[Any] = []
            for leaf in leaves:
                if isinstance(leaf, Ref):
                    given.append(await self._fetched(entry, leaf, record))
                    continue
                if isinstance(leaf, Variable):
                    entry.inputs.append(leaf)
                given.append(leaf)
            args, kwargs = structure.build(iter(given))
            part = self._part(number)
            entry.part = number
            async with self._turn(number):
                with set_grad_enabled(record):
                    output = await _called(part, *args, **kwargs)
                    if isinstance(output, RemoteCall):
                        output = await output
                    entry.take(output)
            if call in self._released:
                raise late("the call")
            differentiable = [requires for _, requires in entry.outputs]
            if not fetch or any(differentiable):
                self._entries[call] = entry
            sent = entry.values() if fetch else [None] * len(entry.outputs)
            return Reply(entry.structure, sent, differentiable)

    async def _fetched(self, entry: _Entry, ref: Ref, record: bool) -> Any:
        """The results of another part's call, as new leaves."""
        structure, values = await self.site.call(ref.rank, "hand_over", ref.call)
        leaves = [
            _cut(value).requires_grad_(requires and record)
            if isinstance(value, Variable)
            else value
            for value, requires in values
        ]
        entry.refs.append((ref, leaves))
        return structure.build(iter(leaves))

    def _entry(self, call: Any) -> _Entry:
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
        requires = [flows for _, flows in entry.outputs]
        return entry.structure, list(zip(entry.values(), requires, strict=True))

    # -- passes -----------------------------------------------------------------------------------

    def _pass(self, key: Any) -> _Pass:
        if key in self._ended:
            raise late("the pass")
        staged = self._staged.get(key)
        if staged is None:
            staged = self._staged[key] = _Pass()
        return staged

    async def on_deposit(self, key: Any, turn: int, call: Any, consumer: Any, grads: Any) -> None:
        """Keep what a part on another worker gives for the results of a call."""
        self._pass(key).deposits.setdefault((turn, call), {})[consumer] = grads

    async def on_backward(
        self,
        key: Any,
        turn: int,
        call: Any,
        given: list[Any],
        accumulates: bool,
        retain_graph: bool,
        left: float | None,
        priority: int,
    ) -> tuple[list[Any], set[int]]:
        """Run a call's part of a pass; the gradients of its leaves are staged."""
        async with self._scope(key):
            staged = self._pass(key)
            entry = self._entry(call)
            deposits = staged.deposits.pop((turn, call), {})
            # In the order of one process: consumers from the last on.
            sources = [deposits[consumer] for consumer in sorted(deposits, reverse=True)]
            sources += [one for one in given if one]
            outputs, gradients = [], []
            for place, (output, differentiable) in enumerate(entry.outputs):
                gradient = summed(source[place] for source in sources) if differentiable else None
                if gradient is not None:
                    outputs.append(output)
                    gradients.append(gradient)
            touched = {self._rank}
            found: dict[Any, Any] = {}
            if outputs:
                within = Ambient(self.site, key, turn, accumulates, touched)
                deadline = None if left is None else self.site.loop.time() + left
                async with self._turn(entry.part):
                    found = await _collected(
                        within, outputs, gradients, retain_graph, deadline, priority
                    )
            if not retain_graph:
                self._entries.pop(call, None)
            for ref, leaves in entry.refs:
                grads = [found.pop(x, None) if isinstance(x, Variable) else None for x in leaves]
                await self.site.call(ref.rank, "deposit", key, turn, ref.call, call, grads)
            answer = [found.pop(leaf, None) for leaf in entry.inputs]
            if accumulates:
                staged.gradients.add(turn, call, found)
            return answer, touched

    async def on_prepare(self, key: Any) -> None:
        """Promise to commit a pass."""
        async with self._scope(key):
            staged = self._pass(key)
            if staged.deposits:
                raise AutogradError(
                    "gradients have come for a call whose node the pass has not reached"
                )
            totals = staged.gradients.total()
            for leaf in totals:
                grad = leaf.grad
                if grad is not None:
                    # Raises here what would raise in the commit.
                    grad._metadata.F.check_writeable(grad._array)
            staged.totals = totals

    async def on_commit(self, key: Any) -> None:
        """Add the gradients of a pass; another time, do nothing."""
        if key in self._ended:
            if self._ended[key] != "committed":
                raise late("the pass")
            return
        staged = self._staged.get(key)
        if staged is None or staged.totals is None:
            raise AutogradError("a pass is to be committed that was not prepared here")
        self._ended.add(key, "committed")
        del self._staged[key]
        await graph.accumulate(staged.totals)

    async def on_abort(self, key: Any) -> None:
        """Drop what is staged for a pass, and end what runs for it."""
        if not self._ended.add(key, "aborted"):
            self._staged.pop(key, None)
            await self._stop(key)

    # -- optimizers -------------------------------------------------------------------------------

    async def on_optimizer(
        self, number: int, kind: Callable[..., Any], parts: list[int], defaults: dict[str, Any]
    ) -> None:
        """Make an optimizer of parts."""
        parameters = [p for part in parts for p in self._part(part).parameters()]
        self._optimizers[number] = kind(parameters, **defaults)

    async def on_optimize(self, number: int, method: str, args: Any) -> Any:
        """Call a method of an optimizer."""
        found = getattr(self._optimizers[number], method)(*args)
        return await found if isawaitable(found) else found

    # -- runs -------------------------------------------------------------------------------------

    async def on_run(self, run: Any, function: Callable[..., Any], args: Any, kw: Any) -> Any:
        """Run a coroutine function as one of a group."""
        assert self._runs is not None
        return await self._runs.run(run, function, args, kw)

    async def on_in_group(
        self, call: Any, run: Any, number: int, function: Callable[..., Any], args: Any
    ) -> Any:
        """Await a function of this package's that works on a part as one of a group."""
        assert self._runs is not None
        async with self._scope(call):
            self._runs.enter(run)
            return await function(self._parts, number, *args)

    async def on_mail(self, run: Any, tag: Any, sender: int, content: Any) -> None:
        """Keep what another of a group has sent until it is asked for."""
        assert self._runs is not None
        self._runs.deliver(run, tag, sender, content)

    async def on_stop(self, run: Any) -> None:
        """End a run."""
        assert self._runs is not None
        if not self._ended.add(run, "stopped"):
            await self._stop(run)
        self._runs.forget(run)


class _Memory:
    """The latest keys, with a word on each."""

    def __init__(self) -> None:
        self._words: OrderedDict[Any, str] = OrderedDict()

    def add(self, key: Any, word: str = "") -> bool:
        """Remember a key; True, with nothing changed, if it is known."""
        if key in self._words:
            return True
        self._words[key] = word
        if len(self._words) > _REMEMBERED:
            self._words.popitem(last=False)
        return False

    def __contains__(self, key: Any) -> bool:
        return key in self._words

    def __getitem__(self, key: Any) -> str:
        return self._words[key]


class _Entry:
    """What a forward has left for its backward, and for other parts."""

    __slots__ = ("inputs", "outputs", "part", "refs", "structure")

    def __init__(self) -> None:
        #: The tensors that the caller has sent, as leaves.
        self.inputs: list[Any] = []
        #: What was fetched from other workers, as leaves.
        self.refs: list[tuple[Ref, list[Any]]] = []
        #: The results, with whether they require grad.
        self.outputs: list[tuple[Any, bool]] = []
        self.structure: Any = None
        self.part = 0

    def take(self, output: Any) -> None:
        """Keep the results of the part."""
        leaves, self.structure = flatten(output)
        places = [
            place
            for place, leaf in enumerate(leaves)
            if isinstance(leaf, Variable) and leaf.requires_grad  # type: ignore[attr-defined]
        ]
        if places:
            for place, tensor in zip(
                places, _Border.apply(*[leaves[place] for place in places]), strict=True
            ):
                leaves[place] = tensor
        self.outputs = [(leaf, place in places) for place, leaf in enumerate(leaves)]

    def values(self) -> list[Any]:
        """The results, cut from the graph."""
        return [_cut(leaf) for leaf, _ in self.outputs]


class _Pass:
    """What a host has staged under one key."""

    __slots__ = ("deposits", "gradients", "totals")

    def __init__(self) -> None:
        self.gradients = Staged()
        #: By turn and call: for each consumer, the gradients of the call's results.
        self.deposits: dict[Any, dict[Any, list[Any]]] = {}
        #: The sums, once all is prepared.
        self.totals: dict[Any, Any] | None = None


class _Border(Function):
    """Where a pass enters a part: its gradients are collected instead of committed."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        graph.join(_collector.get())
        return gradients


class _Collector:
    """Takes part in a host's pass, and keeps all its gradients back."""

    def __init__(self) -> None:
        self.gradients: dict[Any, Any] = {}

    async def prepare(self, gradients: dict[Any, Any]) -> dict[Any, Any]:
        self.gradients = gradients
        return dict.fromkeys(gradients)

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...


#: What keeps the gradients of a host's pass back.
_collector: ContextVar[_Collector] = ContextVar("asyncgrad_collector")


async def _collected(
    within: Ambient,
    outputs: list[Any],
    gradients: list[Any],
    retain_graph: bool,
    deadline: float | None,
    priority: int,
) -> dict[Any, Any]:
    """Run a pass, and give its gradients by leaf instead of adding them."""
    collector = _Collector()

    async def collect() -> dict[Any, Any]:
        ambient.set(within)
        _collector.set(collector)
        await backward(outputs, gradients, retain_graph, priority=priority, deadline=deadline)
        return collector.gradients

    # In a task, so that what is set in its context is set nowhere else.
    return await asyncio.ensure_future(collect())


async def _cancelled(tasks: Any) -> None:
    """Cancel tasks, and wait for their end."""
    tasks = [task for task in tasks if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a user's function returns: a plain one runs in a thread, to leave the loop alone."""
    # What a class makes may be called with an await, but the class itself is not.
    if waits(function) and not isinstance(function, type):
        return await function(*args, **kwargs)
    return await offload(function, *args, **kwargs)


def _cut(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Variable) else leaf  # type: ignore[attr-defined]
