"""The interface of a device: array library, streams, copies, and expected costs.

A device with streams works asynchronously: a call puts work into a stream and returns. Work in one
stream is done in order. `Event`s order streams among one another and tell the host how far a stream
has come. The CPU has no streams: its work is done when the call returns.
"""

from __future__ import annotations

import abc
from abc import ABCMeta
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from asyncgrad._unbound import unbound
from asyncgrad.aliases import Array, DType, Stream, StreamScope, Value
from asyncgrad.devices.pool import Pool
from asyncgrad.records import NamedTuple

_D = TypeVar("_D")
_F = TypeVar("_F")
if TYPE_CHECKING:

    def abstractmethod(function: _F) -> _F:
        """Hidden, because for a type checker `device("cpu")` would make an instance."""
        return function
else:
    abstractmethod = abc.abstractmethod
#: Results of `Device.status`; any other value is an error's code, numbered as in CUDA.
READY: Final = 0
NOT_READY: Final = 600


class DefaultDevice(NamedTuple):
    """The device of new tensors within a block, and what was in force outside; None is the CPU."""

    device: Device
    outer: DefaultDevice | None


def innermost(entry: Any, value: Device | Stream) -> Any:
    """The innermost entry of a device or stream: a `DefaultDevice`, a `Scope` or one around it."""
    while entry is not None and entry[0] is not value:
        entry = entry.outer
    return entry


# Set in `asyncgrad/_wiring.py`.
#: Finds a device from arguments like PyTorch's.
find_device: Callable[..., Device] = unbound
#: Returns the innermost default device.
get_default: Callable[[], DefaultDevice | None] = unbound
#: Sets it.
set_default: Callable[[DefaultDevice | None], object] = unbound
#: Makes a device's default stream.
make_stream: Callable[[Device, Any, int], Stream] = unbound


def set_default_device(device: Device) -> None:
    """Make new tensors on a device from here on, in this task only.

    Args:
        device: the device, or its name; None is the CPU.
    """
    found = None if device is None else find_device(device)
    # The CPU is the default anyway, and calls without a record of it can be compiled.
    set_default(None if found is None or found.type == "cpu" else DefaultDevice(found, None))


class _DeviceType(ABCMeta):
    """Calling `Device` itself finds a device; subclasses create instances as usual."""

    def __call__(cls: type[_D], *args: Any, **kwargs: Any) -> _D:
        if cls.__dict__.get("_finds"):
            found: Any = find_device(*args, **kwargs)
        else:
            found = type.__call__(cls, *args, **kwargs)
        return cast("_D", found)


class Device(metaclass=_DeviceType):
    """A place where arrays live: `device("cpu")`, `device("cuda", 1)`, `device("sim:0")`.

    Devices are compared by identity: each place has one object. Raw streams and events are the
    device's own objects; `Stream` and `Event` wrap them for users.

    Args:
        type: a type, with or without an index: `"cuda"`, `"cuda:1"`.

    Example:
        >>> ag.device("cpu")
        device(type='cpu')
        >>> with ag.device("sim:0"):
        ...     ag.ones(2).device
        device(type='sim', index=0)
    """

    __slots__ = ("_default_stream", "_opened", "index", "side_streams", "type")

    _finds = True
    #: Whether work is put into streams and done later.
    streamed = False

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type = type
        self.index = index
        self._default_stream: Stream | None = None
        #: The streams by the `id` of their raw streams, which work on even if no user holds them.
        self._opened: dict[int, Stream] = {}
        #: Whether a non-default stream was opened, so that memory may pass between streams.
        self.side_streams = False

    def __init_subclass__(cls, **kwargs: Value) -> None:
        """Let calls of a subclass create instances, and not find devices."""
        super().__init_subclass__(**kwargs)
        cls._finds = False

    # -- arrays -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array library: NumPy, CuPy or one with the same interface."""
        raise NotImplementedError

    @property
    def pooled_xp(self) -> Any:
        """The library for large real arrays; on the CPU their memory comes from a pool."""
        return self.xp

    @property
    def half_xp(self) -> Any:
        """The library for half precision; on the CPU it multiplies matrices in float32."""
        return self.xp

    @property
    def large(self) -> int:
        """The number of bytes from which an array is large."""
        return Pool.large

    @property
    @abstractmethod
    def array_type(self) -> type:
        """The class of the device's arrays."""
        raise NotImplementedError

    def owns(self, array: Array) -> bool:
        """Whether an array is on this device."""
        return isinstance(array, self.array_type)

    def launching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of the table to put its work into the current stream."""
        return function

    def run_in(self, stream: Stream, function: Callable[..., Any], *args: Value) -> Any:
        """Call a function with a stream as the current one, and return its result."""
        return function(*args)

    @property
    def compiled(self) -> Mapping[str, Callable[..., Any]]:
        """Compiled functions that replace kernels of `ops.fused`, by name.

        Each takes the kernel's arguments and returns NotImplemented for those it does not support.
        """
        return {}

    #: Draws random numbers itself, see `draw`.
    draws = False

    def draw(
        self, kind: str, seeds: tuple[int, int], shape: tuple[int, ...], dtype: DType,
        scale: float, offset: float,
    ) -> Any:  # fmt: skip
        """Draw random numbers in the current stream.

        Args:
            kind: "uniform" in [0, 1), or standard "normal".
            seeds: two numbers below 2**64, of which the numbers are a function.
            shape: their shape.
            dtype: float32 or float64.
            scale: what they are multiplied by.
            offset: what is then added.
        """
        raise NotImplementedError

    # -- costs ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def element_cost(self) -> float:
        """Expected nanoseconds of the caller's time for four bytes in an elementwise function.

        It is 0 on a device with streams, where the caller does not wait for elements.
        """
        raise NotImplementedError

    @property
    def launch_cost(self) -> int:
        """Expected nanoseconds of the caller's time to launch one function."""
        return 0

    # -- streams and events: done at once, unless a device says otherwise -------------------------

    @property
    def default_stream(self) -> Stream:
        """The stream of work that is put into no other stream."""
        stream = self._default_stream
        if stream is None:
            stream = self._default_stream = make_stream(self, self.open_stream(None), 0)
        return stream

    def stream_in(self, scope: StreamScope) -> Stream:
        """The current stream in a scope: the innermost on this device, or the default one."""
        while scope is not None:
            if scope.stream.device is self:
                return scope.stream
            scope = scope.outer
        return self.default_stream

    def streams(self) -> list[Stream]:
        """The default stream, and one for each other raw stream that was opened."""
        return [self.default_stream, *self._opened.values()]

    #: Work can be captured, see `capture`.
    captures = False

    def capture(self, function: Callable[..., Any], *args: Value) -> Any:
        """Capture what a call of a function puts into the current stream, without doing it.

        Returns:
            An object with the `result` of the call and with `launch(stream)`, which does the work
            with the values that the arrays have then.
        """
        raise NotImplementedError(f"{self} captures no work")

    def opened(self, stream: Stream) -> None:
        """Register an opened stream, which may share its raw stream with others."""
        first: Stream = self._opened.setdefault(id(stream.raw), stream)
        stream.reading = first.reading
        self.side_streams = True

    def open_stream(self, priority: int | None) -> Any:
        """Open a raw stream; a priority of None asks for the default one."""
        return None

    def new_event(self, *, timing: bool) -> Any:
        """Make a raw event."""
        return None

    def record(self, event: Value, stream: Stream) -> None:
        """Record an event: it happens when all work that is now in a stream is done."""

    def wait(self, stream: Stream, event: Value) -> None:
        """Make later work in a stream wait for an event."""

    def status(self, event: Value) -> int:
        """`READY`, `NOT_READY`, or the code of a device error; never raises."""
        return READY

    def releases(self, event: Value) -> bool:
        """Whether an event has happened, so that arrays which were kept for it can be released."""
        return self.status(event) != NOT_READY

    def failure(self, status: int) -> Exception:
        """The error for a status code."""
        raise NotImplementedError

    def synchronize(self, event: Value) -> None:
        """Block until an event has happened.

        Raises:
            RuntimeError: for an error on the device.
        """

    def completion(self, event: Value) -> Awaitable[None]:
        """An awaitable for an event; must be called on the event loop that awaits it."""
        raise NotImplementedError

    def elapsed_time(self, start: Value, end: Value) -> float:
        """The milliseconds between two events."""
        raise NotImplementedError

    # -- copies, all into the current stream ------------------------------------------------------

    def from_host(self, array: Array, *, pinned: bool) -> Any:
        """Copy a NumPy array to this device.

        Args:
            array: the array; unless it is `pinned`, it may change after the call has returned.
            pinned: whether the array is in pinned memory, which the device reads directly.
        """
        return array.copy()

    def to_host(self, array: Array) -> Any:
        """Copy an array to pinned host memory; the values come with the stream."""
        return array.copy()

    def from_peer(self, array: Array, peer: Device) -> Any:
        """Copy an array from another device of the same type."""
        raise NotImplementedError

    def empty_pinned(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """Make a NumPy array in pinned memory, which the device reads and writes directly."""
        raise NotImplementedError

    # -- memory -----------------------------------------------------------------------------------

    def memory_stats(self) -> dict[str, int]:
        """The allocated bytes, by PyTorch's names."""
        return {}

    def memory_info(self) -> tuple[int, int]:
        """The free bytes, and all bytes."""
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Free the memory that is cached for later arrays."""

    def reset_peak_memory_stats(self) -> None:
        """Reset the peaks of `memory_stats` to what is allocated now."""

    # -- where new tensors are made ---------------------------------------------------------------

    def __enter__(self) -> Self:
        """Make new tensors here unless a device is given, in this asyncio task only."""
        set_default(DefaultDevice(self, get_default()))
        return self

    def __exit__(self, *exception: object) -> None:
        """Restore the default before entry; do nothing in a context that has not entered it."""
        entry = innermost(get_default(), self)
        if entry is not None:
            set_default(entry.outer)

    def __str__(self) -> str:
        """The name, which `ag.device()` accepts."""
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        if self.index is None:
            return f"device(type={self.type!r})"
        return f"device(type={self.type!r}, index={self.index})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle by name, because each place has one object."""
        return Device, (self.type, self.index)
