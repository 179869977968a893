"""Batches of data, loaded ahead in threads: PyTorch's `torch.utils.data`.

Datasets, samplers and the loader have PyTorch's names and arguments. What differs: workers are
threads, and a loader is iterable in coroutines, too (`async for`), without holding their loop.
"""

from asyncgrad.utils.data.collate import default_collate, default_convert
from asyncgrad.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from asyncgrad.utils.data.loader import DataLoader
from asyncgrad.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "random_split",
]
