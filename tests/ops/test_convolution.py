"""Convolution and pooling."""

from __future__ import annotations

import oracle
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = (
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.max_pool2d",
    "nn.functional.avg_pool2d",
)


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_pytorch(name):
    oracle.check(name, limit=80)


@pytest.mark.parametrize("name", NAMES)
def test_refuses_what_pytorch_refuses(name):
    assert oracle.check_errors(name) > 0
