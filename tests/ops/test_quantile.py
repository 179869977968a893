"""Quantiles, and the extremes so far."""

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
