"""Streams and events, as users see them, and the streams that are current.

The current stream is ambient: `with stream:` holds for the asyncio task (or thread) and across its
awaits. Where that is kept is for the floors above to say: `bind_ambient`.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from asyncgrad.devices.base import NOT_READY, READY, Device, bind_stream_type
from asyncgrad.devices.cpu import CPU
from asyncgrad.devices.discovery import accelerators, bind_chosen, find
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

#: Groups of arrays that a stream keeps before it looks which it can let go.
_GROUP = 32
_stream_ids = count(1)


class Scope(NamedTuple):
    """A current stream, and those around it."""

    stream: Stream
    outer: Scope | None


#: Reads and sets the innermost scope; bound by `ops.ambient`.
_ambient: list[Any] = []


def bind_ambient(
    get: Callable[[], Scope | None], install: Callable[[Scope | None], object]
) -> None:
    """Say where the innermost scope is kept."""
    _ambient[:] = [get, install]


def current_stream(device: Device) -> Stream:
    """The stream that work on a device is put into here."""
    scope = _ambient[0]()
    return device.default_stream if scope is None else device.stream_in(scope)


def current_device() -> Device | None:
    """The device of the innermost stream, None outside of all."""
    scope = _ambient[0]()
    return None if scope is None else scope.stream.device


def _chosen(type: str) -> Device | None:
    """The device of the innermost stream on a device of a type, None outside of all."""
    scope: Scope | None = _ambient[0]()
    while scope is not None:
        if scope.stream.device.type == type:
            return scope.stream.device
        scope = scope.outer
    return None


def _meant(device: Any) -> Device:
    """A device by name; None is the current one: of the innermost stream, else an accelerator."""
    if device is not None:
        return find(device)
    return current_device() or next(iter(accelerators()), CPU)


class Reading:
    """What a raw stream reads of other streams' memory.

    Several streams may stand for it, and several threads use it: each step is one of the
    interpreter's own.
    """

    __slots__ = ("kept", "marks")

    def __init__(self) -> None:
        """Nothing."""
        #: What it may still read, since the last mark; and marks with what came before.
        self.kept: list[Any] = []
        self.marks: deque[tuple[Any, list[Any]]] = deque()


class Stream:
    """A queue of work on a device, which is done in order.

    `with stream:` makes it the current one. That follows the asyncio task: it is safe to await
    inside, and nobody else sees it.

    Args:
        device: the device, or the current one if None.
        priority: smaller is more urgent, as with CUDA.

    Example:
        >>> import asyncgrad as ag
        >>> stream = ag.Stream(device="sim:0")
        >>> with stream:
        ...     y = ag.ones(3).to("sim:0") * 2
        >>> ag.accelerator.current_stream("sim:0").wait_stream(stream)
        >>> y.cpu()
        tensor([2., 2., 2.])
    """

    __slots__ = ("__weakref__", "device", "priority", "raw", "reading", "scope", "stream_id")

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        """Open a stream."""
        _check("Stream", "priority", priority, int)
        where = _meant(device)
        self._open(where, where.open_stream(priority), priority)
        where.opened(self)
        self.stream_id = next(_stream_ids)

    def _open(self, device: Device, raw: Any, priority: int) -> None:
        self.device = device
        self.priority = priority
        #: The device's own.
        self.raw = raw
        self.stream_id = 0
        #: This stream and no other, as a scope.
        self.scope = Scope(self, None)
        self.reading = Reading()

    @classmethod
    def from_raw(cls, device: Device, raw: Any, priority: int) -> Stream:
        """A stream that the device has already."""
        stream = cls.__new__(cls)
        stream._open(device, raw, priority)
        return stream

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when all that is in the stream now is done."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Have what is put into this stream from now on wait for an event, on the device."""
        _check("wait_event", "event", event, Event)
        if event._raw is not None:
            self.device.wait(self.raw, event._raw)

    def wait_stream(self, stream: Stream) -> None:
        """Have what is put into this stream from now on wait for all that is in another now."""
        _check("wait_stream", "stream", stream, Stream)
        if stream is not self:
            self.wait_event(stream.record_event())

    def query(self) -> bool:
        """Whether all that was put into the stream is done.

        Raises:
            RuntimeError: for what has gone wrong on the device.
        """
        return self.record_event().query()

    def synchronize(self) -> None:
        """Block until all that was put into the stream is done.

        Raises:
            RuntimeError: for what has gone wrong on the device.
        """
        self.mark()
        self.record_event().synchronize()
        self._forget()

    async def synchronize_async(self) -> None:
        """Wait until all that was put into the stream is done, without holding the event loop.

        Raises:
            RuntimeError: for what has gone wrong on the device.
        """
        self.mark()
        # The stream may have got more to do when this goes on: only what was in it is waited for.
        # Cancelled here, the work is done all the same.
        await self.record_event()
        self._forget()

    def __await__(self) -> Generator[Any, None, None]:
        """The same as `await stream.synchronize_async()`."""
        return self.synchronize_async().__await__()

    def keep(self, *values: Any) -> None:
        """Hold arrays that the stream reads but did not allocate until it has done so.

        Memory goes back to the stream that it was allocated on when its array dies; that stream
        knows nothing of this one.
        """
        kept = self.reading.kept
        kept.append(values)
        if len(kept) >= _GROUP:
            self.mark()

    def mark(self) -> None:
        """Let go of what has been read, and note how far the stream is with the rest."""
        reading = self.reading
        # In this order: what another thread keeps meanwhile may be read after the event.
        kept, reading.kept = reading.kept, []
        if kept:
            event = self.device.new_event(timing=False)
            self.device.record(event, self.raw)
            reading.marks.append((event, kept))
        self._forget()

    def _forget(self) -> None:
        marks, status = self.reading.marks, self.device.status
        while marks:
            try:
                mark = marks.popleft()
            except IndexError:
                # Another thread has come first.
                return
            if status(mark[0]) == NOT_READY:
                marks.appendleft(mark)
                return

    def __enter__(self) -> Self:
        """Put work on the stream's device into this stream from here on."""
        get, install = _ambient
        install(Scope(self, get()))
        return self

    def __exit__(self, *exception: object) -> None:
        """Go back to what was current on entry; a context that has not entered it stays."""
        get, install = _ambient
        scope = get()
        while scope is not None and scope.stream is not self:
            scope = scope.outer
        if scope is not None:
            install(scope.outer)

    @property
    def device_index(self) -> int:
        """The index of the device, -1 where it has none."""
        return -1 if self.device.index is None else self.device.index

    def __repr__(self) -> str:
        """Device and number."""
        return f"<Stream {self.stream_id} of {self.device}>"


class Event:
    """A mark in a stream: it can be waited for by streams, by the host, and with `await`.

    Args:
        device: the device, or the current one if None. The first recording may be on another one
            of its type, which is the event's from then on.
        enable_timing: the event notes when it happens, for `elapsed_time`.
        blocking: accepted for PyTorch's sake, without effect.
        interprocess: likewise.
    """

    __slots__ = ("__weakref__", "_raw", "_timing", "device")

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        """Make an event that has not been recorded: as long as it is not, it has happened."""
        self.device = _meant(device)
        self._timing = enable_timing
        self._raw: Any = None

    def record(self, stream: Stream | None = None) -> None:
        """Have the event happen when all that is in a stream now is done.

        Args:
            stream: the stream, or the current one.

        Raises:
            RuntimeError: if the stream is another device's.
        """
        recorded = self._raw is not None
        if stream is None:
            device = self.device if recorded else _chosen(self.device.type) or self.device
            stream = current_stream(device)
        _check("record", "stream", stream, Stream)
        if stream.device is not self.device and (
            recorded or stream.device.type != self.device.type
        ):
            raise RuntimeError(
                f"Event device {self.device} does not match recording stream's device "
                f"{stream.device}. Make an event with Event({str(stream.device)!r})."
            )
        # A new one each time: who waits for the last recording goes on waiting for that.
        raw = stream.device.new_event(timing=self._timing)
        stream.device.record(raw, stream.raw)
        self._raw, self.device = raw, stream.device

    def wait(self, stream: Stream | None = None) -> None:
        """Have what is put into a stream from now on (the current one if None) wait for this."""
        (current_stream(self.device) if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the event has happened.

        Raises:
            RuntimeError: for what has gone wrong on the device.
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
            RuntimeError: for what has gone wrong on the device.
        """
        if self._raw is not None:
            self.device.synchronize(self._raw)

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until the event has happened, without holding the event loop.

        Raises:
            RuntimeError: for what has gone wrong on the device.
        """
        if not self.query():
            yield from self.device.completion(self._raw).__await__()

    async def synchronize_async(self) -> None:
        """The same as `await event`."""
        # Nothing of ours is open here; cancelled, the work goes on.
        await self

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another.

        Raises:
            RuntimeError: if either was made without `enable_timing`, or has not happened, or they
                are on different devices.
            ValueError: if either has not been recorded.
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
        """Device, and how it stands."""
        status = {READY: "happened", NOT_READY: "pending"}.get(self.status(), "failed")
        return f"<Event on {self.device}, {'not recorded' if self._raw is None else status}>"


def set_stream(stream: Stream) -> None:
    """Make a stream the current one of its device, and its device the current one, from here on.

    Raises:
        TypeError: if it is no stream.
    """
    _check("set_stream", "stream", stream, Stream)
    stream.__enter__()


def _check(function: str, name: str, value: Any, kind: type) -> None:
    """Raise unless an argument is of a class."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{function}(): argument {name!r} must be {kind.__name__}, not {type(value).__name__}"
        )


bind_chosen(_chosen)
bind_stream_type(Stream.from_raw)
