"""The future of a pass.

Cancelling it asks the pass to drain; it ends as cancelled only when nothing of the pass runs any
more. Once the commit has begun or a node has failed it can't be cancelled: asyncio then delivers
its CancelledError after the result, or in the place of the error.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import CancelledError, InvalidStateError
from asyncio.events import _get_running_loop
from typing import TYPE_CHECKING, Any

from asyncgrad.errors import AutogradError, WrongLoopError, add_note, described
from asyncgrad.scheduler.completion import ask_to_end
from asyncgrad.scheduler.segments import tell_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextvars import Context

    from asyncgrad.core.graph_task import GraphTask
    from asyncgrad.scheduler.engine import Engine

_initialise = asyncio.Future.__init__
_wait = asyncio.Future.__await__
#: Gives a future its result.
resolve = asyncio.Future.set_result


class BackwardFuture(asyncio.Future[Any]):
    """What `backward()` and `grad()` return on a running loop: await it."""

    __slots__ = (
        "_cancel_text",
        "_engine",
        "_notes",
        "_observed",
        "_origin",
        "_starter",
        "_task",
    )

    def __init__(self, engine: Engine, loop: Any, task: GraphTask, starter: Any) -> None:
        """Stand for a pass.

        Args:
            engine: what runs the pass.
            loop: the event loop it runs on.
            task: the pass.
            starter: the asyncio task that called, None outside of tasks.
        """
        _initialise(self, loop=loop)
        self._engine: Engine = engine
        self._task: GraphTask | None = task
        self._starter = starter
        self._observed = False
        self._cancel_text: Any = None
        self._origin = task.freed
        engine.unobserved[id(self)] = id(starter)

    def _observe(self) -> None:
        """Somebody looks at the outcome: the await was not forgotten."""
        if not self._observed:
            self._observed = True
            self._engine.unobserved.pop(id(self), None)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the end of the pass.

        Raises:
            RuntimeError: in another event loop than the one the pass runs on, or in a coroutine
                node of the pass.
        """
        engine = self._engine
        if not self._observed:
            # `_observe`, without its call.
            self._observed = True
            engine.unobserved.pop(id(self), None)
        if _get_running_loop() is not self._loop:
            raise _in_another_loop()
        if self._task is not None and engine.nodes.is_one_of(self._task):
            raise AutogradError(
                "a coroutine node or hook awaits its own pass, which waits for it: it would wait "
                "for ever. Await the pass where it was started."
            )
        # Who awaits a pass that goes on gives way as it is, and cancels the pass with itself.
        return self._give_way() if engine.spent and self.done() else _wait(self)

    def _give_way(self) -> Generator[Any, None, Any]:
        """Wait for the next turn of the loop, though the pass has ended."""
        # Cancelled here, the awaiter has no use for an error, and nobody is to be told of it.
        self._log_traceback = False
        yield
        waiting = _wait(self)
        # The error's traceback will hold this frame: it must not hold the future.
        del self
        return (yield from waiting)

    def __iter__(self) -> Generator[Any, None, Any]:
        """Refuse to be unpacked like the gradients it stands for."""
        raise TypeError("await the pass: `grads = await asyncgrad.grad(...)`")

    def __getitem__(self, place: Any) -> Any:
        """Refuse to be indexed like them."""
        return iter(self)

    def result(self) -> Any:
        """What the pass gave.

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
            # The error's traceback holds this frame: it must not hold the future.
            del self

    def exception(self) -> BaseException | None:
        """The error the pass ended with, or None.

        Raises:
            InvalidStateError: while the pass is pending.
        """
        if not self.done():
            raise InvalidStateError("the pass is still pending: await it first")
        self._observe()
        return super().exception()

    def cancelled(self) -> bool:
        """Whether the pass has ended as cancelled; who has seen that has seen all of it."""
        cancelled = super().cancelled()
        if cancelled:
            self._observe()
        return cancelled

    def committed(self) -> bool:
        """Whether the pass has succeeded: all its gradients are in `.grad`, or are its result.

        The task that awaits a pass may be cancelled when it is too late to cancel the pass, and is
        then told of its cancellation alone. False while the pass runs, and if it was cancelled or
        has failed.
        """
        return self.done() and not super().cancelled() and self._exception is None

    def add_done_callback(
        self, callback: Callable[..., Any], /, *, context: Context | None = None
    ) -> None:
        """Call a function when the pass has ended.

        Raises:
            RuntimeError: in another event loop: `asyncio.wait` and its like would wait for ever.
        """
        running = _get_running_loop()
        if running is not None and running is not self._loop:
            raise _in_another_loop()
        self._observe()
        super().add_done_callback(callback, context=context)

    def cancel(self, msg: Any = None) -> bool:
        """Ask the pass to end; False if it has ended, has failed, or is being committed."""
        task = self._task
        # False has asyncio cancel the task that awaits once the pass has ended as it will.
        if task is None or task.ending or task.error is not None:
            return False
        self._cancel_text = msg
        loop = self._loop
        if _get_running_loop() is loop or not loop.is_running():
            return self._engine.cancel(task)
        # From another thread: the pass's owner reads its inbox, the rest is the loop's to do.
        in_time = ask_to_end(task)
        if in_time:
            tell_loop(loop, self._engine.cancel, task)
        return in_time

    def set_result(self, result: Any) -> None:
        """Refuse: the pass alone says what it gave."""
        raise AutogradError("a pass's result is its own: to stop waiting for it, cancel() it")

    def set_exception(self, exception: Any) -> None:
        """Refuse likewise."""
        self.set_result(exception)

    def finish_cancelled(
        self, later: Sequence[BaseException], failure: BaseException | None = None
    ) -> None:
        """End as cancelled, now that nothing of the pass runs.

        Args:
            later: what nodes have raised after the cancellation; becomes notes on it, as texts:
                errors lead to the pass.
            failure: likewise, what the pass was ending with when it was cancelled, unknown to
                who did.
        """
        self._task = None
        self._notes = [f"after the pass was cancelled: {described(error)}" for error in later]
        if failure is not None:
            self._notes.insert(0, f"the pass had failed before: {described(failure)}")
        super().cancel(msg=self._cancel_text)

    def finish_failed(self, error: BaseException) -> None:
        """End with an error."""
        self._task = None
        super().set_exception(error)

    def __del__(self) -> None:
        """Warn if nobody ever looked at the outcome."""
        # First: the warning may be an error.
        if self._log_traceback:
            super().__del__()
        if not self._observed:
            self._observe()
            self._engine.forgotten_awaits.note_lost(self._starter)
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
