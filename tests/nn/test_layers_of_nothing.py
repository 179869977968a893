"""Layers whose inputs are empty, or hold integers where PyTorch takes them."""

from __future__ import annotations

import numpy as np
import pytest
from beside import check

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


LAYERS = {
    "batch_norm": (lambda nn: nn.BatchNorm2d(3), (0, 3, 2, 2)),
    "group_norm": (lambda nn: nn.GroupNorm(3, 3), (0, 3, 2)),
    "layer_norm": (lambda nn: nn.LayerNorm(3), (0, 3)),
    "conv": (lambda nn: nn.Conv2d(3, 2, 2), (0, 3, 4, 4)),
    "conv_transpose": (lambda nn: nn.ConvTranspose2d(3, 2, 2), (0, 3, 4, 4)),
    "lstm": (lambda nn: nn.LSTM(3, 2), (4, 0, 3)),
    "glu": (lambda nn: nn.GLU(), (3, 0)),
    "glu_of_rows": (lambda nn: nn.GLU(0), (0, 3)),
    "prelu": (lambda nn: nn.PReLU(), (0, 3)),
    "encoder": (lambda nn: nn.TransformerEncoderLayer(4, 2, 8, 0.0), (0, 4)),
    "max_pool": (lambda nn: nn.MaxPool2d(2), (0, 3, 4, 4)),
    "pad": (lambda nn: nn.ReflectionPad2d(1), (0, 3, 4, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_no_elements(name):
    make, shape = LAYERS[name]
    check(make, np.zeros(shape))


def test_powers_of_integers_are_floating():
    x = np.arange(12).reshape(1, 3, 4)
    mine = ag.nn.LPPool1d(2, 2)(ag.from_numpy(x)).numpy()
    np.testing.assert_allclose(mine, torch.nn.LPPool1d(2, 2)(torch.from_numpy(x)).numpy())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["CrossEntropyLoss", "NLLLoss"])
@pytest.mark.parametrize(
    ("shape", "classes"), [((0, 4), []), ((0, 4, 3), np.zeros((0, 3))), ((2, 4), [-100, -100])]
)
def test_losses_where_no_class_counts(name, shape, classes, reduction):
    check(
        lambda nn: getattr(nn, name)(reduction=reduction),
        np.zeros(shape),
        np.array(classes, dtype=np.int64),
    )
