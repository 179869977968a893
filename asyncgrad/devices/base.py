"""What the rest asks of a device: an array library, streams, copies, and how long work takes.

A device with streams computes behind the caller's back: a call puts work into a stream and
returns. Work in one stream is done in order; `Event`s order streams among one another and tell the
host how far a stream has come. The CPU has no streams: its work is done when the call returns.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Self

from asyncgrad.devices.pool import Pool
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from asyncgrad.devices.streams import Scope, Stream

#: What `Device.status` says of an event; anything else is an error's code, as CUDA counts them.
READY: Final = 0
NOT_READY: Final = 600

#: Finds the device that is meant by arguments like PyTorch's; bound by `discovery`.
_find: list[Callable[..., Device]] = []


class Place(NamedTuple):
    """Where new tensors are made, and where they are outside of that."""

    device: Device
    outer: Place | None


#: Reads and sets the innermost place; bound by `ops.ambient`.
_default: list[Any] = []


def bind_default(
    get: Callable[[], Place | None], install: Callable[[Place | None], object]
) -> None:
    """Say where the innermost place is kept."""
    _default[:] = [get, install]


def set_default_device(device: Any) -> None:
    """Make new tensors on a device from here on, in this task alone.

    Args:
        device: the device, or its name; None is the CPU.

    Raises:
        RuntimeError: if there is no such device.
    """
    found = None if device is None else _find[0](device)
    _default[1](None if found is None else Place(found, None))


def bind_find(find: Callable[..., Device]) -> None:
    """Say how devices are found by name."""
    _find[:] = [find]


class _DeviceType(ABCMeta):
    """Calling `Device` itself finds a device; subclasses are made as usual."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """The device that is meant, or a new one of a subclass."""
        if cls.__dict__.get("_finds"):
            return _find[0](*args, **kwargs)
        return super().__call__(*args, **kwargs)


class Device(metaclass=_DeviceType):
    """A place where arrays live: `device("cpu")`, `device("cuda", 1)`, `device("sim:0")`.

    Devices are compared by identity: there is one object for each place. Raw streams and events
    are the device's own; `Stream` and `Event` are what others see of them.

    Args:
        type: a type, with or without an index: `"cuda"`, `"cuda:1"`.
        index: the index.

    Raises:
        RuntimeError: if there is no such device.

    Example:
        >>> import asyncgrad as ag
        >>> ag.device("cpu")
        device(type='cpu')
        >>> with ag.device("sim:0"):
        ...     ag.ones(2).device
        device(type='sim', index=0)
    """

    __slots__ = ("_default_stream", "_opened", "index", "side_streams", "type")

    _finds = True
    #: Work is put into streams and done later.
    streamed = False

    def __init__(self, type: str, index: int | None = None) -> None:
        """Name the device as PyTorch does: a type, and an index where there are several."""
        self.type = type
        self.index = index
        self._default_stream: Stream | None = None
        #: By the `id` of raw streams: they do what was put into them whoever has forgotten them.
        self._opened: dict[int, Stream] = {}
        #: Streams other than the default one have been opened: memory passes between streams.
        self.side_streams = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Subclasses are made by calling them."""
        super().__init_subclass__(**kwargs)
        cls._finds = False

    # -- arrays -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array library: NumPy, CuPy or one that looks like them."""

    @property
    def pooled_xp(self) -> Any:
        """The library for large real arrays, whose memory is worth keeping."""
        return self.xp

    @property
    def large(self) -> int:
        """The bytes from which an array is large."""
        return Pool.large

    @property
    @abstractmethod
    def array_type(self) -> type:
        """The class of the device's arrays."""

    def owns(self, array: Any) -> bool:
        """Whether an array is one of this device's."""
        return isinstance(array, self.array_type)

    def launching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the table, made to put its work into the current stream."""
        return function

    def run_in(self, stream: Any, function: Callable[..., Any], *args: Any) -> Any:
        """What a function gives whose work goes into a stream, which is the current one."""
        return function(*args)

    @property
    def compiled(self) -> Mapping[str, Callable[..., Any]]:
        """Functions in the place of kernels of `ops.fused`, by their names.

        Each takes the kernel's arguments, and gives NotImplemented for those it is not made for.
        """
        return {}

    # -- costs ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def element_cost(self) -> float:
        """Expected nanoseconds for one element to pass through one elementwise function.

        That is the caller's time: a device with streams takes none for elements.
        """

    @property
    def launch_cost(self) -> int:
        """Expected nanoseconds of the caller's time to put one function into a stream."""
        return 0

    # -- streams and events: done at once, unless a device says otherwise -------------------------

    @property
    def default_stream(self) -> Stream:
        """The stream of all work that is given no other."""
        stream = self._default_stream
        if stream is None:
            from_raw = _stream_type[0]
            stream = self._default_stream = from_raw(self, self.open_stream(None), 0)
        return stream

    def stream_in(self, scope: Scope | None) -> Stream:
        """The current stream in a scope: the innermost of this device, or the default one."""
        while scope is not None:
            if scope.stream.device is self:
                return scope.stream
            scope = scope.outer
        return self.default_stream

    def streams(self) -> list[Stream]:
        """The default stream, and one for each other raw stream that was ever opened."""
        return [self.default_stream, *self._opened.values()]

    def opened(self, stream: Stream) -> None:
        """Note that somebody has opened a stream, maybe another of the same raw one."""
        stream.reading = self._opened.setdefault(id(stream.raw), stream).reading
        self.side_streams = True

    def open_stream(self, priority: int | None) -> Any:
        """A raw stream; None asks for the default one."""
        return None

    def new_event(self, *, timing: bool) -> Any:
        """A raw event."""
        return None

    def record(self, event: Any, stream: Any) -> None:
        """Have an event happen when all that is in a stream now is done."""

    def wait(self, stream: Any, event: Any) -> None:
        """Have what is put into a stream from now on wait for an event."""

    def status(self, event: Any) -> int:
        """`READY`, `NOT_READY`, or the code of what has gone wrong; never raises."""
        return READY

    def failure(self, status: int) -> Exception:
        """The error that a status stands for."""
        raise NotImplementedError

    def synchronize(self, event: Any) -> None:
        """Block until an event has happened.

        Raises:
            RuntimeError: for what has gone wrong on the device.
        """

    def completion(self, event: Any) -> Awaitable[None]:
        """The same to be awaited; to be called on the event loop that awaits it."""
        raise NotImplementedError

    def elapsed_time(self, start: Any, end: Any) -> float:
        """Milliseconds between two events."""
        raise NotImplementedError

    # -- copies, all into the current stream ------------------------------------------------------

    def from_host(self, array: Any, *, pinned: bool) -> Any:
        """A copy of a NumPy array.

        Args:
            array: the array; unless it is `pinned`, it may change when the call has returned.
            pinned: it lies in memory that the device can copy from by itself.
        """
        return array.copy()

    def to_host(self, array: Any) -> Any:
        """A copy as a NumPy array in pinned memory, whose values come with the stream."""
        return array.copy()

    def from_peer(self, array: Any, peer: Device) -> Any:
        """A copy of another device's array of the same type."""
        raise NotImplementedError

    def empty_pinned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A NumPy array in memory that the device can copy from and to by itself."""
        raise NotImplementedError

    # -- memory -----------------------------------------------------------------------------------

    def memory_stats(self) -> dict[str, int]:
        """What is allocated, in bytes: PyTorch's names."""
        return {}

    def memory_info(self) -> tuple[int, int]:
        """Bytes that are free, and all there are."""
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Give memory back that is kept for later."""

    def reset_peak_memory_stats(self) -> None:
        """Start the peaks of `memory_stats` from what is allocated now."""

    # -- where new tensors are made ---------------------------------------------------------------

    def __enter__(self) -> Self:
        """Make new tensors here, unless they are told where; that follows the asyncio task."""
        get, install = _default
        install(Place(self, get()))
        return self

    def __exit__(self, *exception: object) -> None:
        """Go back to what was on entry; a context that has not entered it stays as it is."""
        get, install = _default
        place = get()
        while place is not None and place.device is not self:
            place = place.outer
        if place is not None:
            install(place.outer)

    def __str__(self) -> str:
        """The name, as `ag.device()` takes it."""
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        """PyTorch's form."""
        if self.index is None:
            return f"device(type={self.type!r})"
        return f"device(type={self.type!r}, index={self.index})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Found again by name: there is one object for each place."""
        return Device, (self.type, self.index)


#: The class of streams; bound by `streams`, which stands on this module.
_stream_type: list[Any] = []


def bind_stream_type(stream_type: Any) -> None:
    """Say what a device's default stream is made of."""
    _stream_type[:] = [stream_type]
