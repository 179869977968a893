"""Datasets, samplers and loaders with unusual and wrong options, beside PyTorch's."""

import pytest

short_programs = pytest.importorskip("short_programs", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

DATA = """
    list(data.DataLoader(Numbers(), None))
    list(data.DataLoader(Stream(), 2, drop_last=True))
    len(data.DataLoader(Known(), 2))
    len(data.DataLoader(Known(), 2, drop_last=True))
    len(data.DataLoader(Known(), None))
    len(data.DataLoader(Stream(), 2))
    data.DataLoader(Numbers(), 0)
    data.DataLoader(Numbers(), None, drop_last=True)
    data.DataLoader(Numbers(), batch_sampler=[[1, 2], [3]], drop_last=True)
    data.DataLoader(Stream(), sampler=[1])
    len(list(data.DataLoader(Numbers(), 2, pin_memory=True)))
    data.random_split(Numbers(), [1.5, -0.5])
    list(data.WeightedRandomSampler([0.1, 0.9], 3, False))
    data.WeightedRandomSampler([[0.1, 0.9]], 2)
    data.BatchSampler(range(5), 2, 1)
    data.DistributedSampler(Numbers(), 3, -1)
    list(data.DistributedSampler(Numbers(2), 3, 2, shuffle=False))
    data.StackDataset(Numbers(3), a=Numbers(3))
    data.StackDataset(Numbers(3), Tens()).__getitems__([2, 0])
    data.StackDataset(a=Numbers(3), b=Tens()).__getitems__([2, 0])
    list(data.DataLoader(data.StackDataset(Tens(), Numbers()), 2))
    data.StackDataset(Ones()).__getitems__([2, 0])
    list(data.DataLoader(data.StackDataset(a=Numbers(), b=Ones()), 2))
    list(data.DataLoader(Single(), 2))
    list(data.DataLoader(data.Subset(Single(), [2, 0]), 2))
    len(iter(data.DataLoader(Numbers(), 2)))
    len(iter(data.DataLoader(Stream(), 2)))
    data.default_collate([np.str_("a"), np.str_("b")])
    data.default_collate([range(2), range(2)])
    data.default_collate([{1}, {2}])
    data.default_collate([2**40, 1])
    data.default_collate([MappingProxyType({"a": 1}), MappingProxyType({"a": 2})])
    data.default_convert(UserList([np.array([1]), 3]))
"""

_DATA = """
from collections import UserList
from types import MappingProxyType
class Numbers(data.Dataset):
    def __init__(self, count=7):
        self.count = count
    def __getitem__(self, index):
        return index
    def __len__(self):
        return self.count
class Tens(Numbers):
    def __getitems__(self, indices):
        return [10 * index for index in indices]
class Ones(Numbers):
    def __getitems__(self, indices):
        return [1]
class Single(Numbers):
    __getitems__ = None
class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(5))
class Known(Stream):
    def __len__(self):
        return 5
"""


def test_what_unusual_options_do():
    assert not short_programs.differences(DATA, _DATA)
