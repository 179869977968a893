"""The memory of tensors, as `untyped_storage()` and `storage()` show it."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.variable import view_of
from asyncgrad.devices import Device
from asyncgrad.errors import AutogradError
from asyncgrad.ops.table.strided import row_major


class Storage:
    """The memory that a tensor shares with its views: `untyped_storage()` and `storage()`.

    Its size is fixed. Two tensors share memory if `data_ptr()` of both is the same.
    """

    __slots__ = ("_array", "_device", "dtype")

    def __init__(self, array: Any, device: Device, dtype: Any) -> None:
        """Keep one-dimensional memory, as elements of a dtype or, if it is None, as bytes."""
        self._array = array
        self._device = device
        self.dtype = dtype

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address(self._array)

    def nbytes(self) -> int:
        """The size of the memory in bytes."""
        return int(self._array.nbytes)

    def size(self) -> int:
        """The number of elements, or of bytes if it is untyped."""
        return len(self)

    def __len__(self) -> int:
        return int(self._array.nbytes if self.dtype is None else self._array.size)

    @property
    def device(self) -> Device:
        """The device of the memory."""
        return self._device

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a CUDA device."""
        return bool(self._device.type == "cuda")

    def untyped(self) -> Storage:
        """The same memory, seen as bytes."""
        return Storage(self._array, self._device, None)

    def tolist(self) -> list[Any]:
        """The elements, or bytes, as a list of numbers."""
        return self[:]  # type: ignore[no-any-return]

    def __getitem__(self, index: int | slice) -> Any:
        array = self._array.view(np.uint8) if self.dtype is None else self._array
        part = array[index]
        return (part if isinstance(part, np.ndarray | np.generic) else part.get()).tolist()

    def __repr__(self) -> str:
        kind = "bytes" if self.dtype is None else repr(self.dtype)
        return f"<Storage of {len(self)} {kind} on {self._device}>"


def address(array: Any) -> int:
    """The address of an array's first element."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.data.ptr)


def storage_of(tensor: Any, dtype: Any) -> Storage:
    """The memory of a tensor, with elements of a dtype, or bytes if that is None."""
    if tensor._batched or tensor.is_sparse:
        raise AutogradError("Cannot access storage: the tensor has none. Take its values first.")
    view = view_of(tensor)
    array = tensor._array if view is None else view.base._array
    row = array.ravel(order="K")
    if row.size and address(row) != address(array):
        raise AutogradError("Cannot access storage: its elements lie apart. Make a clone first.")
    return Storage(row if row.dtype == array.dtype else array, tensor._metadata.device, dtype)


def part_of(storage: Storage, dtype: Any, offset: int, size: Any, stride: Any) -> Any:
    """A view of a part of a host storage; RuntimeError if the storage is too short."""
    row = storage._array.view(np.uint8).view(dtype)
    shape = (row.size - offset,) if size is None else tuple(size)
    if stride is None:
        stride = row_major(shape)
    last = offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    if offset < 0 or min((*shape, *stride, 0)) < 0 or (0 not in shape and last >= row.size):
        raise AutogradError(
            f"setStorage: sizes {list(shape)}, strides {list(stride)}, storage offset {offset} are "
            f"out of bounds for storage of {row.size} elements, which has a fixed size."
        )
    strides = [step * row.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(row[offset:], shape, strides)
