"""Normalisation beside PyTorch."""

import copy
import pickle

import numpy as np
import pytest
from module_parity import X, assert_close, check, layers

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


NORMS = {
    "batch_norm": lambda nn: nn.BatchNorm1d(4),
    "batch_norm_options": lambda nn: nn.BatchNorm1d(4, eps=0.1, momentum=None, affine=False),
    "batch_norm_no_bias": lambda nn: nn.BatchNorm1d(4, bias=False, momentum=0.5),
    "batch_norm_untracked": lambda nn: nn.BatchNorm1d(4, track_running_stats=False),
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("make", NORMS.values(), ids=NORMS)
def test_batch_norms(make, train):
    check(make, X((5, 4)), train=train)
    check(make, X((5, 4, 3)), train=train)
    assert repr(make(ag.nn)) == repr(make(torch.nn))


def test_batch_norms_of_images():
    check(lambda nn: nn.BatchNorm2d(3), X((4, 3, 2, 5)))
    for axes in (2, 3):
        with pytest.raises(ValueError, match=f"got {axes}D input"):
            ag.nn.BatchNorm2d(3)(ag.zeros(*[3] * axes))


def test_running_values_follow_the_batches():
    """Over several batches, for both kinds of means."""
    for momentum in (0.3, None):
        mine, other = layers(lambda nn, m=momentum: nn.BatchNorm1d(3, momentum=m))
        for _ in range(3):
            x = X((6, 3))
            mine(ag.from_numpy(x))
            other(torch.from_numpy(x))
        for a, b in zip(mine.buffers(), other.buffers(), strict=True):
            assert_close(a, b)
        mine.reset_running_stats()
        assert mine.num_batches_tracked.item() == 0


def test_old_state_dicts_of_batch_norms_load():
    layer = ag.nn.BatchNorm1d(2)
    state = dict(layer.state_dict())
    del state["num_batches_tracked"]
    layer.load_state_dict(state)
    new = layer.state_dict()
    del new["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        layer.load_state_dict(new)


@pytest.mark.parametrize(
    "make",
    [
        lambda nn: nn.LayerNorm(4),
        lambda nn: nn.LayerNorm((3, 4), eps=0.1),
        lambda nn: nn.LayerNorm([4], bias=False),
        lambda nn: nn.LayerNorm(4, elementwise_affine=False),
        lambda nn: nn.RMSNorm(4),
        lambda nn: nn.RMSNorm((3, 4), eps=0.1),
        lambda nn: nn.RMSNorm(4, elementwise_affine=False),
    ],
)
def test_norms_over_the_last_axes(make):
    check(make, X((2, 3, 4)))
    assert repr(make(ag.nn)) == repr(make(torch.nn))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_buffers_are_copied_with_their_module(duplicate):
    layer = ag.nn.BatchNorm1d(3)
    layer(ag.from_numpy(X((4, 3)).astype("float32")))
    other = duplicate(layer)
    for a, b in zip(layer.buffers(), other.buffers(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert not np.shares_memory(a.numpy(), b.numpy())


def test_an_empty_batch_moves_no_moments_and_eps_has_to_be_positive():
    for m in (ag, torch):
        norm = m.nn.BatchNorm1d(3)
        norm(m.ones(0, 3, 2))
        assert norm.running_mean.tolist() == [0, 0, 0]
        assert norm.running_var.tolist() == [1, 1, 1]
        norm.eps = 0.0
        with pytest.raises(ValueError, match="eps must be positive during training"):
            norm(m.ones(2, 3))
        norm.eval()(m.ones(2, 3))
        norm.eps = -1.0
        with pytest.raises(ValueError, match="eps must be non-negative"):
            norm(m.ones(2, 3))


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_refuse_sizes_and_flags_that_are_none(kind):
    for m in (ag, torch):
        make = getattr(m.nn, kind)
        for bad in ({"bias": 0}, {"batch_first": 1}):
            with pytest.raises(TypeError, match="should be of type bool"):
                make(2, 3, **bad)
        for size in (0, -1):
            with pytest.raises(ValueError, match="input_size must be greater than zero"):
                make(size, 3)
