"""Dropout as a module."""

import numpy as np
import pytest
from module_parity import refusal

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


def test_dropout():
    ag.manual_seed(0)
    layer = ag.nn.Dropout(0.25)
    x = ag.ones(10_000)
    dropped = layer(x).numpy()
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.02
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), x.numpy())
    assert repr(layer) == repr(torch.nn.Dropout(0.25))


REFUSED = {
    "dropout": lambda nn: nn.Dropout(1.5),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_layers_that_can_not_be_made(make):
    with pytest.raises(refusal(lambda: make(torch.nn))):
        make(ag.nn)
