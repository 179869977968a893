"""What a type checker tells users of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api", reason="mypy is not installed")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio
from typing import Any, assert_type

import numpy as np

import asyncgrad as ag
from asyncgrad import Tensor
from asyncgrad.nn import functional as F


class Cube(ag.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x: Tensor
        (x,) = ctx.saved_tensors
        return 3.0 * g * x**2


class Net(ag.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = ag.nn.Linear(4, 8)
        self.weight = ag.nn.Parameter(ag.randn(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return ag.tanh(self.first(x)) @ self.weight


def double(g: Tensor) -> Tensor:
    return g * 2


async def train(model: Net, x: Tensor, y: Tensor) -> float:
    optimizer = ag.optim.Adam(model.parameters(), lr=1e-2)
    loss = ag.zeros(())
    for _ in range(5):
        loss = F.cross_entropy(await ag.offload(model, x), y)
        optimizer.zero_grad()
        handle = loss.register_hook(double)
        async with asyncio.timeout(5):
            await loss.backward(priority=1)
        handle.remove()
        optimizer.step()
    return loss.item()


@ag.no_grad()
def evaluate(model: Net, x: Tensor) -> Tensor:
    return F.softmax(model.forward(x), 1).argmax(1)


x = ag.from_numpy(np.ones((2, 2)))
assert_type(x @ x.T, Tensor)
assert_type(1 - x[0], Tensor)
assert_type(-x, Tensor)
assert_type(x > 0, Tensor)
assert_type(x.exp().sum(), Tensor)
assert_type(ag.where(x > 0, x, 0.0), Tensor)
assert_type(ag.where(x > 0), tuple[Tensor, ...])
assert_type(ag.linalg.eigh(x), ag.return_types.linalg_eigh)
assert_type(x.split(1), tuple[Tensor, ...])
assert_type(ag.cat([x, x]), Tensor)
assert_type(F.relu(x), Tensor)
assert_type(x.grad, Tensor | None)
assert_type(x.requires_grad, bool)
"""


def test_a_users_program_is_typed(tmp_path, monkeypatch):
    """Strictly, and without the checker's settings of this project."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    found, errors, status = api.run([*options, str(program)])
    assert (status, errors) == (0, ""), found
