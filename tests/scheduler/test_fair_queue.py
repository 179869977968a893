"""The order of what waits for the scheduler: passes, admissions, jobs of threads."""

from __future__ import annotations

import pytest

from asyncgrad.scheduler.fair_queue import FairQueue


def taken(queue: FairQueue[int, str], count: int) -> list[str]:
    return [queue.pop() for _ in range(count)]


def test_the_most_urgent_goes_first_and_of_equals_the_oldest() -> None:
    queue: FairQueue[int, str] = FairQueue(64)
    for urgency, name in [(1, "late"), (0, "first"), (1, "later"), (0, "second")]:
        queue.push(urgency, name)
    assert queue.first() == 0
    assert queue.items() == ["late", "first", "later", "second"]
    assert taken(queue, 4) == ["first", "second", "late", "later"]
    assert queue.first() is None
    assert queue.items() == []


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
    assert queue.items() == ["kept"]
    assert queue.pop() == "kept"


def test_an_urgency_that_has_changed_counts_as_it_is_now() -> None:
    """As that of a pass whose family has used time since it came."""
    queue: FairQueue[int, str] = FairQueue(64)
    queue.push(0, "has used its time")
    queue.push(1, "has not")
    now = {"has used its time": 2, "has not": 1}
    assert queue.pop(lambda _, name: now[name]) == "has not"
    assert queue.pop(lambda _, name: now[name]) == "has used its time"
