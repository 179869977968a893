"""Functions that move elements."""

from __future__ import annotations

import oracle
import pytest
from tiers import MUST

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["shape"]
SKIP = {
    "no layout but rows": lambda s: (
        s.kwargs.get("memory_format") in (torch.channels_last, torch.channels_last_3d)
    )
}


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_pytorch(name):
    # Whether a view is possible depends on the strides.
    dtypes = ("float64", "complex128", "int64", "bool")
    oracle.check(name, dtypes=dtypes, limit=12, skip=SKIP, awkward=name != "view")


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_pytorch_in_small_dtypes(name):
    dtypes = ("float16", "bfloat16", "uint8")
    oracle.check(name, dtypes=dtypes, order=0, limit=4, tolerance=1e-2, skip=SKIP)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_in_place(name)])
def test_in_place_form_matches_pytorch(name):
    oracle.check_in_place(name)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_errors(name)])
def test_refuses_what_pytorch_refuses(name):
    oracle.check_errors(name)
