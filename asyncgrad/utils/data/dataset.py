"""Datasets: samples by index, or as a stream."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from math import floor, isclose
from typing import Any, Generic, TypeAlias, TypeVar

from asyncgrad.creation import randperm
from asyncgrad.ops.tensors.rng import Generator
from asyncgrad.types import Tensor

_Sample_co = TypeVar("_Sample_co", covariant=True)
#: What is read by index: a dataset, or a list of samples.
Samples: TypeAlias = "Dataset[_Sample_co] | Sequence[_Sample_co]"


class Dataset(Generic[_Sample_co]):
    """Samples by index. Subclasses define `__getitem__`, and most of them `__len__`."""

    def __getitem__(self, index: Any) -> _Sample_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[_Sample_co]) -> ConcatDataset[_Sample_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_Sample_co]):
    """A stream of samples. Subclasses define `__iter__`."""

    def __iter__(self) -> Iterator[_Sample_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[_Sample_co]) -> ChainDataset[_Sample_co]:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset["tuple[Tensor, ...]"]):
    """A dataset whose samples are slices of tensors along the first axis.

    Args:
        tensors: the tensors, all with the same length of the first axis.

    Example:
        >>> from asyncgrad.utils.data import TensorDataset
        >>> TensorDataset(ag.arange(4.0), ag.arange(4))[2]
        (tensor(2.), tensor(2))
    """

    def __init__(self, *tensors: Tensor) -> None:
        lengths = [tensor.shape[0] for tensor in tensors]
        if len(set(lengths)) > 1:
            raise ValueError(f"TensorDataset: size mismatch between tensors: lengths {lengths}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """A dataset whose samples combine those of several datasets, as tuples or dictionaries.

    Args:
        args: datasets of equal length; samples are tuples.
        kwargs: datasets by name; samples are dictionaries.
    """

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError(
                "StackDataset: expected datasets either as positional or as keyword arguments"
            )
        self.datasets: Any = args or kwargs
        lengths = {_length(dataset) for dataset in args or kwargs.values()}
        if len(lengths) > 1:
            raise ValueError(f"StackDataset: size mismatch between datasets: {sorted(lengths)}")
        (self._length,) = lengths

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples, in one call of each dataset's `__getitems__` if it has one."""
        named = isinstance(self.datasets, dict)
        datasets = self.datasets.values() if named else self.datasets
        columns = [list(samples_of(dataset, indices)) for dataset in datasets]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(
                    f"Nested dataset's output size mismatch. Expected {len(indices)}, got "
                    f"{len(column)}. Return one sample for each index from __getitems__()."
                )
        rows = zip(*columns, strict=True)
        return [dict(zip(self.datasets, row, strict=True)) for row in rows] if named else [*rows]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[_Sample_co]):
    """Several datasets, concatenated: at least one, and none of them an `IterableDataset`."""

    def __init__(self, datasets: Iterable[Dataset[_Sample_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ValueError("ConcatDataset does not support IterableDataset; see ChainDataset")
        self.cumulative_sizes = list(accumulate(map(_length, self.datasets)))

    def __getitem__(self, index: int) -> _Sample_co:
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"ConcatDataset: index {index} is out of range for {length} samples")
        index %= length
        place = bisect_right(self.cumulative_sizes, index)
        return self.datasets[place][index - (self.cumulative_sizes[place - 1] if place else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[_Sample_co]):
    """Several streams, one after the other."""

    def __init__(self, datasets: Iterable[Dataset[_Sample_co]]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[_Sample_co]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise TypeError("ChainDataset only supports IterableDataset; see ConcatDataset")
        return chain.from_iterable(self.datasets)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """The number of samples, if all streams know theirs."""
        return sum(map(_length, self.datasets))


class Subset(Dataset[_Sample_co]):
    """A dataset of some samples of another dataset, by their indices in it."""

    def __init__(self, dataset: Samples[_Sample_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> _Sample_co:
        """The sample at an index of the subset; or what the dataset has for a list of indices."""
        if isinstance(index, list):
            return self.dataset[[self.indices[one] for one in index]]  # type: ignore[call-overload]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[_Sample_co]:
        """Several samples, in one call of the dataset's `__getitems__` if it has one."""
        return samples_of(self.dataset, [self.indices[index] for index in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Samples[_Sample_co], lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset[_Sample_co]]:
    """Split a dataset randomly into parts.

    Args:
        lengths: the lengths of the parts; or fractions that sum up to 1. Samples left over by
            rounding go to the first parts.
        generator: the random generator; the default one if None.
    """
    total = _length(dataset)
    if isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if not all(0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"random_split: fractions are between 0 and 1, got {list(lengths)}")
        sizes = [floor(total * fraction) for fraction in lengths]
        for part in range(total - sum(sizes)):
            sizes[part % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise ValueError(
            f"random_split: Sum of input lengths does not equal the length of the input dataset, "
            f"or one is negative: {list(lengths)} of {total}. Fractions have to sum up to 1."
        )
    dealt = randperm(total, generator=generator).tolist()
    ends = list(accumulate(sizes, initial=0))
    return [Subset(dataset, dealt[start:end]) for start, end in pairwise(ends)]


def samples_of(dataset: Any, indices: Sequence[int]) -> Sequence[Any]:
    """Several samples, in one call of the dataset's `__getitems__` if it has one."""
    if callable(fetch := getattr(dataset, "__getitems__", None)):
        several: Sequence[Any] = fetch(indices)
        return several
    return [dataset[index] for index in indices]


def _length(dataset: Any) -> int:
    return len(dataset)
