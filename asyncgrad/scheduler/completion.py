"""How a pass ends: with its gradients committed, or with an error its caller can be given."""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from asyncgrad.core.states import RUNNING
from asyncgrad.errors import AutogradError, described

if TYPE_CHECKING:
    from asyncgrad.core.graph_task import GraphTask


def ask_to_end(task: GraphTask) -> bool:
    """Have the owner of a pass cancel it; any thread may ask.

    Returns:
        False, with nothing done, where that is too late.
    """
    # Taking the pass out of it is granting the request, or giving it up.
    request = [task]
    task.inbox.append(partial(_grant, request))
    # The other way round than in `begin_end`, which may also take back what it has said.
    return not (task.ending and _take(request))


def _grant(request: list[GraphTask]) -> None:
    """Cancel a pass, unless who has asked for it has given up."""
    task = _take(request)
    if task is not None:
        task.cancelling = True
        task.cancel()


def _take(request: list[GraphTask]) -> GraphTask | None:
    """The pass, if nobody else has taken it."""
    try:
        return request.pop()
    except IndexError:
        return None


def begin_end(task: GraphTask) -> bool:
    """Say that a pass which has run is about to be committed: it can't be cancelled any more.

    Returns:
        False where it has been, or where another report that has come in time ends it.
    """
    # Said first and looked then. Who cancels does it the other way round, and so knows whether that
    # was in time, whatever thread this is.
    task.ending = True
    if task.inbox:
        task.drain()
        task.ending = task.state is RUNNING
    return task.ending


def end_pass(task: GraphTask, wait: bool) -> bool:
    """Commit the gradients of a pass that has run.

    Returns:
        False, with nothing changed, where another pass holds a leaf and `wait` is false.
    """
    try:
        if not task.commit(wait):
            return False
        task.succeed()
    except BaseException as error:
        task.fail_at_end(error)
    return True


def end_in_thread(task: GraphTask) -> None:
    """Commit the gradients of a pass that has run, in a thread of its own, unless it is too late.

    Until the thread begins with it, the pass can be cancelled, and its deadline can come.
    """
    if begin_end(task):
        end_pass(task, True)


def time_left(task: GraphTask) -> float:
    """The seconds until a pass's deadline, by the clock of the loop that runs here, if one does."""
    loop = _get_running_loop()
    assert task.deadline is not None
    return task.deadline - (monotonic() if loop is None else loop.time())


def check_deadline(task: GraphTask) -> None:
    """Have a pass whose deadline is over already end before its first node runs."""
    if time_left(task) <= 0:
        task.inbox.append(partial(task.fail, deadline_error(task)))


def deadline_error(task: GraphTask) -> TimeoutError:
    """What a pass raises whose deadline has passed."""
    return TimeoutError(
        f"a backward pass with deadline {task.deadline} did not end in time; no .grad was touched. "
        f"Give it more time or a higher priority."
    )


def is_stop(error: BaseException | None) -> bool:
    """Whether an error is meant to stop the program."""
    return isinstance(error, (KeyboardInterrupt, SystemExit))


def stopped_by(error: BaseException) -> AutogradError:
    """What passes end with when the program is being stopped."""
    failure = AutogradError(f"the engine was stopped by {described(error)}")
    failure.__cause__ = error
    return failure


def as_failure(error: BaseException) -> BaseException:
    """The error as the caller of a pass can be given it.

    Futures refuse StopIteration, GeneratorExit would close the coroutines that await them, and a
    node's own CancelledError is the node's failure and no cancellation of who awaits the pass.
    """
    if isinstance(error, (StopIteration, GeneratorExit, asyncio.CancelledError)):
        failure = AutogradError(f"a node raised {described(error)}")
        failure.__cause__ = error
        return failure
    return error
