"""The loop's thread gets a short time slice while an engine lives, and its own back."""

from __future__ import annotations

import asyncio
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
    assert loop_thread.shorten_slice()
    assert loop_thread.shorten_slice()
    loop_thread.restore_slice()
    assert _slice() == loop_thread._SLICE_NS
    threading.Thread(target=loop_thread.restore_slice).start()
    assert _slice() == loop_thread._SLICE_NS
    loop_thread.restore_slice()
    assert _slice() == usual


def test_a_slice_that_was_set_meanwhile_stays(usual: int) -> None:
    assert loop_thread.shorten_slice()
    found = loop_thread._read()
    assert found is not None
    assert loop_thread._write(found, 3_000_000)
    loop_thread.restore_slice()
    assert _slice() == 3_000_000
    assert loop_thread._write(found, usual)


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
    assert not loop_thread.shorten_slice()
    loop_thread.restore_slice()


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
    # The tests before may have left an engine in their own thread.
    results = []
    thread = threading.Thread(
        target=lambda: results.extend([loop_thread.shorten_slice(), loop_thread.restore_slice()])
    )
    thread.start()
    thread.join()
    assert results == [False, None]
    assert asked == [loop_thread._SLICE_NS]
