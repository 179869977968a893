"""Tells the participants of a pass how it has ended, before its caller learns it."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from asyncgrad.core.states import DONE
from asyncgrad.scheduler.coroutines import GRACE
from asyncgrad.scheduler.portal import OnPortal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.core.conclude import Member
    from asyncgrad.core.graph_task import GraphTask


def tell(
    task: GraphTask, grace: float, loop: asyncio.AbstractEventLoop, told: Callable[[], None]
) -> asyncio.Task[None]:
    """Call `commit` or `abort` of a pass's participants on a loop; `told` is called at the end."""
    members, task.members = task.members, ()
    # Not `create_task`: an eager task factory would call them at once, in here.
    telling = asyncio.Task(_tell(task, members, grace), loop=loop, context=task.new_context())

    def end(telling: asyncio.Task[None]) -> None:
        # The pass ends even if the loop, which may cancel all its tasks, has cancelled this one.
        if not telling.cancelled() and telling.exception() is not None:
            task.later_errors += (telling.exception(),)  # type: ignore[operator]
        told()

    telling.add_done_callback(end)
    return telling


def tell_inline(task: GraphTask) -> None:
    """Call `commit` or `abort` of a pass's participants on the portal's loop; blocks meanwhile."""
    members, task.members = task.members, ()
    # If this thread is interrupted, the calls go on, because the participants rely on them.
    _, error = OnPortal(_tell(task, members, GRACE), task.new_context()).result()
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
