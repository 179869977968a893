"""Copies of tensors between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.modes import current
from asyncgrad.core.node import Node, init_node
from asyncgrad.core.node_streams import stream_of
from asyncgrad.core.recording import again, note_look, recorders
from asyncgrad.core.variable import Variable, gradient_edge, wrap
from asyncgrad.devices import CPU, Device, Event, current_stream
from asyncgrad.devices.discovery import accelerators
from asyncgrad.devices.pool import is_pinned
from asyncgrad.ops.batching import lift_batch
from asyncgrad.ops.mode_hooks import in_modes
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.op import Op, part
from asyncgrad.ops.tensors.sparse_rows import Rows


def moved(array: Any, source: Device, target: Device, *, non_blocking: bool = False) -> Any:
    """Copy an array to another device, on which there are no row-sparse ones.

    Args:
        non_blocking: don't wait for a copy to the host, or one from pinned memory; the current
            stream orders it.
    """
    if source is CPU:
        if isinstance(array, Rows):
            array = array.dense()
        return target.from_host(array, pinned=non_blocking and is_pinned(array))
    if target is not CPU:
        if target.type == source.type:
            return target.from_peer(array, source)
        array, source = moved(array, source, CPU), CPU
        return target.from_host(array, pinned=False)
    stream = current_stream(source)
    copy = source.to_host(array)
    if non_blocking:
        # The device still writes into the copy, so the stream has to keep both arrays alive.
        stream.keep(array, copy)
    else:
        stream.record_event().synchronize()
    return copy


def on_host(x: Any) -> Any:
    """A tensor's values as a NumPy array; values on a device are copied and waited for."""
    if recorders:
        note_look("item(), bool(), printing or the like")
    device = x._metadata.device
    return moved(x._array, device, CPU) if device.streamed else x._array


def computed_on_host(function: Callable[..., Any], *tensors: Any) -> Any:
    """What a function of NumPy arrays computes from the values of tensors.

    Args:
        function: returns arrays whose shapes follow from those that it takes; or it raises for some
            values, and returns None.
    """
    if any(x._metadata.device.streamed for x in tensors):
        return function(*map(on_host, tensors))
    return again(function, *[x._array for x in tensors])


def seen(x: Any, read: Callable[[Any], Any]) -> Any:
    """A Python value that `read` computes from nothing but a tensor's values, on the host."""
    if recorders and (recorder := current().recorder) is not None:
        return recorder.sees(x, read)
    device = x._metadata.device
    return read(moved(x._array, device, CPU) if device.streamed else x._array)


class ToCopyBackward0(Node):
    """Copies a gradient back to the device and dtype that the tensor came from."""

    __slots__ = ("dtype", "source")

    fresh = True
    #: The device and dtype of the original tensor.
    source: Device
    dtype: Any

    def apply(self, gradients: tuple[Any, ...], task: GraphTask | None) -> Any:
        """Copy the gradient; on an event loop, a copy to the host is awaited."""
        (gradient,) = gradients
        if gradient is None:
            return gradients
        metadata = self._input_metadata[0]
        here, source, dtype = metadata.device, self.source, self.dtype
        if task is not None:
            streams = task.enter_streams()
            streams.install(task, stream_of(self))
            if source.streamed:
                streams.copies_follow_caller(source)
        if isinstance(gradient, Variable):
            return (to_device(gradient, source, dtype),)
        gradient = _cast(gradient, metadata, dtype)
        if source is CPU and here.streamed and task is not None and task.future is not None:
            copy = moved(gradient, here, source, non_blocking=True)
            return _after(current_stream(here).record_event(), copy)
        return (moved(gradient, here, source),)


async def _after(event: Event, copy: Any) -> tuple[Any]:
    """Wait for a copy without blocking the loop, and return it."""
    # Nothing can change the copy meanwhile. If this wait is cancelled, the stream keeps the copy
    # until it is made.
    await event
    return (copy,)


def _cast(array: Any, metadata: Any, dtype: Any) -> Any:
    return array if array.dtype == dtype else metadata.F.to(array, dtype)


def to_device(x: Any, device: Device, dtype: Any = None, *, non_blocking: bool = False) -> Any:
    """Copy a tensor to another device, recorded; also cast it unless `dtype` is None."""
    if x._batched:
        return lift_batch(to_device(x._value, device, dtype, non_blocking=non_blocking), x._level)
    metadata = x._metadata
    array = x._array if dtype is None else _cast(x._array, metadata, dtype)
    array = moved(array, metadata.device, device, non_blocking=non_blocking)
    out = wrap(array, metadata_of(array, device))
    modes = current()
    edge = gradient_edge(x) if modes.grad and out._metadata.dtype.kind not in "iub" else None
    if edge is not None:
        node = out._edge = ToCopyBackward0()
        init_node(node, edge, out._metadata)
        node.source = metadata.device
        node.dtype = metadata.dtype
    return out if modes.plain else in_modes(TO, (x,), (device, dtype), out, modes)


#: The op as other modes see it: linear.
TO = Op(
    "to",
    to_device,
    ("x",),
    ("device", "dtype"),
    pulls={"x": part(lambda F, g: g)},
    pushes={"x": part(lambda F, t, device, dtype: to_device(t, device, dtype))},
)


def made_pinned(made: Any) -> Any:
    """Move a new tensor to pinned memory, from which an accelerator copies without the CPU."""
    if made._metadata.device is not CPU:
        raise RuntimeError(
            f"Only dense CPU tensors can be pinned, not one of {made._metadata.device}. Leave "
            f"pin_memory= or device= away."
        )
    device = next(iter(accelerators()), None)
    if device is None:
        raise RuntimeError(
            "pin_memory=True requires an accelerator, and there is none. Leave it away, or ask for "
            "'sim:0' first."
        )
    array = device.empty_pinned(made._metadata.shape, made._metadata.dtype)
    array[...] = made._array
    made._array = array
    return made
