"""Streams and events for users, and the current streams.

The current stream is ambient: `with stream:` holds for the asyncio task (or thread), also across
its awaits. The layer above stores it, through `get_scope` and `set_scope`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from itertools import count
from typing import Any, Self

from asyncgrad._unbound import unbound
from asyncgrad.aliases import Array, Value
from asyncgrad.devices.base import NOT_READY, READY, Device, innermost
from asyncgrad.devices.cpu import CPU
from asyncgrad.devices.discovery import accelerators, find
from asyncgrad.records import NamedTuple

#: A stream keeps this many groups of arrays before it checks which can be released.
_GROUP = 32
_stream_ids = count(1)


class Scope(NamedTuple):
    """A current stream, and the enclosing ones."""

    stream: Stream
    outer: Scope | None


# Set in `asyncgrad/_wiring.py`.
#: Returns the innermost scope.
get_scope: Callable[[], Scope | None] = unbound
#: Sets the innermost scope.
set_scope: Callable[[Scope | None], object] = unbound


def current_stream(device: Device) -> Stream:
    """The stream that receives work for a device in this context."""
    scope = get_scope()
    stream: Stream = device.default_stream if scope is None else device.stream_in(scope)
    return stream


def current_device() -> Device | None:
    """The device of the innermost `with stream:`, None outside of any."""
    scope = get_scope()
    return None if scope is None else scope.stream.device


def chosen_device(type: str) -> Device | None:
    """The device of the innermost `with stream:` for a type of devices, None outside of any."""
    scope: Scope | None = get_scope()
    while scope is not None:
        if scope.stream.device.type == type:
            return scope.stream.device
        scope = scope.outer
    return None


def _meant(device: Value) -> Device:
    """The device of an argument; None is the innermost stream's device, else an accelerator."""
    if device is not None:
        return find(device)
    return current_device() or next(iter(accelerators()), CPU)


class Reading:
    """The arrays of other streams that a raw stream may still read.

    Several `Stream` objects and threads may share it, so each step on it is atomic.
    """

    __slots__ = ("kept", "marks")

    def __init__(self) -> None:
        #: Arrays kept since the last mark; and marks: an event with the arrays kept before it.
        self.kept: list[Any] = []
        self.marks: deque[tuple[Any, list[Any]]] = deque()


class Stream:
    """A queue of work on a device, which is done in order.

    `with stream:` makes it the current one for this asyncio task only, so it is safe to await
    inside.

    Args:
        device: the device, or the current one if None.
        priority: a smaller number is more urgent, as in CUDA.

    Example:
        >>> stream = ag.Stream(device="sim:0")
        >>> with stream:
        ...     y = ag.ones(3).to("sim:0") * 2
        >>> ag.accelerator.current_stream("sim:0").wait_stream(stream)
        >>> y.cpu()
        tensor([2., 2., 2.])
    """

    __slots__ = ("__weakref__", "device", "priority", "raw", "reading", "scope", "stream_id")

    def __init__(self, device: Value = None, *, priority: int = 0) -> None:
        _check("Stream", "priority", priority, int)
        where = _meant(device)
        self._open(where, where.open_stream(priority), priority)
        where.opened(self)
        self.stream_id = next(_stream_ids)

    def _open(self, device: Device, raw: Value, priority: int) -> None:
        self.device = device
        self.priority = priority
        #: The device's own stream object.
        self.raw = raw
        self.stream_id = 0
        #: A scope of this stream alone.
        self.scope = Scope(self, None)
        self.reading = Reading()

    @classmethod
    def from_raw(cls, device: Device, raw: Value, priority: int) -> Stream:
        """Wrap a raw stream that the device already has."""
        stream = cls.__new__(cls)
        stream._open(device, raw, priority)
        return stream

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event that happens when all work now in the stream is done."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Make later work in this stream wait for an event, without blocking the host."""
        _check("wait_event", "event", event, Event)
        if event._raw is not None:
            self.device.wait(self.raw, event._raw)

    def wait_stream(self, stream: Stream) -> None:
        """Make later work in this stream wait for all work now in another."""
        _check("wait_stream", "stream", stream, Stream)
        if stream is not self:
            self.wait_event(stream.record_event())

    def query(self) -> bool:
        """Whether all work in the stream is done.

        Raises:
            RuntimeError: for an error on the device.
        """
        return self.record_event().query()

    def synchronize(self) -> None:
        """Block until all work now in the stream is done.

        Raises:
            RuntimeError: for an error on the device.
        """
        self.mark()
        self.record_event().synchronize()
        self._forget()

    async def synchronize_async(self) -> None:
        """Wait until all work now in the stream is done, without blocking the event loop.

        Raises:
            RuntimeError: for an error on the device.
        """
        self.mark()
        # Work may be added to the stream meanwhile; only earlier work is waited for. A cancellation
        # here does not stop the work.
        await self.record_event()
        self._forget()

    def __await__(self) -> Generator[Any, None, None]:
        """The same as `await stream.synchronize_async()`."""
        return self.synchronize_async().__await__()

    def keep(self, *values: Array) -> None:
        """Keep arrays alive until the stream, which did not allocate them, has read them.

        When an array dies, its memory goes back to the stream that allocated it. That stream does
        not know of reads in this one.
        """
        kept = self.reading.kept
        kept.append(values)
        if len(kept) >= _GROUP:
            self.mark()

    def mark(self) -> None:
        """Release arrays that were read, and record an event after the reads of the others."""
        reading = self.reading
        # The list is replaced before the event is recorded: an array kept later may be read after
        # it.
        kept, reading.kept = reading.kept, []
        if kept:
            event = self.device.new_event(timing=False)
            self.device.record(event, self.raw)
            reading.marks.append((event, kept))
        self._forget()

    def _forget(self) -> None:
        marks, releases = self.reading.marks, self.device.releases
        while marks:
            try:
                mark = marks.popleft()
            except IndexError:
                # Another thread has taken the last mark.
                return
            if not releases(mark[0]):
                marks.appendleft(mark)
                return

    def __enter__(self) -> Self:
        set_scope(Scope(self, get_scope()))
        return self

    def __exit__(self, *exception: object) -> None:
        """Restore the stream before entry; do nothing in a context that has not entered it."""
        scope = innermost(get_scope(), self)
        if scope is not None:
            set_scope(scope.outer)

    @property
    def device_index(self) -> int:
        """The index of the device, -1 if it has none."""
        return -1 if self.device.index is None else self.device.index

    def __repr__(self) -> str:
        return f"<Stream {self.stream_id} of {self.device}>"


class Event:
    """A mark in a stream that other streams, the host and `await` can wait for.

    Args:
        device: the device, or the current one if None. The first recording may be on another device
            of its type, to which the event then belongs.
        enable_timing: record the time of the event, for `elapsed_time`.
        blocking: accepted as in PyTorch, without effect.
        interprocess: accepted as in PyTorch, without effect.
    """

    __slots__ = ("__weakref__", "_raw", "_timing", "device")

    def __init__(
        self, device: Value = None, *, enable_timing: bool = False, blocking: bool = False,
        interprocess: bool = False,
    ) -> None:  # fmt: skip
        """Make an event that is not recorded yet; it counts as having happened."""
        self.device = _meant(device)
        self._timing = enable_timing
        self._raw: Any = None

    def record(self, stream: Stream | None = None) -> None:
        """Make the event happen when all work now in a stream is done.

        Args:
            stream: the stream, or the current one if None.

        Raises:
            RuntimeError: if the stream is on another device.
        """
        recorded = self._raw is not None
        if stream is None:
            device = self.device if recorded else chosen_device(self.device.type) or self.device
            stream = current_stream(device)
        _check("record", "stream", stream, Stream)
        if stream.device is not self.device and (
            recorded or stream.device.type != self.device.type
        ):
            raise RuntimeError(
                f"Event device {self.device} does not match recording stream's device "
                f"{stream.device}. Make an event with Event({str(stream.device)!r})."
            )
        # Each recording has a raw event of its own, so waits for an earlier recording stay valid.
        raw = stream.device.new_event(timing=self._timing)
        stream.device.record(raw, stream.raw)
        self._raw, self.device = raw, stream.device

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work in a stream (the current one if None) wait for this event."""
        (current_stream(self.device) if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the event has happened.

        Raises:
            RuntimeError: for an error on the device.
        """
        status = self.status()
        if status in {READY, NOT_READY}:
            return status == READY
        raise self.device.failure(status)

    def status(self) -> int:
        """0 if the event has happened, 600 if not, or the code of the device's error."""
        return READY if self._raw is None else self.device.status(self._raw)

    def synchronize(self) -> None:
        """Block until the event has happened.

        Raises:
            RuntimeError: for an error on the device.
        """
        if self._raw is not None:
            self.device.synchronize(self._raw)

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until the event has happened, without blocking the event loop.

        Raises:
            RuntimeError: for an error on the device.
        """
        if not self.query():
            yield from self.device.completion(self._raw).__await__()

    async def synchronize_async(self) -> None:
        """The same as `await event`."""
        # No state is open here, and a cancellation does not stop the work.
        await self

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds from this event to another.

        Raises:
            RuntimeError: if an event was made without `enable_timing` or has not happened, or the
                two are on different devices.
            ValueError: if an event was not recorded.
        """
        _check("elapsed_time", "end_event", end_event, Event)
        if not (self._timing and end_event._timing):
            raise RuntimeError(
                "elapsed_time(): both events must be created with argument 'enable_timing=True'."
            )
        if self._raw is None or end_event._raw is None:
            raise ValueError(
                "elapsed_time(): both events must be recorded before calculating elapsed time."
            )
        if self.device is not end_event.device:
            raise RuntimeError(
                f"elapsed_time(): both events must be of one device, not {self.device} and "
                f"{end_event.device}: their clocks have nothing in common."
            )
        if not (self.query() and end_event.query()):
            raise RuntimeError(
                "elapsed_time(): both events must be completed before calculating elapsed time. "
                "Call synchronize() or await the later one."
            )
        return self.device.elapsed_time(self._raw, end_event._raw)

    def __repr__(self) -> str:
        status = {READY: "happened", NOT_READY: "pending"}.get(self.status(), "failed")
        return f"<Event on {self.device}, {'not recorded' if self._raw is None else status}>"


def set_stream(stream: Stream) -> None:
    """Make a stream the current one of its device, and its device the current one, in this task."""
    _check("set_stream", "stream", stream, Stream)
    stream.__enter__()


def _check(function: str, name: str, value: Value, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(
            f"{function}(): argument {name!r} must be {kind.__name__}, not {type(value).__name__}"
        )
