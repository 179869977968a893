"""Attention."""

from __future__ import annotations

import oracle
import pytest

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
