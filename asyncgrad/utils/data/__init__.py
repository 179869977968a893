"""Load batches of data ahead of time in threads: PyTorch's `torch.utils.data`.

Datasets, samplers and the loader have PyTorch's names and arguments. Two things differ: workers
are threads, and coroutines can iterate over a loader with `async for` without blocking their loop.
"""

from asyncgrad.submodules import offer
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
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from asyncgrad.utils.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerInfo",
    "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip

offer(__name__, "dataloader", {"DataLoader": DataLoader, "default_collate": default_collate})
offer(__name__, "distributed", {"DistributedSampler": DistributedSampler})
