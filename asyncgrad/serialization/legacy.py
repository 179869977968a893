"""PyTorch's files from before version 1.6: some pickles, and after them the memory of the tensors.

The first three pickles say what the file is, the fourth is the object. The fifth lists the keys of
its storages, which follow in that order, each after the number of its elements.
"""

from __future__ import annotations

import sys
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices import CPU
from asyncgrad.serialization.pickle_reader import Storage, read_pickle
from asyncgrad.serialization.storages import dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
#: Bytes of the number of elements before each storage.
_COUNT = 8


def is_legacy(data: bytes) -> bool:
    """Whether a file is in that format."""
    return data[:1] == b"\x80" and _MAGIC.to_bytes(10, "little") in data[:32]


class LegacyFile:
    """A whole file, with every size checked before it is believed."""

    def __init__(self, data: bytes, placed: Callable[[Any, str], Storage]) -> None:
        self._data = data
        self._placed = placed
        #: What the pickle says of each storage: kind, number of elements and where it was.
        self._described: dict[str, tuple[str, int, str]] = {}
        #: How many bytes these have.
        self._expected = 0
        self._storages: dict[str, Storage] = {}

    def load(self) -> Any:
        """The object.

        Raises:
            UnpicklingError: if the file is damaged, or asks for what is not supported.
        """
        place = 0
        head = []
        for _ in range(3):
            value, place = read_pickle(self._data, _none, place)
            head.append(value)
        if head[:2] != [_MAGIC, _VERSION] or not isinstance(head[2], dict):
            raise UnpicklingError(f"load: unknown version {head[1]!r} of the format before 1.6")
        little = head[2].get("little_endian", True)
        # The memory follows the pickle that describes it, which is therefore read twice.
        start = place
        _, place = read_pickle(self._data, self._describe, start)
        keys, place = read_pickle(self._data, _none, place)
        listed = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
        if not listed or {*keys} != {*self._described}:
            raise UnpicklingError("load: the storages listed are not those that are used")
        for key in keys:
            place = self._read(key, place, "little" if little else "big")
        return read_pickle(self._data, self._storage, start)[0]

    def _describe(self, kind: str, key: str, count: int, location: str) -> Storage:
        """Note a storage, for which there are zeros until it is read."""
        dtype = dtype_of(kind)
        known = self._described.get(key)
        if known is None:
            self._described[key] = (kind, count, location)
            self._expected += count * dtype.itemsize
            if self._expected > len(self._data):
                raise UnpicklingError(
                    f"load: with storage {key} of {count} elements of {kind} there are more than "
                    f"the whole file holds"
                )
            self._storages[key] = Storage(np.zeros(count, dtype), CPU)
        elif known[:2] != (kind, count):
            raise UnpicklingError(f"load: storage {key} is described in two ways")
        return self._storages[key]

    def _read(self, key: str, place: int, order: Any) -> int:
        """Take a storage's memory out of the file; returns where it ends."""
        kind, count, location = self._described[key]
        dtype = dtype_of(kind)
        start = place + _COUNT
        end: int = start + count * dtype.itemsize
        if end > len(self._data):
            raise UnpicklingError(f"load: the file ends within storage {key}")
        if int.from_bytes(self._data[place:start], order, signed=True) != count:
            raise UnpicklingError(f"load: storage {key} has another size than the pickle says")
        memory = np.frombuffer(self._data, dtype, count, start).copy()
        if order != sys.byteorder:
            memory.byteswap(inplace=True)
        self._storages[key] = self._placed(memory, location)
        return end

    def _storage(self, kind: str, key: str, count: int, location: str) -> Storage:
        return self._storages[key]


def _none(kind: str, key: str, count: int, location: str) -> Storage:
    raise UnpicklingError("load: a tensor is where none can be")
