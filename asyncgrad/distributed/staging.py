"""What passes that cross workers have computed and not committed yet, and who decides on it.

A pass has one coordinator: the site where it was started. Hosts stage gradients under its key, and
promise to commit them when the last node has run. If all do, the coordinator commits its own, which
is the point of no return, and tells them to commit; otherwise, it tells all hosts to abort.

A host that has promised keeps what it has staged until it is told, or its world ends. If one dies
before all have promised, `prepare` raises, and `abort` follows. If one dies later, the pass has
succeeded: the others commit, and the dead host is fenced, so that nobody learns whether it has
committed. So is one that hangs and does not confirm in time.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Self

from asyncgrad.autograd import graph
from asyncgrad.autograd.modes import request
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import Member
from asyncgrad.core.modes import current, install
from asyncgrad.core.states import DONE
from asyncgrad.distributed.errors import PassEndedError, limited
from asyncgrad.distributed.site import CALLER, Site
from asyncgrad.distributed.starts import watched
from asyncgrad.distributed.sums import Held, KeepsBack, Staged
from asyncgrad.distributed.values import requires_grad
from asyncgrad.errors import AutogradError
from asyncgrad.records import NamedTuple


class Ambient(NamedTuple):
    """The pass on whose behalf a host computes."""

    site: Site
    #: The key under which hosts stage its gradients.
    key: tuple[int, int]
    #: The place of the pass among those that are committed together.
    turn: tuple[int, int]
    #: Gradients are added to leaves.
    accumulates: bool
    #: The hosts that have staged something.
    touched: set[int]
    #: Of the passes that `turn_of_passes` numbers from 0 on, those whose nodes have all run.
    finished: set[int]
    #: By call: gradients of results that were fetched, for the node of the call.
    fetched: dict[tuple[int, ...], list[Any]]


class PassRequest(NamedTuple):
    """What a host is asked to do for a pass with a call that it has computed."""

    key: tuple[int, int]
    turn: tuple[int, int]
    #: The calls that the pass has reached: it may not need the gradients of others.
    reached: set[Any]
    accumulates: bool
    finished: set[int]
    retain_graph: bool
    #: How many seconds are left before its deadline.
    left: float | None
    priority: int


def pass_request(
    within: Ambient, reached: set[Any], deadline: float | None, retain_graph: bool = False,
    priority: int = 0,
) -> PassRequest:  # fmt: skip
    """What to ask a host for, now."""
    left = None if deadline is None else deadline - within.site.loop.time()
    return PassRequest(
        within.key, within.turn, reached, within.accumulates, within.finished, retain_graph, left,
        priority,
    )  # fmt: skip


#: Set while a host runs its part of a pass.
ambient: ContextVar[Ambient | None] = ContextVar("asyncgrad_distributed_pass", default=None)
#: The innermost `context()`.
_context: ContextVar[context | None] = ContextVar("asyncgrad_distributed_context", default=None)
#: The place of passes started here in their context; None for the order in which they start.
turn_of_passes: ContextVar[int | None] = ContextVar("asyncgrad_distributed_turn", default=None)


def current_staging(site: Site) -> tuple[Ambient, graph.Pass]:
    """Where hosts stage what the current pass computes; its first call joins the pass."""
    running = graph.current_pass()
    assert running is not None
    known, task = ambient.get(), current().graph_task
    # A pass that a hook or node starts commits by itself, as in one process.
    if known is not None and known.site is site and task.parent is None:
        return known, running
    found = site.staging.get(task)
    if found is None:
        shared = _context.get() if task.parent is None else None
        if shared is None:
            own = Decision(site)
            graph.join(own)
            found = Ambient(site, own.key, (0, 0), running.accumulates, own.touched, set(), {})
        else:
            found = shared._reach(site, running)
        site.staging[task] = found
    return found, running


def check_no_context() -> None:
    """Raise within a `context()`, which can't hold back what the ranks of a run decide on."""
    if _context.get() is not None:
        raise AutogradError(
            "DistributedDataParallel: a pass within autograd.context(), which does not hold back "
            "what the ranks of a run commit together: put the losses into one pass, or all but the "
            "last pass into `with model.no_sync():`"
        )


def check_committed(method: str) -> None:
    """Raise within a `context()`, for what uses the gradients that it adds at its end."""
    shared = _context.get()
    whole = None if shared is None else shared._whole()
    if whole is not None and not (whole._ended or whole._failed):
        raise AutogradError(
            f"{method}: within autograd.context(), which adds the gradients of its passes at its "
            f"end: call it after the block"
        )


class Decision:
    """The commit in two phases of what hosts have staged under one key; takes part in a pass."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.key = (site.rank, next(site.numbers))
        self.touched: set[int] = set()

    async def prepare(self, gradients: object = None) -> None:
        """Ask every host that has staged something; raises unless all agree."""
        # Nothing has changed anywhere so far. If this wait is cancelled, an abort follows.
        await self.site.call_each("prepare", dict.fromkeys(sorted(self.touched), (self.key,)))

    async def commit(self) -> None:
        """Tell the hosts that all have agreed; those that don't confirm a commit are fenced."""
        _, errors = await self.site.tell_all(sorted(self.touched), "commit", self.key)
        for rank, error in errors.items():
            self.site.fence(rank, f"it has not confirmed a commit ({error})")

    async def abort(self) -> None:
        """Tell all hosts, because in nested calls some may have staged what is not known here."""
        if self.site.ended is None:
            await self.site.tell_all(range(self.site.size), "abort", self.key)


class _InContext(KeepsBack):
    """Takes part in a pass whose gradients are committed together with those of others."""

    def __init__(self, shared: context, turn: tuple[int, int]) -> None:
        super().__init__(shared._held, {})
        self._shared = shared
        self.turn = turn
        #: Where hosts stage what they compute for the pass, once it has come to a part.
        self.within: Ambient | None = None

    async def prepare(self, gradients: dict[Any, Any]) -> dict[Any, Any]:
        """Have the pass add nothing."""
        self._shared._check()
        if any(requires_grad(gradient) for gradient in gradients.values()):
            raise AutogradError(
                "a pass of a context() was recorded by create_graph=True, and gradients that are "
                "kept back lose their graph: start it outside of the block, or call grad()"
            )
        self._shared._own.add(self.turn, (CALLER, 0), gradients)
        if self.within is not None:
            self.within.finished.add(self.turn[1])
        return dict.fromkeys(gradients)

    async def abort(self) -> None:
        """Make the context fail, because one of its passes has failed."""
        await self._shared._fail()


class context:
    """Commit the gradients of several passes together, here and on all workers, or none.

    Within the block no `.grad` changes. At its end all are committed; if the block raises, or one
    of its passes has failed, none is. It holds for all passes that are started in the block, also
    by child tasks, and for steps of replicated models, but not for passes that hooks and nodes
    start. A context within another one is a part of it. Passes of a DistributedDataParallel model,
    within `World.run`, fail in it: their ranks decide on them.

    Raises:
        PassEndedError: at the end, if a pass that was started in the block has failed, whether or
            not it had come to a part, and the block did not raise its error; in a
            pass that a child task starts after the end.
        TimeoutError: at the end, if workers don't answer by the latest deadline of the passes.
        WorkerLostError: at the end, if a worker that has staged gradients is lost.

    Example:
        >>> import asyncio
        >>> from asyncgrad import distributed as dist
        >>> async def step(losses):
        ...     async with dist.autograd.context():
        ...         for loss in losses:
        ...             await loss.backward()
        >>> asyncio.run(step([]))
    """

    def __init__(self) -> None:
        """Start without a world: the first pass that reaches one decides which it is."""
        self._own = Staged()
        #: The decision, and what takes part in passes otherwise.
        self._held = Held()
        self._committed = False
        #: Who has opened it ends it in time.
        self._is_limited = False
        self._decision: Decision | None = None
        self._telling: asyncio.Future[None] | None = None
        self._failed = self._ended = self._entered = False
        self._outer: context | None = None
        #: What starts passes outside of the block; None for the scheduler.
        self._starts: Any = None
        #: The id of the first pass. Passes that `turn_of_passes` numbers come in its place.
        self._first: int | None = None
        self._finished: set[int] = set()
        self._deadlines: list[float | None] = []
        #: What takes part in each pass.
        self._joined: weakref.WeakKeyDictionary[GraphTask, _InContext] = weakref.WeakKeyDictionary()

    def _reach(self, site: Site, running: graph.Pass) -> Ambient:
        """Where hosts stage what they compute for a pass of this context, which comes to a part."""
        whole = self._whole()
        joined = whole._joined.get(current().graph_task)
        if joined is None:
            # It adds to no `.grad`, or it was started after the block.
            joined = _InContext(whole, self._turn())
            graph.join(joined)
        whole._deadlines.append(running.deadline)
        joined.within = self._place(site, joined.turn, running.accumulates)
        return joined.within

    def _turn(self) -> tuple[int, int]:
        """The place of the next pass."""
        number, numbered = graph.next_pass_id(), turn_of_passes.get()
        if self._first is None:
            self._first = number
        return (number, 0) if numbered is None else (self._first, numbered)

    def _place(
        self, site: Site, turn: tuple[int, int] | None = None, accumulates: bool = True
    ) -> Ambient:
        """Where hosts stage what they compute for a pass; for the next one without a turn.

        Hosts that are added to those that have staged something are told of the end.
        """
        whole = self._whole()
        whole._check()
        if whole._decision is None:
            whole._decision = Decision(site)
            whole._held.members.append(Member(whole._decision))
        decision = whole._decision
        if decision.site is not site:
            raise AutogradError("a context() commits passes of one world: open one for each")
        # In a nested context nothing is summed early, as passes of the outer one come in between.
        early = turn_of_passes.get() is not None and whole is self
        finished = self._finished if early else set()
        turn = turn or self._turn()
        return Ambient(site, decision.key, turn, accumulates, decision.touched, finished, {})

    def _whole(self) -> context:
        """The outermost context, which commits."""
        return self if self._outer is None else self._outer._whole()

    def _check(self) -> None:
        """Raise if the context has ended, or a pass of it has failed."""
        if self._ended:
            raise PassEndedError(
                "a pass that was started in a context() has come to a part after the block's end: "
                "await the tasks that start passes within the block"
            )
        if self._failed:
            raise PassEndedError(
                "a pass of this context() has failed, so nothing of it will be committed: leave "
                "the block, and start again in a new one"
            )

    async def _fail(self) -> None:
        """Commit nothing, and tell all, or leave that to the end of the block.

        A pass that blocks a thread is concluded on a loop of its own, on which those that have
        joined other passes, and the workers, can't be told.
        """
        self._failed = True
        if asyncio.get_running_loop() is self._loop:
            await self._give_up()

    async def _give_up(self) -> None:
        """Drop what has been staged; the hosts are told once, and refuse what comes later."""
        self._failed = True
        self._own = Staged()
        if self._telling is None:
            self._telling = self._held.give_up()
        if self._telling is not None:
            # All are told even if this wait is cancelled.
            await asyncio.wait([self._telling])

    async def __aenter__(self) -> Self:
        if self._entered:
            raise AutogradError("a context() was entered before: make one for each block")
        self._entered = True
        self._loop = asyncio.get_running_loop()
        self._outer = _context.get()
        _context.set(self)
        self._starts = current().starts
        install(current().replace(starts=self._start))
        return self

    def _start(self, task: GraphTask, start: Callable[[GraphTask], Any]) -> Any:
        """Start a pass, keep its gradients back, and note if it fails."""
        # The errors of nested passes are their parents'.
        is_nested = task.parent is not None
        whole = self._whole()
        adds = not (task.captures or is_nested or whole._ended)
        if adds and task not in whole._joined:
            whole._joined[task] = joined = _InContext(whole, self._turn())
            task.members = [*task.members, Member(joined)]

        def ended(_: object = None) -> None:
            if not is_nested and task.state is not DONE:
                whole._failed = True

        if self._starts is not None:
            start = partial(self._starts, start=start)
        return watched(task, start, ended)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        _context.set(self._outer)
        install(current().replace(starts=self._starts))
        whole = self._whole()
        try:
            if kind is not None or whole._failed:
                await whole._give_up()
            if kind is not None:
                return
            whole._check()
            if whole is self:
                self._ended = True
                await self._commit()
        finally:
            if whole is self:
                # Contexts of tasks have this object: cycles.
                self._decision = self._telling = None

    async def _commit(self) -> None:
        """Commit all, until the latest deadline if each pass has one."""
        if self._is_limited or None in self._deadlines:
            deadline = None
        else:
            deadline = max(self._deadlines, default=None)  # type: ignore[type-var]
        running = None
        try:
            running = self._held.commit(self._own.total())
            # If this wait is cancelled, nothing has changed anywhere, or all is committed.
            async with limited("the commit of a context()", deadline, running.committed):
                await running
        finally:
            self._committed = running is not None and running.committed()
            if not self._committed:
                await self._give_up()


@asynccontextmanager
async def limited_context(
    name: str, deadline: float | None, turn: AbstractAsyncContextManager[Any]
) -> AsyncIterator[context]:
    """Open a context, in its turn, that is given up at a deadline or at that of a `request`."""
    whole = context()
    whole._is_limited = True
    with request(deadline=deadline):
        limit = limited(name, current().deadline, lambda: whole._committed)
        async with limit, turn, whole:
            whole._whole()._deadlines.append(current().deadline)
            yield whole
