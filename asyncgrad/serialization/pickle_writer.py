"""Writes the pickles in PyTorch's files: protocol 2, with calls of PyTorch's functions."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.size import Size
from asyncgrad.core.variable import Variable, requires_grad
from asyncgrad.devices import CPU, Device
from asyncgrad.errors import class_of
from asyncgrad.nn.parameter import Buffer, Parameter
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.storage import address
from asyncgrad.ops.table.strided import row_major
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.ops.tensors.transfer import on_host
from asyncgrad.serialization.pickle_calls import KEYS
from asyncgrad.serialization.storages import UNTYPED, name_of
from asyncgrad.types import Array


class PickleWriter:
    """Writes one object; then `storages` holds the arrays that the pickle refers to by number."""

    def __init__(self) -> None:
        self._out = bytearray(b"\x80\x02")
        self.storages: list[np.ndarray[Any, Any]] = []
        #: The numbers of arrays, by address: tied parameters stay tied.
        self._numbers: dict[Any, int] = {}
        #: For each tensor written, its place in the reader's memory of objects.
        self._memo: dict[Variable, int] = {}
        #: The ids of the containers being written, to detect a container that contains itself.
        self._open: set[int] = set()

    def finish(self, value: object) -> bytes:
        """Write an object, and return its pickle.

        Raises:
            TypeError: if it holds anything but tensors, numbers, strings and plain containers.
            ValueError: if a container contains itself.
        """
        self._write(value)
        self._out += b"."
        return bytes(self._out)

    def _write(self, value: Any) -> None:
        out = self._out
        if value is None:
            out += b"N"
        elif isinstance(value, (bool, np.bool_)):
            out += b"\x88" if value else b"\x89"
        elif isinstance(value, Variable):
            self._write_tensor(value)
        elif isinstance(value, (DType, np.dtype)):
            self._name("torch", value.name)
        elif isinstance(value, (int, np.integer)):
            self._write_int(int(value))
        elif isinstance(value, (float, np.floating)):
            out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            out += b"X" + struct.pack("<I", len(text)) + text
        elif isinstance(value, tuple(_CALLS)):
            module, name, arguments = next(c for k, c in _CALLS.items() if isinstance(value, k))
            self._name(module, name)
            self._write_container(arguments(value))
            out += b"R"
        elif isinstance(value, (list, tuple, dict)):
            self._write_container(value)
        else:
            raise TypeError(
                f"save: can't save an object of type {class_of(value)}: only tensors, "
                f"numbers, strings, bytes, lists, tuples, sets and dictionaries. Save its "
                f"state_dict()."
            )

    def _write_int(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self._out += b"J" + struct.pack("<i", value)
            return
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(data) > 255:
            raise ValueError(f"save: an integer of {len(data)} bytes is too large")
        self._out += b"\x8a" + bytes([len(data)]) + data

    def _write_container(self, value: Any) -> None:
        if id(value) in self._open:
            raise ValueError("save: a container that contains itself can't be saved")
        self._open.add(id(value))
        out = self._out
        if isinstance(value, Counter):
            self._name("collections", "Counter")
            self._write(dict(value))
            out += b"\x85R"
        elif isinstance(value, dict):
            # PyTorch's state dicts are ordered dictionaries with modules' versions in `_metadata`.
            versions = getattr(value, "_metadata", None)
            if isinstance(value, OrderedDict) or versions is not None:
                self._name("collections", "OrderedDict")
                out += b")R"
            else:
                out += b"}"
            out += b"("
            for key, item in value.items():
                self._write(_key(key))
                self._write(item)
            out += b"u"
            if versions is not None:
                self._write({"_metadata": OrderedDict(versions)})
                out += b"b"
        else:
            out += b"(" if isinstance(value, tuple) else b"]("
            for item in value:
                self._write(item)
            out += b"t" if isinstance(value, tuple) else b"e"
        self._open.discard(id(value))

    def _name(self, module: str, name: str) -> None:
        self._out += f"c{module}\n{name}\n".encode()

    def _write_tensor(self, tensor: Variable) -> None:
        """Write a call of PyTorch's function that makes a tensor, once."""
        place = self._memo.get(tensor)
        if place is not None:
            self._out += b"j" + struct.pack("<I", place)
            return
        if isinstance(tensor._array, Rows):
            self._write_rows(tensor)
        else:
            self._write_strided(tensor)
        place = self._memo[tensor] = len(self._memo)
        self._out += b"r" + struct.pack("<I", place)

    def _write_rows(self, tensor: Any) -> None:
        """Write a call that makes a row-sparse tensor from its indices and values."""
        self._name("torch._utils", "_rebuild_sparse_tensor")
        self._out += b"("
        self._name("torch.serialization", "_get_layout")
        self._write(("torch.sparse_coo",))
        self._out += b"R"
        self._write((tensor._indices(), tensor._values(), tensor.shape, tensor.is_coalesced()))
        self._out += b"tR"

    def _write_strided(self, tensor: Variable) -> None:
        """Write a call that makes a tensor from a storage."""
        number, offset, strides = self._place(tensor)
        array = self.storages[number]
        out = self._out
        kind = name_of(array.dtype)
        untyped = kind == UNTYPED
        parameter = isinstance(tensor, Parameter)
        state: dict[str, Any] = vars(tensor) if parameter else {}
        if parameter:
            self._name("torch._utils", f"_rebuild_parameter{'_with_state' if state else ''}")
            out += b"("
        elif isinstance(tensor, Buffer):
            state = {"persistent": tensor.persistent, "_is_buffer": True}
            self._name("torch._tensor", "_rebuild_from_type_v2")
            out += b"("
        self._name("torch._utils", f"_rebuild_tensor_v{3 if untyped else 2}")
        if state and not parameter:
            self._name("torch", "Tensor")
        out += b"("
        # A reference to the storage, which is outside the pickle.
        out += b"("
        self._write("storage")
        self._name("torch.storage" if untyped else "torch", kind)
        size = array.nbytes if untyped else array.size
        for part in (str(number), str(tensor._metadata.device), size):
            self._write(part)
        out += b"tQ"
        self._write(offset)
        self._write(tuple(tensor._metadata.shape))
        self._write(strides)
        self._write(requires_grad(tensor) and not parameter)
        self._write(OrderedDict())
        if untyped:
            self._write(array.dtype)
        out += b"t" if state and not parameter else b"tR"
        if parameter:
            self._write(requires_grad(tensor))
            self._write(OrderedDict())
        if state:
            self._write(state)
        if state or parameter:
            out += b"tR"

    def _place(self, tensor: Variable) -> tuple[int, int, tuple[int, ...]]:
        """A tensor's storage number, the offset of its first element, and its strides."""
        array, metadata = tensor._array, tensor._metadata
        if metadata.device is CPU:
            array = np.asarray(array)
            memory = _memory_of(array)
            if memory is not None:
                size = array.itemsize
                offset = (address(array) - address(memory)) // size
                strides = tuple(step // size for step in array.strides)
                return self._number(address(memory), memory, memory.ravel), offset, strides
            place = address(array)
        else:
            # On a device, only tensors with the same array object count as shared.
            place = id(array)
        number = self._number(place, array, lambda order: on_host(tensor))
        return number, 0, row_major(metadata.shape)

    def _number(self, place: int, array: Array, elements: Callable[[Any], Any]) -> int:
        """The number of a storage; a new storage calls `elements`."""
        key = (place, array.shape, array.strides, array.dtype)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.storages)
            self.storages.append(elements("K"))
        return number


def _key(key: object) -> object:
    """A key or a member of a set, if it can be read again."""
    if isinstance(key, (*KEYS, np.number)):
        return key
    raise TypeError(
        f"save: keys and members of sets are strings or numbers, got one of type "
        f"{type(key).__name__}"
    )


#: By the kinds of values that are written as calls: the function and its arguments. Protocol 2 has
#: no bytes, only text that encodes to them.
_CALLS: dict[type, tuple[str, str, Callable[[Any], tuple[Any, ...]]]] = {
    Size: ("torch", "Size", lambda sizes: (tuple(sizes),)),
    Device: ("torch", "device", lambda place: (str(place),)),
    bytes: ("_codecs", "encode", lambda data: (data.decode("latin1"), "latin1")),
    set: ("__builtin__", "set", lambda members: ([*map(_key, members)],)),
    **dict.fromkeys(
        (complex, np.complexfloating),
        ("__builtin__", "complex", lambda number: (number.real, number.imag)),
    ),
}


def _memory_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The array whose memory an array is a view of; like PyTorch, we save all of it.

    None if the memory has gaps, or a tensor can't be such a view: reversed, or of another dtype.
    """
    if not array.size or any(step < 0 or step % array.itemsize for step in array.strides):
        return None
    memory, held = array, array  # type: np.ndarray[Any, Any], Any
    while held is not None:
        if isinstance(held, np.ndarray):
            memory = held
        # `as_strided` puts an object of its own between the view and the array.
        held = getattr(held, "base", None)
    if not (memory.flags.c_contiguous or memory.flags.f_contiguous):
        return None
    if memory.dtype == np.uint8 and not memory.nbytes % array.itemsize:
        # The array was made from bytes that were read from a file.
        memory = memory.ravel("K").view(array.dtype)
    if memory.dtype != array.dtype or (address(array) - address(memory)) % array.itemsize:
        return None
    return memory
