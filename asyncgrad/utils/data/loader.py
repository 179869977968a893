"""`DataLoader`: loads batches, ahead of time in threads."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import count, islice
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from asyncgrad import accelerator
from asyncgrad.core.frames import warn
from asyncgrad.creation import randint
from asyncgrad.errors import add_note
from asyncgrad.ops.tensors.pytree import tree_map
from asyncgrad.random import fork_rng, manual_seed
from asyncgrad.scheduler.registry import refuse_trio, running_loop
from asyncgrad.tensor import Tensor
from asyncgrad.utils.data.collate import default_collate, default_convert
from asyncgrad.utils.data.dataset import IterableDataset, samples_of
from asyncgrad.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from asyncgrad.utils.data.worker import begin, check_begun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from concurrent.futures import Future

    from typing_extensions import TypeVar as TypeVarWithDefault

    from asyncgrad.ops.tensors.rng import Generator
    from asyncgrad.utils.data.dataset import Samples

    _Sample_co = TypeVarWithDefault("_Sample_co", covariant=True, default=Any)
else:
    _Sample_co = TypeVar("_Sample_co", covariant=True)

#: Marks the end of the batches.
_END: Any = object()
#: What the order was made of: to set one of these later would change nothing.
_FIXED = {"dataset", "batch_size", "sampler", "batch_sampler", "drop_last"}


class DataLoader(Generic[_Sample_co]):
    """Iterates over the samples of a dataset in batches, with `for` and `async for`.

    With workers, and always in `async for`, threads load batches ahead of the consumer; batches
    still come in order. Tasks may share an iterator: each batch goes to one of them. Random numbers
    that a dataset draws there come from a separate generator for each batch, seeded from the
    loader's generator. So they do not depend on the number or the speed of the workers. Without
    workers, `for` loads in its own thread, with that thread's random generator.

    Args:
        dataset: samples by index, or an `IterableDataset`, which a single thread reads.
        batch_size: the number of samples in a batch; None for single samples, not collated.
        shuffle: use a new random order in each iteration.
        sampler: the order of indices, instead of `shuffle`.
        batch_sampler: lists of indices; replaces `batch_size`, `shuffle`, `sampler`, `drop_last`.
        num_workers: the number of batches to load at once.
        collate_fn: makes a batch of a list of samples; `default_collate` if None.
        pin_memory: put batches into pinned memory.
        drop_last: leave out the last batch if it is smaller.
        timeout: seconds to wait for a batch at most; 0 for no limit.
        worker_init_fn: called with the worker's number in each thread before it loads.
        multiprocessing_context: no effect: workers are threads.
        generator: draws the order and the seeds; the default one if None.
        prefetch_factor: the number of batches to load ahead for each worker; 2 if None.
        persistent_workers: no effect: threads start in no time, for each iteration anew.
        pin_memory_device: no effect: memory is pinned for the accelerator that there is.
        in_order: no effect: batches come in order.

    Example:
        >>> import asyncio, asyncgrad as ag
        >>> from asyncgrad.utils.data import DataLoader, TensorDataset
        >>> loader = DataLoader(TensorDataset(ag.arange(5.0)), batch_size=2)
        >>> [x.tolist() for (x,) in loader]
        [[0.0, 1.0], [2.0, 3.0], [4.0]]
        >>> async def total():
        ...     return sum([x.sum().item() async for (x,) in loader])
        >>> asyncio.run(total())
        10.0
    """

    def __init__(
        self, dataset: Samples[_Sample_co], batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[int] | None = None, batch_sampler: Iterable[list[int]] | None = None,
        num_workers: int = 0, collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None, multiprocessing_context: Any = None,
        generator: Generator | None = None, *, prefetch_factor: int | None = None,
        persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True,
    ) -> None:  # fmt: skip
        if num_workers < 0:
            raise ValueError("DataLoader: num_workers option should be non-negative")
        if timeout < 0:
            raise ValueError("DataLoader: timeout option should be non-negative")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError("DataLoader: prefetch_factor option should be positive")
        if persistent_workers and not num_workers:
            raise ValueError("DataLoader: persistent_workers option needs num_workers > 0")
        streamed = isinstance(dataset, IterableDataset)
        if streamed and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(
                "DataLoader with IterableDataset: expected unspecified shuffle, sampler and "
                "batch_sampler options: the dataset says the order"
            )
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "DataLoader: batch_sampler option is mutually exclusive with batch_size, "
                    "shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "DataLoader: batch_size=None option disables auto-batching and is mutually "
                "exclusive with drop_last"
            )
        if sampler is None and not streamed:
            order = RandomSampler(dataset, generator=generator) if shuffle else None  # type: ignore[arg-type]
            sampler = SequentialSampler(dataset) if order is None else order  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None and not streamed:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type]
        if batch_size is not None and batch_size <= 0:
            raise ValueError(
                f"DataLoader: batch_size should be a positive integer, got {batch_size}"
            )
        batched = batch_size is not None or batch_sampler is not None
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        if pin_memory and not accelerator.is_available():
            warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device "
                "pinned memory won't be used."
            )
        self.pin_memory = pin_memory and accelerator.is_available()
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and name in vars(self):
            raise ValueError(
                f"DataLoader: {name} attribute should not be set after DataLoader is initialized. "
                f"Make another loader."
            )
        super().__setattr__(name, value)

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]
        length: int = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else ceil(length / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        # Draw the seed before the order: so the order is the same with and without workers.
        seed = self._draw_seed()
        return _Ahead(self, seed) if self.num_workers else _Here(self)

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the batches without blocking the loop."""
        refuse_trio("DataLoader")
        return _Ahead(self, self._draw_seed())

    def _draw_seed(self) -> int:
        return int(randint(2**62, (), generator=self.generator).item())

    def _loads(self) -> Iterator[Callable[[], Any]]:
        """Functions that each load the next batch; they return `_END` after the last one."""
        if isinstance(self.dataset, IterableDataset):
            samples = iter(self.dataset)
            while True:
                yield partial(self._load_streamed, samples)
        for indices in self.sampler if self.batch_sampler is None else self.batch_sampler:  # type: ignore[union-attr]
            yield partial(self._load, indices)

    def _load(self, indices: Any) -> Any:
        dataset = self.dataset
        if self.batch_sampler is None:
            return self._placed(dataset[indices])
        return self._placed(samples_of(dataset, indices))

    def _load_streamed(self, samples: Iterator[Any]) -> Any:
        if self.batch_size is None:
            sample = next(samples, _END)
            return _END if sample is _END else self._placed(sample)
        batch = list(islice(samples, self.batch_size))
        if not batch or (self.drop_last and len(batch) < self.batch_size):
            return _END
        return self._placed(batch)

    def _placed(self, samples: Any) -> Any:
        """A collated batch, in pinned memory if the loader uses it."""
        batch = self.collate_fn(samples)
        return tree_map(_pinned, batch) if self.pin_memory else batch


class _Here:
    """An iteration over a loader that loads each batch when it is requested.

    No generator: after an error, which would end one, the next batch can be requested.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._loads: Iterator[tuple[int, Any]] = enumerate(loader._loads())

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = _load(*next(self._loads))
        if batch is _END:
            self._loads = enumerate(())
            raise StopIteration
        return batch


class _Ahead:
    """An iteration over a loader whose batches are loaded ahead in threads.

    When the iterator is dropped, batches whose loading has not started are never loaded.
    """

    def __init__(self, loader: DataLoader, seed: int) -> None:
        self._loader = loader
        streamed = isinstance(loader.dataset, IterableDataset)
        workers = 1 if streamed else max(loader.num_workers, 1)
        self._most = workers * (loader.prefetch_factor or 2)
        self._timeout = loader.timeout or None
        self._seed = seed
        self._loads: Iterator[tuple[int, Any]] = enumerate(loader._loads())
        #: Loads that had not begun when a caller was cancelled, the next one last.
        self._again: list[tuple[int, Any]] = []
        #: In order: the batch's number, the function that loads it, and the future of its result.
        self._pending: deque[tuple[int, Callable[[], Any], Future[Any]]] = deque()
        start = partial(begin, loader.worker_init_fn, count(), workers, seed, loader.dataset)
        #: How many tasks wait for a batch that they have taken.
        self._waiting = 0
        self._threads = ThreadPoolExecutor(workers, "asyncgrad-data", start)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Wait for the next batch, blocking the thread."""
        if not self._fill():
            raise StopIteration
        _, _, future = self._pending.popleft()
        try:
            return self._taken(future.result(self._timeout))
        except TimeoutError:
            self._check_late(future)
            raise

    async def __anext__(self) -> Any:
        """The next batch; if the caller is cancelled, the next call gets it."""
        running_loop("DataLoader")
        if not self._fill():
            raise StopAsyncIteration
        # Taken at once: several tasks may wait, each for a batch of its own.
        taken = self._pending.popleft()
        future = taken[2]
        self._waiting += 1
        loaded = asyncio.wrap_future(future)
        try:
            # Unlike `wait_for`, `wait` does not cancel the future when it is cancelled itself.
            await asyncio.wait([loaded], timeout=self._timeout)
        except asyncio.CancelledError:
            self._pending.appendleft(taken)
            self._pause()
            raise
        finally:
            self._waiting -= 1
        self._check_late(future)
        # Mark asyncio's future as retrieved; its exception may be a copy of the error.
        loaded.exception()
        try:
            return self._taken(future.result())
        except StopIteration:
            raise StopAsyncIteration from None

    def _fill(self) -> bool:
        """Start to load until enough batches are pending; whether there is a next one."""
        while len(self._pending) <= self._most:
            number, load = self._again.pop() if self._again else next(self._loads, (0, None))
            if load is None:
                break
            call = partial(_load_apart, number, load, self._seed + number)
            future = self._threads.submit(copy_context().run, call)
            self._pending.append((number, load, future))
        if not self._pending and not self._waiting:
            self._close()
        return bool(self._pending)

    def _pause(self) -> None:
        """Stop starting loads until the next batch is requested."""
        begun: list[Any] = []
        for number, load, future in self._pending:
            if future.cancel():
                self._again.append((number, load))
            else:
                begun.append((number, load, future))
        self._pending = deque(sorted(begun, key=itemgetter(0)))
        self._again.sort(key=itemgetter(0), reverse=True)

    def _taken(self, batch: Any) -> Any:
        if batch is _END:
            self._close()
            raise StopIteration
        return batch

    def _check_late(self, future: Future[Any]) -> None:
        if not future.done():
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")

    def _close(self) -> None:
        self._loads = enumerate(())
        self._again.clear()
        # Batches that other tasks wait for have left `_pending`; they are still loaded.
        for _, _, future in self._pending:
            future.cancel()
        self._pending.clear()
        self._threads.shutdown(wait=False)

    __del__ = _close


def _load(number: int, load: Callable[[], Any]) -> Any:
    """Load a batch; an error says which."""
    try:
        return load()
    except StopIteration as error:
        # A StopIteration raised here would end the caller's iteration.
        raise RuntimeError(f"DataLoader: batch {number} raised StopIteration") from error
    except Exception as error:
        add_note(error, f"raised while DataLoader loaded batch {number}")
        raise


def _load_apart(number: int, load: Callable[[], Any], seed: int) -> Any:
    """Load a batch in a thread, with its own random generator."""
    check_begun()
    with fork_rng():
        manual_seed(seed)
        return _load(number, load)


def _pinned(part: Any) -> Any:
    return part.pin_memory() if isinstance(part, Tensor) else part
