"""Ask Linux to let an event loop's thread run as soon as it wakes, though other threads compute.

A thread that wakes on a busy core may have to wait until the running one has used up its time
slice, some milliseconds. It goes first if its own slice is shorter, and it gets as much of the core
as before. Linux 6.12 and later let a thread choose its slice without special rights.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from typing import Any
from weakref import WeakSet

#: The numbers of the calls `sched_setattr` and `sched_getattr`, by machine.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
_SET, _GET = _CALLS.get(platform.machine(), (0, 0)) if sys.platform == "linux" else (0, 0)
#: In nanoseconds; usual are 1.4 ms and more. Callbacks that take longer may lose their core for a
#: moment to the threads of passes: with the shortest slice that is allowed, 0.1 ms, too many do.
_SLICE_NS = 300_000
#: Threads and processes that the thread starts get the usual slice. It can't be taken back.
_RESET_ON_FORK = 1
_SCHED_OTHER = 0


class _Attributes(ctypes.Structure):
    """How the system schedules a thread: `struct sched_attr`."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


class _Thread(threading.local):
    """What this thread asked for: the engines that want the short slice, and the slice before."""

    def __init__(self) -> None:
        # Weak, because an engine may be closed in another thread, which can't reach this set.
        self.holders: WeakSet[Any] = WeakSet()
        self.before_ns = _SLICE_NS


_thread = _Thread()


def shorten_slice(holder: object) -> bool:
    """Shorten this thread's slice until each holder has called `restore_slice`.

    False if that is impossible.
    """
    found, holders = _read(), _thread.holders
    if found is None or found.policy != _SCHED_OTHER or not found.runtime:
        return False
    if found.runtime != _SLICE_NS:
        # The slice was set meanwhile, or this is a forked child: earlier holders undo nothing.
        holders.clear()
        _thread.before_ns = found.runtime
    # Added first, so that `restore_slice` undoes a change after which an interrupt came.
    holders.add(holder)
    if found.runtime != _SLICE_NS and not _write(found, _SLICE_NS):
        holders.discard(holder)
        return False
    return True


def restore_slice(holder: object) -> None:
    """Restore this thread's slice after the last holder; does nothing for one that holds none."""
    holders = _thread.holders
    if holder in holders:
        holders.discard(holder)
        found = None if holders else _read()
        if found is not None and found.runtime == _SLICE_NS:
            _write(found, _thread.before_ns)


def _read() -> _Attributes | None:
    """This thread's attributes; their `runtime` is 0 where threads have no slice of their own."""
    found = _Attributes()
    size = ctypes.sizeof(found)
    if not _GET or ctypes.pythonapi.syscall(_GET, 0, ctypes.byref(found), size, 0):
        return None
    return found


def _write(attributes: _Attributes, slice_ns: int) -> bool:
    """Set this thread's slice; whether the system has agreed."""
    attributes.runtime, attributes.size = slice_ns, ctypes.sizeof(attributes)
    attributes.flags |= _RESET_ON_FORK
    return not ctypes.pythonapi.syscall(_SET, 0, ctypes.byref(attributes), 0)
