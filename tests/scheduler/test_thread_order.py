"""Who goes first where threads are scarce: the same as on the loop."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from passes import HEAVY, calls, chain, leaf

import asyncgrad as ag
from asyncgrad.scheduler import blas
from asyncgrad.scheduler.helpers import _SEGMENT_NS, Helpers
from asyncgrad.scheduler.queues import ORDINARY
from asyncgrad.scheduler.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOON = ORDINARY._replace(deadline=1.0)
URGENT = ORDINARY._replace(minus_priority=-1)


class Held:
    """One thread, held until the block ends; then it does what was submitted meanwhile."""

    def __init__(self) -> None:
        self.threads = Threads(1)
        self.threads.start()
        self.log: list[Any] = []

    def __enter__(self) -> Held:
        entered: SimpleQueue[None] = SimpleQueue()
        self.release: SimpleQueue[None] = SimpleQueue()

        def hold() -> None:
            entered.put(None)
            self.release.get()

        self.threads.submit(hold)
        entered.get()
        return self

    def submit(self, name: Any, urgency: Any = ORDINARY) -> None:
        self.threads.submit(lambda: self.log.append(name), urgency)

    def __exit__(self, *exception: object) -> None:
        ended: SimpleQueue[None] = SimpleQueue()
        self.release.put(None)
        self.threads.close(lambda: ended.put(None))
        ended.get()


def test_equal_jobs_are_done_in_the_order_in_which_they_came() -> None:
    with Held() as held:
        for number in range(200):
            held.submit(number)
    assert held.log == list(range(200))


def test_urgent_jobs_overtake() -> None:
    with Held() as held:
        held.submit("a")
        held.submit("b", SOON)
        held.submit("c", URGENT)
        held.submit("used more", ORDINARY._replace(used=5))
        held.submit("deeper", ORDINARY._replace(minus_depth=-1))
    assert held.log == ["c", "b", "deeper", "a", "used more"]


def test_none_starves() -> None:
    """However many more urgent ones there are; and each is done once."""
    with Held() as held:
        held.submit("lax")
        for number in range(300):
            held.submit(number, URGENT)
    assert sorted(held.log, key=str) == sorted(["lax", *range(300)], key=str)
    assert held.log.index("lax") < 100
    held.log.remove("lax")
    assert held.log == list(range(300))


class TestGivingWay:
    """What the owner of a pass asks before each of its expensive nodes."""

    @pytest.fixture
    def held(self) -> Iterator[Held]:
        with Held() as held:
            yield held

    def test_with_nobody_waiting_a_pass_keeps_its_thread(self, held: Held) -> None:
        helpers = Helpers(held.threads, ORDINARY, 0)
        assert not any(helpers.gives_way(_SEGMENT_NS, 0) for _ in range(10))
        assert helpers.spent == 10 * _SEGMENT_NS

    def test_equals_have_a_time_each(self, held: Held) -> None:
        held.submit("other")
        helpers = Helpers(held.threads, ORDINARY, 0)
        assert [helpers.gives_way(_SEGMENT_NS // 2, 0) for _ in range(4)] == [
            False,
            False,
            True,
            True,
        ]

    def test_a_more_urgent_one_is_let_in_after_one_node(self, held: Held) -> None:
        for urgency in (URGENT, SOON):
            held.submit("urgent", urgency)
            helpers = Helpers(held.threads, ORDINARY, 0)
            assert [helpers.gives_way(1, 0) for _ in range(2)] == [False, True]

    def test_a_less_urgent_one_is_not(self, held: Held) -> None:
        held.submit("other")
        for urgency in (URGENT, SOON):
            helpers = Helpers(held.threads, urgency, 0)
            assert not any(helpers.gives_way(_SEGMENT_NS, 0) for _ in range(10))

    def test_threads_that_end_are_left_after_one_node(self, held: Held) -> None:
        """The end of the process waits for them."""
        held.threads.close()
        helpers = Helpers(held.threads, ORDINARY, 0)
        assert [helpers.gives_way(1, 0) for _ in range(2)] == [False, True]


def test_a_pass_whose_thread_ends_goes_on_on_the_loop() -> None:
    """It is not finished in the thread, for which the end of the process would wait."""
    x = leaf()
    begun, closed = threading.Event(), threading.Event()
    places: list[str] = []

    def node() -> None:
        places.append(threading.current_thread().name)
        begun.set()
        closed.wait()

    async def main() -> None:
        passing = chain(x, 10, node, HEAVY).sum().backward()
        await asyncio.to_thread(begun.wait)
        ag.engine().thread_segments.threads.close()
        closed.set()
        await passing

    asyncio.run(main())
    assert places[0].startswith("asyncgrad")
    assert places[1:] == ["MainThread"] * 9
    assert x.grad is not None


def test_a_pass_stays_one_lent_call_ahead_of_its_helper() -> None:
    """It makes the oldest of more itself: so none waits for long, and what it holds is freed."""

    class Busy(Threads):
        """Threads of which one takes the first call, and does not come to the next ones."""

        def idle(self) -> int:
            return 1 - self._calls.qsize()

        def submit(self, job: Any, urgency: Any = ORDINARY) -> None:
            self._calls.put(True)

    helpers = Helpers(Busy(0), ORDINARY, 0)
    made: list[int] = []
    for number in range(3):
        helpers.lend(lambda number=number: made.append(number))
    assert made == [0, 1]
    assert [helpers.join() for _ in range(4)] == [True, True, True, False]
    assert made == [0, 1, 2]


def marked(name: str, count: int, node: Callable[[str], None]) -> ag.Tensor:
    """A scalar whose expensive nodes each call a function with their name."""
    x = leaf()
    for number in reversed(range(count)):
        x = calls(x, lambda number=number: node(f"{name}{number}"), HEAVY)
    return x.sum()


@pytest.mark.parametrize("by", ["priority", "deadline"])
def test_an_urgent_pass_takes_the_thread_of_one_that_is_running(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """And goes before the one that has waited for longer."""
    monkeypatch.setattr(blas, "CORES", 1)
    log: list[str] = []
    entered: SimpleQueue[None] = SimpleQueue()
    leave: SimpleQueue[None] = SimpleQueue()

    def node(name: str) -> None:
        log.append(name)
        if name == "a0":
            entered.put(None)
            leave.get()

    async def main() -> None:
        now = asyncio.get_running_loop().time()
        first = marked("a", 5, node).backward()
        await asyncio.sleep(0)
        entered.get()
        second = marked("b", 5, node).backward()
        urgency = {"priority": 1} if by == "priority" else {"deadline": now + 1e4}
        urgent = marked("c", 3, node).backward(**urgency)
        # In debug mode no pass begins in the call that starts it.
        for _ in range(5):
            await asyncio.sleep(0)
        leave.put(None)
        await asyncio.gather(first, second, urgent)

    asyncio.run(main())
    assert log[:5] == ["a0", "c0", "c1", "c2", "b0"]
    assert sorted(log) == sorted([*(f"{x}{k}" for x in "ab" for k in range(5)), "c0", "c1", "c2"])


def test_a_function_is_as_urgent_as_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "CORES", 1)
    log: list[str] = []
    entered: SimpleQueue[None] = SimpleQueue()
    leave: SimpleQueue[None] = SimpleQueue()

    def hold() -> None:
        entered.put(None)
        leave.get()

    async def offload(function: Any, *args: Any, priority: int = 0) -> None:
        with ag.request(priority=priority):
            await ag.offload(function, *args)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(offload(hold))
            await asyncio.sleep(0)
            entered.get()
            group.create_task(offload(log.append, "first"))
            group.create_task(offload(log.append, "urgent", priority=1))
            await asyncio.sleep(0)
            leave.put(None)

    asyncio.run(main())
    assert log == ["urgent", "first"]
