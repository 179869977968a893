"""CUDA kernels that each replace a chain of library calls by one launch.

A kernel is compiled once for each dtype, in a thread. An event loop does not wait for that: the
chain, which computes the same, is used until it is ready, or for good if the compiler fails. A
warning says so once for each function.
"""

from __future__ import annotations

import warnings
from asyncio.events import _get_running_loop
from functools import partial
from threading import RLock, Thread
from typing import Any

from asyncgrad.aliases import Array, Device, Value
from asyncgrad.devices.cuda_lines import LinesKernel
from asyncgrad.devices.kernels import FUNCTIONS, OF_INTEGERS, SOURCES, STEPS
from asyncgrad.devices.pointwise import Elementwise


class Kernels:
    """The kernels of one device, compiled on first use.

    Args:
        device: its device, which the compiling thread enters.
    """

    def __init__(self, cupy: Any, device: Device) -> None:
        self._cupy = cupy
        self.empty = cupy.empty
        self._device = device
        self._lock = RLock()
        #: Arguments whose kernels are ready, and the threads that compile.
        self._ready: set[Any] = set()
        self._threads: dict[Any, Thread] = {}
        #: The names of functions whose kernels failed to compile.
        self._refused: set[str] = set()
        #: The functions by the names of `ops.fused`.
        self.functions = {name: partial(self._run, name) for name in FUNCTIONS}

    def __getattr__(self, name: str) -> Any:
        source = SOURCES[name]
        full = f"asyncgrad_{name}"
        kernel: Any
        if isinstance(source, Elementwise):
            *declared, functions = source
            kernel = self._cupy.ElementwiseKernel(*declared, full, preamble=functions)
        else:
            kernel = LinesKernel(self._cupy, full, source)
        setattr(self, name, kernel)
        return kernel

    def for_steps(self, name: str, *arrays: Array) -> Any:
        """A kernel of `STEPS`."""
        return getattr(self, name)

    def _run(self, name: str, *arguments: Value) -> Any:
        """Call a function of `FUNCTIONS`; NotImplemented if the chain has to be used."""
        floating = None
        sample: list[Any] = []
        for value in arguments:
            if not isinstance(value, self._cupy.ndarray):
                sample.append(None if value is None else type(value))
                continue
            dtype = value.dtype
            if dtype.kind not in "iu" or name not in OF_INTEGERS:
                if dtype.char not in "fd" or floating not in {None, dtype}:
                    return NotImplemented
                floating = dtype
            if not value.flags.c_contiguous or not value.size:
                return NotImplemented
            # CuPy compiles for each number of axes and for which of them are broadcast.
            sample.append((tuple([min(n, 2) or 2 for n in value.shape]), dtype))
        key = name, tuple(sample)
        if key not in self._ready and not self._prepare(key, arguments):
            return NotImplemented
        return FUNCTIONS[name](self, *arguments)

    def _prepare(self, key: Value, arguments: tuple[Any, ...]) -> bool:
        """Have kernels compiled; True once they are ready.

        An event loop goes on meanwhile, except for a CUDA graph, which would keep the chain.
        """
        with self._lock:
            thread = self._threads.get(key)
            if thread is None:
                numbers = [None if isinstance(v, self._cupy.ndarray) else v for v in arguments]
                thread = Thread(target=self._compile, args=(key, numbers), daemon=True)
                thread.start()
                self._threads[key] = thread
        if _get_running_loop() is None or self._cupy.cuda.get_current_stream().is_capturing():
            thread.join()
        return key in self._ready

    def _compile(self, key: Value, numbers: list[Any]) -> None:
        """Compile by running a function once on small arrays."""
        name, sample = key
        try:
            with self._device:
                arrays = [
                    # Integers are places, of which only 0 is sure to exist.
                    (self._cupy.ones if of[1].kind == "f" else self._cupy.zeros)(*of)
                    if isinstance(of, tuple)
                    else []
                    if of is list
                    else number
                    for of, number in zip(sample, numbers, strict=True)
                ]
                made = FUNCTIONS[name](self, *arrays)
                if name in STEPS:
                    made(*arrays)
        except Exception as error:
            if name not in self._refused:
                self._refused.add(name)
                text = f"The CUDA kernel of {name} failed, so a slower chain is used: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=1)
        else:
            self._ready.add(key)
