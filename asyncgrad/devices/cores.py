"""Divide long work, and offer the thread's core to other threads between the parts.

The system may let a thread compute until its next tick, at worst 4 ms, even if the event loop's
thread was just woken on the same core while another core is idle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter_ns, sleep, thread_time_ns
from typing import Any

#: Have the system account for this thread's time. Linux then looks whether another thread is due on
#: this core, such as an event loop's with its short slice, and otherwise only at its next tick. The
#: thread gives up nothing of its share, as it would by `_yield`.
account: Callable[[], object] = thread_time_ns
#: Let another thread that waits for this core run first; takes 0.3 us if there is none.
_yield: Callable[[], None] = getattr(os, "sched_yield", partial(sleep, 0))
#: After a longer wait the thread is assumed to share core and interpreter with other computing
#: threads, and not with a loop that handles events.
_LONG_NS = 1_000_000
#: A wait of so many nanoseconds makes the next slices twice as long, a wait of twice as many three
#: times as long.
_SHORTEST_NS = 150_000
#: The largest factor by which slices are lengthened.
_MOST = 64

#: The current factor, shared by all threads.
_times = 1


def waited() -> int:
    """How long this thread has waited so far, for a core, the interpreter or anything else."""
    return perf_counter_ns() - thread_time_ns()


def offer_core(before: int) -> None:
    """Offer the thread's core after work, unless that takes long now; `waited` gave `before`."""
    global _times
    if _times == 1:
        _yield()
    took = waited() - before
    # Several threads may write this at the same time; they share the same cores.
    if took < _LONG_NS:
        _times = max(_times // 2, 1)
    else:
        _times = min(_times * (1 + took // _SHORTEST_NS), _MOST)


def divided(length: int, part: int, start: int = 0) -> Iterator[slice]:
    """Divide a length into slices of at least `part`, a tenth of a millisecond's work each.

    The thread may lose its core and the interpreter at the end of a slice. If that took long, the
    next slices are longer and the core is not offered.
    """
    while start < length:
        end = start + part * _times
        before = waited()
        yield slice(start, end)
        offer_core(before)
        start = end


def in_turns(items: Sequence[Any], part: int) -> Iterator[Any]:
    """Go through items, and offer the core after each `part` of them as `divided` does."""
    for place in divided(len(items), part):
        yield from items[place]
