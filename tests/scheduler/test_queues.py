"""The order of what waits for the scheduler: passes, admissions, jobs of threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from asyncgrad.scheduler import queues
from asyncgrad.scheduler.queues import FairQueue, PassQueue
from tests.helpers.interrupts import interrupt


def taken(queue: FairQueue[int, str], count: int) -> list[str]:
    return [queue.pop() for _ in range(count)]


def test_the_most_urgent_goes_first_and_of_equals_the_oldest() -> None:
    queue: FairQueue[int, str] = FairQueue(64)
    for urgency, name in [(1, "late"), (0, "first"), (1, "later"), (0, "second")]:
        queue.push(urgency, name)
    assert queue.first() == 0
    assert taken(queue, 4) == ["first", "second", "late", "later"]
    assert queue.first() is None


@pytest.mark.parametrize("patience", [20, 64])
def test_nothing_starves_behind_a_stream_of_urgent_items(patience: int) -> None:
    """It goes in the first sixteenth turn after its patience."""
    queue: FairQueue[int, str] = FairQueue(patience)
    queue.push(9, "patient")
    order = []
    for number in range(100):
        queue.push(0, f"urgent {number}")
        order.append(queue.pop())
    place = order.index("patient") + 1
    assert place % 16 == 0
    assert patience < place <= patience + 16


def test_what_is_withdrawn_is_skipped() -> None:
    queue: FairQueue[int, str] = FairQueue(64)
    queue.push(0, "withdrawn").clear()
    queue.push(1, "kept")
    assert queue.pop() == "kept"
    assert queue.first() is None


def test_an_urgency_that_has_changed_counts_as_it_is_now() -> None:
    """As that of a pass whose family has used time since it came."""
    queue: FairQueue[int, str] = FairQueue(64)
    queue.push(0, "has used its time")
    queue.push(1, "has not")
    now = {"has used its time": 2, "has not": 1}
    assert queue.pop(lambda _, name: now[name]) == "has not"
    assert queue.pop(lambda _, name: now[name]) == "has used its time"


# -- passes ----------------------------------------------------------------------------------------


class Waiting(SimpleNamespace):
    __hash__ = object.__hash__


def waiting(priority: int = 0, outermost: Any = None) -> Any:
    """What the queue knows of a pass: not the parent, as going up 20,000 levels takes too long."""
    return Waiting(
        priority=priority, deadline=None, depth=0, outermost=outermost, virtual_time=-1,
        future=object(),
    )  # fmt: skip


def test_a_pass_that_waits_is_overtaken_by_a_more_urgent_one() -> None:
    queue = PassQueue()
    first, second, urgent = waiting(), waiting(), waiting(priority=1)
    for now, task in enumerate((first, second, urgent)):
        queue.enter(task, now)
    assert queue.waiting() == 3
    assert [queue.next_turn(10) for _ in range(4)] == [(urgent, 8), (first, 10), (second, 9), None]
    assert queue.empty()
    assert not any(task in queue for task in (first, second, urgent))


def test_a_pass_that_an_interrupt_has_queued_by_half_gets_one_turn() -> None:
    queue = PassQueue()
    task, other = waiting(), waiting()
    queue._queue.push(queue.urgency(task), task)
    assert queue.empty()
    queue.enter(other, 1)
    queue.enter(task, 2)
    assert [queue.next_turn(3) for _ in range(3)] == [(task, 1), (other, 2), None]


def interrupted_turn(at: int) -> bool:
    """Interrupt one turn of two passes, and give each the rest; whether it was interrupted."""
    queue = PassQueue()
    tasks = [waiting(), waiting(priority=1)]
    for task in tasks:
        queue.enter(task, 0)
    turns: list[Any] = []
    interrupted = interrupt(
        at, lambda: turns.append(queue.next_turn(1)), PassQueue.next_turn.__code__,
        {queues.__file__},
    )  # fmt: skip
    for task in tasks:
        # As those do who look after passes once an interrupt was raised.
        if task not in queue and (task, 1) not in turns:
            queue.enter(task, 0)
    turns += [queue.next_turn(1) for _ in range(len(tasks) - len(turns))]
    assert sorted(map(id, tasks)) == sorted(id(task) for task, _ in turns)
    assert queue.empty()
    assert queue.next_turn(1) is None
    return interrupted


def test_after_an_interrupt_every_pass_gets_a_turn_or_is_known_not_to_wait() -> None:
    """Otherwise the worker would look for it for ever."""
    at = 1
    while interrupted_turn(at):
        at += 1
    assert at > 5


def test_of_two_passes_the_one_goes_first_whose_family_has_used_less_time() -> None:
    queue = PassQueue()
    parent, other = waiting(), waiting()
    queue.charge(parent, 5)
    queue.charge(other, 3)
    child = waiting(outermost=parent)
    queue.enter(child, 0)
    queue.enter(other, 0)
    assert [queue.next_turn(0) for _ in range(2)] == [(other, 0), (child, 0)]
    newcomer = waiting()
    assert queue.charge(newcomer, 1) == 6, "it starts from the time of who had the last turn"


def test_a_pass_that_has_ended_meanwhile_gets_no_turn() -> None:
    queue = PassQueue()
    ended, other = waiting(), waiting()
    ended.future = None
    queue.enter(ended, 0)
    assert (queue.empty(), queue.waiting()) == (False, 0)
    assert queue.next_turn(1) is None
    queue.enter(ended, 0)
    queue.enter(other, 0)
    assert queue.next_turn(1) == (other, 1)
    assert queue.empty()
