"""Initial values: their distributions, from known moments, and PyTorch's bounds."""

import math

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.nn import init


@pytest.fixture(autouse=True)
def _seed():
    ag.manual_seed(0)


def moments(tensor):
    return tensor.detach().numpy().mean(), tensor.detach().numpy().std()


@pytest.mark.parametrize(
    ("fill", "mean", "std", "limit"),
    [
        (lambda t: init.uniform_(t, -1.0, 3.0), 1.0, 4 / math.sqrt(12), (-1.0, 3.0)),
        (lambda t: init.normal_(t, 2.0, 0.5), 2.0, 0.5, None),
        (lambda t: init.xavier_uniform_(t), 0.0, math.sqrt(2 / 500), None),
        (lambda t: init.xavier_normal_(t, gain=2.0), 0.0, 2 * math.sqrt(2 / 500), None),
        (
            lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)),
            0.0,
            1 / math.sqrt(900),
            (-1 / math.sqrt(300), 1 / math.sqrt(300)),
        ),
        (
            lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
            0.0,
            math.sqrt(2 / 200),
            None,
        ),
        (lambda t: init.trunc_normal_(t, a=-1.0, b=1.0), 0.0, 0.5396, (-1.0, 1.0)),
        (
            lambda t: init.trunc_normal_(t, mean=10.0, std=0.1, a=0, b=1.0),
            0.99889,
            0.00111,
            (0, 1.0),
        ),
        (lambda t: init.trunc_normal_(t, mean=-2.0, a=0.0, b=5.0), 0.3732, 0.33805, (0.0, 5.0)),
        (lambda t: init.trunc_normal_(t, std=9.0, a=-1.0, b=1.0), 0.0, 0.57688, (-1.0, 1.0)),
    ],
)
@pytest.mark.filterwarnings("ignore:mean is more than 2 std:UserWarning")
def test_moments_and_limits(fill, mean, std, limit):
    tensor = nn.Parameter(ag.zeros(200, 300))
    assert fill(tensor) is tensor
    found_mean, found_std = moments(tensor)
    assert abs(found_mean - mean) < 5 * std / math.sqrt(60_000)
    assert abs(found_std - std) < 0.02 * std
    if limit is not None:
        array = tensor.detach().numpy()
        assert array.min() >= limit[0]
        assert array.max() <= limit[1]


@pytest.mark.parametrize(
    ("fill", "error"),
    [
        (lambda: init.uniform_(ag.ones(2, dtype=ag.int64)), NotImplementedError),
        (lambda: init.kaiming_normal_(ag.ones(2, 2) > 0), NotImplementedError),
        (lambda: init.trunc_normal_(ag.ones(2, dtype=ag.int32)), NotImplementedError),
        (lambda: init.orthogonal_(ag.ones(2, 2, dtype=ag.int64)), NotImplementedError),
        (lambda: init.sparse_(ag.ones(2, 2, dtype=ag.int64), 0.5), NotImplementedError),
        (lambda: init.uniform_(ag.ones(2), 3.0, 1.0), RuntimeError),
        (lambda: init.normal_(ag.ones(2), 0.0, -1.0), RuntimeError),
        (lambda: init.trunc_normal_(ag.ones(2), a=2.0, b=1.0), RuntimeError),
    ],
)
def test_what_can_not_be_drawn_is_refused(fill, error):
    with pytest.raises(error):
        fill()


def test_filling_counts_as_a_change():
    tensor = ag.zeros(3)
    init.ones_(tensor)
    assert tensor._version == 1
    assert (init.constant_(tensor, 2.5).numpy() == 2.5).all()
    assert (init.zeros_(tensor).numpy() == 0.0).all()


def test_orthogonal_rows_or_columns():
    for shape in ((3, 5), (5, 3), (4, 2, 3)):
        flat = init.orthogonal_(ag.zeros(*shape), gain=2.0).numpy().reshape(shape[0], -1)
        gram = flat @ flat.T if shape[0] <= flat.shape[1] else flat.T @ flat
        np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_structured_fills():
    np.testing.assert_array_equal(init.eye_(ag.ones(2, 3)).numpy(), np.eye(2, 3))
    weight = init.dirac_(ag.ones(4, 2, 3), groups=2)
    x = np.arange(4.0)
    np.testing.assert_array_equal(
        np.concatenate([weight.numpy()[:2, :, 1] @ x[:2], weight.numpy()[2:, :, 1] @ x[2:]]), x
    )
    sparse = init.sparse_(ag.zeros(10, 4), 0.25).numpy()
    assert ((sparse == 0).sum(0) == 3).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: init.eye_(ag.zeros(2)),
        lambda: init.dirac_(ag.zeros(2, 2)),
        lambda: init.dirac_(ag.zeros(3, 2, 1), groups=2),
        lambda: init.orthogonal_(ag.zeros(2)),
        lambda: init.sparse_(ag.zeros(2), 0.5),
        lambda: init.xavier_uniform_(ag.zeros(2)),
        lambda: init.kaiming_uniform_(ag.zeros(2, 2), mode="fan"),
        lambda: init.kaiming_normal_(ag.zeros(2, 2), nonlinearity="sine"),
        lambda: init.calculate_gain("leaky_relu", "steep"),
    ],
)
def test_what_can_not_be_filled_is_refused(wrong):
    with pytest.raises(ValueError, match=r"imension|divisible|Mode fan|Unsupported|not a valid"):
        wrong()


def test_empty_weights_are_warned_of():
    for fill in (init.kaiming_uniform_, init.kaiming_normal_):
        with pytest.warns(UserWarning, match="zero-element"):
            fill(ag.zeros(0, 3))


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]
)
def test_gains_are_pytorchs(name):
    import torch

    assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.2) == torch.nn.init.calculate_gain("leaky_relu", 0.2)


def test_a_seed_gives_the_same_layer():
    first = nn.Linear(3, 3).weight.detach().numpy().copy()
    ag.manual_seed(0)
    np.testing.assert_array_equal(nn.Linear(3, 3).weight.detach().numpy(), first)
    bias = nn.Linear(10_000, 2).bias.detach().numpy()
    assert (np.abs(bias) <= 0.01).all()
