"""Matrix products."""

from __future__ import annotations

import oracle
import pytest
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

#: PyTorch's op calls `einsum` with the equation first, its sample has it second.
FUNCTIONS = {"einsum": lambda tensors, equation: ag.einsum(equation, tensors)}
NAMES = [*MUST["matmul_conv_pool"][: MUST["matmul_conv_pool"].index("nn.functional.conv1d")]]


@pytest.mark.parametrize("name", [*NAMES, "__rmatmul__"])
def test_product_matches_pytorch(name):
    oracle.check(name, FUNCTIONS.get(name), limit=80)


@pytest.mark.parametrize("name", [name for name in NAMES if oracle.has_errors(name)])
def test_refuses_what_pytorch_refuses(name):
    assert oracle.check_errors(name, FUNCTIONS.get(name)) > 0


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_einsum_of_one_integer_tensor_counts_in_int64(dtype):
    for equation in ("ij->", "ij->j", "ij->ji", "ii->i", "ii"):
        theirs, ours = (
            m.einsum(equation, m.ones((3, 3), dtype=getattr(m, dtype))) for m in (torch, ag)
        )
        oracle.compare(theirs, ours)
