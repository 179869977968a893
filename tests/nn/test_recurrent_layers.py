"""Recurrent layers beside PyTorch."""

import importlib

import numpy as np
import pytest
from module_parity import X, check, layers, refusal

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

STEPS, BATCH, IN, SIZE = 4, 3, 5, 2
SEQUENCE = X((STEPS, BATCH, IN))
KINDS = ("RNN", "GRU", "LSTM")
OPTIONS = {
    "plain": {},
    "no_bias": {"bias": False},
    "deep": {"num_layers": 3},
    "both_ways": {"num_layers": 2, "bidirectional": True},
    "batch_first": {"batch_first": True, "bidirectional": True},
}


def state(kind, lead, *rest, size=SIZE):
    """What a layer starts from."""
    h = X((lead, *rest, size))
    return (h, X((lead, *rest, SIZE))) if kind == "LSTM" else h


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind, options):
    def make(nn):
        return getattr(nn, kind)(IN, SIZE, **options)

    lead = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    x = SEQUENCE.swapaxes(0, 1).copy() if "batch_first" in options else SEQUENCE
    check(make, x)
    check(make, x, state(kind, lead, BATCH))
    check(make, X((STEPS, IN)), state(kind, lead))
    assert repr(make(ag.nn)) == repr(make(torch.nn))


def test_layers_with_relu():
    def make(nn):
        return nn.RNN(IN, SIZE, nonlinearity="relu", num_layers=2)

    check(make, SEQUENCE)
    assert repr(make(ag.nn)) == repr(make(torch.nn))


@pytest.mark.parametrize(("batch", "size"), [(8, 40), (64, 64), (64, 71), (256, 64)])
@pytest.mark.parametrize("kind", KINDS)
def test_larger_layers(kind, batch, size):
    """Weights are cut into blocks, or not, as their size and the batch's ask for it."""
    check(lambda nn: getattr(nn, kind)(IN, size), X((2, batch, IN)))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}])
def test_projected_states(options):
    def make(nn):
        return nn.LSTM(IN, SIZE, proj_size=1, **options)

    lead = 4 if options else 1
    check(make, SEQUENCE)
    check(make, SEQUENCE, state("LSTM", lead, BATCH, size=1))
    assert repr(make(ag.nn)) == repr(make(torch.nn))


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind):
    mine, other = layers(lambda nn: getattr(nn, kind)(IN, SIZE, bidirectional=True))
    results = []
    for layer, library in ((mine, ag), (other, torch)):
        x = library.from_numpy(SEQUENCE.copy()).requires_grad_()
        leaves = [x, *layer.parameters()]
        out, _ = layer(x)
        grads = library.autograd.grad((out**2).sum(), leaves, create_graph=True)
        total = sum((g**2).sum() for g in grads)
        second = library.autograd.grad(total, leaves)
        results.append([t.detach().numpy() for t in (*grads, *second)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


def test_dropout_is_between_layers_and_in_training():
    ag.manual_seed(0)
    layer = ag.nn.GRU(IN, 32, num_layers=2, dropout=0.5).double()
    x = ag.from_numpy(SEQUENCE)
    first, states = layer(x)
    again, states_again = layer(x)
    assert not (first == again).all()
    assert (states[0] == states_again[0]).all()
    layer.eval()
    assert (layer(x)[0] == layer(x)[0]).all()
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        ag.nn.LSTM(IN, SIZE, dropout=0.5)
    assert repr(layer) == repr(torch.nn.GRU(IN, 32, num_layers=2, dropout=0.5))


def test_weights_are_grouped_by_layer_and_direction():
    def shapes(nn):
        layer = nn.LSTM(IN, SIZE, 2, bidirectional=True, proj_size=1)
        layer.flatten_parameters()
        return [[tuple(w.shape) for w in weights] for weights in layer.all_weights]

    assert shapes(ag.nn) == shapes(torch.nn)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_cells(kind, bias):
    def make(nn):
        return getattr(nn, f"{kind}Cell")(IN, SIZE, bias=bias)

    check(make, X((BATCH, IN)))
    check(make, X((BATCH, IN)), state(kind, BATCH))
    start = state(kind, 1)
    start = tuple(s[0] for s in start) if kind == "LSTM" else start[0]
    check(make, X((IN,)), start)
    assert repr(make(ag.nn)) == repr(make(torch.nn))


def test_cells_with_relu():
    check(lambda nn: nn.RNNCell(IN, SIZE, nonlinearity="relu"), X((BATCH, IN)))
    assert repr(ag.nn.RNNCell(1, 2, True, "relu")) == repr(torch.nn.RNNCell(1, 2, True, "relu"))


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_stays_single(kind):
    layer = getattr(ag.nn, kind)(IN, SIZE)
    x = ag.from_numpy(SEQUENCE.astype("float32")).requires_grad_()
    out, _ = layer(x)
    out.sum().backward()
    tensors = [out, x.grad, *(p.grad for p in layer.parameters())]
    assert all(t.dtype == np.float32 for t in tensors)


REFUSED = {
    "kind": lambda nn, z: nn.RNN(2, 3, nonlinearity="gelu"),
    "cell kind": lambda nn, z: nn.RNNCell(2, 3, nonlinearity="gelu")(z(1, 2)),
    "dropout": lambda nn, z: nn.LSTM(2, 3, dropout=1.5),
    "layers": lambda nn, z: nn.LSTM(2, 3, num_layers=0),
    "size": lambda nn, z: nn.LSTM(2, 0),
    "size is no number": lambda nn, z: nn.LSTM(2, 3.0),
    "projection": lambda nn, z: nn.LSTM(2, 3, proj_size=3),
    "negative projection": lambda nn, z: nn.LSTM(2, 3, proj_size=-1),
    "axes": lambda nn, z: nn.GRU(2, 3)(z(2)),
    "features": lambda nn, z: nn.GRU(2, 3)(z(1, 1, 3)),
    "empty": lambda nn, z: nn.GRU(2, 3)(z(0, 1, 2)),
    "dtype": lambda nn, z: nn.GRU(2, 3).double()(z(1, 1, 2)),
    "state": lambda nn, z: nn.GRU(2, 3)(z(1, 1, 2), z(1, 1, 4)),
    "state axes": lambda nn, z: nn.GRU(2, 3)(z(1, 1, 2), z(1, 3)),
    "state dtype": lambda nn, z: nn.GRU(2, 3)(z(1, 1, 2), z(1, 1, 3).double()),
    "memory": lambda nn, z: nn.LSTM(2, 3)(z(1, 1, 2), (z(1, 1, 3), z(1, 1, 2))),
    "unbatched state": lambda nn, z: nn.GRU(2, 3)(z(1, 2), z(1, 1, 3)),
    "cell axes": lambda nn, z: nn.GRUCell(2, 3)(z(1, 1, 2)),
    "cell features": lambda nn, z: nn.GRUCell(2, 3)(z(1, 3)),
    "cell state": lambda nn, z: nn.GRUCell(2, 3)(z(1, 2), z(2, 3)),
    "cell state axes": lambda nn, z: nn.GRUCell(2, 3)(z(1, 2), z(1, 1, 3)),
    "cell dtype": lambda nn, z: nn.GRUCell(2, 3).double()(z(1, 2)),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(refusal(lambda: call(torch.nn, torch.zeros))):
        call(ag.nn, ag.zeros)


@pytest.mark.parametrize("count", [1, 3])
def test_an_lstm_is_called_with_two_states_or_none(count):
    """Cells took no notice of a third, and layers spoke of `zip()`."""
    for kind, axes in (("LSTM", (1, 2)), ("LSTMCell", (2,))):
        with pytest.raises(RuntimeError, match=f"{kind} expects two hidden states"):
            getattr(ag.nn, kind)(3, 4)(ag.ones(*axes, 3), (ag.ones(*axes, 4),) * count)


def test_the_state_and_memory_of_a_cell_are_changed_by_themselves():
    """Programs reset one of them in place, while the graph needs the other."""
    for library in (torch, ag):
        state, memory = library.nn.LSTMCell(2, 3)(library.ones(2, 2))
        loss = (memory * memory).sum()
        with library.no_grad():
            state.zero_()
        loss.backward()
        assert memory._base is None


@pytest.mark.parametrize("kind", KINDS)
def test_weights_may_be_computed(kind):
    """By a parametrization, by pruning, or by a program that sets an attribute."""
    pair = layers(lambda nn: getattr(nn, kind)(IN, SIZE, bidirectional=True))
    found = []
    for layer, m in zip(pair, (ag, torch), strict=True):
        prune = importlib.import_module(f"{m.__name__}.nn.utils.prune")
        prune.l1_unstructured(layer, "weight_ih_l0", 3)
        raw = layer.weight_hh_l0
        del layer.weight_hh_l0
        layer.weight_hh_l0 = raw * 0.5
        m.nn.utils.parametrizations.weight_norm(layer, "weight_ih_l0_reverse")
        assert [len(weights) for weights in layer.all_weights] == [4, 4]
        layer(m.from_numpy(SEQUENCE))[0].sum().backward()
        learnt = [raw, *layer.parameters()]
        found.append([x.detach().numpy() for x in (*[p.grad for p in learnt], *learnt)])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-12)
