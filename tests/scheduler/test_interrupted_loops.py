"""KeyboardInterrupt anywhere in an awaited pass: the loop can be ended, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from contextvars import ContextVar
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from interrupts import interrupt
from passes import HEAVY, another_commits, calls, chain, commit_in_thread, give_way, leaf

import asyncgrad as ag
from asyncgrad.core import commit_turns, graph_task
from asyncgrad.core.locks import Shared
from asyncgrad.core.states import DONE, ENDED
from asyncgrad.scheduler import blas, inline, portal, reentrant, threads, yielding
from asyncgrad.scheduler.completion import ask_to_end
from asyncgrad.scheduler.reentrant import on_new_stack
from asyncgrad.scheduler.statistics import Collections

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("nothing_is_left")

FILES = {
    str(path)
    for package in ("core", "scheduler")
    for path in (Path(ag.__file__).parent / package).glob("*.py")
}


class Joins:
    """A participant that notes how the pass has ended."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def prepare(self, gradients: Any) -> None:
        await asyncio.sleep(0)

    async def commit(self) -> None:
        self.told.append("commit")

    async def abort(self) -> None:
        self.told.append("abort")


class Decides(Joins):
    """One that has promised others to do as they decide."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = 0

    async def decide(self) -> None:
        self.decisions += 1
        await asyncio.sleep(0)


class Plain:
    """One without coroutines."""

    def __init__(self) -> None:
        self.asked = False
        self.told: list[str] = []

    def prepare(self, gradients: Any) -> None:
        self.asked = True

    def commit(self) -> None:
        self.told.append("commit")

    def abort(self) -> None:
        self.told.append("abort")


def coroutines(x: ag.Tensor, y: ag.Tensor, members: list[Any]) -> ag.Tensor:
    return (calls(chain(calls(x, give_way), 3), give_way) + calls(y, give_way)).sum()


def in_threads(x: ag.Tensor, y: ag.Tensor, members: list[Any]) -> ag.Tensor:
    return (chain(chain(x, 2, cost=HEAVY), 2, cost=HEAVY) + y * 1.0).sum()


def joined(x: ag.Tensor, y: ag.Tensor, members: list[Any]) -> ag.Tensor:
    async def node() -> None:
        for member in members:
            ag.autograd.graph.join(member)
        await asyncio.sleep(0)

    return (calls(x, node) + y * 1.0).sum()


def joined_at_once(x: ag.Tensor, y: ag.Tensor, members: list[Any]) -> ag.Tensor:
    """Participants are asked in the pass's first slice."""

    def node() -> None:
        for member in members:
            ag.autograd.graph.join(member)

    return (calls(x, node) + y * 1.0).sum()


def plain(x: ag.Tensor) -> ag.Tensor:
    return (x * 2.0).sum()


def behind_hook(x: ag.Tensor) -> ag.Tensor:
    """A leaf to which is added before the end of the pass."""
    x.register_post_accumulate_grad_hook(lambda leaf: None)
    return plain(x)


def end(loop: asyncio.AbstractEventLoop) -> None:
    """End a loop as `asyncio.run` does."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=30))
        assert not pending
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "members"),
    [
        (coroutines, []),
        (in_threads, []),
        (joined, [Joins, Joins]),
        (joined, [Decides, Joins]),
        (joined_at_once, [Plain, Joins]),
    ],
)
def test_all_or_nothing_wherever_an_interrupt_comes(
    made: Callable[..., ag.Tensor], members: list[Any]
) -> None:
    at, seen = 1, set()
    interrupted = True
    while interrupted:
        x, y = leaf(), leaf()
        joining = [member() for member in members]
        loss = made(x, y, joining)
        loop = asyncio.new_event_loop()
        futures: list[Any] = []

        async def main(loss: ag.Tensor = loss, futures: list[Any] = futures) -> None:
            futures.append(loss.backward())
            await futures[0]

        def run(loop: Any = loop, main: Any = main) -> None:
            loop.run_until_complete(loop.create_task(main()))

        interrupted = interrupt(at, run, run.__code__, FILES, not_as_a_task_waits)
        end(loop)
        done = x.grad is not None
        assert (y.grad is not None) == done, at
        for member in joining:
            assert member.told in ([], ["commit" if done else "abort"]), at
            assert member.told or not (done or getattr(member, "asked", False)), at
            # Who has voted must not vote again.
            assert getattr(member, "decisions", 0) <= 1, at
        if futures:
            assert futures[0].committed() == done, at
        assert not blas.one_thread.holders
        seen.add(done)
        at += 1
    assert seen == {True, False}
    assert done


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", [plain, behind_hook])
def test_no_interrupt_of_a_pass_in_line_keeps_others_from_committing(
    made: Callable[..., ag.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if it has lost the place of the pass, which nobody leaves then."""
    monkeypatch.setattr(commit_turns, "_PATIENCE", 0.001)
    at, interrupted, seen = 1, True, set()
    while interrupted:
        x = leaf()
        loss = made(x)
        loop = asyncio.new_event_loop()
        futures: list[Any] = []
        with another_commits() as others_end:

            async def main(
                loss: ag.Tensor = loss, futures: list[Any] = futures, then: Any = others_end
            ) -> None:
                futures.append(loss.backward())
                await asyncio.sleep(0)
                then()
                await futures[0]

            def run(loop: Any = loop, main: Any = main) -> None:
                loop.run_until_complete(loop.create_task(main()))

            interrupted = interrupt(at, run, run.__code__, FILES, not_as_a_task_waits)
        commit_in_thread()
        end(loop)
        done = x.grad is not None
        if futures:
            committed = futures[0].committed()
            # Behind a hook the gradient is added before the pass has succeeded.
            assert committed == done or (made is behind_hook and done), at
        commit_in_thread()
        assert not commit_turns.line
        seen.add(done)
        at += 1
    assert seen == {True, False}
    assert done


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_blocking_pass_ends_wherever_an_interrupt_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its callbacks have seen is taken back, unless it has succeeded."""
    tasks: list[Any] = []
    real = inline._run
    monkeypatch.setattr(inline, "_run", lambda task: (tasks.append(task), real(task))[1])
    at, seen, interrupted = 1, set(), True
    while interrupted:
        x, y = leaf(), leaf()
        y.register_hook(lambda _: ag.autograd.graph.queue_callback(give_way))
        loss = (calls(x, give_way) + calls(y, give_way)).sum()
        tasks.clear()

        def run(loss: ag.Tensor = loss) -> None:
            loss.backward()

        interrupted = interrupt(at, run, run.__code__, FILES)
        done = x.grad is not None
        assert (y.grad is not None) == done, at
        if tasks:
            assert tasks[0].state in ENDED, at
            assert (tasks[0].state is DONE) == done, at
        seen.add(done)
        at += 1
    assert seen == {True, False}


def not_as_a_task_waits() -> None:
    """Interrupt, unless asyncio is making a task wait for a future: it would wait for ever."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "add_done_callback":
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def fails_in(verb: str, error: type[BaseException]) -> Any:
    class Stops(Decides):
        async def prepare(self, gradients: Any) -> None:
            if verb == "abort":
                raise ValueError("planned")

        async def decide(self) -> None:
            await self.note("decide")

        async def commit(self) -> None:
            await self.note("commit")

        async def abort(self) -> None:
            await self.note("abort")

        async def note(self, what: str) -> None:
            self.told.append(what)
            if what == verb:
                raise error("planned")

    return Stops()


@pytest.mark.filterwarnings("ignore:a backward pass:RuntimeWarning")
@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("verb", ["decide", "commit", "abort"])
def test_a_participant_that_stops_the_program_stops_no_other(
    verb: str, error: type[BaseException], blocks: bool
) -> None:
    """The others are told, the error is raised once, and the loop of blocking passes goes on."""
    x, members = leaf(), [fails_in(verb, error), Joins()]
    loss = joined(x, leaf(), members)
    if blocks:
        with pytest.raises(error, match="planned"):
            loss.backward()
    else:

        async def main() -> None:
            await loss.backward()

        loop = asyncio.new_event_loop()
        task = loop.create_task(main())
        with pytest.raises(error, match="planned"):
            loop.run_until_complete(task)
        end(loop)
        if verb != "commit":
            assert task.cancelled() or task.exception() is not None
    how = "commit" if verb == "commit" else "abort"
    assert members[1].told == [how]
    assert members[0].told[-1] == how
    assert (x.grad is not None) == (verb == "commit")
    calls(leaf(), give_way).sum().backward()


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("verb", ["commit", "abort"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_plain_method_that_stops_the_program_is_called_once(
    verb: str, error: type[BaseException], blocks: bool
) -> None:
    class Stops(Plain):
        def prepare(self, gradients: Any) -> None:
            if verb == "abort":
                raise ValueError("planned")

        def commit(self) -> None:
            self.told.append("commit")
            raise error("planned")

        def abort(self) -> None:
            self.told.append("abort")
            raise error("planned")

    member = Stops()
    loss = joined_at_once(leaf(), leaf(), [member])

    async def main() -> None:
        await loss.backward()

    with pytest.raises(error, match="planned"):
        loss.backward() if blocks else asyncio.run(main())
    assert member.told == [verb]


def test_a_node_that_stops_the_program_as_its_pass_is_cancelled_stops_it() -> None:
    """Though another thread had been told that the pass ends as cancelled."""
    passes: list[Any] = []

    def stops() -> None:
        # As `cancel` does in another thread.
        assert ask_to_end(passes[0]._task)
        raise KeyboardInterrupt

    async def main() -> None:
        passes.append(calls(leaf(), stops).sum().backward())
        await passes[0]

    loop = asyncio.new_event_loop()
    # There the caller does not run the first slice.
    loop.set_debug(True)
    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    end(loop)
    assert passes.pop().done()


@pytest.mark.parametrize("partial_pass", [False, True])
def test_a_pass_that_is_interrupted_as_its_graph_is_walked_ends(
    monkeypatch: pytest.MonkeyPatch, partial_pass: bool
) -> None:
    """The loop may go on, and whoever awaits the pass there would wait for ever."""

    def walk(*_: Any) -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(graph_task, "count_needed" if partial_pass else "count", walk)
    loop, passes = asyncio.new_event_loop(), []
    loss, x = chain(leaf(), 3).sum(), leaf()

    async def begin() -> None:
        # The worker walks, and not the caller.
        ag.engine().slice_ns = 0
        passes.append(ag.autograd.grad(loss + x.sum(), x) if partial_pass else loss.backward())
        await passes[0]

    async def go_on() -> None:
        with pytest.raises(ag.errors.AutogradError, match="stopped by KeyboardInterrupt"):
            await passes.pop()

    task = loop.create_task(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    loop.run_until_complete(go_on())
    end(loop)


def test_two_threads_may_close_an_engine() -> None:
    counted = Collections({}, lambda: None)
    counted.watch()

    class Closes:
        """In the midst of a search of the callbacks, another thread closes the engine."""

        times = 0

        def __call__(self, phase: str, info: Any) -> None:
            pass

        def __eq__(self, other: object) -> bool:
            self.times += 1
            if self.times == 2:
                counted.unwatch()
            return False

        __hash__ = None  # type: ignore[assignment]

    closes = Closes()
    gc.callbacks.insert(0, closes)
    try:
        counted.unwatch()
        closes.times = 1
        counted.unwatch()
    finally:
        del gc.callbacks[0]
    assert counted._note not in gc.callbacks


def stops() -> None:
    raise KeyboardInterrupt


def test_an_engine_whose_making_is_interrupted_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yielding.YieldQueue, "__init__", lambda *_: stops())
    made: list[Any] = []
    real = threads.start_new_thread
    monkeypatch.setattr(threads, "start_new_thread", lambda *facts: made.append(real(*facts)))

    async def main() -> None:
        ag.engine()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert not made


def test_an_engine_whose_close_is_interrupted_can_be_closed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []

    async def main() -> None:
        engine = ag.engine()
        members = engine.thread_segments.threads
        with members._starting:
            found.extend(members._members)
        with monkeypatch.context() as patch:
            patch.setattr(threads.Threads, "close", lambda *_: stops())
            with pytest.raises(KeyboardInterrupt):
                engine.close()
        assert engine in blas.one_thread.holders
        engine.close()
        assert engine not in blas.one_thread.holders

    asyncio.run(main())
    for thread in found:
        thread.join(30)
    assert not any(thread.is_alive() for thread in found)


def interrupted_once(after: Callable[[], Any]) -> Any:
    """A kind of queue: the first that waits for an entry of one is interrupted."""

    class Interrupted(SimpleQueue[Any]):
        left: ClassVar = [None]

        def get(self, *how: Any, **names: Any) -> Any:
            if self.left:
                self.left.pop()
                after()
                raise KeyboardInterrupt
            return super().get(*how, **names)

    return Interrupted


def test_the_loop_of_blocking_passes_is_found_though_an_interrupt_comes_as_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is one, and not another one for each interrupt."""
    begun = threading.Event()

    class Loops(list[Any]):
        def append(self, loop: Any) -> None:
            super().append(loop)
            begun.set()

    monkeypatch.setattr(portal, "_loops", loops := Loops())
    monkeypatch.setattr(portal, "SimpleQueue", interrupted_once(lambda: begun.wait(30)))
    others = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        portal.call_on_portal(give_way())
    portal.call_on_portal(give_way())
    (thread,) = set(threading.enumerate()) - others
    monkeypatch.setattr(threading, "excepthook", lambda *_: None)
    loops[0].call_soon_threadsafe(sys.exit)
    thread.join(30)
    assert not loops


def test_a_nested_pass_ends_if_an_interrupt_comes_as_its_thread_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, ended = threading.Event(), threading.Event()

    def run(task: Any) -> None:
        running.set()
        while not task.inbox:
            pass
        ended.set()

    monkeypatch.setattr(reentrant, "SimpleQueue", interrupted_once(lambda: running.wait(30)))
    task: Any = SimpleNamespace(inbox=[], cancel=None)
    with pytest.raises(KeyboardInterrupt):
        on_new_stack(run, task)
    assert ended.is_set()


def test_the_thread_of_a_nested_pass_is_one_of_threading_and_ends() -> None:
    """Or `threading` would list for ever a thread in which a hook writes to a log."""
    before, context = set(threading.enumerate()), ContextVar("context", default="another")
    context.set("the caller's")
    task: Any = SimpleNamespace(inbox=[])
    thread, seen = on_new_stack(lambda task: (threading.current_thread(), context.get()), task)
    thread.join(30)
    assert set(threading.enumerate()) <= before
    assert (thread.name, seen) == ("asyncgrad nested pass", "the caller's")


def test_a_nested_pass_needs_one_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may allow no more."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    task: Any = SimpleNamespace(inbox=[])
    assert on_new_stack(lambda _: threading.get_ident(), task) != threading.get_ident()


def test_a_setting_ends_though_an_interrupt_comes_meanwhile() -> None:
    """Nobody would end it later: who held it has dropped it."""
    ended: list[None] = []

    def end() -> None:
        ended.append(None)
        if len(ended) == 1:
            raise KeyboardInterrupt

    setting = Shared(lambda: None, end)
    setting.hold("test")
    with pytest.raises(KeyboardInterrupt):
        setting.drop("test")
    assert len(ended) == 2
    setting.drop("test")
    assert len(ended) == 2


def test_a_task_that_stops_the_loop_of_blocking_passes_ends_no_later_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not awaited by the pass that has started it."""

    async def exits() -> None:
        raise SystemExit

    async def node() -> None:
        task = asyncio.create_task(exits())
        task.add_done_callback(lambda task: task.exception())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    x = leaf()
    monkeypatch.setattr(threading, "excepthook", lambda *_: None)
    with pytest.raises(RuntimeError, match="CancelledError"):
        calls(x, node).sum().backward()
    for thread in threading.enumerate():
        if thread.name == "asyncgrad portal":
            thread.join(30)
    assert x.grad is None
    calls(x, give_way).sum().backward()
    assert x.grad is not None
