"""A loop for tests of deadlines and timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from seeded import seeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


@pytest.fixture(params=range(3))
def run(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Callable[[Awaitable[Any]], Any]]:
    """Runs a coroutine. The clock goes on where nothing else can, whatever the machine does."""
    with seeded(monkeypatch, request.param) as loop:
        yield loop.run_until_complete
