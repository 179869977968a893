"""CUDA devices: CuPy's arrays, streams and events.

The one module that imports CuPy. CuPy's current device and stream belong to the thread; ours follow
the asyncio task. So both are entered for each synchronous piece of work, the device first, and
never across an await. Streams are long-lived: CuPy keeps memory by stream, also of those that are
gone. Awaiting is done by one thread for each device, which blocks in the driver.
"""

from __future__ import annotations

import asyncio
from itertools import count
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices.base import Device
from asyncgrad.devices.cuda_kernels import Kernels
from asyncgrad.devices.pinned import pinned_pool
from asyncgrad.devices.streams import current_stream
from asyncgrad.devices.waiting import Waiter, poll
from asyncgrad.errors import (
    AcceleratorError,
    DeviceLostError,
    DeviceUnavailableError,
    OutOfMemoryError,
)

try:
    import cupy
    import cupyx
except ImportError:
    cupy = cupyx = None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

#: So many streams of each priority are made; who asks for more shares them.
_STREAMS = 16
#: Errors after which a context can't be used any more (CUDA's driver and runtime say so).
_STICKY = frozenset({46, 100, 214, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
#: Expected nanoseconds of the caller's time for the launches of a node by CuPy.
_LAUNCH_NS = 30_000

_devices: dict[int, CudaDevice] = {}


def find(index: int) -> CudaDevice:
    """A CUDA device.

    Raises:
        RuntimeError: if there is none of that index, with the reason.
    """
    if cupy is None:
        raise DeviceUnavailableError(
            "cuda: CuPy is not installed. Install asyncgrad[cuda] (cupy-cuda13x), or cupy-cuda12x "
            "with a CUDA 12 driver; without a GPU use 'cpu', or 'sim:0' for tests."
        )
    # Before any other call: without a GPU even making an event raises.
    if not cupy.is_available():
        raise DeviceUnavailableError(
            "cuda: CuPy is installed, but it sees no CUDA device. Look at nvidia-smi and at "
            "CUDA_VISIBLE_DEVICES; without a GPU use 'cpu', or 'sim:0' for tests."
        )
    there = cupy.cuda.runtime.getDeviceCount()
    if index >= there:
        raise DeviceUnavailableError(
            f"cuda:{index}: invalid device ordinal, there are {there} CUDA devices."
        )
    device = _devices.get(index)
    if device is None:
        device = _devices.setdefault(index, CudaDevice(index))
    return device


def present() -> tuple[CudaDevice, ...]:
    """All CUDA devices, none without CuPy or without a GPU."""
    if cupy is None or not cupy.is_available():
        return ()
    return tuple(find(index) for index in range(cupy.cuda.runtime.getDeviceCount()))


class CudaDevice(Device):
    """One CUDA device."""

    __slots__ = (
        "_device",
        "_kernels",
        "_library",
        "_lock",
        "_next",
        "_pool",
        "_streams",
        "_waiter",
        "_waiting",
    )

    streamed = True

    def __init__(self, index: int) -> None:
        """Be the device at an index; nothing is made there yet."""
        super().__init__("cuda", index)
        self._device = cupy.cuda.Device(index)
        self._kernels = Kernels(cupy, self._device)
        self._library = _Library(self, cupy)
        self._library.compiled = self._kernels.functions
        self._pool = pinned_pool(cupyx.empty_pinned)
        self._lock = Lock()
        #: Raw streams by priority, and whose turn it is to be shared.
        self._streams: dict[int, list[Any]] = {}
        self._next = count()
        self._waiter: Waiter | None = None
        self._waiting = "thread"

    @property
    def xp(self) -> Any:
        """CuPy, each function on this device and in the current stream."""
        return self._library

    @property
    def array_type(self) -> type:
        """`cupy.ndarray`."""
        return cupy.ndarray  # type: ignore[no-any-return]

    def owns(self, array: Any) -> bool:
        """Whether an array of CuPy's is on this device."""
        return isinstance(array, cupy.ndarray) and array.device.id == self.index

    @property
    def compiled(self) -> Mapping[str, Callable[..., Any]]:
        """Kernels in one launch."""
        return self._kernels.functions

    @property
    def element_cost(self) -> float:
        """None of the caller's time."""
        return 0.0

    @property
    def launch_cost(self) -> int:
        """What CuPy takes to launch the kernels of a node."""
        return _LAUNCH_NS

    # -- the current stream -----------------------------------------------------------------------

    def launching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that enters the current stream for its call."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            return self._within(current_stream(self).raw, function, args, kwargs)

        return launch

    def run_in(self, stream: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function with CuPy's current device and stream set."""
        return self._within(stream.raw, function, args, {})

    def _within(self, raw: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        cuda = cupy.cuda
        try:
            if cuda.runtime.getDevice() == self.index and cuda.get_current_stream() == raw:
                return function(*args, **kwargs)
            # The device first: the current stream is kept for each device.
            with self._device, raw:
                return function(*args, **kwargs)
        except cuda.memory.OutOfMemoryError as error:
            raise OutOfMemoryError(f"{self} is out of memory: {error}") from error
        except cuda.runtime.CUDARuntimeError as error:
            raise self._translated(error) from error

    def _translated(self, error: Any) -> Exception:
        """CUDA's error as ours."""
        if error.status in _STICKY:
            return DeviceLostError(
                f"{self} is lost: {error}. The process can't use it any more: start another."
            )
        return AcceleratorError(f"{self}: {error}")

    # -- streams and events -----------------------------------------------------------------------

    def open_stream(self, priority: int | None) -> Any:
        """CuPy's default stream, or one of a fixed set."""
        if priority is None:
            return cupy.cuda.Stream.null
        with self._lock:
            streams = self._streams.setdefault(priority, [])
            if len(streams) == _STREAMS:
                return streams[next(self._next) % _STREAMS]
            with self._device:
                stream = cupy.cuda.Stream(non_blocking=True, priority=priority)
            streams.append(stream)
            return stream

    def new_event(self, *, timing: bool) -> Any:
        """An event on which a thread sleeps instead of spinning."""
        with self._device:
            return cupy.cuda.Event(block=True, disable_timing=not timing)

    def record(self, event: Any, stream: Any) -> None:
        """Have an event happen when all that is in a stream now is done."""
        with self._device:
            event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Have what is put into a stream from now on wait for an event."""
        with self._device:
            stream.wait_event(event)

    def status(self, event: Any) -> int:
        """CUDA's own answer: `Event.done` would take an error for work that is not done."""
        try:
            return int(cupy.cuda.runtime.eventQuery(event.ptr))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return int(error.status)

    def failure(self, status: int) -> Exception:
        """The error that a status stands for."""
        return self._translated(cupy.cuda.runtime.CUDARuntimeError(status))

    def synchronize(self, event: Any) -> None:
        """Sleep until an event has happened; other threads go on."""
        try:
            event.synchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise self._translated(error) from error

    def completion(self, event: Any) -> Awaitable[None]:
        """Told by the device's waiter thread, or found by looking; see `waiting`."""
        loop = asyncio.get_running_loop()
        happened = loop.create_future()
        if self._waiting == "poll":
            poll(self, event, loop, happened)
            return happened
        with self._lock:
            if self._waiter is None:
                self._waiter = Waiter(self)
        self._waiter.put(event, loop, happened)
        return happened

    @property
    def waiting(self) -> str:
        """How events are awaited: `"thread"`, the default, or `"poll"`.

        The thread is the default by reasoning alone: it takes nothing from the loop while a device
        works, and its hand-over is paid once for a pass or a copy, not for a node. Polling may win
        where single events are awaited that take some microseconds.
        """
        return self._waiting

    @waiting.setter
    def waiting(self, value: str) -> None:
        if value not in {"thread", "poll"}:
            raise ValueError(f"waiting: expected 'thread' or 'poll', not {value!r}")
        self._waiting = value

    def elapsed_time(self, start: Any, end: Any) -> float:
        """Milliseconds by the device's clock."""
        return float(cupy.cuda.get_elapsed_time(start, end))

    # -- copies -----------------------------------------------------------------------------------

    def from_host(self, array: Any, *, pinned: bool) -> Any:
        """A copy, by way of pinned memory unless the array lies there."""
        stream = current_stream(self)
        source = array
        if not (pinned and array.flags.c_contiguous):
            source = self._pool.take(array.shape, array.dtype)
            source[...] = array

        def copy() -> Any:
            target = cupy.empty(source.shape, source.dtype)
            target.set(source, stream=stream.raw)
            return target

        copied = self._within(stream.raw, copy, (), {})
        # The driver reads it behind everybody's back.
        stream.keep(source)
        return copied

    def to_host(self, array: Any) -> Any:
        """A copy in pinned memory, which comes with the stream."""
        stream = current_stream(self)
        target = self._pool.take(array.shape, array.dtype)

        def copy() -> Any:
            # CuPy's own makes one dimension of none.
            source = array if array.flags.c_contiguous else cupy.ascontiguousarray(array)
            source.get(stream=stream.raw, out=target, blocking=False)
            return source

        stream.keep(self._within(stream.raw, copy, (), {}), target)
        return target

    def from_peer(self, array: Any, peer: Device) -> Any:
        """A copy of another CUDA device's array, between both current streams."""
        here, there = current_stream(self), current_stream(peer)
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            # CuPy would gather the elements in its own current stream of that device.
            array = peer.run_in(there, cupy.ascontiguousarray, array)
        here.wait_stream(there)
        copied = self._within(here.raw, cupy.array, (array,), {})
        there.wait_stream(here)
        there.keep(array)
        return copied

    def empty_pinned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Page-locked memory."""
        return self._pool.take(shape, np.dtype(dtype))

    # -- CuPy's side ------------------------------------------------------------------------------

    def lend(self, array: Any) -> Any:
        """An array for CuPy: what follows in its current stream comes after what is in ours."""
        event = self.new_event(timing=False)
        self.record(event, current_stream(self).raw)
        with self._device:
            cupy.cuda.get_current_stream().wait_event(event)
        return array

    def exported(self, array: Any, stream: Any, options: dict[str, Any]) -> Any:
        """A DLPack capsule; the consumer's stream waits for our current one."""
        return self._within(
            current_stream(self).raw, array.__dlpack__, (), {"stream": stream, **options}
        )

    def imported(self, external: Any) -> Any:
        """An array in another library's memory: our current stream waits for the library's."""
        if isinstance(external, cupy.ndarray):
            # It would take our stream, which is entered for the call, for the one it was made in.
            return self.borrow(external)
        return self.xp.from_dlpack(external)

    def borrow(self, array: Any) -> Any:
        """An array of CuPy's: what follows in our current stream comes after what is in its."""
        if not isinstance(array, cupy.ndarray):
            # Of a third library: CuPy waits for the stream that it names.
            return self.xp.asarray(array)
        event = self.new_event(timing=False)
        with self._device:
            event.record(cupy.cuda.get_current_stream())
        self.wait(current_stream(self).raw, event)
        return array

    # -- memory -----------------------------------------------------------------------------------

    def memory_stats(self) -> dict[str, int]:
        """What CuPy's pool says; it knows no peaks."""
        with self._device:
            pool = cupy.get_default_memory_pool()
            return {
                "allocated_bytes.all.current": pool.used_bytes(),
                "reserved_bytes.all.current": pool.total_bytes(),
            }

    def memory_info(self) -> tuple[int, int]:
        """Free and all bytes, as the driver counts them."""
        free, total = self._device.mem_info
        return free, total

    def empty_cache(self) -> None:
        """Give the pool's unused blocks to the driver."""
        with self._device:
            cupy.get_default_memory_pool().free_all_blocks()


class _Function:
    """A function of CuPy's that enters the device and its current stream for each call."""

    __slots__ = ("_device", "_function")

    def __init__(self, device: CudaDevice, function: Any) -> None:
        """Stand for a function."""
        self._device = device
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch it."""
        device = self._device
        return device._within(current_stream(device).raw, self._function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """`reduce`, `at` and the rest are functions, too."""
        value = getattr(self._function, name)
        return _Function(self._device, value) if callable(value) else value


class _Library:
    """CuPy, or a part of it, on one device."""

    def __init__(self, device: CudaDevice, module: Any) -> None:
        """Stand for CuPy or a part of it."""
        self._device = device
        self._module = module
        #: Kernels in the place of those of `ops.fused`.
        self.compiled: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """A function, a constant or a part; found once."""
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            value = _Library(self._device, value)
        elif callable(value) and not isinstance(value, type):
            value = _Function(self._device, value)
        setattr(self, name, value)
        return value
