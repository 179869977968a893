"""DLPack: memory shared with other libraries, with streams synchronised."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.variable import requires_grad, wrap
from asyncgrad.devices import CPU, Device
from asyncgrad.devices.discovery import find
from asyncgrad.ops.api.data import DLPACK_CUDA, from_numpy
from asyncgrad.ops.dtype_device import as_device
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.types import DeviceLike, Tensor

__all__ = ["from_dlpack"]
METHODS = ("__dlpack__", "__dlpack_device__")

#: What DLPack calls the host.
_CPU = 1


def __dlpack__(
    input: Tensor, *, stream: int = -1, max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None, copy: bool | None = None,
) -> Any:  # fmt: skip
    """A DLPack capsule of the tensor's memory, for another library's `from_dlpack`.

    Args:
        stream: the consumer's stream on the device, as a number, which waits for the work that
            computes the tensor; -1 for no waiting.
        max_version: the newest version of DLPack that the consumer knows.
        dl_device: the device on which the consumer wants it.
        copy: True to require a copy, False to forbid one; None for either.

    Raises:
        BufferError: if the tensor requires grad, or its memory can't be shared.
    """
    if requires_grad(input):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    device = input._metadata.device
    options = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
    given = {name: value for name, value in options.items() if value is not None}
    if device is CPU:
        if stream not in {None, -1}:
            raise AssertionError("stream should be None on cpu.")
        return input._array.__dlpack__(**given)
    _check_shared(device)
    return device.exported(input._array, stream, given)


def __dlpack_device__(input: Tensor) -> tuple[int, int]:
    """The DLPack type of the tensor's device, and its index.

    Raises:
        BufferError: for a device whose memory no other library can use.
    """
    device = input._metadata.device
    if device is CPU:
        return _CPU, 0
    _check_shared(device)
    return DLPACK_CUDA, device.index or 0


def _check_shared(device: Device) -> None:
    if device.type != "cuda":
        raise BufferError(
            f"the memory of {device} can't be shared with other libraries. Use tensor.cpu()."
        )


def from_dlpack(
    ext_tensor: Any, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor that shares the memory of another library's array.

    On a CUDA device, the current stream waits for the other library's stream, not the host.

    Args:
        ext_tensor: an object with `__dlpack__` and `__dlpack_device__`.
        copy: True to require a copy, False to forbid one; None for either.

    Raises:
        RuntimeError: if it is not such an object, or its device is not available.
        BufferError: if its memory can't be shared.

    Example:
        >>> import numpy as np
        >>> ag.from_dlpack(np.arange(3.0))
        tensor([0., 1., 2.], dtype=asyncgrad.float64)
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        raise RuntimeError(
            f"from_dlpack received {type(ext_tensor).__name__}, which has no __dlpack__. Pass an "
            f"array and not its capsule."
        )
    kind, index = ext_tensor.__dlpack_device__()
    if kind == _CPU:
        array = np.from_dlpack(ext_tensor)
        out = from_numpy(array)
    elif kind == DLPACK_CUDA:
        place: Any = find("cuda", index)
        as_device("from_dlpack", place)
        array = place.imported(ext_tensor)
        out = wrap(array, metadata_of(array, place))
    else:
        raise RuntimeError(f"from_dlpack: devices of DLPack's kind {kind} are not supported")
    target = out._metadata.device if device is None else as_device("from_dlpack", device)
    if target is not out._metadata.device:
        if copy is False:
            raise BufferError(f"from_dlpack: can't move to {target} without a copy")
        return out.to(target)
    return out.clone() if copy else out
