"""Parametrized tensors beside PyTorch's."""

import asyncio
import copy
import pickle

import numpy as np
import pytest
from module_parity import X, assert_close, check, refusal

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


def library_of(nn):
    return ag if nn is ag.nn else torch


def symmetric(nn):
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, a):
            return a.triu()

    return Symmetric()


def product(nn):
    """Two originals of one tensor."""

    class Product(nn.Module):
        def forward(self, a, b):
            return a * b

        def right_inverse(self, x):
            return x * 2, x * 0 + 0.5

    return Product()


def wrong(nn, change):
    class Wrong(nn.Module):
        def forward(self, x):
            return change(x)

    return Wrong()


def parametrized(nn, *functions, unsafe=False):
    layer = nn.Linear(3, 3)
    for function in functions:
        register = nn.utils.parametrize.register_parametrization
        assert register(layer, "weight", function(nn), unsafe=unsafe) is layer
    return layer


MAKERS = {
    "one": lambda nn: parametrized(nn, symmetric),
    "two": lambda nn: parametrized(nn, symmetric, symmetric),
    "several_originals": lambda nn: parametrized(nn, product),
    "weight_norm": lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
    "weight_norm_of_all": lambda nn: nn.utils.parametrizations.weight_norm(
        nn.Linear(3, 2), dim=None
    ),
    "spectral_norm": lambda nn: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)),
    "spectral_norm_of_bias": lambda nn: nn.utils.parametrizations.spectral_norm(
        nn.Linear(3, 2), "bias"
    ),
}


def without_pickling(monkeypatch):
    """`check` compares copies; these modules can't be pickled."""
    monkeypatch.setattr(pickle, "dumps", lambda module: module)
    monkeypatch.setattr(pickle, "loads", copy.deepcopy)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", MAKERS)
def test_outputs_gradients_and_states(name, train, monkeypatch):
    without_pickling(monkeypatch)
    check(MAKERS[name], X((4, 3)), train=train)
    assert repr(MAKERS[name](ag.nn)) == repr(MAKERS[name](torch.nn))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_convolutions(kind, transposed, monkeypatch):
    without_pickling(monkeypatch)
    name = "ConvTranspose2d" if transposed else "Conv2d"
    norm = {} if kind == "spectral_norm" else {"dim": 1}
    check(
        lambda nn: getattr(nn.utils.parametrizations, kind)(getattr(nn, name)(2, 3, 2), **norm),
        X((2, 2, 4, 4)),
    )


def test_values_are_kept_and_can_be_assigned():
    for nn in (ag.nn, torch.nn):
        lib = library_of(nn)
        parametrize = nn.utils.parametrize
        layer = nn.Linear(3, 3)
        before = layer.weight
        kept = before.detach().clone()
        parametrize.register_parametrization(layer, "weight", symmetric(nn))
        assert layer.parametrizations.weight.original is before
        assert (layer.weight.triu() == kept.triu()).all()
        layer.weight = lib.ones(3, 3)
        assert (layer.weight == 1).all()
        assert (before == lib.ones(3, 3).triu()).all()
        assert parametrize.is_parametrized(layer)
        assert parametrize.is_parametrized(layer, "weight")
        assert not parametrize.is_parametrized(layer, "bias")
        assert parametrize.type_before_parametrizations(layer) is nn.Linear
        assert type(layer).__name__ == "ParametrizedLinear"
        assert [n for n, _ in layer.named_parameters()] == [
            "bias",
            "parametrizations.weight.original",
        ]


@pytest.mark.parametrize("leave", [True, False])
def test_removal(leave):
    for nn in (ag.nn, torch.nn):
        layer = parametrized(nn, symmetric)
        original, shown = layer.parametrizations.weight.original, layer.weight.detach().clone()
        values = original.detach().clone()
        nn.utils.parametrize.remove_parametrizations(layer, "weight", leave)
        assert type(layer) is nn.Linear
        assert layer.weight is original
        assert (layer.weight == (shown if leave else values)).all()
        assert [n for n, _ in layer.named_parameters()] == ["bias", "weight"]
        several = parametrized(nn, product)
        if leave:
            value = several.weight.detach().clone()
            nn.utils.parametrize.remove_parametrizations(several, "weight")
            assert isinstance(several.weight, nn.Parameter)
            assert (several.weight == value).all()
        else:
            with pytest.raises(ValueError, match="leave"):
                nn.utils.parametrize.remove_parametrizations(several, "weight", False)


def test_transfer():
    for nn in (ag.nn, torch.nn):
        source, target = parametrized(nn, symmetric), nn.Linear(3, 3)
        nn.utils.parametrize.transfer_parametrizations_and_params(source, target)
        assert (target.weight == source.weight).all()
        assert target.parametrizations.weight.original is source.parametrizations.weight.original


def test_copies_stand_alone():
    layer = parametrized(ag.nn, symmetric)
    twin = copy.deepcopy(layer)
    assert_close(twin.weight, torch.tensor(layer.weight.detach().numpy()))
    ag.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert ag.nn.utils.parametrize.is_parametrized(twin)
    assert twin.weight.shape == (3, 3)
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(twin)


def test_spectral_norms_in_training_serve_two_passes():
    """The buffers change at each look-up, and the first result's gradient is still there."""
    layer = ag.nn.utils.parametrizations.spectral_norm(ag.nn.Linear(3, 2))
    x = ag.ones(1, 3)
    (layer(x) - layer(2 * x)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None


def test_old_states_of_weight_norm_are_read():
    layer = ag.nn.utils.parametrizations.weight_norm(ag.nn.Linear(3, 2))
    old = {"bias": ag.zeros(2), "weight_g": ag.ones(2, 1), "weight_v": ag.eye(3)[:2]}
    layer.load_state_dict(old)
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.eye(3)[:2])


@pytest.mark.asyncio
async def test_caches_belong_to_tasks():
    layer = parametrized(ag.nn, symmetric)
    entered, seen = asyncio.Event(), asyncio.Event()

    async def inside():
        with ag.nn.utils.parametrize.cached():
            first = layer.weight
            entered.set()
            await seen.wait()
            with ag.nn.utils.parametrize.cached():
                return first is layer.weight

    async def outside():
        await entered.wait()
        different = layer.weight is not layer.weight
        seen.set()
        return different

    assert await asyncio.gather(inside(), outside()) == [True, True]
    assert layer.weight is not layer.weight


@pytest.mark.parametrize(
    ("do", "error"),
    [
        (lambda nn, m, p: p.register_parametrization(m, "none", symmetric(nn)), ValueError),
        (lambda nn, m, p: p.register_parametrization(m, "weight", wrong(nn, lambda x: x[0])),
         ValueError),
        (lambda nn, m, p: p.register_parametrization(m, "weight", wrong(nn, lambda x: x.double())),
         ValueError),
        (lambda nn, m, p: p.register_parametrization(m, "weight", wrong(nn, lambda x: 3)),
         ValueError),
        (lambda nn, m, p: p.remove_parametrizations(m, "weight"), ValueError),
        (lambda nn, m, p: p.ParametrizationList([], m.weight), ValueError),
        (lambda nn, m, p: setattr(
            p.register_parametrization(m, "weight", wrong(nn, lambda x: x * 2)), "weight", m.weight
        ), RuntimeError),
        (lambda nn, m, p: nn.utils.parametrizations.spectral_norm(m, "none"), ValueError),
        (lambda nn, m, p: nn.utils.parametrizations.spectral_norm(m, dim=5), IndexError),
        (lambda nn, m, p: nn.utils.parametrizations.spectral_norm(m, n_power_iterations=0),
         ValueError),
        (lambda nn, m, p: nn.utils.parametrizations.weight_norm(m, "none"), ValueError),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(do, error):
    for nn in (torch.nn, ag.nn):
        layer = nn.Linear(3, 3)
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        with pytest.raises(error):
            do(nn, layer, nn.utils.parametrize)
        if error is not RuntimeError:
            assert list(layer.state_dict()) == list(before)
            assert all((layer.state_dict()[name] == value).all() for name, value in before.items())


BASE = "parametrizations.weight.0.base"


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (2, 4, 3)], ids=str)
@pytest.mark.parametrize("way", [None, "householder", "matrix_exp", "cayley"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal_matrices_are_pytorchs(shape, way, dtype, trivial):
    """Where columns are missing, each library draws its own: the others are the same."""
    random = np.random.default_rng(0)
    weight, change, factor = random.standard_normal((3, *shape)).astype(dtype)
    if dtype == "complex128":
        weight = weight + 1j * change
    layers = []
    for library in (ag, torch):
        layer = library.nn.ParameterDict({"weight": library.nn.Parameter(library.tensor(weight))})
        orthogonal = library.nn.utils.parametrizations.orthogonal
        if way == "householder" and dtype == "complex128":
            with pytest.raises(ValueError, match="does not support complex"):
                orthogonal(layer, orthogonal_map=way, use_trivialization=trivial)
            continue
        layers.append(orthogonal(layer, orthogonal_map=way, use_trivialization=trivial))
    if not layers:
        return
    mine, other = layers
    assert repr(mine.parametrizations) == repr(other.parametrizations)
    assert [*mine.state_dict()] == [*other.state_dict()]
    assert_close(mine.weight, other.weight)
    if trivial:
        own, base = mine.state_dict()[BASE].numpy(), other.state_dict()[BASE].numpy()
        known = min(shape[-2:])
        np.testing.assert_allclose(own[..., :known], base[..., :known], atol=1e-12)
    mine.load_state_dict({k: ag.tensor(v.numpy()) for k, v in other.state_dict().items()})
    for layer, library in ((mine, ag), (other, torch)):
        with library.no_grad():
            layer.parametrizations.weight.original += library.tensor(change * 0.1)
        (layer.weight * library.tensor(factor)).sum().abs().backward()
    assert_close(mine.weight, other.weight)
    grads = [layer.parametrizations.weight.original.grad for layer in layers]
    assert_close(*grads, 1e-9)
    if trivial or way == "householder":
        for layer in layers:
            layer.weight = layer.weight.detach().clone()
        assert_close(mine.weight, other.weight)


@pytest.mark.parametrize(
    "call",
    [
        lambda nn, layer: nn.utils.parametrizations.orthogonal(layer, "absent"),
        lambda nn, layer: nn.utils.parametrizations.orthogonal(layer, "bias"),
        lambda nn, layer: nn.utils.parametrizations.orthogonal(layer, orthogonal_map="qr"),
        lambda nn, layer: setattr(
            nn.utils.parametrizations.orthogonal(layer), "weight", layer.weight[:1]
        ),
        lambda nn, layer: setattr(
            nn.utils.parametrizations.orthogonal(
                layer, orthogonal_map="cayley", use_trivialization=False
            ),
            "weight",
            layer.weight.detach(),
        ),
    ],
)
def test_what_can_not_be_orthogonal_is_refused(call):
    expected = refusal(lambda: call(torch.nn, torch.nn.Linear(3, 2)))
    assert refusal(lambda: call(ag.nn, ag.nn.Linear(3, 2))) == expected
