"""Functions that pick elements by index."""

from __future__ import annotations

import oracle
import pytest
from tiers import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["index"]
#: PyTorch's op has the weight first.
FUNCTIONS = {
    "nn.functional.embedding": lambda weight, indices, **kwargs: ag.nn.functional.embedding(
        indices, weight, **kwargs
    )
}


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_pytorch(name):
    oracle.check(
        name, FUNCTIONS.get(name), dtypes=("float64", "complex128", "int64", "bool"), limit=12
    )


@pytest.mark.parametrize("name", [n for n in NAMES if "one_hot" not in n])
def test_function_matches_pytorch_in_small_dtypes(name):
    oracle.check(
        name,
        FUNCTIONS.get(name),
        dtypes=("float16", "bfloat16", "uint8"),
        order=0,
        limit=4,
        tolerance=1e-2,
    )


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_in_place(name)])
def test_in_place_form_matches_pytorch(name):
    oracle.check_in_place(name)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_errors(name)])
def test_refuses_what_pytorch_refuses(name):
    oracle.check_errors(name, FUNCTIONS.get(name))
