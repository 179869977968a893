"""How many threads the BLAS library uses.

The libraries are found at import, because that reads files. While an engine runs, they use one
thread. Otherwise all threads of a library would wait for the one whose core something else uses.
Large products are computed in pieces instead, by the engine's threads, as many as the user allows.
"""

from __future__ import annotations

import os
from typing import Any

import numpy  # noqa: F401  loads the BLAS library, so that it can be found
from threadpoolctl import ThreadpoolController

from asyncgrad.core.locks import Shared
from asyncgrad.devices import pieces

_CONTROLLER = ThreadpoolController()


#: How many cores this process may use.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

#: While the limit is in force: each library with the number of threads that it had before.
_before: list[tuple[Any, int]] = []


def get_threads() -> int:
    """How many threads the user allows for a product."""
    libraries = _CONTROLLER.select(user_api="blas").lib_controllers
    numbers = [number for _, number in _before] or [each.num_threads for each in libraries]
    return max(numbers, default=1)


def set_threads(number: int) -> None:
    """Set how many threads the user allows for a product."""
    with one_thread.lock:
        if _before:
            _before[:] = [(library, number) for library, _ in _before]
            pieces.threads = number
            return
        for library in _CONTROLLER.select(user_api="blas").lib_controllers:
            _set(library, number)


def _limit() -> None:
    libraries = _CONTROLLER.select(user_api="blas").lib_controllers
    if not libraries:
        return
    # The numbers are stored before they change, because a fork may happen in between.
    _before[:] = [(library, library.num_threads) for library in libraries]
    pieces.threads = get_threads()
    for library in libraries:
        _set(library, 1)


def _restore() -> None:
    for library, number in _before:
        # Unless the user has changed the number meanwhile.
        if library.num_threads == 1:
            _set(library, number)
    _before.clear()
    pieces.threads = 0


#: Engines that run limit the libraries to one thread.
one_thread = Shared(_limit, _restore)


def _set(library: Any, number: int) -> None:
    """Set a library's threads, in any thread.

    From 3.8 on, threadpoolctl silently ignores all threads but the first that has set a number,
    until that thread ends or the library's controlling thread is reset.
    """
    reset = getattr(library, "clear_controlling_thread", None)
    if reset is not None:
        reset(force=True)
    library.set_num_threads(number)
    if reset is not None:
        reset(force=True)
