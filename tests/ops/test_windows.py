"""Matrices from their diagonals, windows along an axis, and sums of a given shape."""

import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = ["diag_embed", "diagflat", "diagonal_scatter", "sum_to_size", "unfold"]


test_samples = oracle.as_in_pytorch(
    NAMES,
    tangents=6,
    dtypes=("float64", "complex128", "int64", "bool"),
    limit=12,
    awkward=False,
)


def test_windows_are_a_view():
    x = ag.arange(6.0)
    windows = x.unfold(0, 3, 1)
    x[2] = 9
    assert windows[0].tolist() == [0, 1, 9]


@pytest.mark.parametrize(
    "call",
    [
        lambda T: T.ones(3).unfold(0, 4, 1),
        lambda T: T.ones(3).unfold(0, 2, 0),
        lambda T: T.ones(3).unfold(1, 2, 1),
        lambda T: T.ones(3).sum_to_size(2),
        lambda T: T.diag_embed(T.ones(3), 0, 1, 1),
        lambda T: T.diagonal_scatter(T.ones(3, 3), T.ones(2)),
    ],
)
def test_what_pytorch_refuses_beside_its_samples(call):
    oracle.check_refused(call)
