"""Layers whose inputs are empty, or hold integers where PyTorch takes them."""

import numpy as np
import pytest
from module_parity import check

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
    "batch_norm of lines": (lambda nn: nn.BatchNorm1d(3), (0, 3)),
    "batch_norm alone": (lambda nn: nn.BatchNorm1d(5, affine=False), (0, 5, 9)),
    "instance_norm": (lambda nn: nn.InstanceNorm1d(5), (2, 5, 0)),
    "group_norm of no places": (lambda nn: nn.GroupNorm(2, 4), (0, 4, 0)),
    "linear of nothing": (lambda nn: nn.Linear(3, 2), (0, 3)),
    "adaptive_max_pool1d": (lambda nn: nn.AdaptiveMaxPool1d(3), (0, 3, 5)),
    "adaptive_max_pool2d": (lambda nn: nn.AdaptiveMaxPool2d(3), (0, 3, 5, 5)),
    "adaptive_max_pool3d": (lambda nn: nn.AdaptiveMaxPool3d(3), (0, 3, 5, 5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_no_elements(name):
    make, shape = LAYERS[name]
    check(make, np.zeros(shape))


@pytest.mark.parametrize("name", LAYERS)
def test_no_elements_have_second_derivatives(name):
    make, shape = LAYERS[name]
    shapes = []
    for T in (torch, ag):
        layer, x = make(T.nn).to(T.float64), T.zeros(shape, dtype=T.float64, requires_grad=True)
        out = layer(x)
        out = out[0] if isinstance(out, tuple) else out
        leaves = [x, *layer.parameters()]
        first = T.autograd.grad((out * out).sum(), leaves, create_graph=True)
        total = sum([(g * g).sum() for g in first if g.requires_grad])
        second = T.autograd.grad(total, leaves, allow_unused=True) if first[0].requires_grad else ()
        shapes.append([None if g is None else tuple(g.shape) for g in (*first, *second)])
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [(0, 0), (0, 2), (3, 0)])
def test_tables_of_nothing_have_gradients(size, sparse):
    for T in (torch, ag):
        table = T.nn.Embedding(*size, sparse=sparse)
        table(T.zeros(0, 2, dtype=T.int64)).sum().backward()
        assert table.weight.grad.to_dense().shape == size


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_there_is_no_middle_of_nothing(dtype):
    for name in ("median", "nanmedian"):
        theirs, ours = [getattr(T.zeros(0, dtype=getattr(T, dtype)), name)() for T in (torch, ag)]
        np.testing.assert_equal(ours.item(), theirs.item())


def test_powers_of_integers_are_floating():
    x = np.arange(12).reshape(1, 3, 4)
    mine = ag.nn.LPPool1d(2, 2)(ag.from_numpy(x)).numpy()
    np.testing.assert_allclose(mine, torch.nn.LPPool1d(2, 2)(torch.from_numpy(x)).numpy())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["CrossEntropyLoss", "NLLLoss"])
@pytest.mark.parametrize(
    ("shape", "classes"),
    [((0, 4), []), ((0, 0), []), ((0, 4, 3), np.zeros((0, 3))), ((2, 4), [-100, -100])],
)
def test_losses_where_no_class_counts(name, shape, classes, reduction):
    check(
        lambda nn: getattr(nn, name)(reduction=reduction),
        np.zeros(shape),
        np.array(classes, dtype=np.int64),
    )
