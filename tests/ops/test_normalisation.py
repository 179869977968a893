"""Normalisation and dropout."""

from __future__ import annotations

import oracle
import pytest
from promised import MUST

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = [name for name in MUST["normalisation"] if name != "nn.functional.dropout"]


@pytest.mark.parametrize("name", NAMES)
def test_normalisation_matches_pytorch(name):
    oracle.check(name, limit=80)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_errors(name)])
def test_refuses_what_pytorch_refuses(name):
    assert oracle.check_errors(name) > 0
