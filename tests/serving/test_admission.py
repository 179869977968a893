"""Who is let in, in which order, and what becomes of those who give up."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from asyncgrad.core.modes import current
from asyncgrad.serving import Admission, Overloaded

pytestmark = pytest.mark.asyncio


class Guest:
    """Somebody who stays in until told to leave."""

    def __init__(self, admission: Admission, **urgency) -> None:
        self.came = asyncio.Event()
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._visit(admission, urgency))

    async def _visit(self, admission, urgency):
        async with admission.enter(**urgency):
            self.came.set()
            await self._leave.wait()

    async def leave(self):
        self._leave.set()
        await self.task


async def settle():
    """Let everything that can happen happen."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_are_in_at_once_and_the_urgent_come_first():
    admission = Admission(2)
    first, second = Guest(admission), Guest(admission)
    await settle()
    late, urgent, later = Guest(admission), Guest(admission, priority=5), Guest(admission)
    await settle()
    statistics = admission.statistics()
    assert (statistics.inside, statistics.waiting, statistics.admitted) == (2, 3, 2)
    order = []
    for leaving in (first, second, urgent):
        await leaving.leave()
        await settle()
        order.append([guest.came.is_set() for guest in (late, urgent, later)])
    assert order == [[False, True, False], [True, True, False], [True, True, True]]
    for guest in (late, later):
        await guest.leave()
    assert (admission.statistics().inside, admission.statistics().admitted) == (0, 5)


async def test_too_many_waiting_are_refused_at_once():
    admission = Admission(1, max_waiting=1)
    guests = [Guest(admission), Guest(admission)]
    await settle()
    with pytest.raises(Overloaded, match="Try again later"):
        async with admission.enter():
            pytest.fail("let in")
    assert admission.statistics().refused == 1
    for guest in guests:
        await guest.leave()


async def test_who_gives_up_waiting_leaves_the_line_and_loses_no_place():
    admission = Admission(1)
    guests = [Guest(admission) for _ in range(4)]
    await settle()
    guests[1].task.cancel()
    await settle()
    assert admission.statistics().waiting == 2
    # The turn is given and its task is cancelled in the same turn of the loop.
    guests[0]._leave.set()
    await guests[0].task
    guests[2].task.cancel()
    await settle()
    assert guests[3].came.is_set()
    await guests[3].leave()
    assert (admission.statistics().inside, admission.statistics().waiting) == (0, 0)


async def test_a_deadline_ends_waiting_and_working():
    admission = Admission(1)
    with pytest.raises(TimeoutError):
        async with admission.enter(deadline=anyio.current_time() - 1):
            pytest.fail("let in")
    assert admission.statistics().inside == 0
    with pytest.raises(TimeoutError):
        async with admission.enter(deadline=anyio.current_time() + 0.01):
            await asyncio.Event().wait()
    assert (admission.statistics().inside, admission.statistics().expired) == (0, 2)


async def test_passes_started_inside_are_as_urgent_as_who_started_them():
    deadline = anyio.current_time() + 100
    async with Admission(1).enter(priority=3, deadline=deadline):
        assert (current().priority, current().deadline) == (3, deadline)
    assert (current().priority, current().deadline) == (0, None)


async def test_a_limit_has_to_let_somebody_in():
    with pytest.raises(ValueError, match="at least 1"):
        Admission(0)


async def test_numbers_that_are_none_are_refused():
    for wrong in ({"limit": "2"}, {"limit": 1.5}, {"limit": 1, "max_waiting": None}):
        with pytest.raises(TypeError, match="and a whole number"):
            Admission(**wrong)
    with pytest.raises(ValueError, match="max_waiting must be at least 0"):
        Admission(1, max_waiting=-1)
    with pytest.raises(TypeError, match="priority must be an int"):
        async with Admission(1).enter(priority=None):
            pass


async def test_a_deadline_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="deadline must be a number, not str"):
        async with Admission(limit=1).enter(deadline="soon"):
            pass
