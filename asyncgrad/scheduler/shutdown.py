"""The end of an engine: how it notices that its loop shuts down."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import weakref
    from collections.abc import AsyncGenerator, Awaitable, Callable


def register(
    shut_down: weakref.WeakMethod[Callable[[], Awaitable[None]]], loop: asyncio.AbstractEventLoop
) -> AsyncGenerator[None, None] | None:
    """Make an engine shut down with its loop's asynchronous generators, as every runner does.

    Args:
        shut_down: the engine's method, weakly, so that the loop does not keep the engine.
        loop: the engine's loop.

    Returns:
        A generator that must live as long as the engine; None if the loop has shut down already.
    """
    if getattr(loop, "_asyncgens_shutdown_called", False):
        return None

    async def until_shutdown() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            end = shut_down()
            if end is not None:
                # Nothing follows, so neither a change nor a cancellation matters here.
                await end()

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
