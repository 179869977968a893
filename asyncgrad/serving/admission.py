"""Admission control: a limit on concurrent work, with priorities and deadlines."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import anyio

from asyncgrad.autograd import request
from asyncgrad.autograd.modes import checked_deadline, checked_priority


class Overloaded(Exception):
    """Too many requests wait already; try again later. Corresponds to HTTP status 503."""


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """The counters of an `Admission`."""

    #: The requests inside now, and those waiting now.
    inside: int
    waiting: int
    #: All requests so far: admitted, refused because too many waited, and cancelled by a deadline.
    admitted: int
    refused: int
    expired: int


class Admission:
    """Limits how many requests run at once.

    Args:
        limit: how many requests may be inside.
        max_waiting: how many may wait; further requests are refused at once.

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
        check_count("Admission", "limit", limit)
        check_count("Admission", "max_waiting", max_waiting, least=0)
        self._limit = limit
        self._max_waiting = max_waiting
        self._order = count()
        #: The waiting requests, sorted: (minus priority, order, event set at its turn).
        self._line: list[tuple[int, int, anyio.Event]] = []
        self._inside = self._admitted = self._refused = self._expired = 0

    @asynccontextmanager
    async def enter(
        self, *, priority: int = 0, deadline: float | None = None
    ) -> AsyncIterator[None]:
        """Wait for admission to a block, whose passes get the given priority and deadline.

        Args:
            priority: requests with a larger priority are admitted earlier.
            deadline: the loop time (`anyio.current_time()`) at which the block is cancelled if it
                has not ended.

        Raises:
            Overloaded: at once, if too many requests wait.
            TimeoutError: if the deadline passes before the block begins or within it.
        """
        priority = checked_priority(priority)
        deadline = None if deadline is None else checked_deadline(deadline)
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
        # Raise here if the deadline has passed already.
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
                # If the cancellation came after this request's turn, pass the turn on.
                if turn[2].is_set():
                    self._leave()
                else:
                    del self._line[bisect_left(self._line, turn)]
                raise
        self._admitted += 1

    def _leave(self) -> None:
        """Pass this request's place on to the most urgent waiting request."""
        if self._line:
            self._line.pop(0)[2].set()
        else:
            self._inside -= 1

    def statistics(self) -> AdmissionStatistics:
        """The current counters."""
        return AdmissionStatistics(
            self._inside, len(self._line), self._admitted, self._refused, self._expired
        )


def check_count(owner: str, name: str, value: int, *, least: int = 1) -> None:
    """Raise unless an option is a whole number that is large enough."""
    if not isinstance(value, int) or value < least:
        kind = ValueError if isinstance(value, int) else TypeError
        raise kind(f"{owner}: {name} must be at least {least}, and a whole number, not {value!r}")
