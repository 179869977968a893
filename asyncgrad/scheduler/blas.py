"""How many threads the matrix library uses.

Found out at import, because looking for libraries reads files; set when an engine starts, so that
a core is left to the event loop, and never above what the user has set.
"""

from __future__ import annotations

import os
from typing import Any

import numpy  # noqa: F401  loads the library, which is to be found
from threadpoolctl import ThreadpoolController

from asyncgrad.core.locks import lasting_lock

_CONTROLLER = ThreadpoolController()


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = cores()

#: How many engines want a core left to their loop.
_holders = 0
#: While it is limited: to how many threads, and what its libraries had before.
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
    """Let the library have all its cores again, if nobody else wants one left."""
    global _holders
    with _lock:
        _holders -= 1
        if not _holders:
            _restore()


def get_threads() -> int:
    """How many threads the user lets the library have."""
    libraries = _CONTROLLER.select(user_api="blas").lib_controllers
    numbers = [number for _, number in _before] or [each.num_threads for each in libraries]
    return max(numbers, default=1)


def set_threads(number: int) -> None:
    """Let the library have so many, at most as many as its limit while a core is left."""
    global _threads
    with _lock:
        limited = bool(_before)
        if limited:
            _threads = min(number, max(1, CORES - 1))
            _before[:] = [(library, number) for library, _ in _before]
        for library in _CONTROLLER.select(user_api="blas").lib_controllers:
            library.set_num_threads(_threads if limited else number)


def single() -> bool:
    """Whether the library is limited to one thread for a product."""
    return _threads == 1


def after_fork() -> None:
    """The loops that wanted a core left are the parent's; the limit is kept for the child's own."""
    global _holders
    _holders = 0
    _restore()


def _limit() -> None:
    global _threads
    libraries = _CONTROLLER.select(user_api="blas").lib_controllers
    if not libraries:
        return
    # First: a child may be forked in the middle.
    _before[:] = [(library, library.num_threads) for library in libraries]
    _threads = min([max(1, CORES - 1), *(number for _, number in _before)])
    for library in libraries:
        library.set_num_threads(_threads)


def _restore() -> None:
    for library, number in _before:
        # The user may have changed it meanwhile.
        if library.num_threads == _threads:
            library.set_num_threads(number)
    _before.clear()
