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


def constant(array: Any) -> Any:
    """A function that gives a copy of a device's array as it is now, in any stream."""
    device = device_of(array)
    assert device is not None
    kept = device.xp.array(array)
    stream = current_stream(device)
    return partial(_copy_after, device, stream, stream.record_event(), kept)


def _copy_after(device: Any, made_in: Any, event: Any, array: Any) -> Any:
    stream = current_stream(device)
    if stream is not made_in:
        stream.wait_event(event)
    return device.xp.array(array)


def kept_constant(step: Any) -> tuple[Any, Any] | None:
    """The array of a step that `constant` has made, and an event after which it is there."""
    function = getattr(step, "function", None)
    if not isinstance(function, partial) or function.func is not _copy_after:
        return None
    _, _, event, array = function.args
    return array, event


def is_host_work(function: Any) -> bool:
    """Whether a step's function is one that `constant` or `transfer` has made."""
    return isinstance(function, partial) and function.func in {_copy_after, _moved}


def transfer(x: Any, out: Any, dtype: Any) -> Any:
    """The function that copies an array from one device to another, as `Tensor.to` does."""
    metadata = x._metadata
    cast = None
    if dtype is not None and metadata.dtype != dtype:
        cast = partial(_cast, metadata.F, dtype)
    return partial(_moved, cast, metadata.device, out._metadata.device)


def _cast(F: Any, dtype: Any, array: Any) -> Any:
    return F.to(array, dtype)


def _moved(cast: Any, source: Any, target: Any, array: Any) -> Any:
    return moved(array if cast is None else cast(array), source, target)


def run_on(device: Any, function: Any, *args: Any) -> Any:
    """Call a function in a device's current stream."""
    return device.run_in(current_stream(device), function, *args)
