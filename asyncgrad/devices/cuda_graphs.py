"""CUDA graphs: what a function puts into a stream is captured once, and then launched as a whole.

A graph reads and writes the addresses of its capture. So its arrays come from a memory pool of
their own, which lives as long as the graph. CuPy captures in CUDA's relaxed mode: the pool may ask
the driver for memory meanwhile, and other threads go on. It refuses copies that wait for the
device, and products, which `cuda_products` therefore puts into the stream itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Device, Value
from asyncgrad.devices.cuda_products import Products
from asyncgrad.devices.streams import Stream

#: CuPy copies the addresses of more arrays to the device in order to join them.
_JOINED = 8


def capturable(cupy: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of CuPy's, or another in its place that streams can capture."""
    if name in {"matmul", "dot"}:
        return Products(cupy).capturable(name, function)
    if name in {"concatenate", "stack"}:
        return _in_small_parts(cupy, function)
    if name in {"array", "asarray"}:
        return _from_device(cupy, function)
    return function


def _from_device(cupy: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """CuPy's `array` or `asarray`, which refuses to copy from the host while a stream captures.

    A launch would copy what is then in that memory, which CuPy could never use again.
    """

    def made(value: Value, *args: Value, **kwargs: Value) -> Any:
        if (
            not isinstance(value, cupy.ndarray)
            and np.ndim(value)
            and cupy.cuda.get_current_stream().is_capturing()
        ):
            raise NotImplementedError("a copy from the host can't be captured")
        return function(value, *args, **kwargs)

    return made


def _in_small_parts(cupy: Any, join: Callable[..., Any]) -> Callable[..., Any]:
    """CuPy's `concatenate` or `stack`, as a function that streams can capture.

    The addresses of many arrays would come from memory of the host, which CuPy could never use for
    anything else again. So many arrays are joined some at a time.
    """

    def joined(arrays: Value, axis: int = 0, out: Array | None = None, **options: Value) -> Any:
        if len(arrays) <= _JOINED or not cupy.cuda.get_current_stream().is_capturing():
            return join(arrays, axis, out, **options)
        parts = [
            join(arrays[start : start + _JOINED], axis, **options)
            for start in range(0, len(arrays), _JOINED)
        ]
        while len(parts) > 1:
            parts[:_JOINED] = [cupy.concatenate(parts[:_JOINED], axis)]
        if out is None:
            return parts[0]
        out[...] = parts[0]
        return out

    return joined


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
            except BaseException as error:
                # The stream has to leave its capture. That the capture has failed is no news, and
                # the first error says more.
                with suppress(cuda.runtime.CUDARuntimeError):
                    raw.end_capture()
                if error.__class__ is RuntimeError:
                    # So CuPy refuses copies from the host, and copies to it.
                    raise NotImplementedError(str(error)) from error
                raise
            self._graph = raw.end_capture()

    def launch(self, stream: Stream) -> None:
        """Put the captured work into a stream."""
        self._graph.launch(stream.raw)
