"""Long work is divided, and its thread's core offered to others between two parts.

The system may let a thread compute until its next tick, 4 ms at worst, even where the event loop's
thread has just been woken on that core and another core has nothing to do.
"""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter_ns, sleep, thread_time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Let another thread that waits for this core run first; 0.3 us where there is none.
_offer_core: Callable[[], None] = getattr(os, "sched_yield", partial(sleep, 0))
#: Who had to wait for so long shares core and interpreter with those who compute, and not with a
#: loop that waits for events.
_LONG_NS = 150_000
#: By how much slices are longer then, at most.
_MOST = 64

#: By how much they are longer now.
_times = 1


def divided(length: int, part: int, start: int = 0) -> Iterator[slice]:
    """Slices of a length, a tenth of a millisecond's work each.

    The end of a slice is a moment to lose core and interpreter. Where that has meant waiting, the
    next ones are the longer for it, and nothing is offered.

    Args:
        length: what is divided.
        part: the shortest slice.
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
        # Several threads may do so at once: they share the same cores.
        if waited < _LONG_NS:
            _times = max(_times // 2, 1)
        else:
            _times = min(_times * (1 + waited // _LONG_NS), _MOST)
