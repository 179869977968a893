"""KeyboardInterrupt and SystemExit in a node: all passes fail, and the program is told once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from passes import CHEAP, HEAVY, calls, chain, give_way, leaf, long_pass

import asyncgrad as ag
from asyncgrad.scheduler import blas, completion, coroutines, loop_thread, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.core.graph_task import GraphTask

pytestmark = pytest.mark.usefixtures("nothing_is_left")

KINDS = [KeyboardInterrupt, SystemExit]
#: Where the node runs: in the call that starts the pass, in a later slice, in a thread.
PLACES = {
    "first slice": lambda x, call: calls(x, call, CHEAP).sum(),
    "later slice": lambda x, call: chain(calls(x, call), 3_000).sum(),
    "thread": lambda x, call: chain(calls(x, call, HEAVY), 3, cost=HEAVY).sum(),
}


def stop(kind: type[BaseException]) -> Callable[[], Any]:
    def call() -> None:
        raise kind

    return call


async def for_ever() -> None:
    await asyncio.Event().wait()


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_it_is_raised_once(
    loop: asyncio.AbstractEventLoop, kind: type[BaseException], place: str
) -> None:
    """From the loop, and not again from the futures; other passes fail."""
    complaints: list[Any] = []
    loop.set_exception_handler(lambda loop, context: complaints.append(context))
    x, bystander = leaf(), leaf()
    seen: list[BaseException] = []

    async def main() -> None:
        other = calls(bystander, for_ever).sum().backward()
        try:
            await PLACES[place](x, stop(kind)).backward()
        except BaseException as error:
            seen.append(error)
            if isinstance(error, kind):
                raise
        try:
            await other
        except RuntimeError as error:
            seen.append(error)

    task = loop.create_task(main())
    with pytest.raises(kind):
        loop.run_until_complete(task)
    if not task.done():
        # The loop was stopped and not the task, which finds its passes failed.
        loop.run_until_complete(task)
        assert [type(error).__mro__[1] for error in seen] == [RuntimeError, RuntimeError]
        assert all("was stopped by" in str(error) for error in seen)
        assert isinstance(seen[0].__cause__, kind)
    assert (x.grad, bystander.grad) == (None, None)

    async def again() -> None:
        await long_pass(x).backward()

    loop.run_until_complete(again())
    assert x.grad is not None
    assert complaints == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [3, 60_000], ids=["on the loop", "in a thread"])
def test_one_that_comes_while_gradients_are_committed(
    loop: asyncio.AbstractEventLoop,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[BaseException],
    size: int,
) -> None:
    """A signal may come at any time."""
    x = leaf(size)
    commit = completion.commit_staged

    def interrupted(task: GraphTask, wait: bool) -> bool:
        monkeypatch.setattr(completion, "commit_staged", commit)
        raise kind

    async def main() -> None:
        monkeypatch.setattr(completion, "commit_staged", interrupted)
        with pytest.raises(RuntimeError, match="was stopped by"):
            await calls(x, give_way).sum().backward()

    task = loop.create_task(main())
    with pytest.raises(kind):
        loop.run_until_complete(task)
    loop.run_until_complete(task)
    assert x.grad is None


@pytest.mark.filterwarnings("ignore:a backward pass:RuntimeWarning")
def test_one_that_comes_when_a_thread_has_been_given_the_pass(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread brings the pass back, and it ends as cancelled, since nobody has its future."""
    x = leaf()
    complaints: list[object] = []
    loop.set_exception_handler(lambda loop, context: complaints.append(context))

    class Interrupted(dict):
        def __setitem__(self, key: object, value: object) -> None:
            raise KeyboardInterrupt

    async def main() -> None:
        segments = ag.engine().thread_segments
        with monkeypatch.context() as patch:
            patch.setattr(segments, "tasks", Interrupted())
            with pytest.raises(KeyboardInterrupt):
                calls(x, lambda: None, HEAVY).sum().backward()
        while ag.engine().live and not complaints:
            await give_way()

    loop.run_until_complete(main())
    assert complaints == []
    assert x.grad is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_coroutine_node_raises_it_once_too(
    loop: asyncio.AbstractEventLoop, kind: type[BaseException]
) -> None:
    """asyncio raises what its tasks raise; the engine does not add to it."""
    x = leaf()

    async def node() -> None:
        await asyncio.sleep(0)
        raise kind

    async def main() -> None:
        await calls(x, node).sum().backward()

    task = loop.create_task(main())
    with pytest.raises(kind):
        loop.run_until_complete(task)
    with pytest.raises(RuntimeError, match="was stopped by"):
        loop.run_until_complete(task)
    assert x.grad is None


@pytest.mark.parametrize("place", PLACES)
def test_asyncio_run_ends_with_it(place: str) -> None:
    """Its clean-up is complete: a `finally` runs, with a pass of its own in it."""
    x, y = leaf(), leaf()

    async def main() -> None:
        try:
            await PLACES[place](x, stop(KeyboardInterrupt)).backward()
        finally:
            await long_pass(y).backward()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert x.grad is None
    assert y.grad is not None


@pytest.mark.asyncio
async def test_an_engine_is_shut_down_once() -> None:
    """A second time there is nothing to do, whoever asks."""
    engine = ag.engine()
    await engine.shut_down()
    assert engine.closed
    await engine.shut_down()
    x = leaf()
    await chain(x, 3, cost=HEAVY).sum().backward()
    assert x.grad is not None
    assert await ag.offload(lambda: 5) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_comes_while_a_coroutine_node_is_begun(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """The node is not lost: who cancels the pass afterwards does not wait for it for ever."""
    x = leaf()
    begin = coroutines.wait_for_node

    def interrupted(awaitable: Any) -> Any:
        monkeypatch.setattr(coroutines, "wait_for_node", begin)
        raise kind

    async def main() -> None:
        ag.engine().slice_ns = 0
        await calls(x, for_ever).sum().backward()

    monkeypatch.setattr(coroutines, "wait_for_node", interrupted)
    task = loop.create_task(main())
    with pytest.raises(kind):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert x.grad is None
    loop.run_until_complete(_await(long_pass(x)))


async def _await(loss: ag.Tensor) -> None:
    await loss.backward()


@pytest.mark.parametrize(("cost", "declared"), [(CHEAP, False), (CHEAP, True), (HEAVY, False)])
def test_an_interrupt_while_the_loop_ends_a_pass_holds_up_no_shut_down(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, cost: int, declared: bool
) -> None:
    """It waits for every pass, also for one whose end the interrupt has cut short.

    Before the pass is declared to end, nothing is lost, and it goes on; after that it is cancelled.
    """
    x = leaf()
    interrupted: list[str] = []

    def interrupt(task: Any, *facts: Any) -> None:
        interrupted.append(threading.current_thread().name)
        monkeypatch.undo()
        if declared:
            task.ending = True
        raise KeyboardInterrupt

    async def main() -> None:
        future = chain(x, 3_000 if cost == CHEAP else 3, cost=cost).sum().backward()
        # Before the commit on the loop, or when the loop takes the pass back from a thread.
        if cost == CHEAP:
            monkeypatch.setattr(running, "finish", interrupt)
        else:
            monkeypatch.setattr(running.RunningPasses, "_resolve", interrupt)
        await asyncio.wait([future])
        assert future.cancelled() == declared

    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    assert interrupted == ["MainThread"]
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(task)
    assert (x.grad is None) == declared


class Joins:
    """A participant that notes how a pass has ended."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def prepare(self, gradients: Any) -> None:
        self.log.append("prepare")

    async def commit(self) -> None:
        self.log.append("commit")

    async def abort(self) -> None:
        self.log.append("abort")


#: Steps at the end of a pass on the loop.
_STEPS = [
    (coroutines.CoroutineNodes, "_ended"),
    (running, "finish"),
    (running.RunningPasses, "_resolve"),
    (running.RunningPasses, "_start_conclusion"),
    (running.RunningPasses, "_conclusion_ended"),
]


@pytest.mark.parametrize(("owner", "step"), _STEPS, ids=[step for _, step in _STEPS])
@pytest.mark.parametrize("after", [False, True])
def test_a_loop_can_be_ended_after_an_interrupt_of_a_step(
    monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, after: bool
) -> None:
    """No task waits for a pass that nobody goes on with, and participants learn how it ended."""
    x, member = leaf(), Joins()
    real = getattr(owner, step)

    def interrupted(*facts: Any) -> None:
        monkeypatch.undo()
        if after:
            real(*facts)
        raise KeyboardInterrupt

    async def node() -> None:
        ag.autograd.graph.join(member)
        await asyncio.sleep(0)

    async def main() -> None:
        monkeypatch.setattr(owner, step, interrupted)
        await calls(x, node).sum().backward()

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    # As `asyncio.run` ends.
    for each in (tasks := asyncio.all_tasks(loop)):
        each.cancel()
    loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert member.log[-1] == ("abort" if x.grad is None else "commit")


@pytest.mark.parametrize(
    ("owner", "step"), [(blas.one_thread, "hold"), (loop_thread, "shorten_slice")]
)
def test_an_engine_that_an_interrupt_keeps_from_beginning_holds_no_setting(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    hold = getattr(owner, step)

    def interrupted(holder: Any) -> None:
        hold(holder)
        raise KeyboardInterrupt

    async def main() -> None:
        ag.engine()

    def settings() -> list[Any]:
        found = loop_thread._read()
        return [set(blas.one_thread.holders), found and found.runtime]

    before = settings()
    monkeypatch.setattr(owner, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(loop.create_task(main()))
    monkeypatch.undo()
    assert settings() == before
