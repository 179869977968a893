"""The end of an engine: it is told when its loop shuts down, and waits until nothing runs."""

from __future__ import annotations

import asyncio
import sys
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from asyncgrad.scheduler.segments import settle, tell_loop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncgrad.scheduler.engine import Engine


def register(engine: Engine, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None] | None:
    """Be told when the loop shuts its asynchronous generators down, which every runner does.

    Returns:
        What has to live as long as the engine is to be told; None if the loop has done so already.
    """
    if getattr(loop, "_asyncgens_shutdown_called", False):
        return None
    reference = weakref.ref(engine)

    async def until_shutdown() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            engine = reference()
            if engine is not None:
                await engine.shut_down()

    closer = until_shutdown()
    finalizer = sys.get_asyncgen_hooks().finalizer
    # The generator would keep it, and it the loop: one that nobody closes would never go.
    sys.set_asyncgen_hooks(finalizer=None)
    try:
        step = closer.__anext__()
    except ResourceWarning:
        # uvloop tells nobody but those who have made errors of its warnings.
        return None
    finally:
        sys.set_asyncgen_hooks(finalizer=finalizer)
    with suppress(StopIteration):
        step.send(None)
    return closer


async def shut_down(engine: Engine) -> None:
    """Cancel what nobody awaits any more, wait until no pass is left, and close."""
    if engine.closed:
        return
    for task in tuple(engine.live):
        starter = task.future._starter
        if not task.ending and (starter is None or starter.done()):
            engine.cancel(task)
    loop = engine.loop
    if engine.live:
        engine.emptied = loop.create_future()
        # Other generators may start passes in their clean-up; those run after `close`, too.
        # Cancelled here, the runner is in a hurry: threads end with their segments.
        await engine.emptied
    worker = engine.worker.task
    if worker is not None:
        # Nothing waits for a turn any more; cancelled here, the loop ends the worker.
        await asyncio.wait([worker])
    gone = loop.create_future()
    engine.close(partial(tell_loop, loop, settle, gone))
    # They run what was offloaded to its end. Cancelled here, they do so all the same.
    await gone
    while engine.thread_segments.threads.alive():  # noqa: ASYNC110  nobody announces it
        # The last one has taken its leave, and needs some microseconds to go.
        await asyncio.sleep(0)
