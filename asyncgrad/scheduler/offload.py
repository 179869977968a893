"""Forward passes that don't hold the loop: `offload` to a thread, or `cooperate` step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from inspect import iscoroutine
from typing import Any, ParamSpec, TypeVar, cast
from weakref import ref

from asyncgrad.core.modes import Modes, current, install
from asyncgrad.errors import AutogradError, described
from asyncgrad.scheduler.engine import Engine
from asyncgrad.scheduler.registry import running_engine
from asyncgrad.scheduler.segments import outlast

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def offload(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a function on tensors in a thread of the engine, with the caller's context.

    A cancelled caller stays suspended until the function has ended. The function is stopped before
    its next operation on tensors; code without any runs to its end. A function that still waits
    for a thread never begins, and its caller does not wait.

    The engine has one thread for each core, and expensive nodes need these, too. Use
    `asyncio.to_thread` for functions that mostly wait for a disk or a network.

    Args:
        function: what to run, a forward pass for example.

    Raises:
        CancelledError: once the function has ended, if the caller is cancelled meanwhile.
        RuntimeError: if the function raises StopIteration or CancelledError itself.
        TypeError: if it is no function, or returns a coroutine, which would not run in the thread.

    Example:
        >>> import asyncio, asyncgrad as ag
        >>> async def main():
        ...     x = ag.tensor([3.0], requires_grad=True)
        ...     loss = await ag.offload(lambda: (x * x).sum())
        ...     await loss.backward()
        ...     return x.grad.item()
        >>> asyncio.run(main())
        6.0
    """
    if not callable(function):
        raise TypeError(
            f"offload: the first argument is the function to run, not a {type(function).__name__}: "
            f"write offload(model, x), not offload(model(x))"
        )
    check = _Check()
    running = running_engine("offload")
    ended = asyncio.get_running_loop().create_future()
    job = partial(copy_context().run, _within, check, partial(function, *args, **kwargs))
    # Not by `set_exception`: asyncio logs errors that nobody retrieves.
    thread_job = running.thread_segments.offload(
        running, job, lambda result, error: ended.set_result((result, error))
    )
    try:
        # Nothing below depends on what changes while this waits.
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        # The caller was cancelled. It stays until the function has ended, which may still use the
        # caller's data.
        check.stop()
        if not thread_job.withdraw():
            await outlast(ended)
        raise
    result, *errors = ended.result()
    if errors[0] is not None:
        del ended  # See core.frames.
        raise errors.pop()
    return cast("_T", result)


class _Check:
    """Stops a function in a thread before its next operation; till then its modes stay plain."""

    def __init__(self) -> None:
        self._stopped = False
        #: The function's records of modes that are alive, by `id`.
        self._records: dict[int, ref[Modes]] = {}

    def __call__(self) -> None:
        """Raise if the function is to stop."""
        if self._stopped:
            raise asyncio.CancelledError("the caller of offload() was cancelled")

    def watch(self, record: Modes) -> None:
        """Note a record of modes that the function makes; called in its thread."""
        key, records = id(record), self._records
        # In this order no record is missed: `stop` looks for records after it has set the flag.
        records[key] = ref(record, lambda _: records.pop(key))
        if self._stopped:
            record.plain = False

    def stop(self) -> None:
        """Have the next operation call this."""
        self._stopped = True
        for reference in list(self._records.values()):
            record = reference()
            if record is not None:
                record.plain = False


def _within(check: _Check, call: Callable[[], Any]) -> Any:
    """Run a function in a thread, in its copy of the caller's context, unless `check` raises."""
    check()
    install(current().replace(check=check))
    try:
        result = call()
    except (StopIteration, asyncio.CancelledError) as error:
        check()
        # In the caller, a coroutine, either would mean that it has returned or was cancelled.
        raise AutogradError(f"offload: the function raised {described(error)}") from error
    if iscoroutine(result):
        result.close()
        raise TypeError(
            f"offload: the function returned the coroutine {result.__qualname__}(), which would "
            f"run on the loop and in no thread. Await it, and offload what it computes."
        )
    return result


async def cooperate() -> None:
    """Yield to the loop if this turn of the loop has used up its budget.

    Tasks that yield resume in order, in each turn as many as its budget holds. If passes have a
    negative priority here (`asyncgrad.request`), the caller yields until the loop is idle, or for
    twenty slices.
    """
    turn = turn_of_caller(running_engine("cooperate"))
    if turn is not None:
        # Nothing has to be cleaned up if this wait is cancelled.
        await turn


def turn_of_caller(running: Engine) -> asyncio.Future[None] | None:
    """What a caller that yields has to wait for; None if this turn of the loop has time for it."""
    if current().priority < 0:
        return running.idle_queue.join(running)
    queue = running.yield_queue
    # A thousand tasks may come here in one turn, so if a queue exists the clock is not read.
    spent = queue.waiting or running.budget_left(running.loop) <= 0
    return queue.join(running) if spent else None
