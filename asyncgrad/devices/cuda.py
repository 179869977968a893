"""CUDA devices: CuPy's arrays, streams and events.

This is the only module that imports CuPy. CuPy's current device and stream belong to the thread,
ours to the asyncio task. Therefore each synchronous piece of work enters both, the device first,
and leaves them before any await. Streams are never closed, because CuPy caches memory by stream
even after a stream is gone. One thread for each device waits for events; it blocks in the driver.
"""

from __future__ import annotations

import asyncio
from itertools import count
from threading import RLock
from typing import Any

import numpy as np

from asyncgrad.choices import Waiting, words
from asyncgrad.devices.base import Device
from asyncgrad.devices.cuda_graphs import Graph, capturable
from asyncgrad.devices.cuda_kernels import Kernels
from asyncgrad.devices.cuda_random import Draws
from asyncgrad.devices.library import Function, Library
from asyncgrad.devices.pool import Pool
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

from collections.abc import Awaitable, Callable, Mapping

from asyncgrad.aliases import Array, DType, Stream, Value

#: The number of streams made of each priority; further requests share them.
_STREAMS = 16
#: Errors after which a context is unusable (by the manuals of CUDA's driver and runtime).
_STICKY = frozenset({46, 100, 214, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
#: Expected nanoseconds of the caller's time in which CuPy launches a node's kernels: 45 us were
#: measured for a node of one or two launches, 200 us on average for those of a transformer.
_LAUNCH_NS = 80_000

_devices: dict[int, CudaDevice] = {}


def find(index: int) -> CudaDevice:
    """The CUDA device of an index; RuntimeError, with the reason, if there is none."""
    if cupy is None:
        raise DeviceUnavailableError(
            "cuda: CuPy is not installed. Install asyncgrad[cuda] (cupy-cuda13x), or cupy-cuda12x "
            "with a CUDA 12 driver; without a GPU use 'cpu', or 'sim:0' for tests."
        )
    # This must be the first call: without a GPU even making an event raises.
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
    """A CUDA device, with CuPy's arrays."""

    __slots__ = (
        "_device", "_draws", "_kernels", "_lock", "_next", "_pool", "_streams", "_waiter",
        "_waiting", "xp",
    )  # fmt: skip

    streamed = True
    element_cost = 0.0
    launch_cost = _LAUNCH_NS
    #: CuPy, with each function on this device and in the current stream.
    xp: Any

    def __init__(self, index: int) -> None:
        """Prepare the device of an index, without touching it."""
        super().__init__("cuda", index)
        self._device = cupy.cuda.Device(index)
        self._kernels = Kernels(cupy, self._device)
        self._draws = Draws(cupy)
        self.xp = _Library(self, cupy)
        self.xp.compiled = self._kernels.functions
        self._pool = Pool(cupyx.empty_pinned, pinned=True)
        self._lock = RLock()
        #: Raw streams by priority, and a counter that picks the next one to be shared.
        self._streams: dict[int, list[Any]] = {}
        self._next = count()
        self._waiter: Waiter | None = None
        self._waiting: Waiting = "thread"

    @property
    def array_type(self) -> type:
        return cupy.ndarray  # type: ignore[no-any-return]

    def owns(self, array: Array) -> bool:
        return isinstance(array, cupy.ndarray) and array.device.id == self.index

    @property
    def compiled(self) -> Mapping[str, Callable[..., Any]]:
        """Kernels that replace a chain of CuPy's functions by one launch."""
        return self._kernels.functions

    draws = True

    def draw(self, *what: Value) -> Any:
        return self.launching(self._draws)(*what)

    # -- the current stream -----------------------------------------------------------------------

    def launching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function to enter the current stream for each call."""
        return _Function(self, "", function)

    def run_in(self, stream: Stream, function: Callable[..., Any], *args: Value) -> Any:
        """Call a function with CuPy's current device and stream set."""
        return self._within(stream.raw, function, args, {})

    def _within(self, raw: Stream, function: Callable[..., Any], args: Value, kwargs: Value) -> Any:
        cuda = cupy.cuda
        try:
            if cuda.runtime.getDevice() == self.index and cuda.get_current_stream() == raw:
                return function(*args, **kwargs)
            # The device first: CuPy has a current stream for each device.
            with self._device, raw:
                return function(*args, **kwargs)
        except cuda.memory.OutOfMemoryError as error:
            raise OutOfMemoryError(f"{self} is out of memory: {error}") from error
        except RuntimeError as error:
            # Launches raise errors of the driver, copies those of the runtime, and products those
            # of cuBLAS: what they have in common is a status.
            if not hasattr(error, "status"):
                raise
            raise self._translated(error) from error

    def _translated(self, error: Any) -> Exception:
        """Translate an error of CUDA's, or of one of its libraries, to one of asyncgrad's."""
        if error.status in _STICKY:
            return DeviceLostError(
                f"{self} is lost: {error}. The process can't use it any more: start another."
            )
        return AcceleratorError(f"{self}: {error}")

    captures = True

    def capture(self, function: Callable[..., Any], *args: Value) -> Graph:
        """Capture a call of a function as a CUDA graph."""
        return self.run_in(current_stream(self), Graph, cupy, self, function, args)  # type: ignore[no-any-return]

    # -- streams and events -----------------------------------------------------------------------

    def open_stream(self, priority: int | None) -> Any:
        """CuPy's default stream, or one of a fixed set of streams."""
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
        """Make an event that blocks the waiting thread; others would spin."""
        with self._device:
            return cupy.cuda.Event(block=True, disable_timing=not timing)

    def record(self, event: Value, stream: Stream) -> None:
        with self._device:
            event.record(stream)

    def wait(self, stream: Stream, event: Value) -> None:
        with self._device:
            stream.wait_event(event)

    def status(self, event: Value) -> int:
        """CUDA's own status: CuPy's `Event.done` treats an error as unfinished work."""
        try:
            return int(cupy.cuda.runtime.eventQuery(event.ptr))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return int(error.status)

    def failure(self, status: int) -> Exception:
        return self._translated(cupy.cuda.runtime.CUDARuntimeError(status))

    def synchronize(self, event: Value) -> None:
        """Block until an event has happened; other threads can run."""
        try:
            event.synchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise self._translated(error) from error

    def completion(self, event: Value) -> Awaitable[None]:
        """A future completed by the device's waiter thread or by polling; see `waiting`."""
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
    def waiting(self) -> Waiting:
        """How events are awaited: `"thread"`, the default, or `"poll"`.

        On an H200 both take 75 us for an awaited copy, and beside long passes the loop lags alike.
        The thread is the default because it takes no time from the loop while a device works.
        """
        return self._waiting

    @waiting.setter
    def waiting(self, value: Waiting) -> None:
        if value not in words(Waiting):
            raise ValueError(f"waiting: expected 'thread' or 'poll', not {value!r}")
        self._waiting = value

    def elapsed_time(self, start: Value, end: Value) -> float:
        return float(cupy.cuda.get_elapsed_time(start, end))

    # -- copies -----------------------------------------------------------------------------------

    def from_host(self, array: Array, *, pinned: bool) -> Any:
        """Copy an array, by way of pinned memory unless it is there."""
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
        # The driver reads the source after the call has returned, so the stream keeps it alive.
        stream.keep(source)
        return copied

    def to_host(self, array: Array) -> Any:
        """Copy to pinned memory; the values come with the stream."""
        stream = current_stream(self)
        target = self._pool.take(array.shape, array.dtype)

        def copy() -> Any:
            # CuPy's `ascontiguousarray` would turn a 0-d array into a 1-d one.
            source = array if array.flags.c_contiguous else cupy.ascontiguousarray(array)
            source.get(stream=stream.raw, out=target, blocking=False)
            return source

        stream.keep(self._within(stream.raw, copy, (), {}), target)
        return target

    def from_peer(self, array: Array, peer: Device) -> Any:
        """Copy another CUDA device's array; both current streams wait for the copy."""
        here, there = current_stream(self), current_stream(peer)
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            # CuPy would copy the elements in its own current stream of that device, not in ours.
            array = peer.run_in(there, cupy.ascontiguousarray, array)
        here.wait_stream(there)
        copied = self._within(here.raw, cupy.array, (array,), {})
        there.wait_stream(here)
        there.keep(array)
        return copied

    def empty_pinned(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self._pool.take(shape, np.dtype(dtype))

    # -- CuPy's side ------------------------------------------------------------------------------

    def lend(self, array: Array) -> Any:
        """Pass an array to CuPy: CuPy's current stream waits for ours."""
        event = self.new_event(timing=False)
        self.record(event, current_stream(self).raw)
        with self._device:
            cupy.cuda.get_current_stream().wait_event(event)
        return array

    def exported(self, array: Array, stream: Stream, options: dict[str, Any]) -> Any:
        """A DLPack capsule of an array; the consumer's stream waits for our current one."""
        return self.launching(array.__dlpack__)(stream=stream, **options)

    def imported(self, external: Any) -> Any:
        """Import another library's array by DLPack; our current stream waits for the library's."""
        if isinstance(external, cupy.ndarray):
            # The call enters our stream, and CuPy would take that for the stream that made the
            # array.
            return self.borrow(external)
        return self.xp.from_dlpack(external)

    def borrow(self, array: Array) -> Any:
        """Take an array from CuPy: our current stream waits for CuPy's."""
        if not isinstance(array, cupy.ndarray):
            # For an array of a third library CuPy waits for the stream that the library names.
            return self.xp.asarray(array)
        event = self.new_event(timing=False)
        with self._device:
            event.record(cupy.cuda.get_current_stream())
        self.wait(current_stream(self).raw, event)
        return array

    # -- memory -----------------------------------------------------------------------------------

    def memory_stats(self) -> dict[str, int]:
        """The statistics of CuPy's pool, which has no peaks."""
        with self._device:
            pool = cupy.get_default_memory_pool()
            return {
                "allocated_bytes.all.current": pool.used_bytes(),
                "reserved_bytes.all.current": pool.total_bytes(),
            }

    def memory_info(self) -> tuple[int, int]:
        free, total = self._device.mem_info
        return free, total

    def properties(self) -> dict[str, Any]:
        """The driver's description of the GPU, by CUDA's names."""
        found: dict[str, Any] = cupy.cuda.runtime.getDeviceProperties(self.index)
        return found

    def empty_cache(self) -> None:
        """Return the pool's unused blocks to the driver."""
        with self._device:
            cupy.get_default_memory_pool().free_all_blocks()


class _Function(Function):
    """Wraps a CuPy function: each call enters the device and its current stream."""

    __slots__ = ()

    def __call__(self, *args: Value, **kwargs: Value) -> Any:
        device = self._device
        return device._within(current_stream(device).raw, self._function, args, kwargs)


class _Library(Library):
    """CuPy for one device."""

    def _bound(self, name: str, function: Callable[..., Any]) -> _Function:
        return _Function(self._device, name, capturable(cupy, name, function))
