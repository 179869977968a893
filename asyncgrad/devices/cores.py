"""Divide long work, and offer the thread's core and the GIL to other threads between the parts.

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
#: Let another thread run first that waits for this core, or for the GIL, which the call releases.
#: It takes 0.3 us if there is none.
_yield: Callable[[], None] = getattr(os, "sched_yield", partial(sleep, 0))
#: After a longer wait the thread is assumed to share core and GIL with other threads that compute,
#: and not with a loop that handles events. Then the next slices are `1 + wait // _EACH_NS` times as
#: long as the last one. Each shorter wait halves that length, down to the usual one.
_LONG_NS, _EACH_NS = 1_000_000, 150_000
#: How many times as long as usual slices are now, in all threads, and at most.
_stretch, _MOST = 1, 64


def waited() -> int:
    """How long this thread has waited so far, for a core, the GIL or anything else."""
    return perf_counter_ns() - thread_time_ns()


def offer_core(before: int) -> None:
    """Offer core and GIL after work, unless that takes long now; `waited` gave `before`."""
    global _stretch
    if _stretch == 1:
        _yield()
    took = waited() - before
    # Several threads may write this at the same time; they share the same cores.
    if took < _LONG_NS:
        _stretch = max(_stretch // 2, 1)
    else:
        _stretch = min(_stretch * (1 + took // _EACH_NS), _MOST)


def divided(length: int, part: int, start: int = 0) -> Iterator[slice]:
    """Divide a length into slices of at least `part`, a tenth of a millisecond's work each.

    The thread offers its core and the GIL at the end of a slice. If it gets them back late, the
    next slices are longer and nothing is offered.
    """
    while start < length:
        end = start + part * _stretch
        before = waited()
        yield slice(start, end)
        offer_core(before)
        start = end


def in_turns(items: Sequence[Any], part: int) -> Iterator[Any]:
    """Go through items, and offer core and GIL after each `part` of them as `divided` does."""
    for place in divided(len(items), part):
        yield from items[place]
