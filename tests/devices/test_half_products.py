"""Products of half-precision matrices, which are computed in float32."""

from __future__ import annotations

from typing import Any

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
