"""Who may begin: so many at once, the urgent ones first, and nobody who would come too late."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import anyio

from asyncgrad.autograd import request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Overloaded(Exception):
    """Too many wait already: try again later. HTTP's 503."""


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """What an `Admission` has seen."""

    #: Those who are in, and those who wait.
    inside: int
    waiting: int
    #: All who were let in, turned away because too many waited, or waited beyond their deadline.
    admitted: int
    refused: int
    expired: int


class Admission:
    """Lets a limited number in at once.

    Args:
        limit: how many may be in.
        max_waiting: how many may wait; the next is refused at once.

    Example:
        >>> import asyncio
        >>> from asyncgrad.serving import Admission
        >>> async def main():
        ...     admission = Admission(limit=8, max_waiting=100)
        ...     async with admission.enter(priority=1):
        ...         return admission.statistics().inside
        >>> asyncio.run(main())
        1
    """

    def __init__(self, limit: int, *, max_waiting: int = 1_000) -> None:
        """Let nobody wait yet."""
        if limit < 1:
            raise ValueError(f"Admission: limit must be at least 1, not {limit}")
        self._limit = limit
        self._max_waiting = max_waiting
        self._order = count()
        #: (minus priority, order, what is set when it is one's turn), sorted.
        self._line: list[tuple[int, int, anyio.Event]] = []
        self._inside = self._admitted = self._refused = self._expired = 0

    @asynccontextmanager
    async def enter(
        self, *, priority: int = 0, deadline: float | None = None
    ) -> AsyncIterator[None]:
        """Be in for a block; passes that are started in it have its priority and deadline.

        Args:
            priority: larger is let in earlier.
            deadline: the loop's time (`anyio.current_time()`) by which the block has to have
                ended: what has not is cancelled.

        Raises:
            Overloaded: at once, if too many wait.
            TimeoutError: if the deadline has passed, before the block began or within it.
        """
        with anyio.CancelScope(deadline=math.inf if deadline is None else deadline) as scope:
            await self._wait_for_turn(priority)
            try:
                with request(priority=priority, deadline=deadline):
                    yield
            finally:
                self._leave()
        if scope.cancelled_caught:
            self._expired += 1
            raise TimeoutError(f"the request did not end by its deadline {deadline}")

    async def _wait_for_turn(self, priority: int) -> None:
        # A deadline that has passed already ends it here.
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self._inside < self._limit and not self._line:
            self._inside += 1
        else:
            if len(self._line) >= self._max_waiting:
                self._refused += 1
                raise Overloaded(
                    f"{self._max_waiting} requests wait already and {self._inside} are being "
                    f"served. Try again later, or raise max_waiting."
                )
            turn = (-priority, next(self._order), anyio.Event())
            insort(self._line, turn)
            try:
                await turn[2].wait()
            except BaseException:
                # Cancelled while waiting, or after the turn was given: then it goes to the next.
                if turn[2].is_set():
                    self._leave()
                else:
                    del self._line[bisect_left(self._line, turn)]
                raise
        self._admitted += 1

    def _leave(self) -> None:
        """Give one's place to the most urgent who waits."""
        if self._line:
            self._line.pop(0)[2].set()
        else:
            self._inside -= 1

    def statistics(self) -> AdmissionStatistics:
        """What has been seen so far."""
        return AdmissionStatistics(
            self._inside, len(self._line), self._admitted, self._refused, self._expired
        )
