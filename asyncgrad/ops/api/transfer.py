"""Transfers between host and devices: PyTorch's methods, and awaitable ones."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from asyncgrad.core.variable import requires_grad
from asyncgrad.devices import CPU, Event, Stream, current_stream
from asyncgrad.devices.discovery import as_accelerator
from asyncgrad.devices.pool import is_pinned as _lies_pinned
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.conversion import to
from asyncgrad.ops.dtype_device import as_device
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.ops.tensors.transfer import moved
from asyncgrad.types import Array, DeviceLike, Tensor

__all__ = ["get_device"]
METHODS = (
    "cuda", "cupy", "get_device", "is_pinned", "item_async", "pin_memory", "record_stream",
    "to_async",
)  # fmt: skip


def cuda(input: Tensor, device: DeviceLike | None = None, non_blocking: bool = False) -> Tensor:
    """Move the tensor to a CUDA device; itself if it is there.

    Args:
        device: the device; `cuda:0` if None.
        non_blocking: don't wait for a copy from pinned memory.
    """
    return to(input, device=cuda_device(device), non_blocking=non_blocking)


def cuda_device(device: DeviceLike | None) -> Any:
    """The CUDA device of an index, a name or None (`cuda:0`)."""
    if device is None:
        return as_device("cuda", "cuda")
    found = as_device("cuda", f"cuda:{device}" if isinstance(device, int) else device)
    if found.type != "cuda":
        raise RuntimeError(f"Invalid device, must be cuda device: {found}. Use .to({device!r}).")
    return found


def pin_memory(input: Tensor, device: DeviceLike | None = None) -> Tensor:
    """A copy in pinned memory, from which devices copy asynchronously; itself if it is there.

    Args:
        input: a tensor in host memory.
        device: the accelerator to pin it for.

    Raises:
        RuntimeError: if there is no accelerator, or the tensor is not in the host's memory.
    """
    if input._metadata.device is not CPU:
        raise AutogradError(
            f"cannot pin a tensor of {input._metadata.device}: only dense CPU tensors can be pinned"
        )
    target = as_accelerator(device)
    if target is CPU:
        raise RuntimeError("pin_memory(): cpu is not an accelerator. Name one, or leave it out.")
    return input if _lies_pinned(input._array) else R.pin_memory(input, target)


def is_pinned(input: Tensor, device: DeviceLike | None = None) -> bool:
    """Whether the tensor lies in pinned memory."""
    return _lies_pinned(input._array)


def get_device(input: Tensor) -> int:
    """The index of the tensor's device, -1 for the CPU."""
    index = input._metadata.device.index
    return -1 if index is None else index


def record_stream(input: Tensor, stream: Stream) -> None:
    """Keep the tensor's memory until a stream has finished its present and upcoming work.

    Call it after using a tensor in another stream than the one it was made in.
    """
    if not isinstance(stream, Stream):
        raise AutogradError(
            f"record_stream(): argument 'stream' must be Stream, not {type(stream).__name__}"
        )
    stream.keep(input._array)
    stream.mark()


def to_async(input: Tensor, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Tensor]:
    """An awaitable `to`: the call starts the copy, and awaiting it yields to the event loop.

    Args:
        args, kwargs: those of `to`.

    Raises:
        RuntimeError: for errors on the device.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     x = await ag.ones(2).to_async("sim:0")
        ...     return await (x + 1).to_async("cpu")
        >>> asyncio.run(main())
        tensor([2., 2.])
    """
    x = as_tensor_operand(input, "to_async", 1)
    out = to(x, *args, **{**kwargs, "non_blocking": True})
    devices = {x._metadata.device, out._metadata.device}
    return _arrived(out, [current_stream(d).record_event() for d in devices if d.streamed])


async def _arrived(value: Any, events: list[Event]) -> Any:
    for event in events:
        # Only this coroutine holds the value. If cancelled, the copy completes and is dropped.
        await event
    return value


def item_async(input: Tensor) -> Coroutine[Any, Any, int | float]:
    """An awaitable `item`: yields to the event loop while the number is computed and copied.

    Raises:
        RuntimeError: if there is not exactly one element, or for errors on the device.
    """
    if input._metadata.size != 1:
        input.item()
    device = input._metadata.device
    if not device.streamed:
        return _arrived(input.item(), [])
    copy = moved(input._array, device, CPU, non_blocking=True)
    return _number(copy, current_stream(device).record_event())


async def _number(copy: Array, event: Event) -> Any:
    # If cancelled here, the stream holds the array until the copy is complete.
    await event
    return copy.item()


def cupy(input: Tensor) -> Any:
    """The CuPy array of a tensor on a CUDA device; the memory is shared.

    CuPy's current stream waits for the work that computes the tensor.

    Raises:
        RuntimeError: if the tensor requires grad.
        TypeError: if it is on another kind of device.
    """
    if requires_grad(input):
        raise AutogradError(
            "Can't call cupy() on Tensor that requires grad. Use tensor.detach().cupy() instead."
        )
    device = input._metadata.device
    if device.type != "cuda":
        raise TypeError(
            f"can't convert a tensor of {device} to a CuPy array. Use tensor.cuda() to copy it to "
            f"a CUDA device first."
        )
    return device.lend(input._array)
