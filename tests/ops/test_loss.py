"""Losses."""

from __future__ import annotations

import oracle
import pytest
from tiers import MUST

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["loss"]


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.filterwarnings("ignore:size_average:UserWarning")
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_loss_matches_pytorch(name):
    oracle.check(name, limit=80)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_errors(name)])
def test_refuses_what_pytorch_refuses(name):
    assert oracle.check_errors(name) > 0
