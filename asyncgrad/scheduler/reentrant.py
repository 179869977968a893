"""Inspects a thread's stack for nested passes: whether a node calls, and whether room is left."""

from __future__ import annotations

import sys
from _thread import start_new_thread
from asyncio import current_task
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any

from asyncgrad.core.frames import value_of
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.modes import current

#: Only one nested pass in this many checks the stack, whose frames must be counted one by one.
_EVERY = 8
#: Python's default limit on frames. A larger limit set by the user makes C's stack no larger.
_FRAMES = 1_000

#: The code of the function that runs nodes.
_NODE = GraphTask._resume.__code__


def is_in_node() -> bool:
    """Whether the caller is in a synchronous node: what it starts must end before it returns.

    The context alone does not tell. Coroutine nodes, and callbacks and threads that a node starts,
    have a copy, and may run while a node does; a task made by an eager factory begins on the
    node's stack.
    """
    running = current().graph_task
    if running is None or not running.stepping:
        return False
    task = current_task()
    outermost = None if task is None else getattr(task.get_coro(), "cr_frame", None)
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame is not outermost:
        if frame.f_code is _NODE:
            return True
        frame = frame.f_back
    return False


def has_little_stack(task: GraphTask) -> bool:
    """Whether a nested pass should go to a new thread, as half of the frames are in use."""
    if task.depth % _EVERY:
        return False
    left = min(sys.getrecursionlimit(), _FRAMES) // 2
    frame = sys._getframe()
    while left and frame.f_back is not None:
        frame = frame.f_back
        left -= 1
    return not left


def on_new_stack(function: Callable[[GraphTask], Any], task: GraphTask) -> Any:
    """Call a function with a pass in a new thread, and so on a new stack; blocks meanwhile."""
    #: What the function has returned and what it raised.
    found: list[Any] = []
    told: SimpleQueue[None] = SimpleQueue()

    def call() -> None:
        try:
            found.append((function(task), None))
        except BaseException as error:
            found.append((None, error))
        told.put(None)

    def wait() -> None:
        while not found:
            told.get()

    thread = Thread(target=copy_context().run, args=(call,), name="asyncgrad nested pass")

    def start() -> None:
        try:
            thread.start()
        except RuntimeError:
            # The system allows no more threads; but this one has a new stack, too.
            thread.run()

    # `Thread.start` waits: an interrupt there may leave the thread's locks as they must not be. So
    # another thread calls it, which no signal interrupts. As `acquiring` explains, no interrupt
    # comes between a call by `for` and the body.
    for _ in iter(partial(start_new_thread, start, ()), None):
        try:
            wait()
        except BaseException:
            # Interrupted: cancel the pass, which must not continue without its caller.
            task.inbox.append(task.cancel)
            wait()
            raise
        break
    return value_of(*found.pop())
