"""Gradients of a module's parameters for each example, beside PyTorch's one by one."""

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

#: Modules by the namespace of layers, and the shape of a batch of inputs.
LAYERS = {
    "linear": (lambda n: n.Linear(3, 2), (4, 3)),
    "mlp": (
        lambda n: n.Sequential(n.Linear(3, 3), n.LayerNorm(3), n.GELU(), n.Linear(3, 1)),
        (4, 3),
    ),
    "conv1d": (lambda n: n.Conv1d(2, 3, 2), (4, 2, 5)),
    "conv2d": (lambda n: n.Conv2d(2, 4, 3, padding=1, groups=2), (4, 2, 5, 5)),
    "transposed": (lambda n: n.ConvTranspose2d(2, 4, 3, stride=2), (4, 2, 5, 5)),
    "batch norm": (lambda n: n.BatchNorm1d(4, track_running_stats=False), (4, 4, 3)),
    "rms norm": (lambda n: n.RMSNorm(4), (4, 4)),
    "transformer": (
        lambda n: n.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        (4, 5, 4),
    ),
    "lstm": (lambda n: n.LSTM(3, 2, batch_first=True), (4, 5, 3)),
    "gru": (lambda n: n.GRU(3, 2, batch_first=True), (4, 5, 3)),
    "average pool": (
        lambda n: n.Sequential(
            n.Conv2d(2, 3, 3), n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(3, 2)
        ),
        (4, 2, 5, 5),
    ),
    "max pool": (
        lambda n: n.Sequential(n.Conv2d(2, 3, 2), n.MaxPool2d(2), n.Flatten()),
        (4, 2, 5, 5),
    ),
    "embedding": (
        lambda n: n.Sequential(n.Embedding(7, 3), n.Flatten(), n.Linear(9, 2)),
        None,
    ),
}


def _loss(T, module):
    def loss(parameters, x):
        out = T.func.functional_call(module, parameters, (x[None],))
        return ((out[0] if isinstance(out, tuple) else out) ** 2).sum()

    return loss


@pytest.mark.parametrize("name", LAYERS)
def test_per_sample_gradients(name):
    """One call for all examples."""
    make, shape = LAYERS[name]
    theirs, ours = make(torch.nn).double(), make(ag.nn).double()
    known = {key: p.detach() for key, p in theirs.named_parameters()}
    parameters = {key: ag.tensor(p.numpy()) for key, p in known.items()}
    random = np.random.default_rng(0)
    x = random.normal(size=shape) if shape else random.integers(0, 7, (4, 3))
    expected = [torch.func.grad(_loss(torch, theirs))(known, torch.tensor(row)) for row in x]
    mapped = ag.func.vmap(ag.func.grad(_loss(ag, ours)), in_dims=(None, 0))
    found = mapped(parameters, ag.tensor(x))
    assert {*found} == {*known}
    for key, rows in found.items():
        wanted = np.stack([row[key].numpy() for row in expected])
        np.testing.assert_allclose(rows.numpy(), wanted, rtol=1e-6, atol=1e-8)
