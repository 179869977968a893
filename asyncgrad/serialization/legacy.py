"""PyTorch's file format from before version 1.6: pickles, followed by the memory of the tensors.

The first three pickles identify the format; the fourth is the object. The fifth lists the keys of
the storages. The storages follow in that order, each preceded by its number of elements.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, Literal

import numpy as np

from asyncgrad.devices import CPU
from asyncgrad.serialization.pickle_calls import Storage
from asyncgrad.serialization.pickle_reader import read_pickle
from asyncgrad.serialization.storages import dtype_of

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
#: The size in bytes of the element count before each storage.
_COUNT = 8


def is_legacy(data: bytes) -> bool:
    """Whether a file has the format from before 1.6."""
    return data[:1] == b"\x80" and _MAGIC.to_bytes(10, "little") in data[:32]


class LegacyFile:
    """A whole file; sizes in it are checked before they are used."""

    def __init__(self, data: bytes, placed: Callable[[Any, str], Storage]) -> None:
        self._data = data
        self._placed = placed
        #: For each storage, as the pickle describes it: dtype name, number of elements, location.
        self._described: dict[str, tuple[str, int, str]] = {}
        #: The size of these storages in bytes.
        self._expected = 0
        self._storages: dict[str, Storage] = {}

    def load(self) -> Any:
        """Read the object.

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
        # The memory follows the pickle that describes it, so this pickle is read twice.
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
        """Register a storage; zeros stand for its memory until that is read."""
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

    def _read(self, key: str, place: int, order: Literal["little", "big"]) -> int:
        """Read the memory of a storage; returns the position of its end."""
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
