"""Datasets, samplers and the loader: the same batches whoever loads them, and PyTorch's names."""

import asyncio
import gc
import inspect
import re
import threading
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad.utils import data

Pair = namedtuple("Pair", "x y")


def numbers(count=10):
    return data.TensorDataset(ag.arange(float(count)), ag.arange(count))


class Drawing(data.Dataset):
    """Samples with noise."""

    def __getitem__(self, index):
        return index + ag.rand(())

    def __len__(self):
        return 12


class Stream(data.IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


def as_lists(batches):
    return [[part.tolist() for part in batch] for batch in batches]


async def gathered(loader):
    return [batch async for batch in loader]


# -- the same batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": 4, "shuffle": True},
    {"sampler": [3, 1, 2], "batch_size": 2}, {"batch_sampler": [[1, 2], [0]]}, {"batch_size": 20},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_are_the_same_with_and_without_workers_and_awaited(options, workers):
    def loader(workers):
        generator = ag.Generator().manual_seed(7)
        return data.DataLoader(numbers(), num_workers=workers, generator=generator, **options)

    plain = as_lists(loader(0))
    assert len(plain) == len(loader(0))
    assert as_lists(loader(workers)) == plain
    assert as_lists(asyncio.run(gathered(loader(workers)))) == plain
    assert as_lists(asyncio.run(gathered(loader(0)))) == plain


@pytest.mark.torch
@pytest.mark.parametrize("options", [
    {"batch_size": 3}, {"batch_size": None}, {"batch_size": 4, "drop_last": True},
    {"batch_sampler": [[1, 2], [0]]}, {"sampler": [4, 4, 0], "batch_size": 2},
], ids=str)  # fmt: skip
def test_batches_are_pytorchs(options):
    import torch

    theirs = torch.utils.data
    values = np.arange(10.0), np.arange(10)
    loader = theirs.DataLoader(theirs.TensorDataset(*map(torch.from_numpy, values)), **options)
    ours = data.DataLoader(data.TensorDataset(*map(ag.from_numpy, values)), **options)
    assert as_lists(ours) == as_lists(loader)
    assert len(ours) == len(loader)


def test_each_run_has_another_order_and_every_sample_once():
    ag.manual_seed(1)
    loader = data.DataLoader(numbers(50), batch_size=8, shuffle=True)
    runs = [[y for batch in as_lists(loader) for y in batch[1]] for _ in range(2)]
    assert runs[0] != runs[1]
    assert sorted(runs[0]) == sorted(runs[1]) == list(range(50))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_what_a_dataset_draws_depends_on_the_seed_and_not_on_the_threads(workers):
    def drawn(workers):
        ag.manual_seed(3)
        loader = data.DataLoader(Drawing(), batch_size=2, shuffle=True, num_workers=workers)
        return [batch.tolist() for batch in loader]

    assert drawn(workers) == drawn(1)
    state = ag.get_rng_state()
    assert len({*chain.from_iterable(drawn(workers))}) == 12
    ag.set_rng_state(state)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("size", "drop", "expected"), [
    (3, False, [[0, 1, 2], [3, 4, 5], [6]]), (3, True, [[0, 1, 2], [3, 4, 5]]),
    (None, False, [0, 1, 2, 3, 4, 5, 6]),
])  # fmt: skip
def test_streams(workers, size, drop, expected):
    """One thread reads a stream, whatever the number of workers: no sample comes twice."""
    loader = data.DataLoader(Stream(7), batch_size=size, drop_last=drop, num_workers=workers)
    batches = [batch if size is None else batch.tolist() for batch in loader]
    assert batches == expected
    assert [
        batch if size is None else batch.tolist() for batch in asyncio.run(gathered(loader))
    ] == expected


def test_several_samples_at_once():
    class Bulk(data.Dataset):
        def __getitems__(self, indices):
            return [index * 10 for index in indices]

        def __len__(self):
            return 3

    assert [batch.tolist() for batch in data.DataLoader(Bulk(), batch_size=2)] == [[0, 10], [20]]
    part = data.Subset(Bulk(), [2, 1, 0])
    assert [batch.tolist() for batch in data.DataLoader(part, batch_size=2)] == [[20, 10], [0]]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iteration_knows_its_length(workers):
    """Progress bars ask for it."""
    iteration = iter(data.DataLoader(range(5), batch_size=2, num_workers=workers))
    assert len(iteration) == len(list(iteration)) == 3


# -- on the loop ----------------------------------------------------------------------------------


class Gated(data.Dataset):
    """Samples that wait for a gate, which a coroutine opens."""

    def __init__(self):
        self.gate = threading.Event()
        self.loading = threading.Semaphore(0)
        self.begun = []

    def __getitem__(self, index):
        self.begun.append(index)
        self.loading.release()
        assert self.gate.wait(60)
        return index

    def __len__(self):
        return 100


@pytest.mark.asyncio
async def test_the_loop_goes_on_while_a_batch_is_loaded():
    """Who opens the gate is on the loop itself."""
    dataset = Gated()
    asyncio.get_running_loop().call_soon(dataset.gate.set)
    async for batch in data.DataLoader(dataset, batch_size=10):
        assert batch.tolist() == list(range(10))
        break


@pytest.mark.asyncio
async def test_a_cancelled_caller_loses_no_batch():
    dataset = Gated()
    batches = aiter(data.DataLoader(dataset, batch_size=50))
    waiting = asyncio.create_task(anext(batches))
    await asyncio.to_thread(dataset.loading.acquire)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    dataset.gate.set()
    assert [batch[0].item() async for batch in batches] == [0, 50]


def test_callers_may_be_cancelled_any_number_of_times():
    """One that polls with a short timeout, say."""
    batches = aiter(data.DataLoader(numbers(), batch_size=5))
    for _ in range(300_000):
        batches._pause()
    assert len(asyncio.run(gathered(batches))) == 2


@pytest.mark.asyncio
async def test_tasks_that_share_a_run_get_each_batch_once():
    """Also when one of them is cancelled, and the last batch is awaited when another asks."""
    dataset = Gated()
    batches = aiter(data.DataLoader(dataset, batch_size=10))
    seen = []

    async def take():
        seen.extend([batch[0].item() async for batch in batches])

    tasks = [asyncio.create_task(take()) for _ in range(12)]
    await asyncio.to_thread(dataset.loading.acquire)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    dataset.gate.set()
    await asyncio.gather(tasks[0], *tasks[2:])
    assert sorted(seen) == list(range(0, 100, 10))


@pytest.mark.asyncio
async def test_tasks_that_share_a_stream_end_with_it():
    batches = aiter(data.DataLoader(Stream(5), prefetch_factor=4))

    async def take():
        return [batch.item() async for batch in batches]

    taken = await asyncio.gather(*[take() for _ in range(4)])
    assert sorted(chain.from_iterable(taken)) == list(range(5))


@pytest.mark.asyncio
async def test_a_run_that_is_given_up_loads_nothing_more():
    dataset, others = Gated(), {*threading.enumerate()}

    async def train():
        async for _ in data.DataLoader(dataset, batch_size=1, num_workers=2):
            pass

    task = asyncio.create_task(train())
    for _ in range(2):
        await asyncio.to_thread(dataset.loading.acquire)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    dataset.gate.set()
    gc.collect()
    # Other tests may have left some, held by errors that they raise.
    for thread in {*threading.enumerate()} - others:
        if thread.name.startswith("asyncgrad-data"):
            await asyncio.to_thread(thread.join)
    # What was waiting for one of its threads has never begun.
    assert len(dataset.begun) == 2


def test_so_many_batches_are_loaded_ahead_and_no_more():
    dataset = Gated()
    dataset.gate.set()
    batches = iter(data.DataLoader(dataset, batch_size=1, num_workers=2, prefetch_factor=3))
    for number in range(3):
        assert next(batches).item() == number
    batches._threads.shutdown()
    assert sorted(dataset.begun) == list(range(9))


def test_nothing_is_left_of_a_run():
    collecting = gc.isenabled()
    gc.disable()
    try:
        loader = data.DataLoader(numbers(), batch_size=2, num_workers=1)
        batches = iter(loader)
        next(batches)
        seen = weakref.ref(batches)
        del batches
        assert seen() is None
    finally:
        if collecting:
            gc.enable()


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_know_which_they_are(workers):
    dataset = numbers(64)

    def told(samples):
        worker = data.get_worker_info()
        assert worker.dataset is dataset
        assert worker.num_workers == workers
        return worker.id

    loader = data.DataLoader(dataset, num_workers=workers, collate_fn=told)
    assert {*loader} <= {*range(workers)}
    assert data.get_worker_info() is None


# -- what goes wrong ------------------------------------------------------------------------------


class Failing(data.Dataset):
    def __init__(self, error):
        self.error = error

    def __getitem__(self, index):
        if index == 3:
            raise self.error
        return index

    def __len__(self):
        return 6


@pytest.mark.parametrize("error", [KeyError("three"), TimeoutError("slow")], ids=str)
@pytest.mark.parametrize("awaited", [False, True])
def test_an_error_comes_in_its_batchs_place_and_says_which(error, awaited):
    loader = data.DataLoader(Failing(error), batch_size=2, num_workers=2)
    seen = []

    async def awaiting():
        async for batch in loader:
            keep(batch)

    def keep(batch):
        seen.append(batch.tolist())

    with pytest.raises(type(error)) as caught:
        asyncio.run(awaiting()) if awaited else [*map(keep, loader)]
    assert caught.value is error
    assert seen == [[0, 1]]
    assert error.__notes__[0] == "raised while DataLoader loaded batch 1"
    del error.__notes__


@pytest.mark.parametrize("awaited", [False, True])
def test_a_dataset_that_raises_stopiteration_does_not_end_the_run_in_silence(awaited):
    loader = data.DataLoader(Failing(StopIteration()), batch_size=2, num_workers=1)
    with pytest.raises(RuntimeError, match="batch 1 raised StopIteration"):
        asyncio.run(gathered(loader)) if awaited else list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_after_an_error_the_next_batch_can_be_asked_for(workers):
    batches = iter(data.DataLoader(Failing(KeyError("three")), num_workers=workers))
    assert [next(batches).item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError) as caught:
        next(batches)
    assert caught.value.__notes__ == ["raised while DataLoader loaded batch 3"]
    assert [batch.item() for batch in batches] == [4, 5]


@pytest.mark.parametrize("awaited", [False, True])
def test_an_error_of_worker_init_fn_is_raised_as_it_is(awaited):
    def fail(number):
        raise ValueError("no such file")

    loader = data.DataLoader(numbers(), num_workers=1, worker_init_fn=fail)
    with pytest.raises(ValueError, match="no such file") as caught:
        asyncio.run(anext(aiter(loader))) if awaited else next(iter(loader))
    assert caught.value.__notes__[0] == "raised by worker_init_fn in DataLoader's worker 0"


@pytest.mark.parametrize("awaited", [False, True])
def test_a_batch_that_takes_too_long_is_not_waited_for(awaited):
    dataset = Gated()
    loader = data.DataLoader(dataset, num_workers=1, timeout=0.01)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.01 seconds"):
        asyncio.run(anext(aiter(loader))) if awaited else next(iter(loader))
    dataset.gate.set()


WRONG = [
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": -1, "num_workers": 1},
    {"sampler": [1], "shuffle": True}, {"batch_sampler": [[1]], "batch_size": 3},
    {"batch_size": None, "drop_last": True}, {"batch_size": 0}, {"batch_size": -2},
    {"persistent_workers": True}, {"drop_last": "yes", "batch_size": 3},
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_that_pytorch_refuses(options):
    import torch

    dataset = torch.utils.data.TensorDataset(torch.ones(3))
    with pytest.raises(ValueError) as theirs:  # noqa: PT011
        torch.utils.data.DataLoader(dataset, **options)
    with pytest.raises(ValueError) as ours:  # noqa: PT011
        data.DataLoader(numbers(3), **options)
    phrase = str(theirs.value).partition(",")[0].partition(";")[0].removeprefix("DataLoader ")
    assert phrase.removeprefix("with ").partition(" ")[0] in str(ours.value)


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted({*data.__all__} - {"WorkerInfo"}))
def test_arguments_are_pytorchs(name):
    import inspect

    import torch.utils.data

    def arguments(library):
        known = inspect.signature(getattr(library, name)).parameters.values()
        # The default of a random generator is None here, and an object there.
        return [(p.name, p.kind, p.name == "generator" or p.default) for p in known]

    assert arguments(data) == arguments(torch.utils.data)


@pytest.mark.torch
def test_a_loader_can_be_made_anew_from_its_attributes():
    """As programs do that put another sampler into a user's loader."""
    names = [*inspect.signature(data.DataLoader).parameters]
    loader = data.DataLoader(numbers(), batch_size=3, num_workers=1, persistent_workers=True)
    options = {name: getattr(loader, name) for name in names if name != "shuffle"}
    assert options["persistent_workers"] is True
    options |= {"batch_size": 1, "sampler": None, "shuffle": None}
    made = data.DataLoader(**options)
    assert [x.tolist() for x, _ in made] == [x.tolist() for x, _ in loader]


@pytest.mark.torch
def test_what_pytorch_lets_nobody_set_later():
    import torch.utils.data

    loaders = data.DataLoader(range(4), 2), torch.utils.data.DataLoader(range(4), 2)
    for loader in loaders:
        for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset"):
            with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
                setattr(loader, name, None)
        loader.num_workers = 0


def test_a_loader_is_generic_as_in_pytorch():
    assert data.DataLoader[int].__origin__ is data.DataLoader


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}])
def test_a_stream_has_an_order_of_its_own(options):
    with pytest.raises(ValueError, match="IterableDataset"):
        data.DataLoader(Stream(3), **options)


# -- collation ------------------------------------------------------------------------------------

SAMPLES = {
    "arrays": [np.ones(2, np.float32), np.zeros(2, np.float32)],
    "scalars": [np.float32(1), np.float32(2)],
    "floats": [1.0, 2.0],
    "integers": [1, 2],
    "bools": [True, False],
    "strings": ["a", "b"],
    "tuples": [(1, 2.0), (3, 4.0)],
    "lists": [[1, "a"], [2, "b"]],
    "named": [Pair(1, 2.0), Pair(3, 4.0)],
    "dictionaries": [{"x": 1, "y": [1.0]}, {"x": 2, "y": [2.0]}],
    "ordered": [OrderedDict(x=1), OrderedDict(x=2)],
    "defaults": [defaultdict(list, x=1), defaultdict(list, x=2)],
}


def plain(value):
    if hasattr(value, "tolist"):
        return str(value.dtype).partition(".")[2], value.tolist()
    if isinstance(value, dict):
        return type(value), {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value), [plain(part) for part in value]
    return value


@pytest.mark.torch
@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("name", ["default_collate", "default_convert"])
def test_collation_is_pytorchs(kind, name):
    import torch

    theirs = getattr(torch.utils.data, name)(SAMPLES[kind])
    assert plain(getattr(data, name)(SAMPLES[kind])) == plain(theirs)


def test_gradients_flow_through_a_batch():
    x = ag.ones(3, requires_grad=True)
    (batch,) = data.DataLoader([x * 2, x * 3], batch_size=2)
    batch.sum().backward()
    assert x.grad.tolist() == [5.0] * 3


def test_samples_that_make_no_batch():
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match=r"collate_fn"):
        data.default_collate([object()])
    with pytest.raises(TypeError, match=r"collate_fn"):
        data.default_collate([np.array("a")])
    with pytest.raises(RuntimeError, match=r"shape|size"):
        data.default_collate([ag.ones(2), ag.ones(3)])


# -- datasets and samplers ------------------------------------------------------------------------


def test_datasets_of_datasets():
    both = numbers(3) + numbers(2)
    assert [both[i][1].item() for i in range(-5, 5)] == [0, 1, 2, 0, 1] * 2
    with pytest.raises(IndexError, match="out of range for 5"):
        both[5]
    assert [*(Stream(2) + Stream(3))] == [0, 1, 0, 1, 2]
    part = data.Subset(numbers(9), [4, 2, 7])
    assert part[1][1].item() == 2
    assert part[[0, 2]][1].tolist() == [4, 7]
    assert data.default_collate(part.__getitems__([0, 2]))[1].tolist() == [4, 7]
    stacked = data.StackDataset(a=range(3), b=range(3, 6))
    assert stacked[1] == {"a": 1, "b": 4}
    assert data.StackDataset(range(3), range(3, 6))[2] == (2, 5)
    assert len(stacked) == 3
    for wrong in (
        lambda: data.TensorDataset(ag.ones(2), ag.ones(3)),
        lambda: data.StackDataset(range(2), range(3)),
        lambda: data.StackDataset(),
        lambda: data.ConcatDataset([]),
        lambda: data.ConcatDataset([Stream(1)]),
    ):
        with pytest.raises(ValueError, match=r"StackDataset|TensorDataset|ConcatDataset"):
            wrong()


@pytest.mark.parametrize(("lengths", "sizes"), [
    ([6, 4], [6, 4]), ([0.5, 0.25, 0.25], [6, 2, 2]), ([1.0], [10]), ([10, 0], [10, 0]),
])  # fmt: skip
def test_random_splits(lengths, sizes):
    generator = ag.Generator().manual_seed(0)
    parts = data.random_split(range(10), lengths, generator=generator)
    assert [len(part) for part in parts] == sizes
    assert sorted(chain.from_iterable(part.indices for part in parts)) == list(range(10))
    again = data.random_split(range(10), lengths, generator=generator.manual_seed(0))
    assert [part.indices for part in again] == [part.indices for part in parts]


def test_splits_that_are_none():
    with pytest.raises(ValueError, match="does not equal the length"):
        data.random_split(range(10), [5, 4])
    for lengths in ([0.5, 0.7], [-1, 11]):
        with pytest.raises(ValueError, match=re.escape(f"{lengths} of 10")):
            data.random_split(range(10), lengths)
    with pytest.raises(ValueError, match="fractions"):
        data.random_split(range(10), [1.5, -0.5])


def test_samplers():
    ag.manual_seed(0)
    assert [*data.SequentialSampler("abc")] == [0, 1, 2]
    assert sorted(data.RandomSampler("abc")) == [0, 1, 2]
    twice = [*data.RandomSampler("abc", num_samples=6)]
    assert sorted(twice[:3]) == sorted(twice[3:]) == [0, 1, 2]
    drawn = [*data.RandomSampler("abc", replacement=True, num_samples=3000)]
    assert len(drawn) == 3000
    assert {*drawn} == {0, 1, 2}
    assert sorted(data.SubsetRandomSampler([5, 7])) == [5, 7]
    weighted = data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000)
    counts = np.bincount([*weighted], minlength=3)
    assert counts[0] == 0
    assert 2 < counts[2] / counts[1] < 4
    assert sorted(data.WeightedRandomSampler([1.0, 1.0], 2, replacement=False)) == [0, 1]
    batches = data.BatchSampler(range(5), 2, drop_last=False)
    assert [*batches] == [[0, 1], [2, 3], [4]]
    assert len(batches) == 3


@pytest.mark.parametrize("wrong", [
    lambda: data.RandomSampler("abc", num_samples=0),
    lambda: data.RandomSampler([]),
    lambda: data.RandomSampler([], replacement=True),
    lambda: data.DataLoader([], shuffle=True),
    lambda: data.WeightedRandomSampler([1.0], True),
    lambda: data.WeightedRandomSampler([[1.0]], 1),
    lambda: data.BatchSampler("abc", 0, False),
    lambda: data.BatchSampler("abc", 1, "no"),
    lambda: data.WeightedRandomSampler([1.0], 1, 3),
    lambda: data.RandomSampler("abc", 3),
])  # fmt: skip
def test_samplers_refuse_what_is_no_count_or_no_bool(wrong):
    with pytest.raises((ValueError, TypeError), match="should be a"):
        wrong()


def test_a_thread_is_prepared_before_it_loads():
    prepared = []
    loader = data.DataLoader(numbers(4), num_workers=2, worker_init_fn=prepared.append)
    assert len([*loader]) == 4
    assert {*prepared} <= {0, 1}
    assert prepared


def shares(T, length, replicas, epoch=0, **options):
    """What each worker gets by a library's sampler, and the indices of all in their order."""
    found = []
    for rank in range(replicas):
        sampler = T.DistributedSampler(range(length), replicas, rank, **options)
        sampler.set_epoch(epoch)
        found.append([*sampler])
        assert len(sampler) == len(found[-1]) == sampler.num_samples
        assert sampler.total_size == replicas * len(sampler)
    return found, [index for row in zip(*found, strict=True) for index in row]


@pytest.mark.torch
@given(st.integers(0, 30), st.integers(1, 8), st.booleans(), st.booleans(), st.integers(0, 9))
def test_shares_of_workers_are_those_of_pytorch(length, replicas, shuffle, drop_last, epoch):
    """Apart from the order in which indices are drawn: an index has the same places in both."""
    oracle = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    options = {"shuffle": shuffle, "drop_last": drop_last, "seed": 3, "epoch": epoch}
    ours, order = shares(data, length, replicas, **options)
    theirs, expected = shares(oracle, length, replicas, **options)
    assert [*map(len, ours)] == [*map(len, theirs)]
    renamed = dict(zip(expected, order, strict=True))
    assert [renamed[index] for index in expected] == order
    assert len({*order}) == len({*expected})
    assert {*order} <= {*range(length)}
    if not shuffle:
        assert ours == theirs


def test_shares_differ_from_epoch_to_epoch_and_can_be_had_again():
    first, order = shares(data, 20, 3, epoch=1)
    assert shares(data, 20, 3, epoch=1) == (first, order)
    assert shares(data, 20, 3, epoch=2)[1] != order
    # As in PyTorch, seed and epoch are added.
    assert shares(data, 20, 3, epoch=0, seed=1) == (first, order)
    loaded = [
        batch.tolist()
        for rank in range(3)
        for batch in data.DataLoader(
            range(20), batch_size=4, sampler=data.DistributedSampler(range(20), 3, rank)
        )
    ]
    assert [*map(len, loaded)] == [4, 3] * 3
    assert {*chain.from_iterable(loaded)} == {*range(20)}


@pytest.mark.torch
@pytest.mark.parametrize(("replicas", "rank"), [(2, 2), (2, -1), (0, 0)])
def test_ranks_that_are_none_raise_what_pytorch_raises(replicas, rank):
    oracle = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    said = []
    for T in (oracle, data):
        with pytest.raises(ValueError, match="Invalid rank") as info:
            T.DistributedSampler(range(4), replicas, rank)
        said.append(str(info.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("options", "lacking"), [({"num_replicas": 2}, "rank"), ({"rank": 0}, "num_replicas")]
)
def test_shares_without_workers_say_what_is_lacking(options, lacking):
    with pytest.raises(RuntimeError, match=f"^DistributedSampler without {lacking}: .*world.run"):
        data.DistributedSampler(range(4), **options)
