"""An event loop whose every choice comes from a seed, with a clock of its own.

What is ready runs in any order, and some of it a few turns later than asyncio would; nobody waits
for anything but by this clock; "threads" do their jobs on the loop, some time after they were
given. The same seed gives the same run. A loop on which nothing can happen any more says so.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asyncgrad.scheduler import segments
from asyncgrad.scheduler.queues import ORDINARY
from asyncgrad.scheduler.registry import engine_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

#: Seconds that pass whenever somebody looks at the clock.
_TICK = 0.000_01


class DeadlockError(AssertionError):
    """Nothing is ready, nothing is due, and the loop has not been stopped."""


class _Selector(selectors.DefaultSelector):
    """Lets time pass instead of waiting."""

    loop: SeededLoop

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events and timeout is None:
            raise DeadlockError(f"seed {self.loop.seed}: nothing will ever happen")
        if not events and timeout:
            self.loop.now += timeout
        return events


class SeededLoop(asyncio.SelectorEventLoop):
    """The loop; its engine's clock is its own."""

    def __init__(self, seed: int) -> None:
        """Everything follows from the seed."""
        self.seed = seed
        self.now = 0.0
        self.random = random.Random(seed)
        self._late: list[Any] = []
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        self.now += _TICK
        return self.now

    def _run_once(self) -> None:
        ready = [*self._late, *self._ready]
        self.random.shuffle(ready)
        count = self.random.randint((len(ready) + 1) // 2, len(ready))
        self._late = ready[count:]
        self._ready.clear()
        self._ready.extend(ready[:count])
        super()._run_once()


class StandIn:
    """Threads that work on the loop: one job at a time, in any order."""

    closed = False

    def __init__(self, number: int, kept: int = 0) -> None:
        self._loop: Any = asyncio.get_running_loop()
        self._waiting = 0
        self._number = number

    def start(self) -> None:
        pass

    def submit(
        self, job: Callable[[], None], urgency: Any = ORDINARY, then: Any = None
    ) -> None:  # fmt: skip
        if self._loop.is_closed():
            # There is no thread to do it.
            return
        self._waiting += 1
        delay = self._loop.random.choice([0.0, 0.000_1, 0.01])
        self._loop.call_later(delay, self._run, job, then)

    def _run(self, job: Callable[[], None], then: Any) -> None:
        self._waiting -= 1
        job()
        if then is not None:
            then()

    def most_urgent(self) -> Any:
        return self._loop.random.choice([None, ORDINARY]) if self._waiting else None

    def idle(self) -> int:
        return self._loop.random.randint(0, self._number)

    def spare(self) -> int:
        return self.idle()

    def busy(self) -> bool:
        return self._waiting > 0

    def close(self, ended: Callable[[], None] | None = None) -> None:
        if ended is not None:
            ended()

    def alive(self) -> bool:
        return False


@contextmanager
def seeded(monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[SeededLoop]:
    """A loop with an engine that has no thread."""
    with monkeypatch.context() as patch:
        patch.setattr(segments, "Threads", StandIn)
        loop = SeededLoop(seed)
        try:

            async def prepare() -> None:
                engine_of(loop).clock = lambda: int(loop.time() * 1e9)

            loop.run_until_complete(prepare())
            yield loop
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
