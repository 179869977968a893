"""Numba, which compiles kernels for the CPU: activations, norms, softmax and what else has some.

A compiled kernel goes through memory once where NumPy's functions go through it several times, and
holds the interpreter's lock at no time. Its results differ from NumPy's in the last bits, so it is
switched on by hand, once, before a program computes: by `enable()`. Without the extra `numba`, and
for what has no kernel, NumPy computes.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from asyncgrad.core.locks import lasting_lock
from asyncgrad.devices.plain_numpy import COMPILED

_lock = lasting_lock()
_functions: dict[str, Any] = {}


def is_available() -> bool:
    """Whether Numba is installed: the extra `numba`."""
    return find_spec("numba") is not None


def is_enabled() -> bool:
    """Whether compiled kernels are in use."""
    return bool(COMPILED)


def enable() -> None:
    """Use compiled kernels from now on, in all threads, for float32 and float64 on the CPU.

    The first call on a machine compiles them, which takes a minute or more; later processes
    find them in the user's cache directory (or `NUMBA_CACHE_DIR`) and take about a second. Call it
    before an event loop starts, or in a thread, as `await asyncio.to_thread(numba.enable)`.

    Raises:
        ImportError: Numba is not installed.
    """
    if not is_available():
        raise ImportError(
            "asyncgrad.backends.numba.enable: Numba is not installed; install asyncgrad[numba]"
        )
    with _lock:
        if not _functions:
            from asyncgrad.devices.host_kernels.declared import Kernels

            _functions.update(Kernels().functions)
        COMPILED.update(_functions)


def disable() -> None:
    """Compute with NumPy alone from now on."""
    COMPILED.clear()
