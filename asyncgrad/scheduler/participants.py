"""Asks participants of a pass for decisions, and tells all how it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any

from asyncgrad.core.commit import check_staged
from asyncgrad.core.conclude import Member
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.states import DONE
from asyncgrad.scheduler.completion import end_as_decided
from asyncgrad.scheduler.coroutines import GRACE
from asyncgrad.scheduler.host import Host
from asyncgrad.scheduler.portal import OnPortal
from asyncgrad.scheduler.segments import ThreadSegments, retrieve


def deciding(task: GraphTask) -> list[Any]:
    """The methods `decide` of a pass's participants."""
    methods = [getattr(member.participant, "decide", None) for member in task.members]
    return [method for method in methods if method is not None]


def decide(task: GraphTask, methods: Sequence[Any], host: Host, segments: ThreadSegments) -> None:
    """Await the decisions on a pass, and end it as they say."""
    host.log(task, "waits for decisions")

    def end(waiting: asyncio.Task[None]) -> None:
        # The loop may have cancelled this task with all its others.
        error = asyncio.CancelledError() if waiting.cancelled() else waiting.exception()
        segments.own(host, task, partial(end_as_decided, task, error))

    _start(_decide(task, methods), task, host).add_done_callback(end)


def decide_inline(task: GraphTask) -> None:
    """Await the decisions on a pass on the portal's loop, and end it; blocks meanwhile."""
    methods = deciding(task)
    error = None
    if methods:
        running = OnPortal(_decide(task, methods), task.new_context())
        try:
            running.start()
            _, error = running.result()
        except BaseException as interrupt:
            # The participants must learn how the pass ends, so that has to be decided first.
            _, error = running.end()
            if error is None:
                end_as_decided(task, None)
                tell_inline(task)
                raise
            error = interrupt
    end_as_decided(task, error)


async def _decide(task: GraphTask, methods: Sequence[Any]) -> None:
    """Call all at the same time, and wait for all; raise the first error."""
    # Participants promise others that the commit does not fail, so it is checked before.
    check_staged(task.staged)
    calls = [asyncio.ensure_future(_call(method)) for method in methods]
    for call in calls:
        call.add_done_callback(retrieve)
    try:
        # Nothing that happens while this waits changes the pass.
        await asyncio.wait(calls)
    except asyncio.CancelledError:
        # By a loop that cancels all its tasks, or because the thread of the pass was interrupted.
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    try:
        for call in calls:
            call.result()
    finally:
        # The error's traceback holds this frame, which must not hold the error.
        del call, calls


def tell(task: GraphTask, grace: float, host: Host, told: Callable[[], None] | None) -> None:
    """Call `commit` or `abort` of a pass's participants; `told` is called at the end."""
    members, task.members = task.members, ()

    def end(telling: asyncio.Task[None]) -> None:
        # The pass ends even if the loop, which may cancel all its tasks, has cancelled this one.
        if not telling.cancelled() and telling.exception() is not None:
            task.later_errors += (telling.exception(),)  # type: ignore[operator]
        if told is not None:
            told()

    _start(_tell(task, members, grace), task, host).add_done_callback(end)


def _start(coroutine: Coroutine[Any, Any, None], task: GraphTask, host: Host) -> asyncio.Task[None]:
    """Run a coroutine on the loop, in the context of a pass."""
    # Not `create_task`: an eager task factory would call participants at once, in here.
    running = asyncio.Task(coroutine, loop=host.loop, context=task.new_context())
    # The host keeps the task alive, because the loop refers to it only weakly.
    host.background_tasks.add(running)
    running.add_done_callback(host.background_tasks.discard)
    return running


def tell_inline(task: GraphTask) -> None:
    """Call `commit` or `abort` of a pass's participants on the portal's loop; blocks meanwhile."""
    members, task.members = task.members, ()
    # If this thread is interrupted, the calls go on, because the participants rely on them.
    running = OnPortal(_tell(task, members, GRACE), task.new_context())
    running.start()
    _, error = running.result()
    if error is not None:
        task.later_errors += (error,)


async def _tell(task: GraphTask, members: Sequence[Member], grace: float) -> None:
    """Call all at the same time; those that abort have `grace` seconds."""
    committed = task.state is DONE
    verb = "commit" if committed else "abort"
    calls = {
        asyncio.ensure_future(_call(getattr(member.participant, verb))): member
        for member in members
    }
    # Nothing that happens while this waits changes the decision. This wait is cancelled only by a
    # loop that cancels all its tasks, and these calls with them.
    _, late = await asyncio.wait(calls, timeout=None if committed else grace)
    for call, member in calls.items():
        message = f"{type(member.participant).__qualname__}.{verb}"
        error = None
        if call in late:
            call.cancel()
            message += f" has not ended in {grace} s: its pass ends without it"
        elif call.cancelled():
            message += " was cancelled by something else than its pass"
        elif (error := call.exception()) is not None:
            message += " failed"
            if not committed:
                task.later_errors += (error,)
                continue
        else:
            continue
        # The loop's handler is told because the caller of the pass is not. A pass that has
        # succeeded raises no error, and one that has not raises its own.
        facts: dict[str, Any] = {"message": message, "task": call}
        if error is not None:
            facts["exception"] = error
        asyncio.get_running_loop().call_exception_handler(facts)


async def _call(function: Callable[[], Any]) -> None:
    """Call a method of a participant, a coroutine function or a plain one as for `prepare`."""
    found: Any = function()
    if isawaitable(found):
        await found
