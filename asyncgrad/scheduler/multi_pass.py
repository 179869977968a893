"""Calls that consist of several passes and a user's function, as those of `asyncgrad.func` do.

Each is written as a coroutine, its *program*. On a running loop it becomes a task. Elsewhere the
calling thread runs it: its passes have then ended before they are awaited, so it never has to wait.
The exception is a user's coroutine function; without a loop, its program runs on the portal's loop.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from sys import modules
from typing import TYPE_CHECKING, Any

from asyncgrad.aliases import Value
from asyncgrad.core.frames import CallSite
from asyncgrad.core.modes import Mode, current
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.scheduler.portal import call_on_portal
from asyncgrad.scheduler.reentrant import is_in_node
from asyncgrad.scheduler.registry import engine_of, refuse_trio
from asyncgrad.scheduler.results import awaitable

if TYPE_CHECKING:
    from contextvars import Context


class MultiPass(asyncio.Task[Any]):
    """What a call of several passes returns on a running loop: await it."""

    def __init__(
        self, program: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop, name: str
    ) -> None:
        """Run a coroutine as a task, which the engine keeps alive until it has ended.

        The name is that of the function that the user called.
        """
        self._function = name
        self._observed = False
        self._origin = CallSite().remember()
        super().__init__(program, loop=loop)
        running = engine_of(loop).background_tasks
        running.add(self)
        super().add_done_callback(running.discard)

    def __iter__(self) -> Generator[Any, None, Any]:
        """Raise TypeError: the task can't be unpacked like the results."""
        raise TypeError(f"{self._function}: await the call, and use what that gives.")

    def __getitem__(self, place: object) -> Any:
        """Raise TypeError: the task can't be indexed like the results."""
        return iter(self)

    def __await__(self) -> Generator[Any, None, Any]:
        self._observed = True
        return super().__await__()

    def result(self) -> Any:
        """The result of the call."""
        self._observed = True
        return super().result()

    def exception(self) -> BaseException | None:
        """The error that the call ended with, or None."""
        self._observed = True
        return super().exception()

    def add_done_callback(
        self, callback: Callable[..., Any], /, *, context: Context | None = None
    ) -> None:
        """Call a function when the call has ended."""
        self._observed = True
        super().add_done_callback(callback, context=context)

    def __del__(self) -> None:
        if not self._observed:
            warnings.warn(
                f"a call started at {self._origin} was never awaited",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )
        super().__del__()


def run_multi_pass(program: Coroutine[Any, Any, Any], name: str, *, waits: bool) -> Any:
    """Run a program on the running loop, or to its end if it could not be awaited there.

    Args:
        name: of the function that the user called, for errors.
        waits: it calls a user's coroutine function.

    Returns:
        A `MultiPass` on a running loop; elsewhere the result, which can be awaited, too.
    """
    loop = _get_running_loop()
    if loop is None:
        if "trio" in modules and not current().blocking:
            try:
                refuse_trio(name)
            except RuntimeError:
                program.close()
                raise
        if waits:
            return awaitable(call_on_portal(program))
    else:
        modes = current()
        if not modes.blocking and not is_in_node():
            return MultiPass(program, loop, name)
    try:
        program.send(None)
    except StopIteration as stop:
        return awaitable(stop.value)
    program.close()
    raise AutogradError(
        "a blocking call met a coroutine that waits for something, which could only run on an "
        "event loop: use await"
    )


def waits(function: Value) -> bool:
    """Whether calls have to be awaited; also of transforms, and of modules with `async` methods."""
    while function.__class__ is partial:
        function = function.func
    if isinstance(function, type):
        # Its methods may be awaited, but not the call that makes an instance.
        return False
    known = getattr(function, "_waits", None)
    if isinstance(known, bool):
        return known
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        return True
    forward = getattr(function, "forward", None)
    return forward is not None and iscoroutinefunction(forward)


async def call(function: Callable[..., Any], /, *args: Value, **kwargs: Value) -> Any:
    """Call a user's function from a program.

    A plain function can't await, so passes that it starts block until they have ended.
    """
    program = getattr(function, "_program", None)
    if program is not None:
        return await program(*args, **kwargs)
    if waits(function):
        return await function(*args, **kwargs)
    with Mode(blocking=True):
        result = function(*args, **kwargs)
    if isawaitable(result) and not isinstance(result, (Variable, tuple, list, dict)):
        result = await result
    return result
