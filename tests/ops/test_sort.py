"""Sorting."""

import math

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAN = math.nan
#: Equal elements come in any order from PyTorch, unless it is asked for a stable one.
TIES = {"ties": lambda sample: sample.input.unique().numel() < sample.input.numel()}


@pytest.mark.parametrize("name", ["sort", "argsort", "topk"])
def test_function_matches_pytorch(name):
    oracle.check(name, dtypes=("float64", "float32"), skip=TIES, limit=40)


@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_stable_order_matches_pytorchs(name):
    unstable = {"not stable": lambda sample: not sample.kwargs.get("stable")}
    dtypes = ("float64", "float16", "int64", "uint8", "bool")
    oracle.check(name, dtypes=dtypes, skip=unstable, limit=40)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float16"])
def test_topk_of_ties_has_pytorchs_values(dtype):
    (op,) = oracle.infos("topk")
    for sample in oracle.samples(op, dtype):
        twins = oracle.Twins()
        theirs, ours = twins.of([sample.input, *sample.args])
        expected = torch.topk(*theirs, **sample.kwargs)
        found = ag.topk(*ours, **sample.kwargs)
        oracle.compare(expected.values, found.values)
        axis = sample.args[1] if len(sample.args) > 1 else -1
        if found.values.shape:
            taken = np.take_along_axis(ours[0].numpy(), found.indices.numpy(), axis)
            np.testing.assert_array_equal(taken, found.values.numpy())


CALLS = {
    "sort": lambda m, t: m.sort(t([2.0, NAN, 1.0])),
    "sort, descending": lambda m, t: m.sort(t([2.0, NAN, 1.0]), descending=True),
    "sort, stable": lambda m, t: m.sort(t([2, 1, 2, 1]), stable=True),
    "sort, both": lambda m, t: m.sort(t([2, 1, 2, 1]), stable=True, descending=True),
    "sort by position": lambda m, t: m.sort(t([[2, 1]]), 0, True),
    "sort of booleans": lambda m, t: m.sort(t([True, False])),
    "sort of complex": lambda m, t: m.sort(t([1j])),
    "sort of a number": lambda m, t: m.sort(t(1.0), 0),
    "sort, too far": lambda m, t: m.sort(t(1.0), 1),
    "sort of nothing": lambda m, t: m.sort(m.zeros(0)),
    "sort of an empty axis": lambda m, t: m.sort(m.zeros(3, 0), 1),
    "sort of a list": lambda m, t: m.sort([1.0]),
    "argsort": lambda m, t: m.argsort(t([2, 1]), 0, True),
    "argsort, stable": lambda m, t: m.argsort(t([2, 1, 2]), stable=True),
    "topk": lambda m, t: m.topk(t([2.0, NAN, 1.0]), 2),
    "topk, smallest": lambda m, t: m.topk(t([2.0, NAN, 1.0]), 2, largest=False),
    "topk, too many": lambda m, t: m.topk(t([2.0, 3.0]), 3),
    "topk, less than none": lambda m, t: m.topk(t([2.0, 3.0]), -1),
    "topk, none": lambda m, t: m.topk(t([2.0, 3.0]), 0),
    "topk of a number": lambda m, t: m.topk(t(2.0), 1),
    "topk of booleans": lambda m, t: m.topk(t([True]), 1),
    "topk of complex": lambda m, t: m.topk(t([1j]), 1),
    "topk along": lambda m, t: m.topk(t([[2.0, 3.0], [4.0, 1.0]]), 1, 0),
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_mean_what_they_mean_to_pytorch(call):
    oracle.check_call(CALLS[call])


@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_long_lines_parts_before_it_sorts(largest):
    """Longer than what is sorted whole, with NaN among the elements."""
    array = np.random.default_rng(0).permutation(1000.0 * np.arange(900)).reshape(3, 300)
    array[1, 7] = NAN
    expected = torch.topk(torch.tensor(array), 11, 1, largest)
    x = ag.tensor(array, requires_grad=True)
    found = ag.topk(x, 11, 1, largest)
    oracle.compare(tuple(expected), tuple(found))
    found.values.sum().backward()
    assert x.grad.numpy().sum() == 33


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("dim", [0, 1])
def test_topk_of_a_few_is_a_choice_of_different_places(dtype, dim, largest):
    """Also where most elements are the last in order, or NaN, so that there are none behind."""
    random = np.random.default_rng(0)
    for last in (None, -math.inf, math.inf, NAN):
        array = (50 * random.random((200, 150))).astype(dtype)
        if array.dtype.kind == "f" and last is not None:
            array[random.random(array.shape) < 0.99] = last
        elif last is not None:
            ends = np.iinfo(array.dtype)
            array[random.random(array.shape) < 0.99] = ends.max if largest else ends.min
        found = ag.topk(ag.tensor(array), 3, dim, largest)
        oracle.compare(torch.topk(torch.tensor(array), 3, dim, largest).values, found.values)
        indices = found.indices.numpy()
        values = np.take_along_axis(array, indices, dim)
        np.testing.assert_array_equal(values, found.values.numpy())
        assert (np.diff(np.sort(indices, dim), axis=dim) > 0).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("length", [9, 200])
def test_nan_is_the_greatest_of_all_dtypes(dtype, length):
    """In a long line `topk` partitions first."""
    values = np.random.default_rng(0).permutation(np.arange(length, dtype=float))
    values[::4] = NAN
    values[1::7] = -math.inf

    def found(T):
        x = T.tensor(values.tolist(), dtype=getattr(T, dtype))
        results = [T.sort(x, stable=True, descending=d) for d in (False, True)]
        results += [T.topk(x, 2, largest=largest)[0] for largest in (False, True)]
        edges = T.tensor([-math.inf, 0.0, 3.0, math.inf], dtype=x.dtype)
        results += [T.unique(x), T.searchsorted(edges, x), T.argsort(x, stable=True), T.msort(x)]
        return results

    for expected, ours in zip(found(torch), found(ag), strict=True):
        oracle.compare(expected, ours)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_is_found_among_others_does_not_depend_on_nan(dtype):
    def found(T):
        others = T.tensor([3.0, NAN, 5, 1, 0.5, 7, 8, 9, 10, 11, 12, 0], dtype=getattr(T, dtype))
        return T.isin(T.arange(20).to(others.dtype), others), T.isin(others, others)

    oracle.compare(found(torch), found(ag))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int64"])
def test_numbers_are_found_among_elements_that_are_rounded(dtype):
    """As a double, 0.1 is no element of single precision."""

    def found(T):
        x = T.tensor([0.1, 2.0, math.inf]) if dtype[0] != "i" else T.tensor([0, 2])
        x = x.to(getattr(T, dtype))
        return [T.isin(x, n) for n in (0.1, 2, NAN, 1e39)], T.isin(0.1, x), T.isin(1, x)

    oracle.compare(found(torch), found(ag))


def test_the_order_of_equal_elements_may_be_left_open():
    assert ag.sort(ag.tensor([2.0, 1.0]), stable=None).values.tolist() == [1.0, 2.0]
