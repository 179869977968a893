"""The forms of functions that PyTorch's top namespace has and `nn.functional` has otherwise."""

import inspect
import warnings

import pytest

import asyncgrad as ag
from asyncgrad import native

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

VALUES = [[0.3, -0.7, 1.5], [-1.2, 0.4, 0.9]]


def _x(library):
    return library.tensor(VALUES, dtype=library.float64, requires_grad=True)


def _t(library, *values):
    return library.tensor(values, dtype=library.float64)


def _matrix(library, rows):
    return _x(library).detach()[:rows] + 0.1


CALLS = {
    "adaptive_max_pool1d": lambda L, x: L.adaptive_max_pool1d(x[None], 2)[0],
    "adaptive_max_pool1d's indices": lambda L, x: L.adaptive_max_pool1d(x[None], 2)[1] * x.sum(),
    "dropout of nothing": lambda L, x: L.dropout(x, 0.0, True),
    "dropout of all": lambda L, x: L.dropout(x, 1.0, True),
    "dropout in evaluation": lambda L, x: L.dropout(x, p=0.5, train=False),
    "dropout that is not told": lambda L, x: L.dropout(x),
    "dropout_": lambda L, x: L.dropout_(x * 1, 1.0, True),
    "alpha_dropout": lambda L, x: L.alpha_dropout(x, 0.0, True),
    "feature_dropout": lambda L, x: L.feature_dropout(x[None], 1.0, True),
    "feature_alpha_dropout": lambda L, x: L.feature_alpha_dropout(x, 0.5, False),
    "dropout of too much": lambda L, x: L.dropout(x, 1.5, True),
    "layer_norm": lambda L, x: L.layer_norm(x, (3,), _t(L, 1, 2, 3), None, 1e-3),
    "group_norm": lambda L, x: L.group_norm(x, 3),
    "batch_norm": lambda L, x: L.batch_norm(
        x, _t(L, 1, 2, 3), None, _t(L, 0, 0, 0), _t(L, 1, 1, 1), True, 0.1, 1e-5, False
    ),
    "batch_norm of too little": lambda L, x: L.batch_norm(x, None, None, None, None),
    "instance_norm": lambda L, x: L.instance_norm(
        x[None], None, _t(L, 1, 2), None, None, True, 0.1, 1e-5, False
    ),
    "embedding": lambda L, x: L.embedding(x, L.tensor([1, 0, 1])),
    "embedding with a padding": lambda L, x: L.embedding(x, L.tensor([1, 0, 1]), 1),
    "prelu": lambda L, x: L.prelu(x, _t(L, 0.5)),
    "celu": lambda L, x: L.celu(x, 0.5),
    "selu": lambda L, x: L.selu(x),
    "rrelu": lambda L, x: L.rrelu(x, 0.1, 0.3, False),
    "threshold": lambda L, x: L.threshold(x, 0.35, 2.0),
    "hardshrink": lambda L, x: L.hardshrink(x),
    "pairwise_distance": lambda L, x: L.pairwise_distance(x, _matrix(L, 2)),
    "bilinear": lambda L, x: L.bilinear(x, _matrix(L, 2), L.ones(2, 3, 3, dtype=L.float64), None),
    "channel_shuffle": lambda L, x: L.channel_shuffle(x.reshape(1, 6, 1, 1), 2),
    "pixel_shuffle": lambda L, x: L.pixel_shuffle(x.reshape(1, 6, 1, 1)[:, :4], 2),
    "pixel_unshuffle": lambda L, x: L.pixel_unshuffle(x.reshape(1, 1, 6, 1)[:, :, :4, [0, 0]], 2),
    "kl_div": lambda L, x: L.kl_div(x, _matrix(L, 2), 2, log_target=True),
    "kl_div by a word": lambda L, x: L.kl_div(x, _matrix(L, 2), "sum"),
    "binary_cross_entropy_with_logits": lambda L, x: L.binary_cross_entropy_with_logits(
        x, _matrix(L, 2).abs(), None, _t(L, 1, 2, 3), 0
    ),
    "cosine_embedding_loss": lambda L, x: L.cosine_embedding_loss(
        x, _matrix(L, 2), _t(L, 1, -1), 0.1, 2
    ),
    "hinge_embedding_loss": lambda L, x: L.hinge_embedding_loss(x, _matrix(L, 2).sign()),
    "margin_ranking_loss": lambda L, x: L.margin_ranking_loss(x[0], x[1], _t(L, 1, -1, 1), 0.5, 0),
    "poisson_nll_loss": lambda L, x: L.poisson_nll_loss(
        x, _matrix(L, 2).abs(), True, False, 1e-8, 1
    ),
    "triplet_margin_loss": lambda L, x: L.triplet_margin_loss(x, x * 2, _matrix(L, 2), reduction=2),
    "ctc_loss": lambda L, x: L.ctc_loss(
        x.log_softmax(1)[:, None], L.tensor([[1]]), L.tensor([2]), L.tensor([1]), 0, 2
    ),
    "sin_": lambda L, x: L.sin_(x * 1),
    "sin_ by name": lambda L, x: L.sin_(input=x * 1),
    "sin_ of a number": lambda L, x: L.sin_(1.0),
    "sin_ of a leaf": lambda L, x: L.sin_(x),
    "clamp_": lambda L, x: L.clamp_(x * 1, 0, max=0.5),
    "xlogy_": lambda L, x: L.xlogy_(x * 1, 2.0),
    "addmv_": lambda L, x: L.addmv_(x[0] * 1, _matrix(L, 2).t() @ _matrix(L, 2), _t(L, 1, 2, 3)),
    "index_put_": lambda L, x: L.index_put_(x * 1, (L.tensor([0]),), _t(L, 5.0)),
    "as_strided_": lambda L, x: L.as_strided_((x * 1), (3,), (2,)),
    "fill_": lambda L, x: L.fill_(x * 1, 3.0),
    "detach_": lambda L, x: L.detach_(x * 1),
}


def _outcome(call, library):
    x = _x(library)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = call(library, x)
    except Exception as error:
        return RuntimeError if isinstance(error, RuntimeError) else type(error)
    grad = None
    if out.requires_grad:
        out.sum().backward()
        grad = x.grad.tolist()
    return tuple(out.shape), out.detach().reshape(-1).tolist(), grad


def _close(mine, theirs):
    if isinstance(theirs, float):
        return mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    if isinstance(theirs, list | tuple):
        return len(mine) == len(theirs) and all(map(_close, mine, theirs))
    return mine == theirs


@pytest.mark.parametrize("name", CALLS)
def test_values_gradients_and_errors_are_pytorchs(name):
    assert _close(_outcome(CALLS[name], ag), _outcome(CALLS[name], torch))


@pytest.mark.parametrize("name", ["celu", "elu", "hardtanh", "leaky_relu", "relu", "selu", "rrelu"])
def test_activations_in_place_are_pytorchs(name):
    """Under `nn.functional`, and under the top namespace where PyTorch has them there."""
    for space in ("", "nn.functional"):

        def found(library, space=space):
            for part in filter(None, space.split(".")):
                library = getattr(library, part)
            return getattr(library, f"{name}_", None)

        if found(torch) is not None:
            assert _close(
                _outcome(lambda L, x, f=found: f(L)(x * 1), ag),
                _outcome(lambda L, x, f=found: f(L)(x * 1), torch),
            )
            assert "inplace" not in inspect.signature(found(ag)).parameters


def test_whatever_is_a_method_in_place_is_a_function():
    """A function that is added has its form here without being named anywhere."""
    methods = {name for name in dir(ag.Tensor) if name.endswith("_") and name[0] != "_"}
    assert methods <= set(native.__all__) <= set(ag.__all__)
    assert all(getattr(ag, name).__name__ == name for name in methods if name != "absolute_")


#: What PyTorch's top namespace has in place and asyncgrad has not, with the reason.
MISSING = {
    "embedding_renorm_": "`nn.functional.embedding(max_norm=)` does it",
    "resize_as_sparse_": "COO tensors are left out",
    **dict.fromkeys(("fix_", "gcd_", "lcm_", "ldexp_"), "there are no such functions yet"),
}


def test_all_of_pytorchs_functions_in_place_are_there():
    theirs = {name for name in dir(torch) if name.endswith("_") and name[0] != "_"}
    assert theirs - set(dir(ag)) <= set(MISSING)
