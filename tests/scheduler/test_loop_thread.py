"""The loop's thread gets a short time slice while an engine lives, and its own back."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

import asyncgrad as ag
from asyncgrad.scheduler import loop_thread

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def usual() -> Iterator[int]:
    """The slice of this thread, where the system says one."""
    # A test whose loop an interrupt has stopped may have left an engine, and its slice.
    gc.collect()
    engine = threading.Event()
    loop_thread.shorten_slice(engine)
    loop_thread.restore_slice(engine)
    found = loop_thread._read()
    if found is None or not found.runtime:
        pytest.skip("a system without slices of threads")
    yield found.runtime
    assert _slice() == found.runtime


def _slice() -> int:
    found = loop_thread._read()
    assert found is not None
    return found.runtime


def test_as_long_as_an_engine_lives(usual: int) -> None:
    async def main() -> list[int]:
        ag.engine()
        return [_slice(), await asyncio.to_thread(_slice), await ag.offload(_slice)]

    assert usual > loop_thread._SLICE_NS
    # Threads that are started meanwhile have the usual one.
    assert asyncio.run(main()) == [loop_thread._SLICE_NS, usual, usual]


def test_the_last_engine_of_a_thread_gives_it_back(usual: int) -> None:
    first, last = threading.Event(), threading.Event()
    assert loop_thread.shorten_slice(first)
    assert loop_thread.shorten_slice(last)
    loop_thread.restore_slice(first)
    loop_thread.restore_slice(first)
    assert _slice() == loop_thread._SLICE_NS
    threading.Thread(target=loop_thread.restore_slice, args=(last,)).start()
    assert _slice() == loop_thread._SLICE_NS
    loop_thread.restore_slice(last)
    assert _slice() == usual


def test_an_engine_that_another_thread_has_closed_counts_no_longer(usual: int) -> None:
    first, last = threading.Event(), threading.Event()
    assert loop_thread.shorten_slice(first)
    assert loop_thread.shorten_slice(last)
    del first
    loop_thread.restore_slice(last)
    assert _slice() == usual


def test_an_engine_that_is_dropped_leaves_the_usual_slice_to_the_next_one(usual: int) -> None:
    dropped, last = threading.Event(), threading.Event()
    assert loop_thread.shorten_slice(dropped)
    del dropped
    assert loop_thread.shorten_slice(last)
    loop_thread.restore_slice(last)
    assert _slice() == usual


def test_an_engine_closed_in_a_thread_leaves_that_thread_its_own(usual: int) -> None:
    here, elsewhere = threading.Event(), threading.Event()
    assert loop_thread.shorten_slice(here)
    loop_thread.restore_slice(elsewhere)
    assert _slice() == loop_thread._SLICE_NS
    loop_thread.restore_slice(here)


def test_a_slice_that_was_set_meanwhile_stays(usual: int) -> None:
    engine = threading.Event()
    assert loop_thread.shorten_slice(engine)
    found = loop_thread._read()
    assert found is not None
    assert loop_thread._write(found, 3_000_000)
    loop_thread.restore_slice(engine)
    assert _slice() == 3_000_000
    assert loop_thread._write(found, usual)


def test_an_engine_from_before_the_slice_was_set_does_not_end_the_next_ones(usual: int) -> None:
    before, after = threading.Event(), threading.Event()
    assert loop_thread.shorten_slice(before)
    found = loop_thread._read()
    assert found is not None
    assert loop_thread._write(found, usual)
    assert loop_thread.shorten_slice(after)
    loop_thread.restore_slice(before)
    assert _slice() == loop_thread._SLICE_NS
    loop_thread.restore_slice(after)


@pytest.mark.parametrize("system", ["another", "older", "of a device"])
def test_where_that_is_impossible(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older Linux says no slice; a thread with real-time priority goes first anyway."""
    found: Any = loop_thread._Attributes()
    if system == "another":
        monkeypatch.setattr(loop_thread, "_GET", 0)
        assert loop_thread._read() is None
    else:
        found.policy, found.runtime = (0, 0) if system == "older" else (1, 5)
        monkeypatch.setattr(loop_thread, "_read", lambda: found)
    monkeypatch.setattr(loop_thread, "_write", lambda *args: pytest.fail("not to be called"))
    engine = threading.Event()
    assert not loop_thread.shorten_slice(engine)
    loop_thread.restore_slice(engine)


def test_a_system_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept to be undone."""
    found = loop_thread._Attributes()
    found.runtime = 1_400_000
    asked: list[int] = []

    def refuse(attributes: loop_thread._Attributes, slice_ns: int) -> bool:
        asked.append(slice_ns)
        return False

    monkeypatch.setattr(loop_thread, "_read", lambda: found)
    monkeypatch.setattr(loop_thread, "_write", refuse)
    engine = threading.Event()
    assert not loop_thread.shorten_slice(engine)
    loop_thread.restore_slice(engine)
    assert asked == [loop_thread._SLICE_NS]
