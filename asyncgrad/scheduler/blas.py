"""How many threads the BLAS library uses.

The libraries are found at import, because that reads files. The limit is set when an engine starts:
it leaves a core to the event loop, and never exceeds what the user has set.
"""

from __future__ import annotations

import os
from typing import Any

import numpy  # noqa: F401  loads the BLAS library, so that it can be found
from threadpoolctl import ThreadpoolController

from asyncgrad.core.locks import lasting_lock

_CONTROLLER = ThreadpoolController()


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = cores()

#: How many engines have called `leave_a_core` and not yet `give_back`.
_holders = 0
#: While limited: the number of threads, and the libraries with their numbers before.
_threads = 0
_before: list[tuple[Any, int]] = []
_lock = lasting_lock()


def leave_a_core() -> None:
    """Limit the library to all cores but one, until `give_back` was called as often."""
    global _holders
    with _lock:
        if not _holders:
            _limit()
        _holders += 1


def give_back() -> None:
    """Restore the library's threads, if no other engine wants a core left."""
    global _holders
    with _lock:
        _holders -= 1
        if not _holders:
            _restore()


def get_threads() -> int:
    """How many threads the user allows the library."""
    libraries = _CONTROLLER.select(user_api="blas").lib_controllers
    numbers = [number for _, number in _before] or [each.num_threads for each in libraries]
    return max(numbers, default=1)


def set_threads(number: int) -> None:
    """Set the library's threads; while a core is left, the limit still applies."""
    global _threads
    with _lock:
        limited = bool(_before)
        if limited:
            _threads = min(number, max(1, CORES - 1))
            _before[:] = [(library, number) for library, _ in _before]
        for library in _CONTROLLER.select(user_api="blas").lib_controllers:
            library.set_num_threads(_threads if limited else number)


def single() -> bool:
    """Whether the limit is one thread."""
    return _threads == 1


def after_fork() -> None:
    """Remove the limit: the engines that set it are the parent's. The child's set their own."""
    global _holders
    _holders = 0
    _restore()


def _limit() -> None:
    global _threads
    libraries = _CONTROLLER.select(user_api="blas").lib_controllers
    if not libraries:
        return
    # Stored before it changes, because a fork may happen in between.
    _before[:] = [(library, library.num_threads) for library in libraries]
    _threads = min([max(1, CORES - 1), *(number for _, number in _before)])
    for library in libraries:
        library.set_num_threads(_threads)


def _restore() -> None:
    for library, number in _before:
        # Unless the user has changed the number meanwhile.
        if library.num_threads == _threads:
            library.set_num_threads(number)
    _before.clear()
