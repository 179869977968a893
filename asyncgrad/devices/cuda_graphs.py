"""CUDA graphs: what a function puts into a stream is captured once, and then launched as a whole.

A graph reads and writes the addresses of its capture. So its arrays come from a memory pool of
their own, which lives as long as the graph. CuPy captures in CUDA's relaxed mode: the pool may ask
the driver for memory meanwhile, and other threads go on. It refuses copies that wait for the
device, and products, which `cuda_products` therefore puts into the stream itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from asyncgrad.devices.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Device, Value


class Graph:
    """The captured work of one call of a function, and what the function has returned."""

    __slots__ = ("_graph", "_pool", "_stream", "result")

    def __init__(
        self, cupy: Any, device: Device, function: Callable[..., Any], args: Value
    ) -> None:
        """Capture a call, in a stream that nobody else has; the work itself is not done.

        Raises:
            NotImplementedError: for work that CuPy can't capture.
        """
        cuda = cupy.cuda
        # In a stream that others use, their work would be captured, too. The graph keeps stream and
        # pool, because memory belongs to the stream in which it was allocated.
        self._stream = raw = cuda.Stream(non_blocking=True)
        self._pool = pool = cuda.MemoryPool()
        with Stream.from_raw(device, raw, 0), cuda.using_allocator(pool.malloc), raw:
            raw.begin_capture()
            try:
                self.result = function(*args)
            except BaseException:
                # The stream has to leave its capture. That the capture has failed is no news, and
                # the first error says more.
                with suppress(cuda.runtime.CUDARuntimeError):
                    raw.end_capture()
                raise
            self._graph = raw.end_capture()

    def launch(self, stream: Stream) -> None:
        """Put the captured work into a stream."""
        self._graph.launch(stream.raw)
