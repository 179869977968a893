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
    "det": lambda r: ag.linalg.det(r(1_000, 2, 2)),
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
    "igamma": lambda x: ag.igamma(x.detach(), x),
    "maximum": lambda x: ag.maximum(x, x),
    "gelu": F.gelu,
    "sines in double precision": lambda x: ag.sin(x.double()),
    "sines of complex numbers": lambda x: ag.sin(ag.complex(x, x)),
    "quotients of complex numbers": lambda x: ag.complex(x, x) / ag.complex(x, x),
    "products of complex numbers": lambda x: x.prod() * ag.complex(x, x).prod(),
    "complex powers": lambda x: ag.complex(x, x) ** 2.5,
    "powers of complex numbers": lambda x: ag.complex(x, x) ** ag.complex(x, x),
    "complex powers of a number": lambda x: 2 ** ag.complex(x, x),
    "picked elements": lambda x: x[ag.zeros(len(x), dtype=ag.int64)],
    "index_select": lambda x: x.index_select(0, ag.zeros(len(x), dtype=ag.int64)),
    "repeat_interleave": lambda x: x.repeat_interleave(2),
    "gather": lambda x: x.gather(0, ag.zeros(len(x), dtype=ag.int64)),
    **{
        f"{name} of short lines": lambda x, name=name: getattr(x[len(x) % 2 :].view(-1, 2), name)(
            dim=1
        )
        for name in ("amax", "std", "var", "prod", "logsumexp", "softmax")
    },
    **{
        f"{name} short lines": lambda x, call=call: call(x[len(x) % 2 :].view(-1, 2))
        for name, call in {
            "broadcasts to": lambda x: x * ag.ones(2),
            "columns broadcast to": lambda x: x[:, :1].expand(-1, 2),
            "layer norms of": lambda x: F.layer_norm(x, (2,)),
        }.items()
    },
}

#: Functions whose gradients take a few nanoseconds for an element.
SLOWER = {
    "remainder": lambda x: x % x,
    "powers": lambda x: x**x,
    "scatter": lambda x: x.scatter(0, ag.arange(len(x)), x),
    "silu": F.silu,
    "batch_norm": lambda x: F.batch_norm(x.view(-1, 5), None, None, training=True),
    "tril": lambda x: ag.tril(x.view(-1, 10)),
    "absolute values of complex numbers": lambda x: ag.abs(ag.complex(x, x)),
}

#: Calls whose gradients take little time, although an estimate by the size of operands is high.
QUICK = {
    "real squares": lambda r: r(30_000) ** 2,
    "a transposed convolution in steps": lambda r: F.conv_transpose2d(
        r(1, 1, 30, 30), r(1, 1, 1, 1), stride=4
    ),
    "an embedding of few words": lambda r: F.embedding(ag.zeros(20, dtype=ag.int64), r(1_000, 64)),
    "standard deviations of long lines": lambda r: r(2, 30_000).std(1),
    "batch norms of small images": lambda r: F.batch_norm(
        r(64, 32, 2, 2), None, None, training=True
    ),
    "an inverse": lambda r: ag.linalg.inv(r(32, 32) + 40 * ag.eye(32)),
    "singular values": lambda r: ag.linalg.svdvals(r(32, 32)),
    "a window of a long tensor": lambda r: r(60_000).as_strided((4,), (3,)),
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


@pytest.mark.parametrize("name", SLOWER)
def test_slower_functions_are_expensive_for_more_elements(name: str) -> None:
    assert most_expensive(SLOWER[name](ag.ones(80_000, requires_grad=True))) > HEAVY_NS


@pytest.mark.parametrize("name", QUICK)
def test_quick_functions_stay_on_the_loop(name: str) -> None:
    out = QUICK[name](lambda *shape: ag.ones(*shape, requires_grad=True))
    assert most_expensive(out) < HEAVY_NS / 2
