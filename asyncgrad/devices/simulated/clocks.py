"""The clocks of the simulated machine."""

from __future__ import annotations

import time


class VirtualClock:
    """A clock that advances only while somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        """The time in seconds."""
        return self.time

    def sleep_until(self, moment: float) -> None:
        """Advance to a moment."""
        self.time = max(self.time, moment)


class RealClock:
    """The system's clock."""

    def now(self) -> float:
        """The time in seconds."""
        return time.perf_counter()

    def sleep_until(self, moment: float) -> None:
        """Block the calling thread until a moment."""
        left = moment - time.perf_counter()
        if left > 0:
            time.sleep(left)
