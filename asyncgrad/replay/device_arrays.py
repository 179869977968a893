"""Arrays on devices with streams, in programs.

A program puts its operations into the stream that is current at the replay, as an eager call does.
Its results are new arrays of the device, and not buffers of its own: the device alone knows which
memory a stream may still read. A program uses one such device at most.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from asyncgrad.devices import current_stream
from asyncgrad.ops.device_check import device_of
from asyncgrad.ops.tensors.transfer import moved


def is_array(value: Any) -> bool:
    """Whether a value is an array, or one of NumPy's scalars."""
    return isinstance(value, (np.ndarray, np.generic)) or device_of(value) is not None


def shares_memory(x: Any, y: Any) -> bool:
    """Whether two arrays may have memory in common."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.may_share_memory(x, y)
    return (x if x.base is None else x.base) is (y if y.base is None else y.base)


def copying(array: Any) -> Any:
    """The function that copies an array on its device, in its layout."""
    device = device_of(array)
    return np.array if device is None else device.xp.array


class Constant:
    """A function that gives a copy of a device's array as it is now, in any stream."""

    def __init__(self, array: Any) -> None:
        device = device_of(array)
        assert device is not None
        self._device = device
        self.array = device.xp.array(array)
        self._stream = current_stream(device)
        #: The event after which the array is there.
        self.made = self._stream.record_event()

    def __call__(self) -> Any:
        """Return such a copy."""
        stream = current_stream(self._device)
        if stream is not self._stream:
            stream.wait_event(self.made)
        return self._device.xp.array(self.array)


def is_host_work(function: Any) -> bool:
    """Whether a step's function is a `Constant`, or one that `transfer` has made."""
    return isinstance(function, Constant) or getattr(function, "func", None) is _moved


def transfer(x: Any, out: Any, dtype: Any) -> Any:
    """The function that copies an array from one device to another, as `Tensor.to` does."""
    metadata = x._metadata
    F = None if dtype is None or metadata.dtype == dtype else metadata.F
    return partial(_moved, F, dtype, metadata.device, out._metadata.device)


def _moved(F: Any, dtype: Any, source: Any, target: Any, array: Any) -> Any:
    return moved(array if F is None else F.to(array, dtype), source, target)


def run_on(device: Any, function: Any, *args: Any) -> Any:
    """Call a function in a device's current stream."""
    return device.run_in(current_stream(device), function, *args)
