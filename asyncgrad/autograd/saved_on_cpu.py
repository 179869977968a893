"""Saved tensors in pinned memory, copied while the device computes.

Each device has one stream for all copies, there and back: a copy back follows the copy there by
itself, and neither holds the stream that computes. Graphs are walked back in the order they were
made, so when a tensor is asked for, the one saved before it is sent for, too.
"""

from __future__ import annotations

import weakref
from typing import Any

from asyncgrad.core.variable import Variable, wrap
from asyncgrad.devices import CPU, Device, Stream, current_stream
from asyncgrad.ops.tensors.transfer import moved


class _OnHost:
    """A tensor in pinned memory, and maybe on its way back."""

    __slots__ = ("__weakref__", "before", "copy", "metadata", "returning")

    def __init__(self, copy: Any, metadata: Any, before: _OnHost | None) -> None:
        """Not on its way back yet.

        Args:
            copy: the array on the host.
            metadata: the tensor's.
            before: what was saved before it.
        """
        self.copy = copy
        self.metadata = metadata
        self.before = None if before is None else weakref.ref(before)
        #: The array on the device that is being copied to.
        self.returning: Any = None


class Offload:
    """The hooks of one `save_on_cpu(pin_memory=True)`."""

    def __init__(self) -> None:
        """No stream has been opened yet."""
        self._streams: dict[Device, Stream] = {}
        self._last: weakref.ref[_OnHost] | None = None

    def pack(self, tensor: Any) -> Any:
        """Start the copy to the host."""
        device = tensor._metadata.device
        if device is CPU:
            return tensor
        stream = self._stream(device)
        stream.wait_stream(current_stream(device))
        with stream:
            # The stream keeps both arrays until the copy is made.
            copy = moved(tensor._array, device, CPU, non_blocking=True)
        stream.mark()
        packed = _OnHost(copy, tensor._metadata, None if self._last is None else self._last())
        self._last = weakref.ref(packed)
        return packed

    def unpack(self, packed: Any) -> Any:
        """The tensor, whose values come with the current stream; the one before is sent for."""
        if isinstance(packed, Variable):
            return packed
        device = packed.metadata.device
        array = self._send_for(packed)
        packed.returning = None
        here = current_stream(device)
        here.wait_stream(self._stream(device))
        # Its memory is the copying stream's.
        here.keep(array)
        before = None if packed.before is None else packed.before()
        if before is not None:
            self._send_for(before)
        return wrap(array, packed.metadata)

    def _send_for(self, packed: _OnHost) -> Any:
        """Start the copy back, unless it is on its way."""
        if packed.returning is None:
            device = packed.metadata.device
            with self._stream(device):
                packed.returning = moved(packed.copy, CPU, device, non_blocking=True)
        return packed.returning

    def _stream(self, device: Device) -> Stream:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = Stream(device)
        return stream
