"""A core for the event loop.

Left to itself, Linux may queue a loop that wakes up, or a client, behind a thread that computes
until the next tick of its clock (4 ms at 250 Hz), while another core falls idle. So that the
figures tell of the libraries and not of this, the loop and the clients get one core and the threads
that compute get the others, whatever the variant. The clients, who in earnest are elsewhere, run
when the loop has nothing to do, so that it does not queue behind them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from examples.digits.variants import Variant


async def give_one_to_the_loop(variant: Variant) -> None:
    """Start the helper threads of a variant on all cores but one, which this thread keeps."""
    if not hasattr(os, "sched_setaffinity"):
        return  # macOS decides alone
    cores = os.sched_getaffinity(0)
    if len(cores) == 1:
        return
    last = {max(cores)}
    all_here = threading.Barrier(len(cores))

    def settle() -> None:
        os.sched_setaffinity(threading.get_native_id(), cores - last)
        all_here.wait()  # so that each call gets a thread of its own

    await asyncio.gather(*(variant.offload(settle) for _ in cores))
    os.sched_setaffinity(threading.get_native_id(), last)  # inherited by the clients' process
