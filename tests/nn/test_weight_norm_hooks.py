"""Norms of parameters by hooks, the older forms of parametrizations."""

import numpy as np
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*weight_norm")]

LAYERS = {
    "linear": (lambda nn: nn.Linear(3, 2), (4, 3)),
    "convolution": (lambda nn: nn.Conv2d(2, 3, 2), (1, 2, 4, 4)),
    "transposed": (lambda nn: nn.ConvTranspose1d(2, 3, 2), (1, 2, 4)),
}
NORMS = {
    "weight": lambda nn, layer: nn.utils.weight_norm(layer),
    "weight of all": lambda nn, layer: nn.utils.weight_norm(layer, dim=None),
    "weight of columns": lambda nn, layer: nn.utils.weight_norm(layer, dim=1),
    "bias": lambda nn, layer: nn.utils.weight_norm(layer, "bias"),
    "spectral": lambda nn, layer: nn.utils.spectral_norm(layer),
    "spectral, of a bias": lambda nn, layer: nn.utils.spectral_norm(layer, "bias", dim=0),
    "spectral, iterated": lambda nn, layer: nn.utils.spectral_norm(
        layer, n_power_iterations=3, eps=1e-6
    ),
}


def _arrays(tensors):
    return [np.array(t.detach().numpy()) for t in tensors]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("norm", NORMS)
def test_calls_gradients_and_states_are_pytorchs(norm, layer):
    make, shape = LAYERS[layer]
    values = np.random.default_rng(0).standard_normal(shape)
    theirs = NORMS[norm](torch.nn, make(torch.nn).double())
    ours = NORMS[norm](ag.nn, make(ag.nn).double())
    state = {k: v.numpy().copy() for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({k: ag.from_numpy(v) for k, v in state.items()})
    found = []
    for T, module in ((torch, theirs), (ag, ours)):
        x = T.tensor(values)
        notes = []
        for training in (True, True, False):
            module.train(training)
            out = module(x)
            gradients = T.autograd.grad((out * out).sum(), list(module.parameters()))
            notes += _arrays([out, *gradients, *module.buffers()])
        found.append(notes)
    for expected, own in zip(*found, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_a_norm_can_be_taken_away(kind):
    for T in (torch, ag):
        layer = getattr(T.nn.utils, kind)(T.nn.Linear(3, 2))
        layer(T.ones(1, 3))
        layer.eval()
        before = layer(T.ones(1, 3)).tolist()
        remove = getattr(T.nn.utils, f"remove_{kind}")
        assert remove(layer) is layer
        np.testing.assert_allclose(layer(T.ones(1, 3)).tolist(), before, rtol=1e-6)
        assert sorted(k for k, _ in layer.named_parameters()) == ["bias", "weight"]
        assert not list(layer.buffers())
        with pytest.raises(ValueError, match="not found"):
            remove(layer)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_a_parameter_is_normalised_once(kind):
    for T in (torch, ag):
        norm = getattr(T.nn.utils, kind)
        layer = norm(T.nn.Linear(3, 2))
        state = list(layer.state_dict())
        with pytest.raises(RuntimeError, match="Cannot register two"):
            norm(layer)
        assert list(layer.state_dict()) == state


def test_what_does_not_fit_leaves_the_module_as_it_was():
    layer = ag.nn.Linear(3, 2)
    with pytest.raises(ValueError, match="n_power_iterations"):
        ag.nn.utils.spectral_norm(layer, n_power_iterations=0)
    for norm in (ag.nn.utils.weight_norm, ag.nn.utils.spectral_norm):
        with pytest.raises(ValueError, match="no parameter"):
            norm(layer, "none")
    for norm in (ag.nn.utils.weight_norm, ag.nn.utils.parametrizations.weight_norm):
        with pytest.raises(IndexError, match="out of range"):
            norm(layer, dim=5)
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert not layer._forward_pre_hooks


def test_the_old_weight_norm_is_warned_of():
    with pytest.warns(FutureWarning, match="parametrizations"):
        ag.nn.utils.weight_norm(ag.nn.Linear(3, 2))
