"""What is reduced with elements that go to the same place, and what is put there."""

import math

import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

NAMES = ["index_reduce", "put", "scatter_reduce"]


test_samples = oracle.as_in_pytorch(
    NAMES, tangents=4, dtypes=("float64", "int64", "bool"), limit=12
)


ZEROS = {
    "one": ([3.0], [2.0, 5.0, 0.0]),
    "two": ([3.0], [0.0, 5.0, 0.0]),
    "its own": ([0.0], [2.0, 5.0, 7.0]),
    "its own and one": ([0.0], [2.0, 5.0, 0.0]),
    "three": ([3.0], [0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", ZEROS)
def test_second_derivatives_of_products_with_zeros_are_exact(name):
    """PyTorch refuses those of two zeros in one place."""
    first, factors = ZEROS[name]
    weights = ag.tensor([1.0, 2.0, 3.0], dtype=ag.float64)
    results = []
    for way in ("scattered", "multiplied"):
        x = ag.tensor(first, dtype=ag.float64, requires_grad=True)
        y = ag.tensor(factors, dtype=ag.float64, requires_grad=True)
        if way == "scattered":
            out = ag.scatter_reduce(x, 0, ag.zeros(3, dtype=ag.int64), y, "prod")
        else:
            out = x * y[0] * y[1] * y[2]
        by_x, by_y = ag.grad(out.sum(), (x, y), create_graph=True)
        second = ag.grad((by_y * weights).sum() + by_x.sum(), (x, y))
        results.append([t.tolist() for t in (by_x, by_y, *second)])
    assert results[0] == results[1]


def test_an_index_that_changes_before_the_pass_is_noticed():
    for reduce in ("sum", "prod", "mean", "amax"):
        x = ag.ones(3, requires_grad=True)
        index = ag.tensor([0, 0])
        y = ag.scatter_reduce(x, 0, index, x[:2], reduce)
        index.fill_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def _index(T, *numbers):
    return T.tensor(numbers)


BAD = {
    "a row that there is not": lambda T, x, y: x.index_reduce(0, _index(T, 5), y, "prod"),
    "a row below 0": lambda T, x, y: x.index_reduce(0, _index(T, -1), y, "prod"),
    "rows in two axes": lambda T, x, y: x.index_reduce(0, _index(T, [0]), y, "prod"),
    "rows of floats": lambda T, x, y: x.index_reduce(0, _index(T, 0.0), y, "prod"),
    "wide rows": lambda T, x, y: x.index_reduce(0, _index(T, 0), T.ones(1, 5), "prod"),
    "too many rows": lambda T, x, y: x.index_reduce(0, _index(T, 0, 1), y, "prod"),
    "rows that are summed": lambda T, x, y: x.index_reduce(0, _index(T, 0), y, "sum"),
    "other rows": lambda T, x, y: x.index_reduce(0, _index(T, 0), y.double(), "prod"),
    "no axis": lambda T, x, y: x.index_reduce(3, _index(T, 0), y, "prod"),
    "a place that there is not": lambda T, x, y: x.scatter_reduce(0, _index(T, [5]), y, "prod"),
    "add": lambda T, x, y: x.scatter_reduce(0, _index(T, [0]), y, "add"),
    "a number": lambda T, x, y: x.scatter_reduce(0, _index(T, [0]), 2.0, "sum"),
    "the mean of truths": lambda T, x, y: x.bool().scatter_reduce(
        0, _index(T, [0]), y.bool(), "mean"
    ),
    "the greatest of complex": lambda T, x, y: (x * 1j).scatter_reduce(
        0, _index(T, [0]), y * 1j, "amax"
    ),
    "no bool": lambda T, x, y: x.scatter_reduce(0, _index(T, [0]), y, "sum", include_self=1),
    "put outside": lambda T, x, y: x.put(_index(T, 20), T.ones(1)),
    "put too few": lambda T, x, y: x.put(_index(T, -1, 0), T.ones(1)),
    "put at floats": lambda T, x, y: x.put(_index(T, 0.0), T.ones(1)),
    "put at int32": lambda T, x, y: x.put(_index(T, 0).int(), T.ones(1)),
    "put integers": lambda T, x, y: x.put(_index(T, 0), T.tensor([1])),
    "put into nothing": lambda T, x, y: T.ones(0).put(_index(T, 0), T.ones(1)),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", BAD)
def test_what_pytorch_refuses_is_refused(name):
    oracle.check_refused(lambda T: BAD[name](T, T.ones(3, 4), T.ones(1, 4)))


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_no_axes_and_nothing_are_as_in_pytorch():
    for T in (torch, ag):
        two, three, zero = T.tensor(2.0), T.tensor(3.0), T.tensor(0)
        assert two.index_reduce(0, zero, three, "prod").item() == 6
        assert two.scatter_reduce(0, zero, three, "mean").item() == 2.5
        assert two.put(zero, three, True).item() == 5
        none = T.zeros(0, 4, dtype=T.int64)
        assert T.ones(3, 4).scatter_reduce(0, none, T.ones(1, 4), "prod").sum().item() == 12
        assert T.ones(0).put(none.reshape(-1), T.ones(0)).tolist() == []


@pytest.mark.parametrize(("reduce", "least"), [("amax", -math.inf), ("amin", math.inf)])
def test_what_is_not_included_has_no_part_in_the_gradient(reduce, least):
    """In its place is the least number of all, or the greatest, which an element may equal."""
    for T in (torch, ag):
        x, source = T.zeros(2, requires_grad=True), T.tensor([least, 1.0], requires_grad=True)
        out = x.scatter_reduce(0, T.tensor([0, 1]), source, reduce, include_self=False)
        out.sum().backward()
        assert source.grad.tolist() == [1, 1]
        assert x.grad.tolist() == [0, 0]


def test_a_number_written_into_another_is_copied():
    x, source = ag.tensor(1.0), ag.tensor(7.0)
    index = ag.tensor([0])
    for result in (x.index_copy(0, index, source), x.index_fill(0, index, source)):
        result.add_(1)
    assert (x.item(), source.item()) == (1, 7)
