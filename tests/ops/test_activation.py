"""Activations."""

from __future__ import annotations

import oracle
import pytest
from tiers import MUST

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["activation"]


@pytest.mark.parametrize("name", NAMES)
def test_activation_matches_pytorch(name):
    oracle.check(name, limit=80)


@pytest.mark.parametrize("name", NAMES)
def test_activation_matches_pytorch_in_half_precision(name):
    oracle.check(name, dtypes=("float16",), order=0, limit=8, tolerance=2e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_errors(name)])
def test_refuses_what_pytorch_refuses(name):
    assert oracle.check_errors(name) > 0
