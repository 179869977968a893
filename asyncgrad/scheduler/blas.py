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

#: How many engines want a core left to their loop, and what undoes it when the last has ended.
_holders = 0
_limits: Any = None
#: While it is limited: to how many threads.
_threads = 0
_lock = lasting_lock()


def leave_a_core() -> None:
    """Limit the library to all cores but one, until `give_back` was called as often."""
    global _holders, _limits
    with _lock:
        if not _holders:
            _limits = _limit()
        _holders += 1


def give_back() -> None:
    """Let the library have all its cores again, if nobody else wants one left."""
    global _holders, _limits
    with _lock:
        _holders -= 1
        if not _holders and _limits is not None:
            _limits.restore_original_limits()
            _limits = None


def single() -> bool:
    """Whether the library is limited to one thread for a product."""
    return _threads == 1


def after_fork() -> None:
    """The loops that wanted a core left are the parent's; the limit is kept for the child's own."""
    global _holders, _limits
    if _limits is not None:
        _limits.restore_original_limits()
    _holders, _limits = 0, None


def _limit() -> Any:
    global _threads
    most = max(1, CORES - 1)
    libraries = _CONTROLLER.select(user_api="blas").lib_controllers
    if not libraries:
        return None
    _threads = min([most, *(library.num_threads for library in libraries)])
    return _CONTROLLER.limit(limits=_threads, user_api="blas")
