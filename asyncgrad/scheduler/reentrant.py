"""What a thread's stack says of nested passes: whose they are, and whether more find room."""

from __future__ import annotations

import sys
from asyncio import current_task
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.modes import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: Only every so many passes look at the stack, whose frames have to be counted one by one.
_EVERY = 8
#: Python's own limit on frames, which nobody's larger one makes safer for C's stack.
_FRAMES = 1_000

#: What calls nodes.
_NODE = GraphTask._resume.__code__


def is_in_node() -> bool:
    """Whether a synchronous node calls: what it starts has to end before it returns.

    Its context alone does not say so. What it leaves to the loop or to another thread has a copy,
    and may be called while it still runs; a task that an eager factory makes begins on its stack.
    """
    modes = current()
    if not (modes.in_node and modes.graph_task.stepping):
        return False
    task = current_task()
    outermost = None if task is None else getattr(task.get_coro(), "cr_frame", None)
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame is not outermost:
        if frame.f_code is _NODE:
            return True
        frame = frame.f_back
    return False


def is_short(task: GraphTask) -> bool:
    """Whether a nested pass should go on elsewhere: half of the frames are in use."""
    if task.depth % _EVERY:
        return False
    left = min(sys.getrecursionlimit(), _FRAMES) // 2
    frame = sys._getframe()
    while left and frame.f_back is not None:
        frame = frame.f_back
        left -= 1
    return not left


def fresh(function: Callable[[GraphTask], Any], task: GraphTask) -> Any:
    """Call a function on a pass, on the stack of a new thread that ends with the call."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((function(task), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = Thread(target=copy_context().run, args=(call,), name="asyncgrad nested pass")
    thread.start()
    try:
        thread.join()
    except BaseException:
        # Interrupted: the pass must not go on behind its caller's back.
        task.inbox.append(task.cancel)
        thread.join()
        raise
    result, error = outcome.pop()
    if error is None:
        return result
    try:
        raise error
    finally:
        del error
