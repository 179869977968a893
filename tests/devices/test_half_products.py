"""Products of half-precision matrices, which are computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices import pieces

F = ag.nn.functional
PRODUCTS: dict[str, Any] = {
    "mm": lambda x: x[:64] @ x[64:].T,
    "bmm": lambda x: ag.bmm(x.reshape(2, 64, 256), x.reshape(2, 256, 64)),
    "linear": lambda x: F.linear(x, x[:64]),
    "einsum": lambda x: ag.einsum("ij,kj->ki", x[:64], x[64:]),
    "conv1d": lambda x: F.conv1d(x.reshape(1, 128, 256), x[:, :96].reshape(32, 128, 3)),
}


@pytest.mark.parametrize("dtype", [ag.float16, ag.bfloat16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_that_of_float32_rounded(name: str, dtype: Any) -> None:
    """NumPy's own product, which takes some hundred times as long, adds up in another order."""
    with ag.random.fork_rng():
        ag.manual_seed(0)
        x = ag.randn(128, 256).to(dtype)
    multiply = PRODUCTS[name]
    assert ag.equal(multiply(x), multiply(x.float()).to(dtype))


BATCHES: dict[str, Any] = {
    "matrices": lambda x, w: x[0] @ w[0].T,
    "transposed": lambda x, w: x @ w.mT,
    "beside one matrix": lambda x, w: x @ w[0].T,
    "beside a batch of one": lambda x, w: x @ w[:1].mT,
    "batches of batches": lambda x, w: x[:, None] @ w.mT,
    "attention": lambda x, w: F.scaled_dot_product_attention(x, w, w),
    "vectors": lambda x, w: x[0, 0] @ w[0, 0] + x[0] @ w[0, 0],
}


@pytest.mark.parametrize("dtype", [ag.float16, ag.bfloat16], ids=str)
@pytest.mark.parametrize("name", BATCHES)
def test_products_on_devices(name: str, dtype: Any, accelerator: str) -> None:
    """Values and gradients are near those of float32."""

    def results(dtype: Any) -> list[Any]:
        ag.manual_seed(0)
        x, w = (ag.randn(3, n, 5).to(accelerator, dtype).requires_grad_() for n in (4, 6))
        y = BATCHES[name](x, w)
        y.float().sum().backward()
        return [z.detach().float().cpu().numpy() for z in (y, x.grad, w.grad)]

    with ag.random.fork_rng():
        for one, other in zip(results(dtype), results(ag.float32), strict=True):
            np.testing.assert_allclose(one, other, atol=0.1)


@pytest.mark.asyncio
async def test_idle_threads_share_a_large_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large half-precision product is cut into pieces as one of float32 is."""
    cut: list[Any] = []
    product = pieces.product

    def spy(multiply: Any, x: Any, y: Any, out: Any) -> None:
        cut.append(x.dtype)
        product(multiply, x, y, out)

    monkeypatch.setattr(pieces, "product", spy)
    x = ag.ones(300, 300, dtype=ag.float16, requires_grad=True)
    await (x @ x).sum().backward()
    assert x.grad.dtype is ag.float16
    assert [dtype.name for dtype in cut] == ["float32"] * 3


def test_a_product_that_is_too_large_is_infinite_without_a_warning() -> None:
    """Warnings are errors in tests."""
    x = ag.full((300, 300), 1000.0, dtype=ag.float16)
    assert ag.isinf(x @ x).all()
    assert ag.isinf(x[0] @ x[0])


def test_a_recurrent_layer_multiplies_in_float32_too() -> None:
    """Its steps write products into given arrays."""
    with ag.random.fork_rng():
        ag.manual_seed(0)
        layer = ag.nn.RNN(8, 600).to(ag.float16)
        x = ag.randn(3, 2, 8).to(ag.float16)
    out, _ = layer(x)
    expected, _ = layer.float()(x.float())
    assert ag.allclose(out.float(), expected, atol=2e-3)
