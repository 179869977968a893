"""Simulated memory: reused blocks, and a record of who has read and written them.

As in CuPy's pool, the block of a dead array goes back to the stream that allocated it and may be
lent again at once: later work in that stream follows all that the stream has done. The pool does
not know of other streams that still read the block, but the race detector does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.lib.array_utils import byte_bounds

from asyncgrad.aliases import Array
from asyncgrad.errors import OutOfMemoryError, RaceError

if TYPE_CHECKING:
    import numpy as np

    #: Classes of `machine`, which imports this module.
    Machine: TypeAlias = Any
    Operation: TypeAlias = Any
    SimStream: TypeAlias = Any


class Block:
    """A piece of a device's memory."""

    __slots__ = ("history", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        #: By stream, kind of access, first and last byte: the stream's tick, the operation's name,
        #: and whether the memory had another owner then.
        self.history: dict[tuple[int, bool, int, int], tuple[int, str, bool]] = {}


class Memory:
    """The allocated memory of one device."""

    def __init__(self, machine: Machine, place: int, limit: int | None) -> None:
        self.machine = machine
        self.place = place
        self.limit = limit
        #: Bytes in use, their peak, bytes of unused blocks, and the peak of both together.
        self.allocated = self.peak = self.kept = self.peak_reserved = 0
        #: Unused blocks by stream and size; the block returned last is lent first.
        self._unused: dict[tuple[int, int], list[Block]] = {}

    def take(self, size: int, stream: SimStream) -> Block:
        """Take a block for a stream; OutOfMemoryError if the limit is reached."""
        with self.machine.lock:
            unused = self._unused.get((stream.number, size))
            if unused:
                block = unused.pop()
                self.kept -= size
            else:
                if self.limit is not None and self.allocated + self.kept + size > self.limit:
                    self.empty_cache()
                    if self.allocated + size > self.limit:
                        raise OutOfMemoryError(
                            f"sim:{self.place} is out of memory: {size} bytes were asked for, "
                            f"{self.allocated} of {self.limit} are in use. Free arrays, or "
                            f"simulate a device with more memory."
                        )
                block = Block(size)
            self.allocated += size
            self.peak = max(self.peak, self.allocated)
            self.peak_reserved = max(self.peak_reserved, self.allocated + self.kept)
            return block

    def give_back(self, block: Block, stream: SimStream) -> None:
        """Take back the block of an array that has died."""
        with self.machine.lock:
            self.allocated -= block.size
            self.kept += block.size
            block.history = {
                (number, True, 0, block.size): (tick, name, True)
                for (number, _, _, _), (tick, name, _) in sorted(
                    block.history.items(), key=lambda item: item[1][0]
                )
                if self.machine.over.get(number, 0) < tick
            }
            self._unused.setdefault((stream.number, block.size), []).append(block)

    def empty_cache(self) -> None:
        """Forget the unused blocks."""
        self._unused.clear()
        self.kept = 0


class Storage:
    """The memory of an array and of all views of it."""

    __slots__ = ("__weakref__", "block", "machine", "memory", "root", "stream", "writers")

    def __init__(self, machine: Machine, root: np.ndarray[Any, Any], stream: SimStream) -> None:
        self.machine = machine
        self.root = root
        self.stream = stream
        self.memory = machine.memory[stream.device.index]
        self.block = self.memory.take(root.nbytes, stream)
        #: The last operations that wrote, with the first and last byte of each.
        self.writers: list[tuple[int, int, Operation]] = []

    def __del__(self) -> None:
        """Return the block, which no array uses any more."""
        block = getattr(self, "block", None)
        if block is not None:
            self.memory.give_back(block, self.stream)


class Access:
    """An operation's read or write of an array, which is a part of a storage."""

    __slots__ = ("high", "low", "overwrites", "size", "storage", "write")

    def __init__(self, array: Array, *, write: bool, overwrites: bool = False) -> None:
        self.storage: Storage = array.storage
        values = array._values
        self.write = write
        self.overwrites = overwrites and values.flags.c_contiguous
        self.size = values.nbytes
        start = byte_bounds(self.storage.root)[0]
        # An empty one overlaps with none.
        low, high = byte_bounds(values) if self.size else (start, start)
        self.low, self.high = low - start, high - start

    def check(self, name: str, stream: SimStream) -> None:
        """Raise if the access is not ordered against an earlier one."""
        if self.storage.machine is not stream.device.machine:
            # The storage belongs to an earlier simulation, whose work is over.
            return
        clock = stream.clock
        history = self.storage.block.history
        for (number, write, low, high), (tick, earlier, stale) in history.items():
            if number == stream.number or clock.get(number, 0) >= tick:
                continue
            if (stale or write or self.write) and low < self.high and self.low < high:
                self._refuse(name, stream, number, write, earlier, stale)

    def _refuse(
        self, name: str, stream: SimStream, number: int, write: bool, earlier: str, stale: bool
    ) -> None:
        there = self.storage.machine.streams[number]
        does = "writes" if self.write else "reads"
        if stale:
            raise RaceError(
                f"{name} in {stream} {does} memory that was freed while {earlier} in {there} may "
                f"still use it. Keep the array until then: "
                f"tensor.record_stream(stream)."
            )
        raise RaceError(
            f"{name} in {stream} {does} what {earlier} in {there} {'writes' if write else 'reads'}"
            f", in no certain order. Have the one stream wait for the other: "
            f"stream.wait_stream(other), or await an event between them."
        )

    def sources(self) -> list[Operation]:
        """The operations that made what is read, or not completely overwritten, here."""
        if self.overwrites:
            return []
        return [o for low, high, o in self.storage.writers if low < self.high and self.low < high]

    def note(self, stream: SimStream, operation: Operation) -> None:
        """Record the access for later checks."""
        block = self.storage.block
        if self.write:
            if self.low <= 0 and self.high >= block.size:
                # This write follows all earlier accesses, so later accesses only need to follow
                # this write.
                block.history.clear()
            # The sources of this operation include writers whose values it leaves in place.
            self.storage.writers = [
                writer
                for writer in self.storage.writers
                if writer[0] < self.low or self.high < writer[1]
            ]
            self.storage.writers.append((self.low, self.high, operation))
        key = (stream.number, self.write, self.low, self.high)
        block.history[key] = (stream.ticks, operation.name, False)
