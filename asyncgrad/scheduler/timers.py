"""Timers of passes."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable


def call_at(
    loop: AbstractEventLoop, when: float, callback: Callable[..., object], *args: object
) -> TimerHandle:
    """Call a function at a time of the loop's clock, in an empty context.

    A loop keeps timers for a while after they were cancelled. The caller's context may lead to a
    pass, and would keep its graph.
    """
    return loop.call_at(when, callback, *args, context=Context())


def call_later(
    loop: AbstractEventLoop, seconds: float, callback: Callable[..., object], *args: object
) -> TimerHandle:
    """Call a function after some seconds, as `call_at` does."""
    return call_at(loop, loop.time() + seconds, callback, *args)
