"""The last events of a pass, which become a note on its error."""

from __future__ import annotations

from collections import deque

#: How many events are remembered.
_LENGTH = 24


class Story:
    """The last events of a pass, with the time at which each happened."""

    __slots__ = ("_before", "_start", "_times", "_what", "_when")

    def __init__(self, now: int) -> None:
        """Start without events, at a time in nanoseconds of any clock."""
        self._start = now
        #: The last event: its time, its text, how often in a row; and the events before it.
        self._when = now
        self._what = ""
        self._times = 0
        self._before: deque[tuple[int, str, int]] = deque(maxlen=_LENGTH - 1)

    def add(self, now: int, what: str) -> None:
        """Add an event; equal ones in a row are counted."""
        if what == self._what:
            self._times += 1
        else:
            if self._times:
                self._before.append((self._when, self._what, self._times))
            self._what = what
            self._times = 1
        self._when = now

    def __str__(self) -> str:
        events = [*self._before, (self._when, self._what, self._times)]
        lines = [
            f"  {(when - self._start) / 1e6:+.3f} ms  {what}" + (f" ({times} times)" * (times > 1))
            for when, what, times in events
        ]
        return "\n".join(["the last of what happened to this pass:", *lines])
