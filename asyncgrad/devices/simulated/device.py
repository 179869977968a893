"""The simulated device, behind the common interface of devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, DType, Stream, Value
from asyncgrad.devices.base import Device
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.devices.pool import Pool
from asyncgrad.devices.simulated.array import SimArray, adopt
from asyncgrad.devices.simulated.library import Library
from asyncgrad.devices.simulated.machine import Machine
from asyncgrad.devices.simulated.memory import Access
from asyncgrad.devices.simulated.streams import SimEvent
from asyncgrad.devices.streams import current_stream
from asyncgrad.errors import RaceError

#: Nanoseconds of the caller's time that simulating a node takes.
_NODE_NS = 100_000


def _address(array: Array) -> int:
    """The address of a host array."""
    address: int = array.__array_interface__["data"][0]
    return address


def _of_machine(name: str) -> Callable[..., Any]:
    """A method for an event that is the machine's."""
    return lambda self, event: getattr(self.machine, name)(event)


@without_fp_errors
def poison(values: Array) -> None:
    """Make all elements NaN, or wrong where the dtype has no NaN."""
    if values.dtype.kind in "iu":
        values[...] = np.iinfo(values.dtype).max // 3
    elif values.dtype.kind == "b":
        np.logical_not(values, out=values)
    else:
        values[...] = np.nan


class SimDevice(Device):
    """A device of the simulated machine."""

    __slots__ = ("machine", "pinned", "xp")

    streamed = True
    array_type = SimArray
    element_cost = 0.0
    launch_cost = _NODE_NS
    #: NumPy's functions on this device's arrays.
    xp: Any

    def __init__(self, index: int, machine: Machine) -> None:
        super().__init__("sim", index)
        self.xp = Library(self)
        self.plug_into(machine)

    def plug_into(self, machine: Machine) -> None:
        """Move to another machine, with empty streams and memory."""
        self.machine = machine
        self._default_stream = None
        self._opened.clear()
        self.side_streams = False
        self.pinned = Pool(np.empty, pinned=True)

    def owns(self, array: Array) -> bool:
        return isinstance(array, SimArray) and array.device is self

    def current_raw(self) -> Any:
        """The raw stream that is current here."""
        return current_stream(self).raw

    # -- streams and events -----------------------------------------------------------------------

    def open_stream(self, priority: int | None) -> Any:
        return self.machine.open_stream(self, priority or 0)

    def new_event(self, *, timing: bool) -> Any:
        return SimEvent()

    def record(self, event: Value, stream: Stream) -> None:
        self.machine.record(event, stream)

    def wait(self, stream: Stream, event: Value) -> None:
        self.machine.wait(stream, event)

    status, releases = _of_machine("status"), _of_machine("releases")
    synchronize, completion = _of_machine("synchronize"), _of_machine("completion")

    def failure(self, status: int) -> Any:
        assert self.index is not None
        return self.machine.failure(self.index)

    def elapsed_time(self, start: Value, end: Value) -> float:
        took: float = end.operation.end - start.operation.end
        return took * 1e3

    # -- copies -----------------------------------------------------------------------------------

    def from_host(self, array: Array, *, pinned: bool) -> Any:
        """Copy an array; pinned memory must not change until the copy is done."""
        machine, stream = self.machine, self.current_raw()
        values = array.copy()
        coming = machine.coming.get(_address(array)) if pinned else None
        if coming is not None:
            # A copy to this memory is under way; if the streams are ordered, it ends first.
            operation, (number, tick), arriving = coming
            values = arriving.copy()
            if stream.clock.get(number, 0) < tick:
                raise RaceError(
                    f"a copy from pinned memory in {stream} reads what {operation!r} writes there, "
                    f"in no certain order. Have the one stream wait for the other."
                )
        expected = values.copy()

        def compare(poisoned: bool) -> None:
            if not np.array_equal(array, expected, equal_nan=array.dtype.kind in "fc"):
                machine.report(self.index or 0, RaceError(
                    "pinned memory was changed before it had been copied to the device. Wait for "
                    "the copy: stream.synchronize(), or await an event."
                ))  # fmt: skip

        with machine.lock:
            copied = adopt(values, self, stream)
            access = Access(copied, write=True)
            machine.launch("copy from the host", stream, [access], compare if pinned else None)
        return copied

    def to_host(self, array: Array) -> Any:
        """Copy to pinned memory, which holds NaN until the copy is done."""
        target = self.pinned.take(array.shape, array.dtype)
        values = array._values.copy()
        target[...] = values
        poison(target)

        machine, stream, address = self.machine, self.current_raw(), _address(target)

        def deliver(poisoned: bool) -> None:
            machine.coming.pop(address, None)
            if not poisoned:
                target[...] = values

        access = Access(array, write=False)
        with machine.lock:
            operation = machine.launch("copy to the host", stream, [access], deliver)
            machine.coming[address] = operation, (stream.number, stream.ticks), values
        return target

    def from_peer(self, array: Array, peer: Device) -> Any:
        """Copy another simulated device's array; both current streams wait for the copy."""
        machine = self.machine
        here, there = current_stream(self), current_stream(peer)
        # As in CUDA: after all earlier work in both streams, and before all later work.
        here.wait_stream(there)
        with machine.lock:
            copied = adopt(np.array(array._values), self, here.raw)
            accesses = [Access(array, write=False), Access(copied, write=True)]
            machine.launch("copy between devices", here.raw, accesses)
        there.wait_stream(here)
        return copied

    def empty_pinned(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.pinned.take(shape, np.dtype(dtype))

    # -- memory -----------------------------------------------------------------------------------

    def memory_stats(self) -> dict[str, int]:
        memory = self.machine.memory[self.index or 0]
        return {
            "allocated_bytes.all.current": memory.allocated,
            "allocated_bytes.all.peak": memory.peak,
            "reserved_bytes.all.current": memory.allocated + memory.kept,
            "reserved_bytes.all.peak": memory.peak_reserved,
        }

    def memory_info(self) -> tuple[int, int]:
        memory = self.machine.memory[self.index or 0]
        total = 2**40 if memory.limit is None else memory.limit
        return total - memory.allocated - memory.kept, total

    def empty_cache(self) -> None:
        self.machine.memory[self.index or 0].empty_cache()

    def reset_peak_memory_stats(self) -> None:
        memory = self.machine.memory[self.index or 0]
        memory.peak = memory.allocated
        memory.peak_reserved = memory.allocated + memory.kept
