"""Forward passes that give way: in a thread, or step by step."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from asyncgrad.scheduler.engine import engine

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


async def offload(function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
    """Run a function on tensors in a thread of the engine, with the caller's context.

    Args:
        function: what to run, a forward pass for example.
        args: its arguments.
        kwargs: its keyword arguments.

    Returns:
        What the function returns.

    Raises:
        CancelledError: once the function has ended, if the caller is cancelled meanwhile.
    """
    loop = asyncio.get_running_loop()
    context = copy_context()
    running = loop.run_in_executor(engine().threads, lambda: context.run(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # The function can't be interrupted: what it touches is free again when it has ended.
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue
        if not running.cancelled():
            running.exception()
        raise


async def cooperate() -> None:
    """Give way to others if this turn of the loop has used up its budget.

    Those who give way come back in order, in each turn as many as its budget holds.
    """
    running = engine()
    if running.overdrawn():
        # Nothing of ours is open here; a cancellation is simply the caller's.
        await running.next_in_line()
