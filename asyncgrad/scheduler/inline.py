"""Passes without a loop: the calling thread runs them to their end.

All ways to block are `run_inline`: scripts without a loop, `asyncgrad.sync`, `blocking()`, and a
synchronous pass started inside a node. A coroutine node needs a loop, which one portal thread
supplies.
"""

from __future__ import annotations

from asyncio import CancelledError
from asyncio.events import _get_running_loop
from collections import deque
from contextvars import copy_context
from functools import partial
from threading import TIMEOUT_MAX, Timer
from typing import TYPE_CHECKING, Any

from asyncgrad.core.states import FINISHED, RUNNING
from asyncgrad.devices.quiet import hushes, unhush
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler import stack
from asyncgrad.scheduler.coroutines import LIMIT, discard, wait_for_node
from asyncgrad.scheduler.ending import as_failure, deadline_error, end_pass, time_left
from asyncgrad.scheduler.portal import OnPortal

if TYPE_CHECKING:
    from contextvars import Context

    from asyncgrad.core.graph_task import GraphTask

#: More nanoseconds than any pass costs.
_UNLIMITED = 2**62


def run_inline(task: GraphTask) -> Any:
    """Run a pass to its end in this thread.

    Returns:
        The pass's result.

    Raises:
        BaseException: the error that the pass ended with.
    """
    if task.parent is not None and stack.is_short(task):
        return stack.fresh(_run, task)
    return _run(task)


def _run(task: GraphTask) -> Any:
    if task.deadline is not None:
        _go_on(task)
    else:
        for token in hushes:
            try:
                task.start()
                outcome = task.run(_UNLIMITED)
            finally:
                unhush(token)
                del token
            break
        if outcome is not FINISHED:
            _go_on(task)
    if task.state is RUNNING:
        end_pass(task, True)
    error = task.error
    if error is None:
        task.context = None
        result = task.result
        if task.stepping is not None:
            task.let_go()
        return result
    task.release()
    try:
        raise as_failure(error)
    finally:
        del error, task


def _go_on(task: GraphTask) -> None:
    """Run a pass until nothing is left of it, with what needs more than one go."""
    timer = None
    #: The coroutine nodes that run on the portal's loop, the first to be waited for next.
    started: deque[OnPortal] = deque()
    if task.deadline is not None:
        left = min(max(0.0, time_left(task)), TIMEOUT_MAX)
        timer = Timer(left, _expire, (task, started))
        # An interrupt may leave it running: the program's end does not wait for it.
        timer.daemon = True
    for token in hushes:
        try:
            if timer is not None:
                timer.start()
            task.start()
            while task.run(_UNLIMITED) is not FINISHED:
                _await_nodes(task, started)
        finally:
            unhush(token)
            del token
            if timer is not None:
                timer.cancel()
            for running in started:
                # This thread was interrupted.
                running.end()
        break


def _expire(task: GraphTask, started: deque[OnPortal]) -> None:
    """The deadline has passed; called in a thread of its own."""
    # In this order: who starts a node looks into the inbox afterwards.
    task.inbox.append(partial(task.fail, deadline_error(task)))
    for running in tuple(started):
        running.cancel()


def _await_nodes(task: GraphTask, started: deque[OnPortal]) -> None:
    """Wait for coroutine nodes, on the portal's loop."""
    waiting, task.suspended = task.suspended, []
    if _get_running_loop() is not None:
        task.fail(
            AutogradError(
                "a blocking pass on a running event loop's thread met a coroutine node or hook, "
                "which could only run on that loop: use await"
            )
        )
    if task.state is not RUNNING:
        for suspended in waiting:
            discard(suspended)
            task.resume(suspended.node, suspended.evaluation, None, None)
        return
    for place, suspended in enumerate(waiting):
        node, evaluation, _ = suspended
        if task.state is RUNNING:
            for following in waiting[place + len(started) : place + LIMIT]:
                started.append(OnPortal(wait_for_node(following.waiting), _context_of(task)))
        _cancel_if_over(task, started)
        if not started:
            discard(suspended)
            task.resume(node, evaluation, None, None)
            continue
        running = started[0]
        try:
            result, error = running.result()
        except BaseException as interrupt:
            # This thread is interrupted.
            running.end()
            result, error = None, interrupt
        started.popleft()
        task.drain()
        if running.cancelled and isinstance(error, CancelledError):
            # As it was told to.
            error = None
        task.resume(node, evaluation, result, error)
        # The error's traceback leads to this frame.
        del running, error
        _cancel_if_over(task, started)


def _cancel_if_over(task: GraphTask, started: deque[OnPortal]) -> None:
    """Cancel the coroutines of a pass that has failed."""
    task.drain()
    if task.state is not RUNNING:
        for running in started:
            running.cancel()


def _context_of(task: GraphTask) -> Context:
    """A copy of the context that the pass's nodes run in."""
    return copy_context() if task.context is None else task.context.copy()
