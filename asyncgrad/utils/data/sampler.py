"""Samplers: the order in which samples are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextvars import ContextVar
from itertools import cycle, islice
from typing import Any, Generic, TypeVar

from asyncgrad.creation import as_tensor, randint, randperm
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.random import multinomial
from asyncgrad.random import Generator

_Index_co = TypeVar("_Index_co", covariant=True)
#: The number of indices to draw at once.
_DRAWN = 1024


class Sampler(Generic[_Index_co]):
    """Indices in some order. Subclasses define `__iter__`, and most of them `__len__`."""

    def __iter__(self) -> Iterator[_Index_co]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """All indices of a dataset, in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Random indices of a dataset.

    Args:
        replacement: draw each index independently; otherwise none repeats until all have come.
        num_samples: the number of indices to draw; the dataset's length if None.
        generator: the random generator; the default one if None.
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(_no_flag("RandomSampler", "replacement", replacement))
        _check_count("RandomSampler", self.num_samples)

    @property
    def num_samples(self) -> int:
        """The number of indices to draw."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        return islice(self._drawn(), self.num_samples)

    def _drawn(self) -> Iterator[int]:
        count, generator = len(self.data_source), self.generator
        while count:
            if self.replacement:
                yield from randint(count, (_DRAWN,), generator=generator).tolist()
            else:
                yield from randperm(count, generator=generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given indices in random order; `generator` is as for `RandomSampler`."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for place in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Random indices with the probabilities given by weights.

    Args:
        weights: the weight of each index, not negative; they need not sum up to 1.
        num_samples: the number of indices to draw.
        replacement: let indices repeat.
        generator: as for `RandomSampler`.
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        _check_count("WeightedRandomSampler", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(_no_flag("WeightedRandomSampler", "replacement", replacement))
        self.weights = as_tensor(weights, dtype="float64")
        if self.weights.dim() != 1:
            raise ValueError(
                f"WeightedRandomSampler: weights should be a 1d sequence, got shape "
                f"{tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


#: The group of workers that the running function runs on; set by `World.run`.
running_group: ContextVar[Any] = ContextVar("asyncgrad_group", default=None)


def current_group(name: str) -> Any:
    """The group of workers that the running function runs on, for `name`, which needs one."""
    group = running_group.get()
    if group is None:
        raise AutogradError(
            f"{name}: this works within a function that `await world.run(function)` runs on all "
            f"workers, and this is none"
        )
    return group


class DistributedSampler(Sampler[int]):
    """One worker's share of the indices of a dataset: each worker loads others.

    All shares have the same length. Where the number of indices can't be divided, some come twice.

    Args:
        num_replicas: the number of workers; that of the running `World.run` if None.
        rank: which of them this is; its rank in the running `World.run` if None.
        shuffle: put the indices in another order in each epoch, the same for all workers.
        seed: decides, with the epoch, about this order; the same number on all workers.
        drop_last: leave out the last indices instead of giving some twice.

    Raises:
        RuntimeError: if `num_replicas` or `rank` is not given outside of `World.run`.
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None,
        shuffle: bool = True, seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        if num_replicas is None:
            num_replicas = int(current_group("DistributedSampler without num_replicas").size)
        if rank is None:
            rank = int(current_group("DistributedSampler without rank").rank)
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last

    @property
    def num_samples(self) -> int:
        """The number of indices of each worker."""
        more = 0 if self.drop_last else self.num_replicas - 1
        return (len(self.dataset) + more) // self.num_replicas

    @property
    def total_size(self) -> int:
        """The number of indices of all workers together."""
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is next; without it, all epochs have the order of the first."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order: Sequence[int] = range(len(self.dataset))
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = randperm(len(self.dataset), generator=generator).tolist()
        return islice(cycle(order), self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler["list[int]"]):
    """The indices of another sampler, in lists; with `drop_last` without a shorter last list."""

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        _check_count("BatchSampler", batch_size, "batch_size")
        if not isinstance(drop_last, bool):
            raise ValueError(_no_flag("BatchSampler", "drop_last", drop_last))
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        more = 0 if self.drop_last else self.batch_size - 1
        return (len(self.sampler) + more) // self.batch_size  # type: ignore[arg-type]


def _no_flag(owner: str, name: str, value: object) -> str:
    return f"{owner}: {name} should be a boolean value, but got {name}={value}"


def _check_count(owner: str, count: object, name: str = "num_samples") -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise ValueError(
            f"{owner}: {name} should be a positive integer value, but got {name}={count}"
        )
