"""The streams of the simulated machine, their operations and their events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from asyncgrad.aliases import Device


class Operation:
    """One piece of work in a stream."""

    __slots__ = ("after", "done", "effect", "end", "fault", "name", "number", "poisoned",
                 "sources", "start", "stream")  # fmt: skip

    def __init__(self, name: str, stream: SimStream, number: int) -> None:
        self.name = name
        self.stream = stream
        #: Its position among all operations of the machine.
        self.number = number
        self.start = self.end = 0.0
        self.done = False
        #: Whether its results are NaN, because it failed or its inputs were not computed.
        self.poisoned = False
        #: The operations that made its inputs; and those that it waits for.
        self.sources: Iterable[Operation] = ()
        self.after: Sequence[Operation] = ()
        #: The error that is raised after it is done.
        self.fault: BaseException | None = None
        #: Called with `poisoned` when the operation is done.
        self.effect: Callable[[bool], None] | None = None

    def __repr__(self) -> str:
        return f"{self.name} #{self.number} in {self.stream}"


class SimStream:
    """A first-in, first-out queue of operations."""

    __slots__ = ("clock", "device", "number", "priority", "queue", "ready_at", "ticks")

    def __init__(self, device: Device, number: int, priority: int) -> None:
        self.device = device
        self.number = number
        self.priority = priority
        self.queue: deque[Operation] = deque()
        #: The time at which all its operations will be done, if time decides.
        self.ready_at = 0.0
        self.ticks = 0
        #: For each stream, by its number, how many of its ticks this stream knows of.
        self.clock: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"stream {self.number} of {self.device}"


class SimEvent:
    """A mark in a stream, with the stream's vector clock at that point."""

    __slots__ = ("clock", "operation")

    def __init__(self) -> None:
        self.operation: Operation | None = None
        self.clock: dict[int, int] = {}


def learn(known: dict[int, int], clock: dict[int, int]) -> None:
    """Add what another clock has seen to what is known."""
    for number, ticks in clock.items():
        if known.get(number, 0) < ticks:
            known[number] = ticks
