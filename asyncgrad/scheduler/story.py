"""What has happened to a pass lately: a note on its error."""

from __future__ import annotations

from collections import deque

#: Events that are remembered.
_LENGTH = 24


class Story:
    """The last events of a pass, with the time at which each happened."""

    __slots__ = ("_events", "_start")

    def __init__(self, now: int) -> None:
        """Begin.

        Args:
            now: nanoseconds of some clock.
        """
        self._start = now
        #: (when, what, how often in a row)
        self._events: deque[tuple[int, str, int]] = deque(maxlen=_LENGTH)

    def add(self, now: int, what: str) -> None:
        """Something has happened."""
        if self._events and self._events[-1][1] == what:
            _, _, times = self._events.pop()
            self._events.append((now, what, times + 1))
        else:
            self._events.append((now, what, 1))

    def __str__(self) -> str:
        """One line for each event."""
        lines = [
            f"  {(when - self._start) / 1e6:+.3f} ms  {what}" + (f" ({times} times)" * (times > 1))
            for when, what, times in self._events
        ]
        return "\n".join(["the last of what happened to this pass:", *lines])
