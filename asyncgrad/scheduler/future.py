"""The future of a pass, and the search for passes whose await was forgotten.

Cancelling a future asks its pass to drain; it ends as cancelled only when nothing of the pass runs
any more. Once the commit has begun or a node has failed it can't be cancelled: asyncio then raises
its CancelledError after the result, or instead of the error.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import CancelledError, InvalidStateError, current_task
from asyncio.events import _get_running_loop
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from asyncgrad.core.graph_task import GraphTask
from asyncgrad.core.node import name_of
from asyncgrad.devices.waiting import tell_loop
from asyncgrad.errors import (
    AutogradError,
    PendingBackwardError,
    WrongLoopError,
    add_note,
    described,
)
from asyncgrad.scheduler.completion import ask_to_end
from asyncgrad.scheduler.host import Host
from asyncgrad.scheduler.reentrant import is_in_node

if TYPE_CHECKING:
    from contextvars import Context

#: In a cancellation of nested passes, the stack is left after so many.
_LEVELS = 64

_T = TypeVar("_T")
_initialise = asyncio.Future.__init__
_wait = asyncio.Future.__await__
#: Gives a future its result.
resolve = asyncio.Future.set_result


class BackwardFuture(asyncio.Future[_T]):
    """What `backward()` and `grad()` return on a running loop: await it."""

    __slots__ = ("_cancel_text", "_engine", "_notes", "_observed", "_origin", "_starter", "_task")

    def __init__(
        self, engine: Host, loop: asyncio.AbstractEventLoop, task: GraphTask,
        starter: asyncio.Task[Any] | None,
    ) -> None:  # fmt: skip
        """Make the future of a pass; the starter is None outside of tasks."""
        _initialise(self, loop=loop)
        self._engine = engine
        self._task: GraphTask | None = task
        self._starter = starter
        self._observed = False
        self._cancel_text: Any = None
        self._origin = task.freed
        engine.unobserved[id(self)] = id(starter)

    def __repr__(self) -> str:
        task = self._task
        if task is None:
            return super().__repr__()
        said = f"pass of {name_of(task.root)}, priority {task.priority}"
        if task.deadline is not None:
            said += f", {task.deadline - self._loop.time():.3f} s before its deadline"
        return f"<{type(self).__name__} pending: {said}>"

    def _is_abandoned(self) -> bool:
        """Whether the task that started the pass has ended."""
        return self._starter is None or self._starter.done()

    def _observe(self) -> None:
        """Note that the outcome was looked at: the await was not forgotten."""
        if not self._observed:
            self._observed = True
            self._engine.unobserved.pop(id(self), None)

    def __await__(self) -> Generator[Any, None, _T]:
        """Wait for the end of the pass.

        Raises:
            RuntimeError: in another event loop than the one the pass runs on, or in a coroutine
                node that the pass waits for.
        """
        engine = self._engine
        if not self._observed:
            # Inlined `_observe`.
            self._observed = True
            engine.unobserved.pop(id(self), None)
        if _get_running_loop() is not self._loop:
            raise _in_another_loop()
        if self._task is not None and engine.coroutine_nodes.waits_for_caller(self._task):
            raise AutogradError(
                "a coroutine node or hook awaits its own pass, or one that waits for it: both "
                "would wait for ever. Await the pass where it was started."
            )
        # Only an ended pass has to give way: a pending one makes its awaiter wait anyway.
        return self._give_way() if engine.spent and self.done() else _wait(self)

    def _give_way(self) -> Generator[Any, None, _T]:
        """Yield to the loop for one turn, though the pass has ended."""
        # If the awaiter is cancelled here, asyncio must not log the error as never retrieved.
        self._log_traceback = False
        yield
        waiting = _wait(self)
        del self  # See core.frames.
        return (yield from waiting)

    def __iter__(self) -> NoReturn:
        """Raise TypeError: the future can't be unpacked like the gradients."""
        raise TypeError("await the pass: `grads = await asyncgrad.grad(...)`")

    def __getitem__(self, place: object) -> NoReturn:
        """Raise TypeError: the future can't be indexed like the gradients."""
        iter(self)

    def result(self) -> _T:
        """The result of the pass.

        Raises:
            InvalidStateError: while the pass is pending: on its own loop it can only be awaited.
        """
        if not self.done():
            raise InvalidStateError(
                "the pass is still pending: use await. A blocking result() on the event loop's "
                "own thread would wait for itself; asyncgrad.sync blocks elsewhere."
            )
        self._observe()
        try:
            return super().result()
        except CancelledError as error:
            for note in self._notes:
                add_note(error, note)
            raise
        finally:
            del self  # See core.frames.

    def exception(self) -> BaseException | None:
        """The error that the pass ended with, or None.

        Raises:
            InvalidStateError: while the pass is pending.
        """
        if not self.done():
            raise InvalidStateError("the pass is still pending: await it first")
        self._observe()
        return super().exception()

    def cancelled(self) -> bool:
        """Whether the pass has ended as cancelled; if so, that counts as looking at the outcome."""
        cancelled = super().cancelled()
        if cancelled:
            self._observe()
        return cancelled

    def committed(self) -> bool:
        """Whether the pass has succeeded: its gradients are in `.grad`, or are its result.

        If the task that awaits a pass is cancelled when it is too late to cancel the pass, it only
        gets a CancelledError; this tells what happened. False while the pass runs, and if it was
        cancelled or has failed.
        """
        return self.done() and not super().cancelled() and self._exception is None

    def add_done_callback(
        self, callback: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        """Call a function when the pass has ended.

        Raises:
            RuntimeError: in another event loop: `asyncio.wait` and the like would wait for ever.
        """
        running = _get_running_loop()
        if running is not None and running is not self._loop:
            raise _in_another_loop()
        self._observe()
        super().add_done_callback(callback, context=context)

    def cancel(self, msg: object = None) -> bool:
        """Ask the pass to end; False if it has ended, has failed, or is being committed."""
        task, loop = self._task, self._loop
        if task is None:
            return False
        if not loop.is_running():
            # An interrupt has stopped the loop, perhaps in the midst of a step of this pass.
            self._engine.revive(task)
            if self.done():
                return super().cancelled()
        # On False, asyncio cancels the awaiting task after the pass has ended by itself.
        if task.ending or task.error is not None:
            return False
        self._cancel_text = msg
        here = _get_running_loop() is loop or not loop.is_running()
        if here and (task.depth + 1) % _LEVELS:
            return self._engine.cancel(task)
        # In another thread, or deep in nested passes, each of which cancels the next: put it in the
        # inbox for the pass's owner, and tell the loop.
        in_time = ask_to_end(task)
        if in_time:
            tell_loop(loop, self._engine.cancel, task)
        return in_time

    def set_result(self, result: object) -> NoReturn:
        """Raise: only the pass sets its result."""
        raise AutogradError("a pass's result is its own: to stop waiting for it, cancel() it")

    def set_exception(self, exception: object) -> NoReturn:
        """Raise: only the pass sets its error."""
        self.set_result(exception)

    def _resolve_cancelled(
        self, later: Sequence[BaseException], failure: BaseException | None
    ) -> None:
        """End as cancelled, now that nothing of the pass runs.

        What nodes have raised `later`, and a `failure` of which the caller of `cancel()` did not
        know, become notes, as text, because the errors themselves refer to the pass.
        """
        self._engine.counts["cancelled"] += 1
        self._notes = [f"after the pass was cancelled: {described(error)}" for error in later]
        if failure is not None:
            self._notes.insert(0, f"the pass had failed before: {described(failure)}")
        super().cancel(msg=self._cancel_text)
        self._task = None

    def _resolve_failed(self, error: BaseException) -> None:
        """End with an error."""
        self._engine.counts["failed"] += 1
        super().set_exception(error)
        self._task = None

    def __del__(self) -> None:
        # asyncio's own `__del__` goes first, because the warning below may be raised as an error.
        if self._log_traceback:
            super().__del__()
        if not self._observed:
            self._observe()
            if self._starter is not None and not self._starter.done():
                self._engine.lost_starters.add(self._starter)
            warnings.warn(
                f"a backward pass started at {self._origin} was never awaited",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )


def _in_another_loop() -> WrongLoopError:
    return WrongLoopError(
        "a pass was awaited in another event loop than the one it was started on: await it there, "
        "or start it with asyncgrad.sync in a thread of its own"
    )


def refuse_forgotten(engine: Host, name: str) -> None:
    """Raise if the current task has started a pass, live or lost, that it has not awaited."""
    starter = current_task()
    if is_in_node():
        # The node may belong to a pass that this very task has just started.
        return
    if id(starter) not in engine.unobserved.values():
        if starter in engine.lost_starters:
            # A lost pass is reported once.
            engine.lost_starters.discard(starter)
        elif not any(task.future._starter is starter for task in engine.live if task.future):
            return
    raise PendingBackwardError(
        f"{name}: this task has started a backward pass that it has not awaited. Write "
        f"`await loss.backward()` before it."
    )
