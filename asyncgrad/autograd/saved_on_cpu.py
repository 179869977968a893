"""Keep saved tensors in pinned memory, and copy them while the device computes.

Each device has one stream for copies in both directions: a copy back is ordered after the copy to
the host, and neither blocks the computing stream. Backward uses tensors in the opposite order in
which they were saved. So `unpack` of one tensor also starts the copy of the one saved before it.
"""

from __future__ import annotations

import weakref
from typing import Any

from asyncgrad.aliases import Value
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.devices import CPU, Device, Stream, current_stream
from asyncgrad.ops.tensors.transfer import moved


class _OnHost:
    """A tensor in pinned memory, which may be on its way back to the device."""

    __slots__ = ("__weakref__", "before", "copy", "metadata", "returning", "stream")

    def __init__(
        self, copy: Any, metadata: Metadata, stream: Stream, before: weakref.ref[_OnHost] | None
    ) -> None:
        self.copy = copy
        self.metadata = metadata
        self.stream = stream
        self.before = before
        #: The array on the device that the copy back writes to.
        self.returning: Any = None

    def send_for(self) -> Any:
        """Start the copy back, unless it has been started."""
        if self.returning is None:
            with self.stream:
                device = self.metadata.device
                self.returning = moved(self.copy, CPU, device, non_blocking=True)
        return self.returning


class Offload:
    """The saved-tensor hooks of one `save_on_cpu(pin_memory=True)`."""

    def __init__(self) -> None:
        self._streams: dict[Device, Stream] = {}
        self._last: weakref.ref[_OnHost] | None = None

    def pack(self, tensor: Value) -> Any:
        """Start the copy to the host."""
        device = tensor._metadata.device
        if device is CPU:
            return tensor
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = Stream(device)
        stream.wait_stream(current_stream(device))
        with stream:
            # The stream keeps both arrays alive until the copy is done.
            copy = moved(tensor._array, device, CPU, non_blocking=True)
        stream.mark()
        packed = _OnHost(copy, tensor._metadata, stream, self._last)
        self._last = weakref.ref(packed)
        return packed

    def unpack(self, packed: Value) -> Any:
        """The tensor, ready in the current stream; also starts the copy of the one before."""
        if isinstance(packed, Variable):
            return packed
        array = packed.send_for()
        packed.returning = None
        here = current_stream(packed.metadata.device)
        here.wait_stream(packed.stream)
        # The copying stream owns the memory; the current stream has to keep it while it is used.
        here.keep(array)
        before = None if packed.before is None else packed.before()
        if before is not None:
            before.send_for()
        return wrap(array, packed.metadata)
