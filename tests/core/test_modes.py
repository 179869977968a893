"""Modes follow the asyncio task, and decorate every kind of function."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import asyncgrad as ag
from asyncgrad.core.modes import DEFAULT, current

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def seen() -> bool:
    """The grad mode here."""
    return ag.is_grad_enabled()


def test_a_context_manager_restores_what_it_found() -> None:
    """Also when it is left by an error, and in any nesting."""
    with ag.no_grad():
        assert not seen()
        with ag.enable_grad():
            assert seen()
        assert not seen()
        with pytest.raises(ValueError, match="out"), ag.set_grad_enabled(True):
            raise ValueError("out")
        assert not seen()
    assert seen()
    assert current() is DEFAULT


@pytest.mark.parametrize("mode", [ag.no_grad, lambda: ag.set_grad_enabled(False)])
def test_a_context_manager_restores_the_very_record_that_it_found(mode: Any) -> None:
    """An equal one would take time to make, and would not know the records made from the first."""
    with ag.request(priority=1):
        found = current()
        with mode():
            assert current() is not found
        assert current() is found


def test_set_grad_enabled_takes_effect_on_the_call() -> None:
    """And holds until it is set again."""
    ag.set_grad_enabled(False)
    try:
        assert not seen()
    finally:
        ag.set_grad_enabled(True)
    assert seen()


def test_decorated_functions() -> None:
    """With and without parentheses; the decorator itself changes nothing."""

    @ag.no_grad()
    def with_parentheses() -> bool:
        return seen()

    @ag.no_grad
    def without() -> bool:
        return seen()

    @ag.set_grad_enabled(False)
    def by_value() -> bool:
        return seen()

    assert seen()
    assert not with_parentheses()
    assert not without()
    assert not by_value()
    assert seen()
    assert without.__name__ == "without"


def test_decorated_generators_have_the_mode_only_while_they_run() -> None:
    """`send`, `throw`, `close` and the result pass through."""
    events: list[Any] = []

    @ag.no_grad()
    def generator() -> Iterator[Any]:
        try:
            events.append((yield seen()))
        except KeyError:
            events.append("thrown")
        try:
            yield seen()
        finally:
            events.append(("closed", seen()))
        return "unreachable"

    running = generator()
    assert next(running) is False
    assert seen()
    assert running.send("sent") is False
    running.close()
    assert events == ["sent", ("closed", False)]
    running = generator()
    next(running)
    assert running.throw(KeyError()) is False
    running.close()

    @ag.no_grad()
    def short() -> Iterator[int]:
        yield 1
        return 7

    def outer() -> Iterator[int]:
        events.append((yield from short()))

    assert list(outer()) == [1]
    assert events[-1] == 7


@pytest.mark.asyncio
async def test_decorated_coroutine_functions() -> None:
    """The mode holds across awaits, in this task alone."""

    @ag.no_grad()
    async def coroutine() -> tuple[bool, bool]:
        before = seen()
        await asyncio.sleep(0)
        return before, seen()

    assert await coroutine() == (False, False)
    assert seen()


@pytest.mark.asyncio
async def test_decorated_async_generators() -> None:
    """The consumer keeps its own mode between two items."""
    closed: list[bool] = []

    @ag.no_grad()
    async def items() -> AsyncIterator[Any]:
        try:
            received = yield seen()
            yield received, seen()
            try:
                yield seen()
            except KeyError:
                yield "thrown", seen()
        finally:
            closed.append(seen())

    running = items()
    assert await anext(running) is False
    assert seen()
    assert await running.asend("sent") == ("sent", False)
    assert await anext(running) is False
    assert await running.athrow(KeyError()) == ("thrown", False)
    await running.aclose()
    assert closed == [False]
    assert (await anext(items())) is False
    assert seen()


@pytest.mark.asyncio
async def test_two_tasks_in_different_modes_never_see_one_anothers() -> None:
    """They alternate at a barrier, so that each looks while the other is inside."""
    barrier = asyncio.Barrier(2)

    async def look(mode: Any) -> list[bool]:
        looks = []
        with mode:
            for _ in range(5):
                await barrier.wait()
                looks.append(seen())
        return looks

    off, on = await asyncio.gather(look(ag.no_grad()), look(ag.enable_grad()))
    assert off == [False] * 5
    assert on == [True] * 5


@pytest.mark.asyncio
async def test_child_tasks_and_threads_inherit() -> None:
    """A copy: what they set stays with them."""
    with ag.no_grad():
        task = asyncio.create_task(asyncio.to_thread(seen))
        offloaded = await ag.offload(seen)
    assert await task is False
    assert offloaded is False
    assert seen()


def test_records_that_differ_in_switches_are_made_once() -> None:
    """Entering a mode again costs a look-up; going on and off leaves no chain of records."""
    with ag.no_grad():
        first = current()
    with ag.no_grad():
        assert current() is first
        with ag.enable_grad():
            assert current() is DEFAULT
        assert first.replace(inference=True) == first.replace(inference=True)
    assert first.variants is None
    with ag.request(priority=3):
        held = current()
        for _ in range(3):
            ag.set_grad_enabled(False)
            ag.set_grad_enabled(True)
        assert held.variants is not None
        assert [record.variants for record in held.variants.values()] == [None]
        ag.set_grad_enabled(True)
    assert current() is DEFAULT
