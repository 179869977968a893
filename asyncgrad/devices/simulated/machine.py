"""The simulated machine: the work in its streams, the order in which it is done, and failures.

Rule 1: an operation's values are computed when it is put into a stream; *doing* it makes them
    visible. A copy to the host delivers NaN unless all that it depends on was done before it.
Rule 2: the next operation is always the head of a stream whose waits are over. Time, a schedule or
    a caller of `step()` chooses among the heads; nothing else decides the order.
Rule 3: clocks are vectors. An access to memory is in order if its stream knows of all accesses that
    it must follow. A stream learns of others by waiting for events, and from what the host knew
    when it put the operation in.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop
from collections.abc import Callable, Sequence
from itertools import count
from threading import RLock
from typing import Any

from asyncgrad.aliases import Device
from asyncgrad.choices import Clock, words
from asyncgrad.devices.base import NOT_READY, READY
from asyncgrad.devices.simulated.clocks import RealClock, VirtualClock
from asyncgrad.devices.simulated.memory import Access, Memory
from asyncgrad.devices.simulated.streams import Operation, SimEvent, SimStream, learn
from asyncgrad.devices.waiting import settle
from asyncgrad.errors import AcceleratorError, DeviceLostError

#: CUDA's codes for a failed launch and for a lost device.
FAILED = 719
LOST = 46

#: Seconds. Loops sleep for whole milliseconds and would delay other timers by the rounding, so a
#: shorter wait is spent in turns of the loop.
_COARSE = 1e-3


class Machine:
    """All simulated devices of one simulation.

    Args:
        latency: the least duration of an operation in seconds.
        bandwidth: the bytes that an operation reads and writes in a second.
        duration: the seconds of an operation as a function of its name and bytes; replaces both.
        clock: `"virtual"`: time passes only while somebody waits; `"real"`: the system's.
        schedule: which operation is next. `None`: the one that ends first by the clock; `"manual"`:
            none until `step()` is called or a caller blocks; a function: gets the possible
            operations and returns the index of the next.
        memory: the bytes of each device, None for no limit.
        detect_races: raise `RaceError` when an operation is put in whose access to memory is not
            ordered against another.
    """

    def __init__(
        self, devices: int = 8, *, latency: float = 5e-6, bandwidth: float = 1e12,
        duration: Callable[[str, int], float] | None = None, clock: Clock = "virtual",
        schedule: str | Callable[[Sequence[Operation]], int] | None = None,
        memory: int | None = None, detect_races: bool = True,
    ) -> None:  # fmt: skip
        if clock not in words(Clock):
            raise ValueError(f"simulate: clock must be 'virtual' or 'real', not {clock!r}")
        if isinstance(schedule, str) and schedule != "manual":
            raise ValueError(f"simulate: schedule must be 'manual' or a function, not {schedule!r}")
        self.devices = devices
        self.duration = duration or (lambda name, size: latency + size / bandwidth)
        self.clock: Any = VirtualClock() if clock == "virtual" else RealClock()
        self.schedule = schedule
        self.memory = [Memory(self, place, memory) for place in range(devices)]
        self.detect_races = detect_races
        self.lock = RLock()
        self.streams: list[SimStream] = []
        #: For each stream, by its number, how many of its ticks the host knows of.
        self.known: dict[int, int] = {}
        #: For each stream, how many of its ticks had passed when arrays kept for it were released.
        self.over: dict[int, int] = {}
        #: Copies under way to pinned memory, by address: the operation, its tick, and the values.
        self.coming: dict[int, tuple[Operation, tuple[int, int], Any]] = {}
        #: How many operations were put in, without waits and records; how often the host blocked.
        self.launched = 0
        self.blocked = 0
        self._numbers = count()
        #: Future errors by the value of `launched` at which they occur; and errors not yet raised.
        self._faults: dict[int, BaseException | None] = {}
        self._errors: dict[int, BaseException] = {}
        self._lost: set[int] = set()
        self._waiting: list[tuple[Operation, Any, asyncio.Future[None]]] = []
        #: Event loops with a scheduled turn of the simulation.
        self._turning: set[Any] = set()

    # -- putting work in --------------------------------------------------------------------------

    def open_stream(self, device: Device, priority: int) -> SimStream:
        """Open a new stream."""
        with self.lock:
            stream = SimStream(device, len(self.streams), priority)
            self.streams.append(stream)
            return stream

    def launch(
        self, name: str, stream: SimStream, accesses: Sequence[Access],
        effect: Callable[[bool], None] | None = None,
    ) -> Operation:  # fmt: skip
        """Put an operation on memory into a stream.

        Raises:
            RaceError: if one of its accesses is not ordered against an earlier one.
            DeviceLostError: if the device is lost.
        """
        with self.lock:
            place = stream.device.index
            if place in self._lost:
                raise self.failure(place)
            learn(stream.clock, self.known)
            if self.detect_races:
                for access in accesses:
                    access.check(name, stream)
            seconds = self.duration(name, sum(access.size for access in accesses))
            operation = self._put(name, stream, seconds)
            stream.ticks += 1
            stream.clock[stream.number] = stream.ticks
            operation.sources = [
                source
                for access in accesses
                if access.storage.machine is self
                for source in access.sources()
            ]
            operation.effect = effect
            if self.launched in self._faults:
                operation.fault = self._faults.pop(self.launched) or AcceleratorError(
                    f"simulated fault of {operation!r}"
                )
            for access in accesses:
                access.note(stream, operation)
            self.launched += 1
            return operation

    def _put(
        self, name: str, stream: SimStream, seconds: float = 0.0, after: tuple[Operation, ...] = ()
    ) -> Operation:
        operation = Operation(name, stream, next(self._numbers))
        operation.after = after
        operation.start = max(self.clock.now(), stream.ready_at, *(o.end for o in after))
        operation.end = stream.ready_at = operation.start + seconds
        stream.queue.append(operation)
        return operation

    def record(self, event: SimEvent, stream: SimStream) -> None:
        """Record an event: it happens when all work that is now in a stream is done."""
        with self.lock:
            learn(stream.clock, self.known)
            event.operation = self._put("record", stream)
            event.clock = dict(stream.clock)

    def wait(self, stream: SimStream, event: SimEvent) -> None:
        """Make later work in a stream wait for an event."""
        with self.lock:
            before = event.operation
            if before is None:
                return
            self._put("wait", stream, after=(before,))
            learn(stream.clock, event.clock)

    # -- doing it ---------------------------------------------------------------------------------

    def heads(self) -> list[Operation]:
        """The operations that may be next."""
        return [
            stream.queue[0]
            for stream in self.streams
            if stream.queue and all(before.done for before in stream.queue[0].after)
        ]

    def step(self, choice: int | None = None) -> Operation | None:
        """Do and return one operation, or None: by its index in `heads()`, or by the schedule."""
        with self.lock:
            heads = self.heads()
            if not heads:
                return None
            if choice is not None:
                operation = heads[choice]
            elif callable(self.schedule):
                operation = heads[self.schedule(heads) % len(heads)]
            elif self.schedule == "manual":
                operation = min(heads, key=lambda o: o.number)
            else:
                operation = min(heads, key=_by_time)
                self.clock.sleep_until(operation.end)
            self._do(operation)
            return operation

    def _do(self, operation: Operation) -> None:
        operation.stream.queue.popleft()
        place = operation.stream.device.index
        fault = operation.fault
        if fault is not None:
            self.report(place, fault)
        operation.poisoned = (
            fault is not None
            or place in self._lost
            or any(o.poisoned or not o.done for o in operation.sources)
        )
        operation.done = True
        # Release them, or the last operation would keep all earlier ones alive.
        operation.sources = operation.after = ()
        effect, operation.effect = operation.effect, None
        if effect is not None:
            effect(operation.poisoned)
        self._wake()

    def progress(self) -> None:
        """Do the operations that are due by now."""
        if self.schedule is not None:
            return
        now = self.clock.now()
        while heads := self.heads():
            operation = min(heads, key=_by_time)
            if operation.end > now:
                return
            self._do(operation)

    # -- waiting for it ---------------------------------------------------------------------------

    def status(self, event: SimEvent) -> int:
        """The status of an event."""
        with self.lock:
            operation = event.operation
            if operation is None:
                return READY
            self.progress()
            place = operation.stream.device.index
            if place in self._lost:
                return LOST
            if not operation.done:
                return NOT_READY
            learn(self.known, event.clock)
            return FAILED if place in self._errors else READY

    def releases(self, event: SimEvent) -> bool:
        """Whether an event has happened: then memory that earlier work reads may be lent again.

        The program has not asked. So, unlike `status`, this teaches the host nothing: otherwise a
        missing wait would be noticed or not, depending on what has been done by now.
        """
        with self.lock:
            self.progress()
            happened = event.operation is None or event.operation.done
            if happened:
                learn(self.over, event.clock)
            return happened

    def failure(self, place: int) -> BaseException:
        """The error of a device, which is raised once; a lost device raises each time."""
        with self.lock:
            if place in self._lost:
                # A new one each time, because raising an error attaches a traceback to it.
                return DeviceLostError(
                    f"sim:{place} is lost: its memory and all work on it are gone. Use another "
                    f"device."
                )
            return self._errors.pop(place)

    def synchronize(self, event: SimEvent) -> None:
        """Block until an event has happened."""
        operation = event.operation
        if operation is None:
            return
        with self.lock:
            if not operation.done:
                self.blocked += 1
            while not operation.done:
                if self.step() is None:
                    raise AssertionError(f"{operation} can never be done")
            self._observe(event, operation)

    def _observe(self, event: SimEvent, operation: Operation) -> None:
        """Note that the host knows of everything before an event; raise its device's error."""
        learn(self.known, event.clock)
        if operation.stream.device.index in self._errors:
            raise self.failure(operation.stream.device.index)

    async def completion(self, event: SimEvent) -> None:
        """Wait until an event has happened, without blocking the event loop."""
        operation = event.operation
        assert operation is not None
        loop = asyncio.get_running_loop()
        with self.lock:
            happened: asyncio.Future[None] | None = None
            if not operation.done:
                happened = loop.create_future()
                self._waiting.append((operation, loop, happened))
                self._turn_later(loop)
        if happened is not None:
            # A cancellation here does not stop the operation.
            await happened
        with self.lock:
            self._observe(event, operation)

    def _turn_later(self, loop: Any) -> None:
        """Schedule a turn of the simulation on a loop that waits for it."""
        if loop in self._turning or self.schedule == "manual":
            return
        self._turning.add(loop)
        pause = 0.0
        if self.schedule is None and isinstance(self.clock, RealClock):
            heads = self.heads()
            if heads:
                pause = min(o.end for o in heads) - self.clock.now() - _COARSE
        if pause > 0:
            loop.call_later(pause, self._turn, loop)
        else:
            loop.call_soon(self._turn, loop)

    def _turn(self, loop: Any) -> None:
        """Do one operation by schedule, or what is due by time, in a turn of a waiting loop."""
        with self.lock:
            self._turning.discard(loop)
            if not any(waits is loop for _, waits, _ in self._waiting):
                return
            if isinstance(self.clock, VirtualClock) or self.schedule is not None:
                self.step()
            self.progress()
            self._waiting = [w for w in self._waiting if not w[2].done()]
            if any(waits is loop for _, waits, _ in self._waiting):
                self._turn_later(loop)

    def _wake(self) -> None:
        """Complete the futures of operations that are done."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        running = _get_running_loop()
        for operation, loop, happened in waiting:
            if not operation.done:
                self._waiting.append((operation, loop, happened))
            elif loop is running:
                settle(happened)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(settle, happened)

    # -- what goes wrong --------------------------------------------------------------------------

    def fail(self, ahead: int = 0, error: BaseException | None = None) -> None:
        """Make a future operation fail when it is done: its results are poisoned.

        The error is raised once, by the next synchronisation with its device.

        Args:
            ahead: how many operations are put in before it; 0 is the next one.
            error: the error to raise; an `AcceleratorError` if None.
        """
        with self.lock:
            self._faults[self.launched + ahead] = error

    def report(self, device: int, error: BaseException) -> None:
        """Make the next synchronisation with a device raise an error."""
        self._errors.setdefault(device, error)

    def lose(self, device: int = 0) -> None:
        """Lose a device: its pending work gives no results, and every later call on it raises."""
        with self.lock:
            self._lost.add(device)
            self._errors[device] = self.failure(device)
            for stream in self.streams:
                if stream.device.index == device:
                    while stream.queue:
                        self._do(stream.queue[0])


def _by_time(operation: Operation) -> tuple[float, int, int]:
    """Sort by end, then by priority, then by the order in which they were put in."""
    return operation.end, operation.stream.priority, operation.number
