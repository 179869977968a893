"""Passes without a loop: the calling thread runs them to their end.

All ways to block use `run_inline`: scripts without a loop, `asyncgrad.sync`, `blocking()`, and a
synchronous pass started inside a node. Coroutine nodes need a loop: that of the portal thread.
"""

from __future__ import annotations

from _thread import start_new_thread
from asyncio import CancelledError
from asyncio.events import _get_running_loop
from contextlib import suppress
from queue import Empty, SimpleQueue
from sys import modules
from threading import TIMEOUT_MAX
from typing import Any

from asyncgrad.aliases import Gradient
from asyncgrad.core.chain import is_chain, run_chain
from asyncgrad.core.frames import clear_frames
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.node import OpNode
from asyncgrad.core.states import DONE, FINISHED, MORE, RUNNING, Suspended
from asyncgrad.devices.fp_errors import fp_errors_ignored, restore_fp_errors, without_fp_errors
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler import reentrant
from asyncgrad.scheduler.completion import as_failure, expire, finish, time_left
from asyncgrad.scheduler.coroutines import LIMIT, STALLED, discard_all, wait_for_node, warn_of_stall
from asyncgrad.scheduler.participants import conclude_inline
from asyncgrad.scheduler.portal import OnPortal, despite_interrupts
from asyncgrad.scheduler.registry import refuse_trio
from asyncgrad.scheduler.results import as_result

#: A budget, in nanoseconds, that no pass uses up.
_UNLIMITED = 2**62


def run_inline(task: GraphTask) -> Any:
    """Run a pass to its end in this thread, and return its result."""
    if task.parent is not None and reentrant.has_little_stack(task):
        return reentrant.on_new_stack(_run, task)
    return _run(task)


def start_chain(root: OpNode, gradient: Gradient, keep_graph: bool) -> Any:
    """Run a pass along a chain (`core.chain`) to its end in this thread.

    The result is what `backward()` returns; None if a loop runs, or this is no chain.
    """
    if _get_running_loop() is not None or not is_chain(root):
        return None
    if "trio" in modules:
        refuse_trio("backward")
    for token in fp_errors_ignored:
        try:
            error = run_chain(root, gradient, keep_graph)
        finally:
            restore_fp_errors(token)
            del token
        break
    if error is None:
        return as_result(None)
    clear_frames(error)
    try:
        raise as_failure(error)
    finally:
        del error, root, gradient


def _run(task: GraphTask) -> Any:
    try:
        outcome = MORE
        if task.deadline is None:
            # `without_fp_errors` written out, whose call costs 1 % of a small pass.
            for token in fp_errors_ignored:
                try:
                    task.start()
                    outcome = task.run(_UNLIMITED)
                finally:
                    restore_fp_errors(token)
                    del token
                break
        if outcome is not FINISHED:
            _run_to_end(task)
        finish(task, True)
        if task.members:
            conclude_inline(task)
    except BaseException as interrupt:
        if task.state is not DONE or task.members:
            despite_interrupts(_end_interrupted, task, interrupt)
        if task.state is DONE:
            raise
    error = task.error
    if error is None:
        task.context = None
        result = task.result
        if task.stepping is not None:
            task.drop_graph()
        return result
    task.release()
    try:
        raise as_failure(error)
    finally:
        del error, task


def _end_interrupted(task: GraphTask, interrupt: BaseException) -> None:
    """End a pass that was interrupted between two steps; goes on where an interrupt has ended it.

    What callbacks have seen is taken back, and the participants learn that the pass is over.
    """
    task.fail(interrupt)
    discard_all(task)
    finish(task, True)
    if task.members:
        conclude_inline(task)


@without_fp_errors
def _run_to_end(task: GraphTask) -> None:
    """Run a pass with coroutine nodes or a deadline until it is finished."""
    #: The nodes that run on the portal's loop, and those that have ended there.
    started: dict[OnPortal, Suspended] = {}
    ended: SimpleQueue[OnPortal] = SimpleQueue()
    over: SimpleQueue[None] = SimpleQueue()
    try:
        if task.deadline is not None:
            # Not a `Timer`: an interrupt may leave locks of `threading` as they must not be.
            start_new_thread(_expire, (task, started, over, time_left(task)))
        task.start()
        while task.run(_UNLIMITED) is not FINISHED:
            _await_nodes(task, started, ended)
    except BaseException as interrupt:
        despite_interrupts(_end_nodes, task, started, interrupt)
        raise
    finally:
        over.put(None)


def _expire(
    task: GraphTask, started: dict[OnPortal, Suspended], over: SimpleQueue[None], left: float
) -> None:
    """Fail a pass when its deadline passes, unless it is over by then; runs in its own thread."""
    with suppress(Empty):
        over.get(timeout=min(max(0.0, left), TIMEOUT_MAX))
        return
    # The inbox is filled first, then `started` is read. `_await_nodes` adds a node to `started`
    # first and then reads the inbox. So no node that starts at this moment is missed.
    expire(task)
    for running in tuple(started):
        running.cancel()


def _await_nodes(
    task: GraphTask, started: dict[OnPortal, Suspended], ended: SimpleQueue[OnPortal]
) -> None:
    """Run coroutine nodes on the portal's loop until one has ended, and resume that.

    If the pass is over, all are cancelled and waited for.
    """
    if _get_running_loop() is not None:
        task.fail(
            AutogradError(
                "a blocking pass on a running event loop's thread met a coroutine node or hook, "
                "which could only run on that loop: use await"
            )
        )
    while task.state is RUNNING and task.suspended and len(started) < LIMIT:
        # The node leaves the list only below, so that no interrupt in between loses it.
        suspended = task.suspended[0]
        running = OnPortal(wait_for_node(suspended.waiting), suspended.context, ended.put)
        started[running] = suspended
        del task.suspended[0]
        running.start()
    task.read_inbox()
    if task.state is RUNNING:
        running = _first_of(ended, task)
        task.read_inbox()
        if task.state is RUNNING:
            _take_result(task, started, running)
    if task.state is not RUNNING:
        _end_nodes(task, started)


def _end_nodes(
    task: GraphTask, started: dict[OnPortal, Suspended], error: BaseException | None = None
) -> None:
    """Cancel the coroutine nodes of a pass that is over, or fails now; wait until they end."""
    if error is not None:
        task.fail(error)
    for running in started:
        running.cancel()
    discard_all(task)
    for running in tuple(started):
        _take_result(task, started, running)


def _take_result(task: GraphTask, started: dict[OnPortal, Suspended], running: OnPortal) -> None:
    """Resume a node with the result of its coroutine; blocks until there is one."""
    result, error = running.result()
    if running.cancelled and isinstance(error, CancelledError):
        # The pass itself cancelled the node, so this is not an error.
        error = None
    suspended = started[running]
    task.resume(suspended.node, suspended.steps, result, error)
    # Not before: a node that an interrupt keeps from going on is ended with the others.
    started.pop(running, None)
    del running, result, error  # See core.frames.


def _first_of(ended: SimpleQueue[OnPortal], task: GraphTask) -> OnPortal:
    """Wait for the first node that ends; warn if that takes long while others can't start."""
    if task.suspended:
        with suppress(Empty):
            return ended.get(timeout=STALLED)
        warn_of_stall(task, LIMIT)
    return ended.get()
