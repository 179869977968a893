"""Activations."""

import numpy as np
import oracle
import pytest
from promised import MUST

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

NAMES = MUST["activation"]


test_samples = oracle.as_in_pytorch(
    NAMES, small={"dtypes": ("float16",), "limit": 8, "tolerance": 2e-3}, errors=False, limit=80
)


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "gelu", "silu", "softplus", "leaky_relu"])
def test_numbers_are_differentiated_twice(name):
    """What is computed of tensors without dimensions may be NumPy's scalars."""
    function = getattr(ag.nn.functional, name)
    x = ag.tensor(-0.5, dtype=ag.float64, requires_grad=True)
    (first,) = ag.grad(function(x * 1.5), x, create_graph=True)
    (second,) = ag.grad(first, x)
    points = ag.tensor([-0.5, 0.5], dtype=ag.float64, requires_grad=True)
    (expected,) = ag.grad(function(points * 1.5).sum(), points, create_graph=True)
    assert first.item() == pytest.approx(expected[0].item(), rel=1e-12)
    (expected,) = ag.grad(expected.sum(), points)
    assert second.item() == pytest.approx(expected[0].item(), rel=1e-12)


@pytest.mark.parametrize(
    "name",
    ["elu", "selu", "celu", "silu", "mish", "softplus", "sigmoid", "logsigmoid", "softsign"],
)
def test_small_slopes_keep_their_digits(name):
    """Each element on its own scale, far from 0."""
    results = []
    for T, grad in ((torch, torch.autograd.grad), (ag, ag.sync.grad)):
        x = T.tensor([-30.0, -20.0, -10.0, 10.0, 30.0], dtype=T.float64, requires_grad=True)
        (g,) = grad(getattr(T.nn.functional, name)(x).sum(), x)
        results.append(g.numpy())
    np.testing.assert_allclose(*results, rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "sigmoid", "logsigmoid", "tanh"],
)
def test_many_numbers_of_single_precision(name):
    """Some functions of many numbers are computed by other formulas than those of few."""
    results = []
    for T, grad in ((torch, torch.autograd.grad), (ag, ag.sync.grad)):
        x = T.linspace(-9.0, 9.0, 9000, dtype=T.float32, requires_grad=True)
        y = getattr(T.nn.functional, name)(x)
        (g,) = grad(y.sum(), x)
        results.append([y.detach().numpy(), g.numpy()])
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


def test_the_second_derivative_of_relu_is_zero():
    """And not none: the gradient requires grad, though the incoming one is a constant."""
    for T, grad in ((torch, torch.autograd.grad), (ag, ag.sync.grad)):
        x = T.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        (g,) = grad(T.relu(x).sum(), x, create_graph=True)
        (h,) = grad(g.sum(), x)
        assert (g.tolist(), h.tolist()) == ([0.0, 0.0, 1.0], [0.0, 0.0, 0.0])
