"""Divide long work, and offer the thread's core to other threads between the parts.

The system may let a thread compute until its next tick, at worst 4 ms, even if the event loop's
thread was just woken on the same core while another core is idle.
"""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter_ns, sleep, thread_time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Let another thread that waits for this core run first; takes 0.3 us if there is none.
_offer_core: Callable[[], None] = getattr(os, "sched_yield", partial(sleep, 0))
#: After a longer wait the thread is assumed to share core and interpreter with other computing
#: threads, and not with a loop that waits for events.
_LONG_NS = 150_000
#: The largest factor by which slices are lengthened.
_MOST = 64

#: The current factor, shared by all threads.
_times = 1


def divided(length: int, part: int, start: int = 0) -> Iterator[slice]:
    """Divide a length into slices of a tenth of a millisecond's work each.

    The thread may lose its core and the interpreter at the end of a slice. If that took long, the
    next slices are longer and the core is not offered.

    Args:
        length: the length to be divided.
        part: the length of the shortest slice.
        start: where to begin.
    """
    global _times
    while start < length:
        end = start + part * _times
        waited = perf_counter_ns() - thread_time_ns()
        yield slice(start, end)
        if _times == 1:
            _offer_core()
        waited = perf_counter_ns() - thread_time_ns() - waited
        start = end
        # Several threads may write this at the same time; they share the same cores.
        if waited < _LONG_NS:
            _times = max(_times // 2, 1)
        else:
            _times = min(_times * (1 + waited // _LONG_NS), _MOST)
