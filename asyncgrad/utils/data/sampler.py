"""Samplers: the order in which samples are loaded."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from asyncgrad.creation import as_tensor, randint, randperm
from asyncgrad.ops.api.random import multinomial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Sized

    from asyncgrad.ops.tensors.rng import Generator

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
        data_source: the dataset.
        replacement: draw each index independently; otherwise none repeats until all have come.
        num_samples: the number of indices to draw; the dataset's length if None.
        generator: the random generator; the default one if None.

    Raises:
        ValueError: if `num_samples` is no positive integer, or the dataset is empty.
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
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
    """Given indices in random order.

    Args:
        indices: the indices.
        generator: the random generator; the default one if None.
    """

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
        generator: the random generator; the default one if None.

    Raises:
        ValueError: if `num_samples` is no positive integer, or the weights are not one-dimensional.
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        _check_count("WeightedRandomSampler", num_samples)
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


class BatchSampler(Sampler["list[int]"]):
    """The indices of another sampler, in lists of equal length.

    Args:
        sampler: the other sampler.
        batch_size: the length of a list.
        drop_last: leave out the last list if it is shorter.

    Raises:
        ValueError: if `batch_size` is no positive integer.
    """

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        _check_count("BatchSampler", batch_size, "batch_size")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the lists of indices."""
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        """The number of lists."""
        more = 0 if self.drop_last else self.batch_size - 1
        return (len(self.sampler) + more) // self.batch_size  # type: ignore[arg-type]


def _check_count(owner: str, count: object, name: str = "num_samples") -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise ValueError(
            f"{owner}: {name} should be a positive integer value, but got {name}={count}"
        )
