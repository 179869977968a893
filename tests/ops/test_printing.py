"""Tensors are printed as PyTorch prints them."""

import tracemalloc
from operator import attrgetter

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

_RNG = np.random.default_rng(0)
ARRAYS = {
    "number": np.float32(2.5),
    "whole": np.array([1.0, -20.0, 300.0], np.float32),
    "fractions": _RNG.standard_normal((3, 4)).astype(np.float32),
    "small": np.array([1e-5, 0.5], np.float32),
    "wide": np.array([1.0, 1e9], np.float32),
    "spread": np.array([0.001, 5.0, 2.0], np.float32),
    "not finite": np.array([np.nan, np.inf, -np.inf, 1.0], np.float32),
    "not finite alone": np.array([np.nan, np.inf], np.float32),
    "zeros": np.zeros((2, 2), np.float32),
    "integers": np.array([[1, -20], [300, 4]]),
    "booleans": np.array([True, False]),
    "bytes": np.array([1, 2], np.uint8),
    "doubles": _RNG.standard_normal(3),
    "half": np.array([0.1, 2.0], np.float16),
    "complex": np.array([1 + 2j, -3.5 - 0.25j], np.complex64),
    "long": np.arange(40.0, dtype=np.float32) / 3,
    "long lines": _RNG.standard_normal((2, 30)).astype(np.float32),
    "many": np.arange(1200.0, dtype=np.float32),
    "large matrix": np.arange(3000).reshape(50, 60),
    "three axes": np.arange(24).reshape(2, 3, 4),
    "large cube": np.arange(1728.0, dtype=np.float32).reshape(12, 12, 12),
    "empty": np.zeros(0, np.float32),
    "empty rows": np.zeros((0, 3), np.float32),
    "empty doubles": np.zeros((2, 0), np.float64),
    "empty integers": np.zeros(0, np.int64),
    "empty complex numbers": np.zeros((0, 3), np.complex64),
    "negative zeros": np.array([0.0, -0.0] * 12, np.float32),
    "complex rows of real numbers": np.full((4, 30), 1e-5 + 0j, np.complex64),
    "empty rows of booleans": np.zeros((0, 3), np.bool_),
}


def _alike(make):
    expected, found = repr(make(torch)), repr(make(ag))
    if "torch." in expected:
        # The dtype's name is longer here: lines may end earlier.
        expected = " ".join(expected.replace("torch.", "asyncgrad.").split())
        found = " ".join(found.split())
    assert found == expected


@pytest.mark.parametrize("name", ARRAYS)
def test_values_are_printed_alike(name):
    _alike(lambda library: library.tensor(ARRAYS[name]))


@pytest.mark.parametrize("name", ["fractions", "long", "doubles", "number", "long lines"])
def test_what_is_said_of_gradients_is_printed_alike(name):
    array = ARRAYS[name]
    _alike(lambda library: library.tensor(array, requires_grad=True))
    _alike(lambda library: library.tensor(array, requires_grad=True).exp())
    _alike(lambda library: library.nn.Parameter(library.tensor(array)))


@pytest.mark.parametrize(
    "options",
    [{"precision": 2}, {"sci_mode": True}, {"sci_mode": False}, {"threshold": 5, "edgeitems": 1},
     {"linewidth": 40}, {"profile": "short"}, {"profile": "full"}],
)  # fmt: skip
@pytest.mark.parametrize("name", ["fractions", "small", "zeros", "long", "integers", "complex"])
def test_options_mean_the_same(options, name):
    try:
        torch.set_printoptions(**options)
        ag.set_printoptions(**options)
        _alike(lambda library: library.tensor(ARRAYS[name]))
    finally:
        torch.set_printoptions(profile="default")
        ag.set_printoptions(profile="default")


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "complex64", "int64", "bool"])
def test_printing_copies_no_more_than_is_shown(dtype):
    """Of a tensor that is large, or that is small and has been expanded."""
    one = ag.ones(1, dtype=getattr(ag, dtype))
    shapes = [(30_000_000,), (3000, 10_000), (5, 6_000_000), (7, 1, 3_000_000)]
    tensors = [one.expand(shape) for shape in shapes]
    repr(tensors[0])
    tracemalloc.start()
    try:
        for tensor in tensors:
            repr(tensor)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["sort", "aminmax", "linalg.slogdet", "linalg.svd"])
def test_results_with_names_are_printed_alike(name):
    _alike(lambda library: attrgetter(name)(library)(library.eye(2)))


def test_another_profile_is_refused():
    with pytest.raises(ValueError, match="profile"):
        ag.set_printoptions(profile="fancy")
