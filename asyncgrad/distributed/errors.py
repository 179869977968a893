"""Errors of work on several machines."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from pathlib import Path
from traceback import TracebackException
from typing import Any

from asyncgrad.errors import AutogradError, add_note, described
from asyncgrad.scheduler.completion import overdue

#: Where the frames are that a traceback sent to another machine leaves out.
_PACKAGE = str(Path(__file__).parents[1])


class WorkerLostError(AutogradError):
    """A worker has died, or has not answered in time and is not listened to any more.

    Attributes:
        rank: the worker's rank in its world.
        during: what it was asked to do.
        reason: how it was noticed.
    """

    #: The world that has lost the worker; None if a user's code has made the error.
    _session: str | None = None

    def __init__(self, rank: int, during: str, reason: str) -> None:
        super().__init__(
            f"worker {rank} was lost during {during}: {reason}. What it held is gone: make a new "
            f"world, and load the last checkpoint."
        )
        self.rank = rank
        self.during = during
        self.reason = reason

    def __reduce__(self) -> Any:
        # With its notes and its world.
        return type(self), (self.rank, self.during, self.reason), self.__dict__


class PassEndedError(AutogradError):
    """Something came late: the pass, call or run that it belongs to has ended."""


def dumps(value: Any, out_of_band: Callable[[pickle.PickleBuffer], None] | None = None) -> bytes:
    """Pickle a value, also if its class or function is from a script or a notebook."""
    try:
        # The extras `dask` and `ray` install it; an engine of a user's own may do without.
        from cloudpickle import dumps as pickled
    except ImportError:
        from pickle import dumps as pickled
    found: bytes = pickled(value, protocol=5, buffer_callback=out_of_band)
    return found


def late(what: str) -> PassEndedError:
    """The error for a message about something that has ended."""
    return PassEndedError(f"{what} has ended, or was given up: nothing more is done for it")


def end_at(limit: asyncio.Timeout, deadline: float | None) -> None:
    """Have a timeout that has been entered end at a time of the loop's clock, or never."""
    # In an empty context: asyncio keeps a cancelled timer, and its context, until its time.
    Context().run(limit.reschedule, deadline)


@asynccontextmanager
async def limited(
    name: str, deadline: float | None, committed: Callable[[], bool] = bool
) -> AsyncIterator[None]:
    """Raise a TimeoutError if the block does not end by its deadline.

    Args:
        name: what is late.
        deadline: a time of the loop's clock, or None.
        committed: whether all has been committed; then a deadline that passes changes nothing.
    """
    limit, expired = asyncio.timeout(None), False
    try:
        async with limit:
            end_at(limit, deadline)
            yield
    except TimeoutError as error:
        expired = limit.expired()
        if not expired:
            raise
        if error.__cause__ is not None:
            # The cancellation's traceback holds frames of the context managers that it has left,
            # these hold frames of contextlib from Python 3.13 on, those the cancellation: a cycle.
            error.__cause__.__traceback__ = None
    finally:
        # `limit` refers to the task, whose error's traceback may hold this frame: a cycle. So
        # does asyncio's error.
        del limit
    if expired and not committed():
        raise overdue(name, deadline)


def note_traceback(error: BaseException, where: str) -> None:
    """Add a note with the frames of users' code, because no traceback is sent with an error."""
    with suppress(Exception):
        shown = TracebackException.from_exception(error, lookup_lines=False, compact=True)
        if _shorten(shown):
            add_note(error, f"its traceback {where}:\n" + "".join(shown.format()).rstrip())


def _shorten(shown: TracebackException) -> bool:
    """Keep users' frames and the one that raised; whether there are any of users'."""
    users = [frame for frame in shown.stack if not frame.filename.startswith(_PACKAGE)]
    shown.stack[:] = users + [frame for frame in shown.stack[-1:] if frame not in users]
    # The error is sent with its notes, so the trace needs none.
    shown.__notes__ = None
    reasons = (shown.__cause__, shown.__context__, *(shown.exceptions or ()))
    # A list, because all are to be shortened.
    return any([bool(users), *[_shorten(one) for one in reasons if one is not None]])


def forget_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks that have come with an error; its notes have the lines of users' code.

    Dask has errors bring some, in which frames of this process are that have read the error, and
    refer to it: a cycle, with all that the frames hold.
    """
    waiting, known = [error], set[int]()
    while waiting:
        one = waiting.pop()
        known.add(id(one))
        one.__traceback__ = None
        others = (one.__cause__, one.__context__, *getattr(one, "exceptions", ()))
        waiting += [other for other in others if other is not None and id(other) not in known]


class _Anew(AutogradError):
    """Describes an error that its class does not make again from `args`; unpickled, it is that."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"an error: {described(error)}")
        self.error = error

    def __reduce__(self) -> Any:
        args: tuple[Any, ...] = self.error.args
        if isinstance(self.error, BaseExceptionGroup):
            args = self.error.message, [sendable(one) for one in self.error.exceptions]
        return _made_anew, (dumps((type(self.error), args, self.error.__dict__)),)


def _made_anew(pickled: bytes) -> BaseException:
    """An error, made without its class's `__init__`."""
    kind, args, state = pickle.loads(pickled)
    error: BaseException = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def sendable(error: BaseException) -> BaseException:
    """An error that arrives on another machine: itself, or one that describes it."""
    why = "would close whoever awaits it"
    if not isinstance(error, GeneratorExit):
        for made in (error, _Anew(error)):
            with suppress(Exception):
                pickle.loads(pickle.dumps(made))
                return made
        why = "can't be pickled"
    substitute = AutogradError(f"an error that {why}: {described(error)}")
    for note in getattr(error, "__notes__", ()):
        substitute.add_note(note)
    return substitute
