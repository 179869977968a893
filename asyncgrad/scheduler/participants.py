"""Asks participants of a pass for decisions, and tells all how it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from operator import length_hint, methodcaller
from typing import Any

from asyncgrad.core.commit import check_staged
from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import Member, deciding
from asyncgrad.core.states import DONE, RUNNING
from asyncgrad.errors import AutogradError, add_note, is_stop
from asyncgrad.scheduler.completion import finish, for_another
from asyncgrad.scheduler.coroutines import GRACE
from asyncgrad.scheduler.portal import OnPortal, despite_interrupts
from asyncgrad.scheduler.segments import outlast, retrieve


async def conclude(
    task: GraphTask, grace: float, run: Callable[[Callable[[], Any]], Awaitable[None]]
) -> None:
    """End a pass as its participants decide, unless it has ended, and tell all of them.

    `run` calls a function where it may take long, and ends even if this task is cancelled.
    """
    if task.state is RUNNING:
        end: Callable[[], Any]
        try:
            # Nothing that happens while this waits changes the pass.
            await _decide(task)
        except BaseException as refusal:
            end = partial(task.fail_at_end, refusal)
        else:
            end = partial(finish, task, True, decided=True)
        await run(end)
        del end  # See core.frames.
    await _tell(task, grace)


def conclude_inline(task: GraphTask) -> None:
    """`conclude` a pass on the portal's loop, whose thread no signal interrupts; blocks."""

    async def call(function: Callable[[], Any]) -> None:
        function()

    running = OnPortal(conclude(task, GRACE, call), task.new_context())
    try:
        running.start()
        _, error = running.result()
    except BaseException as interrupt:
        # What still decides is cancelled. If all have decided, the pass has succeeded nevertheless.
        despite_interrupts(running.end)
        if task.state is DONE:
            raise
        task.error = interrupt
    else:
        if error is not None:
            if task.state is DONE and is_stop(error):
                raise error
            task.fail(error)


async def _decide(task: GraphTask) -> None:
    """Call all `decide` at the same time, and wait for all; raise the first error."""
    # Participants promise others that the commit does not fail, so it is checked before.
    check_staged(task.staged)
    calls = [_decision(member) for member in deciding(task)]
    try:
        # Nothing that happens while this waits changes the pass.
        await asyncio.wait(calls)
    except asyncio.CancelledError:
        # By a loop that cancels all its tasks, or because the thread of the pass was interrupted.
        for call in calls:
            call.cancel()
        await outlast(*calls)
    stop = None
    try:
        for call in calls:
            stop = call.result()
            if stop is not None:
                raise stop
    finally:
        del call, calls, stop  # See core.frames.


def _decision(member: Member) -> asyncio.Future[BaseException | None]:
    """The call of `decide`; the same one where an interrupt has cut off what was to follow it."""
    decision: asyncio.Future[BaseException | None] | None = member.decision
    if decision is None:
        decision = asyncio.ensure_future(_stopping(_call_decide, member.participant))
        member.decision = decision
        decision.add_done_callback(retrieve)
    return decision


async def _tell(task: GraphTask, grace: float) -> None:
    """Call `commit` or `abort` of all at the same time; those that abort have `grace` seconds."""
    committed = task.state is DONE
    verb = "commit" if committed else "abort"
    calls: dict[asyncio.Future[BaseException | None], Member] = {
        asyncio.ensure_future(_stopping(_tell_one, task, member, verb)): member
        for member in task.members
    }
    stop: BaseException | None = None
    # Nothing that happens while this waits changes the decision. An interrupt of a thread that is
    # blocked cancels this, and must find that all have been told.
    await outlast(*calls, seconds=None if committed else grace)
    for call, member in calls.items():
        if member in task.members and call.cancelled():
            # A loop that cancels all its tasks has cancelled this one before it began.
            continue
        message = f"{type(member.participant).__qualname__}.{verb}"
        error = None
        if not call.done():
            call.cancel()
            message += f" has not ended in {grace} s: its pass ends without it"
        elif call.cancelled():
            message += " was cancelled by something else than its pass"
        elif (error := call.exception() or call.result()) is not None:
            message += " failed"
            if is_stop(error) and not for_another.get():
                stop = error
                continue
            if not (committed or member.held):
                task.later_errors += (error,)
                continue
        else:
            continue
        # The loop's handler is told because the caller of the pass is not. A pass that has
        # succeeded raises no error, and one that has not raises its own, if anybody awaits it.
        facts: dict[str, Any] = {"message": message, "task": call}
        if error is not None:
            facts["exception"] = error
        asyncio.get_running_loop().call_exception_handler(facts)
    if stop is not None:
        try:
            raise stop
        finally:
            del stop, error, call, calls  # See core.frames.


async def _tell_one(task: GraphTask, member: Member, verb: str) -> None:
    """Call `commit` or `abort` of a participant that is still to be told, and await it."""
    others = [other for other in task.members if other is not member]
    if len(others) == len(task.members):
        return
    found: Any = None
    called = iter([member.participant])
    try:
        # As `acquiring` explains, no interrupt comes between a call by `for` and the body.
        for found in map(methodcaller(verb), called):
            if found is None:
                task.members = others
            break
        else:
            raise AutogradError(
                f"{type(member.participant).__qualname__}.{verb} raised StopIteration"
            )
    except BaseException:
        if not length_hint(called):
            # Not an interrupt that came before the method began.
            task.members = others
        raise
    waits = isawaitable(found)
    # Not before: if an interrupt comes, `task.members` are still to be told.
    task.members = others
    if waits:
        await found


async def _stopping(
    function: Callable[..., Awaitable[None]], *args: object
) -> BaseException | None:
    """Await what a coroutine function does; return an error that is meant to stop the program.

    Raised in a task, it would stop the loop, which others may share, before all have been told.
    """
    try:
        # Not called before: a task that is cancelled before it begins would leave the coroutine.
        await function(*args)
    except (KeyboardInterrupt, SystemExit) as stop:
        return stop
    return None


async def _call_decide(participant: Any) -> None:
    """Await `decide` of a participant, a coroutine function or a plain one as for `prepare`."""
    try:
        found: Any = participant.decide()
        if isawaitable(found):
            await found
    except BaseException as error:
        add_note(error, f"raised by {type(participant).__qualname__}.decide")
        raise
