"""What a gradient is expected to cost: a node that takes long must not run on an event loop."""

from __future__ import annotations

import pytest

import asyncgrad as ag
from asyncgrad.core.states import HEAVY_NS
from asyncgrad.nn import functional as F

#: Calls with few multiplications for each element of large arrays, or with many tiny matrices.
THIN = {
    "mm": lambda r: r(100_000, 1) @ r(1, 1),
    "linear": lambda r: F.linear(r(100_000, 1), r(1, 1)),
    "linear with a bias": lambda r: F.linear(r(100_000, 1), r(1, 1), r(1)),
    "addmm": lambda r: ag.addmm(r(1), r(100_000, 1), r(1, 1)),
    "mv": lambda r: r(500, 500) @ r(500),
    "outer": lambda r: ag.outer(r(500), r(500)),
    "bmm": lambda r: ag.bmm(r(10_000, 2, 2), r(10_000, 2, 2)),
    "a batch of products with one element": lambda r: ag.bmm(r(2_000, 1, 1), r(2_000, 1, 1)),
    "einsum": lambda r: ag.einsum("bij,bjk->bik", r(10_000, 2, 2), r(10_000, 2, 2)),
    "cdist": lambda r: ag.cdist(r(300, 1), r(300, 1)),
    "attention": lambda r: F.scaled_dot_product_attention(*(r(1_000, 2, 2, 2) for _ in "qkv")),
    "conv2d": lambda r: F.conv2d(r(1, 1, 400, 400), r(1, 1, 1, 1)),
    "conv2d of each channel": lambda r: F.conv2d(r(1, 64, 28, 28), r(64, 1, 3, 3), groups=64),
    "conv2d in large steps": lambda r: F.conv2d(r(1, 1, 500, 500), r(1, 1, 1, 1), stride=100),
}

#: Functions whose gradients take tens of nanoseconds for an element, or steps of Python.
SLOW = {
    **{name: getattr(ag, name) for name in ("lgamma", "digamma", "i0", "sinc")},
    "log_ndtr": ag.special.log_ndtr,
    "polygamma": lambda x: ag.polygamma(1, x),
    "cumprod": lambda x: ag.cumprod(x, 0),
    "logcumsumexp": lambda x: ag.logcumsumexp(x, 0),
    "repeat": lambda x: x.repeat(1),
    "unfold": lambda x: x.unfold(0, 5, 5),
    "products at places": lambda x: ag.scatter_reduce(x, 0, ag.arange(30_000), x, "prod"),
    "extremes at places": lambda x: ag.scatter_reduce(x, 0, ag.arange(30_000), x, "amax"),
}


def most_expensive(out: ag.Tensor) -> int:
    """The highest cost of a node in a graph."""
    nodes, most = [out.grad_fn], 0
    while nodes:
        node = nodes.pop()
        if node.next_functions:
            most = max(most, node.cost)
            nodes += [other for other, _ in node.next_functions if other is not None]
    return most


@pytest.mark.parametrize("name", THIN)
def test_products_of_thin_matrices_are_expensive(name: str) -> None:
    """They take as long as their elements, or matrices, and not as their multiplications."""
    assert most_expensive(THIN[name](lambda *shape: ag.ones(*shape, requires_grad=True))) > HEAVY_NS


@pytest.mark.parametrize("name", SLOW)
def test_slow_functions_are_expensive_for_many_elements_alone(name: str) -> None:
    """A thread takes longer to begin with a few elements than the loop does to end with them."""
    function = SLOW[name]
    assert most_expensive(function(ag.ones(30_000, requires_grad=True))) > HEAVY_NS
    if "places" not in name:
        assert most_expensive(function(ag.ones(5, requires_grad=True))) < HEAVY_NS / 8
