"""Requests that come one by one and are computed together."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio

from asyncgrad.serving.admission import Overloaded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class BatcherStatistics:
    """What a `Batcher` has done."""

    #: Requests that wait to be in a batch.
    waiting: int
    #: Batches computed, and how many requests were in them.
    batches: int
    requests: int
    #: Requests turned away because too many waited.
    refused: int


@dataclass(slots=True)
class _Entry:
    """A request in the line."""

    item: Any
    answered: anyio.Event = field(default_factory=anyio.Event)
    #: Nobody waits for the answer any more.
    gone: bool = False
    result: Any = None
    error: BaseException | None = None


class Batcher(Generic[_Item, _Result]):
    """Computes requests in batches: one forward pass for many, a result for each.

    An asynchronous context manager. A batch is closed when it is full, or when the first of it has
    waited long enough. While one is computed the next fills up. A request whose task is cancelled
    leaves the line; one that is being computed is, with its batch, and its result is dropped.

    Args:
        compute: an asynchronous function of a list of items that gives a result for each.
        max_size: how many items a batch has at most.
        max_delay: seconds that the first of a batch waits for others.
        max_waiting: how many may wait; the next is refused at once.
        concurrent: how many batches are computed at once.

    Example:
        >>> import asyncio
        >>> import asyncgrad as ag
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
        self,
        compute: Callable[[list[_Item]], Awaitable[Sequence[_Result]]],
        *,
        max_size: int = 32,
        max_delay: float = 0.002,
        max_waiting: int = 1_000,
        concurrent: int = 1,
    ) -> None:
        """Wait for the context to be entered."""
        if max_size < 1 or concurrent < 1:
            raise ValueError(
                f"Batcher: max_size and concurrent must be at least 1, not {max_size} and "
                f"{concurrent}"
            )
        self._compute = compute
        self._max_size = max_size
        self._max_delay = max_delay
        self._max_waiting = max_waiting
        self._concurrent = concurrent
        self._order = count()
        self._line: list[tuple[int, int, _Entry]] = []
        self._waiting = 0
        self._came: anyio.Event
        self._full: anyio.Event
        self._open = False
        self._batches = self._requests = self._refused = 0
        self._life: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to take requests."""
        self._life = self._living()
        await self._life.__aenter__()
        return self

    async def __aexit__(self, *facts: Any) -> bool | None:
        """Answer those who wait, and end; after an error, cancel them."""
        assert self._life is not None
        return await self._life.__aexit__(*facts)

    @asynccontextmanager
    async def _living(self) -> Any:
        self._came, self._full = anyio.Event(), anyio.Event()
        failed: list[Exception] = []
        async with anyio.create_task_group() as group:
            self._open = True
            for _ in range(self._concurrent):
                group.start_soon(self._serve)
            try:
                yield
            except Exception as error:
                # The caller's own, and no matter of the group's.
                failed.append(error)
                group.cancel_scope.cancel()
            finally:
                self._open = False
                self._came.set()
                self._full.set()
        if failed:
            try:
                raise failed[0]
            finally:
                failed.clear()

    async def __call__(self, item: _Item, *, priority: int = 0) -> _Result:
        """The result for one item.

        Args:
            item: what `compute` takes a list of.
            priority: larger is computed earlier.

        Raises:
            Overloaded: at once, if too many wait.
            RuntimeError: if the batcher is not open.
            Exception: whatever `compute` raised for the batch.
        """
        if not self._open:
            raise RuntimeError("the batcher is not open: use it within `async with batcher:`")
        if self._waiting >= self._max_waiting:
            self._refused += 1
            raise Overloaded(f"{self._waiting} requests wait already. Try again later.")
        entry = _Entry(item)
        heappush(self._line, (-priority, next(self._order), entry))
        self._waiting += 1
        self._came.set()
        if self._waiting >= self._max_size:
            self._full.set()
        try:
            await entry.answered.wait()
        except BaseException:
            if not entry.gone and not entry.answered.is_set():
                entry.gone = True
                self._waiting -= 1
            raise
        if entry.error is not None:
            try:
                raise entry.error
            finally:
                del entry
        return entry.result  # type: ignore[no-any-return]

    async def _serve(self) -> None:
        """Compute one batch after the other until the batcher is closed and nobody waits."""
        while True:
            if not self._waiting:
                if not self._open:
                    return
                self._came = anyio.Event()
                await self._came.wait()
                continue
            if self._waiting < self._max_size and self._open:
                self._full = anyio.Event()
                with anyio.move_on_after(self._max_delay if self._max_delay > 0 else -math.inf):
                    await self._full.wait()
            batch = self._take()
            if batch:
                await self._answer(batch)

    def _take(self) -> list[_Entry]:
        """The most urgent of those who wait."""
        batch: list[_Entry] = []
        while self._line and len(batch) < self._max_size:
            entry = heappop(self._line)[2]
            if not entry.gone:
                # From here on it is not in the line any more, whatever becomes of its task.
                entry.gone = True
                self._waiting -= 1
                batch.append(entry)
        return batch

    async def _answer(self, batch: list[_Entry]) -> None:
        """Compute a batch; an error of it is everybody's in it, and nobody else's."""
        self._batches += 1
        self._requests += len(batch)
        try:
            results = await self._compute([entry.item for entry in batch])
            if len(results) != len(batch):
                raise ValueError(
                    f"Batcher: compute was given {len(batch)} items and has returned "
                    f"{len(results)} results"
                )
            for entry, result in zip(batch, results, strict=True):
                entry.result = result
        except Exception as error:
            for entry in batch:
                entry.error = error
        except BaseException as error:
            for entry in batch:
                entry.error = RuntimeError(f"the batcher was stopped by {type(error).__name__}")
            raise
        finally:
            for entry in batch:
                entry.answered.set()

    def statistics(self) -> BatcherStatistics:
        """What has been done so far."""
        return BatcherStatistics(self._waiting, self._batches, self._requests, self._refused)
