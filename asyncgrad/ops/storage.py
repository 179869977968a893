"""The memory of tensors, as far as there is something to say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import view_of
from asyncgrad.errors import AutogradError

if TYPE_CHECKING:
    from asyncgrad.devices import Device


class Storage:
    """The memory that a tensor and its views look into: `untyped_storage()` and `storage()`.

    It is shared and of a fixed size. Two tensors share it if `data_ptr()` says the same of both.
    """

    __slots__ = ("_array", "_device", "dtype")

    def __init__(self, array: Any, device: Device, dtype: Any) -> None:
        """Keep the elements as a row.

        Args:
            array: the memory, of one dimension and of the tensor's dtype.
            device: where it is.
            dtype: the dtype of the elements that it is made of; None for bytes.
        """
        self._array = array
        self._device = device
        self.dtype = dtype

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address(self._array)

    def nbytes(self) -> int:
        """The bytes of the memory."""
        return int(self._array.nbytes)

    def size(self) -> int:
        """How many elements, or bytes, there are."""
        return len(self)

    def __len__(self) -> int:
        """How many elements, or bytes, there are."""
        return int(self._array.nbytes if self.dtype is None else self._array.size)

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._device

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a CUDA device."""
        return bool(self._device.type == "cuda")

    def untyped(self) -> Storage:
        """The same memory as bytes."""
        return Storage(self._array, self._device, None)

    def tolist(self) -> list[Any]:
        """The elements, or bytes."""
        array = self._array if isinstance(self._array, np.ndarray) else self._array.get()
        return (array.view(np.uint8) if self.dtype is None else array).tolist()  # type: ignore[no-any-return]

    def __getitem__(self, index: int) -> Any:
        """One element, or byte."""
        return self.tolist()[index]

    def __repr__(self) -> str:
        """How much of what it is."""
        kind = "bytes" if self.dtype is None else repr(self.dtype)
        return f"<Storage of {len(self)} {kind} on {self._device}>"


def address(array: Any) -> int:
    """Where the first element lies."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.data.ptr)


def storage_of(tensor: Any, dtype: Any) -> Storage:
    """The memory of a tensor, with elements of a dtype; bytes if that is None.

    Raises:
        RuntimeError: for a tensor without memory of its own, or whose elements lie apart.
    """
    if tensor._batched or tensor.is_sparse:
        raise AutogradError("Cannot access storage: the tensor has none. Take its values first.")
    view = view_of(tensor)
    array = tensor._array if view is None else view.base._array
    row = array.ravel(order="K")
    if row.size and address(row) != address(array):
        raise AutogradError("Cannot access storage: its elements lie apart. Make a clone first.")
    return Storage(row if row.dtype == array.dtype else array, tensor._metadata.device, dtype)


def part_of(storage: Storage, dtype: Any, offset: int, size: Any, stride: Any) -> Any:
    """An array over a part of a storage on the host.

    Raises:
        RuntimeError: if the storage ends before it.
    """
    row = storage._array.view(np.uint8).view(dtype)
    shape = (row.size - offset,) if size is None else tuple(size)
    if stride is None:
        steps, step = [], 1
        for length in reversed(shape):
            steps.append(step)
            step *= max(length, 1)
        stride = steps[::-1]
    last = offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    if offset < 0 or min((*shape, *stride, 0)) < 0 or (0 not in shape and last >= row.size):
        raise AutogradError(
            f"setStorage: sizes {list(shape)}, strides {list(stride)}, storage offset {offset} are "
            f"out of bounds for storage of {row.size} elements, which has a fixed size."
        )
    strides = [step * row.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(row[offset:], shape, strides)
