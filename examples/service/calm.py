"""Tells when no request is being answered, so that work which can wait may run."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator


class Calm:
    """Knows how many requests are being answered."""

    def __init__(self) -> None:
        self.inside = 0
        self._nobody = asyncio.Event()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request while it is being answered."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self._nobody.set()

    async def wait(self, at_most: float) -> None:
        """Give way to requests until there is none, for so many seconds at most.

        Where some are always there, that makes the pauses between two pieces of work.
        """
        if self.inside:
            self._nobody.clear()
            with anyio.move_on_after(at_most):
                await self._nobody.wait()
