"""Loops are notified of events: by the thread that blocks for the oldest, or by polling."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from asyncgrad.devices.base import NOT_READY, READY
from asyncgrad.devices.waiting import Waiter, poll

FAULT = 719


class Events:
    """A device whose events happen, or fail, when the test says so."""

    def __init__(self) -> None:
        self.states: dict[str, int] = {}
        self.changed = threading.Condition()

    def __str__(self) -> str:
        return "events:0"

    def become(self, **states: int) -> None:
        with self.changed:
            self.states |= states
            self.changed.notify_all()

    def status(self, event: Any) -> int:
        return self.states.get(event, NOT_READY)

    def failure(self, status: int) -> Exception:
        return RuntimeError(f"code {status}")

    def synchronize(self, event: Any) -> None:
        with self.changed:
            self.changed.wait_for(lambda: event in self.states)
        if self.states[event] != READY:
            raise self.failure(self.states[event])


class Waits:
    """The futures of events, in the order in which they were waited for."""

    def __init__(self, device: Any, *events: str) -> None:
        loop = asyncio.get_running_loop()
        self.futures = {event: loop.create_future() for event in events}
        waiter = Waiter(device)
        # Until this event happens the thread takes no other, so it finds all of them together.
        waiter.put("gate", loop, loop.create_future())
        for event, future in self.futures.items():
            waiter.put(event, loop, future)
        device.become(gate=READY)

    async def outcome(self, event: str) -> Any:
        await asyncio.wait([self.futures[event]])
        return str(self.futures[event].exception())

    def done(self) -> list[str]:
        return [event for event, future in self.futures.items() if future.done()]


@pytest.mark.asyncio
async def test_events_that_have_happened_by_then_are_told_with_the_oldest() -> None:
    device = Events()
    device.become(second=READY)
    waits = Waits(device, "first", "second", "third")
    device.become(first=READY)
    assert await waits.outcome("first") == "None"
    assert await waits.outcome("second") == "None"
    assert waits.done() == ["first", "second"]
    device.become(third=READY)
    assert await waits.outcome("third") == "None"


@pytest.mark.asyncio
async def test_an_error_is_told_to_those_whose_events_have_failed() -> None:
    """Not to one that had happened before, nor to one whose work still runs."""
    device = Events()
    device.become(second=READY, third=FAULT)
    waits = Waits(device, "first", "second", "third", "fourth")
    device.become(first=FAULT)
    outcomes = [await waits.outcome(event) for event in ("first", "second", "third")]
    assert outcomes == ["code 719", "None", "code 719"]
    assert waits.done() == ["first", "second", "third"]
    device.become(fourth=READY)
    assert await waits.outcome("fourth") == "None"


@pytest.mark.asyncio
async def test_an_event_that_fails_while_an_older_one_happens_has_its_own_error() -> None:
    device = Events()
    device.become(second=FAULT)
    waits = Waits(device, "first", "second")
    device.become(first=READY)
    assert [await waits.outcome("first"), await waits.outcome("second")] == ["None", "code 719"]


def test_a_closed_loop_is_not_told() -> None:
    """The thread goes on with what other loops wait for."""
    device = Events()
    waiter = Waiter(device)  # type: ignore[arg-type]

    async def forgets() -> None:
        loop = asyncio.get_running_loop()
        waiter.put("first", loop, loop.create_future())

    async def waits() -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        waiter.put("second", loop, future)
        device.become(first=READY, second=READY)
        await future

    asyncio.run(forgets())
    asyncio.run(waits())


@pytest.mark.asyncio
@pytest.mark.parametrize("state", [READY, FAULT])
async def test_polling_ends_when_the_event_has_happened(state: int) -> None:
    device: Any = Events()
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    poll(device, "event", loop, future)
    assert not future.done()
    device.become(event=state)
    await asyncio.wait([future])
    assert str(future.exception()) == ("None" if state == READY else "code 719")
