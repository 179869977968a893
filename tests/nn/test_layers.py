"""Layers without parameters or with one table of them, beside PyTorch."""

import numpy as np
import pytest
from module_parity import X, check, refusal

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


ACTIVATIONS = {
    "tanh": lambda nn: nn.Tanh(),
    "sigmoid": lambda nn: nn.Sigmoid(),
    "logsigmoid": lambda nn: nn.LogSigmoid(),
    "relu": lambda nn: nn.ReLU(),
    "silu": lambda nn: nn.SiLU(),
    "leaky_relu": lambda nn: nn.LeakyReLU(0.2),
    "elu": lambda nn: nn.ELU(1.5),
    "gelu": lambda nn: nn.GELU(),
    "gelu_tanh": lambda nn: nn.GELU("tanh"),
    "softplus": lambda nn: nn.Softplus(2.0, 3.0),
    "softmax": lambda nn: nn.Softmax(1),
    "log_softmax": lambda nn: nn.LogSoftmax(-1),
    "identity": lambda nn: nn.Identity(3, unused=True),
    "flatten": lambda nn: nn.Flatten(),
    "flatten_some": lambda nn: nn.Flatten(0, 1),
}


@pytest.mark.parametrize("make", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_layers_without_parameters(make):
    check(make, X((3, 4, 2)))
    assert repr(make(ag.nn)) == repr(make(torch.nn))


@pytest.mark.parametrize("name", ["ReLU", "SiLU", "LeakyReLU", "ELU"])
def test_activations_in_place(name):
    x = ag.from_numpy(X((3, 4)))
    expected = getattr(ag.nn, name)()(x).numpy().copy()
    layer = getattr(ag.nn, name)(inplace=True)
    assert layer(x) is x
    np.testing.assert_array_equal(x.numpy(), expected)
    assert repr(layer) == repr(getattr(torch.nn, name)(inplace=True))


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4), (0, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias):
    check(lambda nn: nn.Linear(4, 3, bias=bias), X(shape))


def test_linear_is_made_in_a_dtype():
    layer = ag.nn.Linear(2, 3, dtype=ag.float64)
    assert layer.weight.dtype == layer.bias.dtype == np.float64
    assert repr(layer) == repr(torch.nn.Linear(2, 3))


@pytest.mark.parametrize(
    "make",
    [
        lambda nn: nn.Embedding(5, 3),
        lambda nn: nn.Embedding(5, 3, padding_idx=-3),
        lambda nn: nn.Embedding(5, 3, scale_grad_by_freq=True),
        lambda nn: nn.Embedding(5, 3, max_norm=0.5),
    ],
)
def test_embeddings(make):
    check(make, np.array([[1, 2], [2, 4], [0, 2]]))
    assert repr(make(ag.nn)) == repr(make(torch.nn))


def test_embeddings_of_a_table():
    table = X((5, 3))
    layer = ag.nn.Embedding.from_pretrained(ag.from_numpy(table))
    assert not layer.weight.requires_grad
    np.testing.assert_array_equal(layer(ag.tensor([1, 3])).numpy(), table[[1, 3]])
    assert ag.nn.Embedding.from_pretrained(ag.from_numpy(table), freeze=False).weight.requires_grad
    padded = ag.nn.Embedding(3, 2, padding_idx=1)
    assert (padded.weight.detach().numpy()[1] == 0).all()
    assert (padded.weight.detach().numpy()[0] != 0).all()


REFUSED = {
    "embedding padding": lambda nn: nn.Embedding(3, 2, padding_idx=3),
    "embedding weight": lambda nn: nn.Embedding(3, 2, _weight=nn.Linear(3, 3).weight),
    "embedding table": lambda nn: nn.Embedding.from_pretrained(nn.Linear(3, 3).bias),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_layers_that_can_not_be_made(make):
    with pytest.raises(refusal(lambda: make(torch.nn))):
        make(ag.nn)


@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"scale_grad_by_freq": True}])
def test_padding_gets_no_gradient_even_where_the_results_is_not_finite(options):
    table = ag.ones(4, 2, requires_grad=True)
    rows = ag.nn.functional.embedding(ag.tensor([1, 2]), table, padding_idx=1, **options)
    rows.backward(ag.tensor([[float("nan"), float("inf")], [1.0, 1.0]]))
    gradient = table.grad.to_dense() if table.grad.is_sparse else table.grad
    assert gradient.tolist() == [[0, 0], [0, 0], [1, 1], [0, 0]]
