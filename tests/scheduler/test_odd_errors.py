"""Errors that take no notes or have no text: the pass ends with them all the same."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from passes import HEAVY, assert_nothing_runs, calls, leaf

import asyncgrad as ag
from asyncgrad.errors import add_note, described

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True)
class Frozen(Exception):
    code: int = 3


class NoText(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


class NoNotes(Exception):
    __notes__ = 5


class NotComparable(Exception):
    def __bool__(self) -> bool:
        raise RuntimeError("neither")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


ODD = [Frozen, NoText, NoNotes, NotComparable]


async def when_cancelled(error: Callable[[], BaseException], began: asyncio.Event) -> None:
    began.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise error() from None


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", ["hook", "coroutine", "thread", "blocking"])
async def test_a_pass_ends_with_an_odd_error(odd: type[Exception], kind: str) -> None:
    x = leaf()

    def fail(*_: Any) -> None:
        raise odd()

    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise odd()

    if kind == "coroutine":
        loss = calls(x, fail_later).sum()
    else:
        loss = calls(x, fail, cost=HEAVY if kind == "thread" else 1).sum()
    if kind == "blocking":
        with pytest.raises(odd):
            ag.sync.backward(loss)
    else:
        with pytest.raises(odd):
            await loss.backward()
    assert x.grad is None
    await assert_nothing_runs()


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_error_after_a_cancellation_is_no_more_than_a_note(
    odd: type[Exception],
) -> None:
    began = asyncio.Event()

    async def node() -> None:
        await when_cancelled(odd, began)

    future = calls(leaf(), node).sum().backward()
    await began.wait()
    future.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await future
    assert odd.__name__ in caught.value.__notes__[0]
    await assert_nothing_runs()


@pytest.mark.parametrize("odd", ODD)
async def test_the_first_of_two_odd_errors_wins(odd: type[Exception]) -> None:
    began = asyncio.Event()
    x = leaf()

    async def slow() -> None:
        await when_cancelled(odd, began)

    async def quick() -> None:
        await began.wait()
        raise ValueError("first")

    with pytest.raises(ValueError, match="first") as caught:
        await (calls(x, slow).sum() + calls(x, quick).sum()).backward()
    assert any(odd.__name__ in note for note in caught.value.__notes__)
    await assert_nothing_runs()


async def test_what_can_be_said_of_an_error() -> None:
    error = ValueError("text")
    add_note(error, "a note")
    assert error.__notes__ == ["a note"]
    assert described(error) == "ValueError('text')"
    assert described(NoText()) == "NoText"
