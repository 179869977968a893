"""What a dataset can know of the thread that loads its samples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """A worker of a loader, as `get_worker_info` describes it."""

    #: Its number, from 0.
    id: int
    #: The number of workers that load batches; 1 for an `IterableDataset`.
    num_workers: int
    #: The seed that this iteration of the loader has drawn.
    seed: int
    #: The dataset, which all workers share.
    dataset: Any


class _Worker(threading.local):
    """What a thread knows of itself."""

    #: None in threads that are no workers.
    info: WorkerInfo | None = None
    #: What `worker_init_fn` has raised.
    error: BaseException | None = None


_worker = _Worker()


def get_worker_info() -> WorkerInfo | None:
    """The worker whose thread this is; None where no `DataLoader` has started the thread.

    An `IterableDataset` is read by a single thread: code that divides a stream by `num_workers`
    reads all of it.

    Example:
        >>> from asyncgrad.utils.data import DataLoader, IterableDataset, get_worker_info
        >>> class Numbers(IterableDataset):
        ...     def __iter__(self):
        ...         worker = get_worker_info()
        ...         first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        ...         return iter(range(first, 4, step))
        >>> [x.tolist() for x in DataLoader(Numbers(), batch_size=2, num_workers=2)]
        [[0, 1], [2, 3]]
    """
    return _worker.info


def begin(
    prepare: Callable[[int], None] | None, numbers: Iterator[int], workers: int, seed: int,
    dataset: object,
) -> None:  # fmt: skip
    """Let a thread become a worker."""
    number = next(numbers)
    _worker.info = WorkerInfo(number, workers, seed, dataset)
    if prepare is not None:
        try:
            prepare(number)
        except BaseException as error:
            # The pool would hide it behind an error of its own.
            error.add_note(f"raised by worker_init_fn in DataLoader's worker {number}")
            _worker.error = error


def check_begun() -> None:
    """Raise what `worker_init_fn` has raised in this thread."""
    if _worker.error is not None:
        raise _worker.error
