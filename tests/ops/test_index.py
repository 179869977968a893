"""Functions that pick elements by index."""

from __future__ import annotations

import oracle
import pytest
from tiers import MUST

import asyncgrad as ag
from asyncgrad.autograd import gradcheck, gradgradcheck

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["index"]
#: PyTorch's op has the weight first.
FUNCTIONS = {
    "nn.functional.embedding": lambda weight, indices, **kwargs: ag.nn.functional.embedding(
        indices, weight, **kwargs
    )
}


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_pytorch(name):
    oracle.check(
        name, FUNCTIONS.get(name), dtypes=("float64", "complex128", "int64", "bool"), limit=12
    )


@pytest.mark.parametrize("name", [n for n in NAMES if "one_hot" not in n])
def test_function_matches_pytorch_in_small_dtypes(name):
    oracle.check(
        name,
        FUNCTIONS.get(name),
        dtypes=("float16", "bfloat16", "uint8"),
        order=0,
        limit=4,
        tolerance=1e-2,
    )


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_in_place(name)])
def test_in_place_form_matches_pytorch(name):
    oracle.check_in_place(name)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_errors(name)])
def test_refuses_what_pytorch_refuses(name):
    oracle.check_errors(name, FUNCTIONS.get(name))


def test_what_arrays_pick_lies_in_memory_as_with_pytorch():
    """Axes stay in their place in memory, so that what is picked can be viewed as one axis."""

    def picks(m):
        x, i = m.arange(120).reshape(2, 3, 4, 5), m.tensor([0, 1, 1])
        mask = m.tensor([True, False, True])
        part = x[:, :, ::2, 1:]
        yield from (x[:, i], x[:, :, i], x[..., i], x[:, i, i], x[:, i, :, i], x[:, mask])
        yield from (x[:, i, None, :2], part[:, i], part[..., i], x.index_select(2, i))
        yield from (x[i[:2], :, i[:2]], x[:, i[None]], x[0, :, i])
        yield from (m.nn.functional.pad(x * 1.0, (1, 2, 0, 1), "reflect"), x.topk(2, 2).indices)
        yield from (x.topk(2, 1).values, x.masked_select(x > 3))

    for theirs, ours in zip(picks(torch), picks(ag), strict=True):
        assert ours.stride() == theirs.stride()
        assert ours.view(-1).tolist() == theirs.view(-1).tolist()


@pytest.mark.parametrize("factors", [[[1.5, 2, 3], [4, 0.5, 6]], [[1.5, 2, 0], [4, 0, 6]]])
@pytest.mark.parametrize("dtype", [ag.float64, ag.complex128])
def test_scattered_factors_have_derivatives(factors, dtype):
    """In PyTorch they have none; where there are several factors, zeros among them count."""
    places = ag.tensor([[0, 1, 1], [2, 1, 1]])
    x = (ag.arange(1.0, 10.0).reshape(3, 3) * 0.3).to(dtype).requires_grad_()
    y = ag.tensor(factors, dtype=dtype, requires_grad=True)

    def scattered(x, y):
        return ag.scatter(x, 0, places, y, reduce="multiply")

    assert gradcheck(scattered, (x, y), check_forward_ad=True, check_batched_grad=True)
    if 0 not in factors[0]:
        assert gradgradcheck(scattered, (x, y))
