"""The end of an engine: how it notices that its loop shuts down, and what it waits for."""

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
    """Make an engine shut down with its loop's asynchronous generators, as every runner does.

    Returns:
        A generator that must live as long as the engine; None if the loop has shut down already.
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
    # The generator would hold the hook, and so the loop, which would then leak if never closed.
    sys.set_asyncgen_hooks(finalizer=None)
    try:
        step = closer.__anext__()
    except ResourceWarning:
        # uvloop only warns that its generators are shut down; seen if warnings are errors.
        return None
    finally:
        sys.set_asyncgen_hooks(finalizer=finalizer)
    with suppress(StopIteration):
        step.send(None)
    return closer


async def shut_down(engine: Engine) -> None:
    """Cancel passes that no task awaits, wait until no pass is left, and close."""
    if engine.closed:
        return
    for task in tuple(engine.live):
        starter = task.future._starter
        if not task.ending and (starter is None or starter.done()):
            engine.cancel(task)
    loop = engine.loop
    if engine.live:
        engine.emptied = loop.create_future()
        # Other generators may start passes meanwhile; those that do after `close` run on the loop.
        # If cancelled here, the runner is in a hurry: threads end with their segments.
        await engine.emptied
    worker = engine.worker.task
    if worker is not None:
        # No pass waits for a turn any more. If cancelled here, the loop ends the worker.
        await asyncio.wait([worker])
    gone = loop.create_future()
    engine.close(partial(tell_loop, loop, settle, gone))
    # The threads finish offloaded functions. If cancelled here, they do so all the same.
    await gone
    while engine.thread_segments.threads.alive():  # noqa: ASYNC110  there is no notification
        # The last thread has called `ended`, and needs some microseconds to end.
        await asyncio.sleep(0)
