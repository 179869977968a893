"""Quantiles, and the extremes so far."""

from __future__ import annotations

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = ["cummax", "cummin", "msort", "nanquantile", "quantile"]


test_samples = oracle.as_in_pytorch(
    NAMES,
    tangents=4,
    dtypes=("float64", "float32", "int64", "bool"),
    limit=8,
    skip={"large": lambda s: s.input.numel() > 1000},
)


ARRAY = np.array([[3.0, np.nan, 1.0, 2.0], [4.0, 2.0, 9.0, 3.0], [np.nan] * 4])
CALLS = {
    "quantile of lines": lambda T, x: T.quantile(x, 0.3, dim=1),
    "nanquantile": lambda T, x: T.nanquantile(x, T.tensor([0.2, 0.9], dtype=T.float64)),
    "nanquantile of lines": lambda T, x: T.nanquantile(x, 0.3, dim=1, interpolation="midpoint"),
    "cummax": lambda T, x: T.cummax(x, 1),
    "cummin": lambda T, x: T.cummin(x, 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_nan_and_ties_are_pytorchs(name):
    expected, found = (CALLS[name](T, T.tensor(ARRAY)) for T in (torch, ag))
    oracle.compare(expected, found)


def test_examples_are_counted_one_by_one():
    x = ag.tensor(np.random.default_rng(0).standard_normal((3, 5)))
    functions = (
        lambda x: ag.cummax(x, 0).values,
        lambda x: ag.cummin(x, 0).values,
    )
    for function in functions:
        found = ag.func.vmap(function)(x)
        expected = ag.stack([function(row) for row in x])
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_devices_have_them_too():
    """Found in the host's memory, picked on the device."""
    x = ag.tensor(np.random.default_rng(0).standard_normal((3, 5)), requires_grad=True)
    y = x.detach().to("sim:0").requires_grad_()
    for function in (lambda x: ag.cummax(x, 1).values, lambda x: ag.quantile(x, 0.3, dim=1)):
        expected, found = function(x), function(y)
        assert found.device == y.device
        np.testing.assert_allclose(found.detach().cpu().numpy(), expected.detach().numpy())
        (g,), (h,) = ag.grad(expected.sum(), x), ag.grad(found.sum(), y)
        np.testing.assert_allclose(h.cpu().numpy(), g.numpy())


@pytest.mark.parametrize(
    "call",
    [
        lambda T: T.quantile(T.ones(3), 1.5),
        lambda T: T.quantile(T.ones(3, dtype=T.int64), 0.5),
        lambda T: T.quantile(T.ones(0), 0.5),
        lambda T: T.quantile(T.ones(3), 0.5, interpolation="cubic"),
        lambda T: T.quantile(T.ones(3), T.ones(1, dtype=T.float64)),
        lambda T: T.cummax(T.ones(3), 1),
        lambda T: T.cummin(T.ones(3), None),
    ],
)
def test_refuses_what_pytorch_refuses(call):
    oracle.check_refused(call)
