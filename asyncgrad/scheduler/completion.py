"""How a pass ends: its gradients are committed, or its caller gets an error."""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.last_steps import commit_staged, deciding
from asyncgrad.core.states import FINISHED, RUNNING, WAITING, Outcome
from asyncgrad.errors import AutogradError, described, is_stop
from asyncgrad.scheduler.queues import take

if TYPE_CHECKING:
    from contextvars import Context

#: Whether nodes run for another process: what is meant to stop the program only fails their pass.
for_another: ContextVar[bool] = ContextVar("asyncgrad_for_another", default=False)


def ask_to_end(task: GraphTask) -> bool:
    """Ask the owner of a pass, from any thread, to cancel it; False if it is too late."""
    # Whoever pops the pass has decided: the owner grants the request, or the asker withdraws it.
    request = [task]
    task.inbox.append(partial(_grant, request))
    # `finish` checks in the opposite order, and may also reset `ending`.
    return not task.ending or take(request) is None


def _grant(request: list[GraphTask]) -> None:
    """Cancel a pass, unless the request was withdrawn."""
    task = take(request)
    if task is not None:
        task.cancelling = True
        task.cancel()


def finish(task: GraphTask, wait: bool, *, decided: bool = False) -> Outcome:
    """Commit the gradients of a pass whose nodes have run, unless it ends in another way.

    From here on it can't be cancelled. An interrupt that comes when the gradients have been added
    is raised, and the pass has succeeded.

    Args:
        wait: block while another pass commits.
        decided: its participants have decided.

    Returns:
        FINISHED if it has ended, or its participants decide how. WAITING if another pass commits:
        until that has ended, this one can be cancelled. HEAVY if it was cancelled or has failed,
        and only a thread should undo what it had added.
    """
    if not decided:
        # Set first, then check the inbox. `ask_to_end` fills the inbox first, then checks `ending`.
        # So at least one of the two threads sees the other.
        task.ending = True
        if task.inbox:
            task.read_inbox()
        if task.state is not RUNNING:
            task.ending = False
            return task.take_last_steps(thread=wait)
        if task.members and deciding(task):
            return FINISHED
    try:
        if not commit_staged(task, wait):
            # That one may add to the same leaves, so the last steps are taken again: devices may
            # have more to do before this one can be committed.
            task.ending = False
            return WAITING
        task.succeed()
    except Exception as error:
        task.fail_at_end(error)
    except BaseException as interrupt:
        if task.committed:
            task.succeed()
            raise
        task.fail_at_end(interrupt)
    return FINISHED


def time_left(task: GraphTask) -> float:
    """Seconds until a pass's deadline, by the running loop's clock or else `monotonic()`."""
    loop = _get_running_loop()
    assert task.deadline is not None
    return task.deadline - (monotonic() if loop is None else loop.time())


def check_deadline(task: GraphTask) -> None:
    """If a pass's deadline is over already, make it fail before its first node runs."""
    if time_left(task) <= 0:
        expire(task)


def expire(task: GraphTask) -> None:
    """Tell the owner of a pass, from any thread, that its deadline has passed."""
    task.inbox.append(partial(task.fail, overdue("a backward pass", task.deadline)))


def overdue(what: str, deadline: float | None) -> TimeoutError:
    """The error for what has not ended by its deadline."""
    loop = _get_running_loop()
    now = monotonic() if loop is None else loop.time()
    return TimeoutError(
        f"{what} did not end by its deadline {deadline} of the loop's clock, which shows "
        f"{now:.3f}; no .grad was touched. Give it more time, such as deadline=loop.time() + 30, "
        f"or a higher priority."
    )


def stopped_by(error: BaseException) -> AutogradError:
    """The error for passes that end because the program is being stopped."""
    failure = AutogradError(f"the engine was stopped by {described(error)}")
    failure.__cause__ = error
    return failure


def as_failure(error: BaseException) -> BaseException:
    """Convert an error to one that the caller of a pass can be given.

    Futures refuse StopIteration, GeneratorExit would close the coroutines that await them, and a
    node's own CancelledError is a failure, which must not look like the awaiter's cancellation.
    """
    if isinstance(error, (StopIteration, GeneratorExit, asyncio.CancelledError)):
        return raised_by_node(error)
    return error


def contained(error: BaseException, context: Context | None) -> BaseException:
    """The error of a pass, which stops the program unless the pass runs for another process."""
    runs_here = context is None or not context.get(for_another)
    return error if runs_here or not is_stop(error) else raised_by_node(error)


def raised_by_node(error: BaseException) -> AutogradError:
    """The error of a pass for one of a node's that must not leave the pass as it is."""
    failure = AutogradError(f"a node raised {described(error)}")
    failure.__cause__ = error
    for note in getattr(error, "__notes__", ()):
        failure.add_note(note)
    return failure
