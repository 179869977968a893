"""Attention."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402  after the check

pytestmark = pytest.mark.torch

NAME = "nn.functional.scaled_dot_product_attention"
#: What is dropped at random is not comparable.
SKIP = {"random": lambda sample: sample.kwargs.get("dropout_p", 0.0) > 0}


def test_attention_matches_pytorch():
    # PyTorch's own fused kernel has no second derivative.
    with sdpa_kernel(SDPBackend.MATH):
        oracle.check(NAME, limit=80, skip=SKIP)


@pytest.mark.parametrize(
    "wanted", [w for w in itertools.product((True, False), repeat=3) if any(w)]
)
def test_gradients_do_not_depend_on_which_are_wanted(wanted):
    """One kernel makes them all, or some."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape) for shape in ((2, 4, 3), (2, 5, 3), (2, 5, 2))]
    results = []
    for needed in ((True,) * 3, wanted):
        leaves = [
            ag.from_numpy(x).requires_grad_(flag) for x, flag in zip(arrays, needed, strict=True)
        ]
        (ag.nn.functional.scaled_dot_product_attention(*leaves) ** 2).sum().backward()
        results.append([leaf.grad for leaf in leaves])
    for every, one, flag in zip(*results, wanted, strict=True):
        assert (one is not None) == flag
        if flag:
            np.testing.assert_allclose(one.numpy(), every.numpy(), rtol=0, atol=1e-14)
