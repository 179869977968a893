"""`Batcher`: computes requests that come one by one in batches."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import get_ident
from typing import Any, Generic, Protocol, Self, SupportsFloat, TypeVar, runtime_checkable

import anyio

from asyncgrad.autograd.modes import checked_priority
from asyncgrad.errors import WrongLoopError
from asyncgrad.serving.admission import Overloaded, check_count

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)


@runtime_checkable
class _Results(Protocol[_Result_co]):
    """What `compute` returns: a list, a tuple, a tensor or an array of results."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> _Result_co: ...


@dataclass(frozen=True, slots=True)
class BatcherStatistics:
    """The counters of a `Batcher`."""

    #: Requests that wait for a batch now.
    waiting: int
    #: Batches computed so far, and the number of requests in them.
    batches: int
    requests: int
    #: Requests refused because too many waited.
    refused: int


@dataclass(slots=True)
class _Batch:
    """A batch being computed."""

    #: The number of its requests whose callers still wait.
    wanted: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


@dataclass(slots=True)
class _Entry:
    """A request that waits for its batch, or for the result."""

    item: Any
    #: The loop time at which the request came.
    came: float
    answered: anyio.Event = field(default_factory=anyio.Event)
    #: The request's batch; None while it waits for one.
    batch: _Batch | None = None
    result: Any = None
    error: BaseException | None = None


class Batcher(Generic[_Item, _Result]):
    """Computes requests in batches: one forward pass for many requests, one result for each.

    An asynchronous context manager. A batch is closed when it is full, or when its oldest request
    has waited for `max_delay`; the next batch fills while it is computed. A waiting request whose
    task is cancelled leaves the line. If its batch is being computed, only its result is dropped.
    When all callers of a batch are cancelled, the batch is cancelled with its passes.

    Args:
        compute: an asynchronous function that takes a list of items and returns a result for each.
        max_size: the largest number of items in a batch.
        max_delay: seconds that a request waits for others, if it could be computed at once.
        max_waiting: how many requests may wait; further requests are refused at once.
        concurrent: how many batches to compute at once.

    Example:
        >>> import asyncio
        >>> from asyncgrad.serving import Batcher
        >>> async def squares(numbers):
        ...     return (ag.tensor(numbers) ** 2).tolist()
        >>> async def main():
        ...     async with Batcher(squares, max_size=8, max_delay=0.001) as batcher:
        ...         return await asyncio.gather(*map(batcher, [1, 2, 3]))
        >>> asyncio.run(main())
        [1, 4, 9]
    """

    def __init__(
        self, compute: Callable[[list[_Item]], Awaitable[_Results[_Result]]], *, max_size: int = 32,
        max_delay: float = 0.002, max_waiting: int = 1_000, concurrent: int = 1,
    ) -> None:  # fmt: skip
        check_count("Batcher", "max_size", max_size)
        check_count("Batcher", "max_waiting", max_waiting)
        check_count("Batcher", "concurrent", concurrent)
        if not (isinstance(max_delay, SupportsFloat) and float(max_delay) >= 0):
            raise ValueError(
                f"Batcher: max_delay must be a number of seconds, 0 or more, not {max_delay!r}"
            )
        self._compute = compute
        self._max_size = max_size
        self._max_delay = max_delay
        self._max_waiting = max_waiting
        self._concurrent = concurrent
        self._order = count()
        #: The waiting requests, sorted: (minus priority, order, entry).
        self._line: list[tuple[int, int, _Entry]] = []
        #: Set and replaced when the time to close the next batch may have changed.
        self._news: anyio.Event
        self._open = False
        #: The thread whose event loop has opened it.
        self._thread = 0
        self._batches = self._requests = self._refused = 0
        self._life: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        """Start to accept requests."""
        if self._life is not None:
            raise RuntimeError("the batcher is open already: one `async with` at a time")
        self._life = self._living()
        await self._life.__aenter__()
        return self

    async def __aexit__(self, *facts: Any) -> bool | None:
        """Answer the waiting requests and stop; after an error, refuse them instead."""
        assert self._life is not None
        try:
            return await self._life.__aexit__(*facts)
        finally:
            self._life = None

    @asynccontextmanager
    async def _living(self) -> Any:
        self._news, self._thread = anyio.Event(), get_ident()
        failed: list[Exception] = []
        try:
            async with anyio.create_task_group() as group:
                self._open = True
                for _ in range(self._concurrent):
                    group.start_soon(self._serve)
                try:
                    yield
                except Exception as error:
                    # An error of the caller's block is raised below, outside of the task group.
                    failed.append(error)
                    group.cancel_scope.cancel()
                finally:
                    self._open = False
                    self._tell()
        finally:
            # No task is left to compute these requests.
            for *_, entry in self._line:
                entry.error = RuntimeError("the batcher was stopped before it came to this request")
                entry.answered.set()
            self._line.clear()
        if failed:
            # Popped, because the error's traceback holds this frame.
            raise failed.pop()

    async def __call__(self, item: _Item, *, priority: int = 0) -> _Result:
        """Compute the result for one item.

        Args:
            item: an element of the list that `compute` takes.
            priority: requests with a larger priority are computed earlier.

        Raises:
            Overloaded: at once, if too many requests wait.
            RuntimeError: if the batcher is not open, or open on another thread's event loop.
            Exception: what `compute` raised for the batch. Each request has a copy of its own.
        """
        if not self._open:
            raise RuntimeError("the batcher is not open: use it within `async with batcher:`")
        if get_ident() != self._thread:
            raise WrongLoopError(
                "a batcher was called on another event loop than the one that has opened it: call "
                "it there, for example by `anyio.from_thread.run`, or open one on each loop"
            )
        if len(self._line) >= self._max_waiting:
            self._refused += 1
            raise Overloaded(f"{len(self._line)} requests wait already. Try again later.")
        entry = _Entry(item, anyio.current_time())
        place = (-checked_priority(priority), next(self._order), entry)
        insort(self._line, place)
        if len(self._line) in {1, self._max_size}:
            self._tell()
        try:
            await entry.answered.wait()
        except BaseException:
            if entry.batch is not None:
                entry.batch.wanted -= 1
                if not entry.batch.wanted:
                    entry.batch.scope.cancel()
            elif not entry.answered.is_set():
                del self._line[bisect_left(self._line, place)]
            raise
        if entry.error is not None:
            try:
                raise entry.error
            finally:
                del entry, place
        return entry.result  # type: ignore[no-any-return]

    def _tell(self) -> None:
        """Wake the serving tasks, so that they look at the line again."""
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _serve(self) -> None:
        """Compute batches one after another until the batcher is closed and the line is empty."""
        while self._line or self._open:
            pause = self._pause()
            if pause > 0:
                with anyio.move_on_after(pause) as waiting:
                    await self._news.wait()
                if not waiting.cancelled_caught:
                    continue
            entries = [entry for *_, entry in self._line[: self._max_size]]
            del self._line[: self._max_size]
            if entries:
                await self._answer(entries)
                # Let callers receive their results first, even if `compute` never suspended.
                await anyio.lowlevel.checkpoint()

    def _pause(self) -> float:
        """Seconds until the next batch has to be closed, as things stand."""
        if not self._line:
            return math.inf
        if len(self._line) >= self._max_size or not self._open:
            return 0.0
        first = min(entry.came for *_, entry in self._line)
        return first + self._max_delay - anyio.current_time()

    async def _answer(self, entries: list[_Entry]) -> None:
        """Compute a batch; an error goes to all requests in the batch, and to no others."""
        self._batches += 1
        self._requests += len(entries)
        batch = _Batch(len(entries))
        for entry in entries:
            entry.batch = batch
        try:
            with batch.scope:
                running = self._compute([entry.item for entry in entries])
                if not isinstance(running, Awaitable):
                    raise TypeError("Batcher: compute has to be an async function")
                results = await running
                if not isinstance(results, _Results):
                    raise TypeError(
                        f"Batcher: compute has to return a sequence with a result for each of "
                        f"{len(entries)} items, not {type(results).__name__}"
                    )
                if len(results) != len(entries):
                    raise ValueError(
                        f"Batcher: compute was given {len(entries)} items and has returned "
                        f"{len(results)} results"
                    )
                for place, entry in enumerate(entries):
                    entry.result = results[place]
        except Exception as error:
            entries[0].error = error
            for entry in entries[1:]:
                entry.error = _like(error)
        except BaseException as error:
            # A cancellation inside `compute` alone fails only this batch.
            cancelled = anyio.current_effective_deadline() == -math.inf
            alone = isinstance(error, anyio.get_cancelled_exc_class()) and not cancelled
            what = "computation" if alone else "batcher"
            for entry in entries:
                entry.error = RuntimeError(f"the {what} was stopped by {type(error).__name__}")
            if not alone:
                raise
        finally:
            for entry in entries:
                entry.answered.set()
            # An error's traceback holds this frame: with the entries, it would hold the error.
            entries.clear()
            del entry

    def statistics(self) -> BatcherStatistics:
        """The current counters."""
        return BatcherStatistics(len(self._line), self._batches, self._requests, self._refused)


def _like(error: Exception) -> Exception:
    """A copy of an error, so that what one caller does to its own is not done to the others'."""
    try:
        # Not by `copy`, which reduces errors as Dask has registered for pickling.
        reduced: Any = error.__reduce__()
        other: Exception = reduced[0](*reduced[1])
    except Exception:
        # The class takes other arguments than those in `args`.
        other = type(error).__new__(type(error), *error.args)
    vars(other).update(vars(error))
    # An `__init__` that makes its message from its arguments has just been given the message.
    other.args = error.args
    if notes := getattr(error, "__notes__", None):
        other.__notes__ = [*notes]
    other.__context__ = error.__context__
    other.__cause__ = error.__cause__
    other.__suppress_context__ = error.__suppress_context__
    return other.with_traceback(error.__traceback__)
