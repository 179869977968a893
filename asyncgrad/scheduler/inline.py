"""Passes without a loop: the calling thread runs them to their end.

All ways to block are `run_inline`: scripts without a loop, `asyncgrad.sync`, `blocking()`, and a
synchronous pass started inside a node. A coroutine node needs a loop, which one portal thread
supplies.
"""

from __future__ import annotations

import os
from asyncio import CancelledError
from asyncio.events import _get_running_loop
from collections import deque
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from threading import Thread, Timer
from time import monotonic
from typing import TYPE_CHECKING, Any

from asyncgrad.core.graph_task import Outcome, State
from asyncgrad.core.locks import lasting_lock
from asyncgrad.devices.quiet import hush, unhush
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler import stack
from asyncgrad.scheduler.coroutines import LIMIT, discard, wait_for_node
from asyncgrad.scheduler.ending import as_failure, deadline_error, end_pass

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextvars import Context

    from asyncgrad.core.graph_task import GraphTask

#: More nanoseconds than any pass costs.
_UNLIMITED = 2**62
_portal: list[Any] = []
_portal_lock = lasting_lock()


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
    timer = None
    if task.deadline is not None:
        expire = partial(task.inbox.append, partial(task.fail, deadline_error(task)))
        timer = Timer(max(0.0, task.deadline - monotonic()), expire)
        timer.start()
    token = hush()
    try:
        task.start()
        while task.run(_UNLIMITED) is not Outcome.FINISHED:
            _await_nodes(task)
    finally:
        unhush(token)
        del token
        if timer is not None:
            timer.cancel()
    if task.state is State.RUNNING:
        end_pass(task, wait=True)
    error, result = task.error, task.result
    task.release()
    if error is None:
        return result
    try:
        raise as_failure(error)
    finally:
        del error, task


def _await_nodes(task: GraphTask) -> None:
    """Wait for coroutine nodes, on the portal's loop."""
    waiting, task.suspended = task.suspended, []
    if _get_running_loop() is not None:
        task.fail(
            AutogradError(
                "a blocking pass on a running event loop's thread met a coroutine node or hook, "
                "which could only run on that loop: use await"
            )
        )
    if task.state is not State.RUNNING:
        for suspended in waiting:
            discard(suspended)
            task.resume(suspended.node, suspended.evaluation, None, None)
        return
    started: deque[Any] = deque()
    for place, suspended in enumerate(waiting):
        node, evaluation, _ = suspended
        if task.state is State.RUNNING:
            for following in waiting[place + len(started) : place + LIMIT]:
                started.append(begin_on_portal(wait_for_node(following.waiting), _context_of(task)))
        if not started:
            discard(suspended)
            task.resume(node, evaluation, None, None)
            continue
        running = started.popleft()
        result, error = None, None
        try:
            result, error = running.result()
        except BaseException as caught:
            # It was cancelled, or this thread is interrupted.
            error = caught
            if running.cancelled():
                error = CancelledError() if task.state is State.RUNNING else None
        task.resume(node, evaluation, result, error)
        if task.error is not None:
            for other in started:
                other.cancel()


def _context_of(task: GraphTask) -> Context:
    """A copy of the context that the pass's nodes run in."""
    return copy_context() if task.context is None else task.context.copy()


def portal() -> Any:
    """The portal to the one loop that synchronous passes share, started when first needed."""
    with _portal_lock:
        if not _portal:
            started: Future[Any] = Future()
            # A thread of our own: anyio's would have to be stopped before the interpreter ends.
            Thread(target=_serve, args=(started,), name="asyncgrad portal", daemon=True).start()
            _portal.append(started.result())
        return _portal[0]


def begin_on_portal(coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
    """Run a coroutine on the portal's loop.

    Returns:
        A future, for threads, of what the coroutine returned and what it raised.
    """
    return context.run(portal().start_task_soon, _outcome, coroutine)


async def _outcome(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What a coroutine returned and raised: the portal must outlive whatever that is."""
    try:
        return await coroutine, None
    except CancelledError:
        raise
    except BaseException as error:
        return None, error


def _serve(started: Future[Any]) -> None:
    """Run the portal's loop, until the process ends."""
    # A fifth of the time that importing asyncgrad takes, and never on an event loop.
    from anyio import run
    from anyio.from_thread import BlockingPortal

    async def main() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    run(main)


def _after_fork() -> None:
    """The thread was not forked: let the child start its own."""
    _portal.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
