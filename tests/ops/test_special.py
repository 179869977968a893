"""Special functions."""

from __future__ import annotations

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("scipy", reason="SciPy is not installed")

pytestmark = pytest.mark.torch

OF_ONE = ["entr", "ndtr", "ndtri", "log_ndtr", "erfcx", "i0", "i0e", "i1", "i1e"]
NAMES = [
    "i0",
    *[f"special.{name}" for name in ("polygamma", "xlog1py", "zeta", *OF_ONE) if name != "i0"],
    "mvlgamma",
]
FUNCTIONS = {"special.polygamma": lambda x, n: ag.special.polygamma(n, x)}


@pytest.mark.parametrize("name", NAMES)
def test_values_and_derivatives_are_pytorchs(name):
    oracle.check(name, FUNCTIONS.get(name), dtypes=("float64", "int64", "bool"), limit=6)


@pytest.mark.parametrize("name", OF_ONE)
def test_values_far_out_are_pytorchs(name):
    x = [-1e4, -30.0, -2.0, -0.0, 0.0, 1e-300, 0.3, 1.0, 30.0, 1e4, float("inf"), float("nan")]
    if name in {"i0", "i1"}:
        x = x[1:10]  # PyTorch has NaN beyond.
    results = []
    for T in (torch, ag):
        values = T.tensor(x, dtype=T.float64, requires_grad=True)
        out = getattr(T.special, name)(values)
        (g,) = T.autograd.grad(out.sum(), values)
        results.append((out.detach().numpy(), g.numpy()))
    for expected, found in zip(*results, strict=True):
        known = ~np.isnan(expected) & (np.array(x) == x)
        np.testing.assert_allclose(found[known], expected[known], rtol=1e-8, atol=1e-190)


@pytest.mark.parametrize("name", OF_ONE)
def test_gradcheck(name):
    """PyTorch has no tangents of most of these."""
    x = ag.tensor([0.1, 0.4, 0.9], dtype=ag.float64, requires_grad=True)
    function = getattr(ag.special, name)
    assert ag.autograd.gradcheck(function, x, check_forward_ad=True)
    assert ag.autograd.gradgradcheck(function, x, check_fwd_over_rev=True)
    batch = ag.func.vmap(ag.func.grad(function))(x.detach())
    np.testing.assert_allclose(batch.numpy(), ag.grad(function(x).sum(), x)[0].numpy())


def test_zeta_has_one_derivative():
    """As in PyTorch, which says so in the backward pass."""
    y = ag.tensor([0.5, 2.0], dtype=ag.float64, requires_grad=True)
    for x in (3.0, ag.tensor([2.0, 4.0], dtype=ag.float64)):
        assert ag.autograd.gradcheck(lambda y, x=x: ag.special.zeta(x, y), y, check_forward_ad=True)
        assert ag.autograd.gradgradcheck(lambda y, x=x: ag.special.zeta(x, y), y)
    with pytest.raises(NotImplementedError, match="Detach"):
        ag.special.zeta(y, 2.0).sum().backward()
    with ag.autograd.forward_ad.dual_level():
        dual = ag.autograd.forward_ad.make_dual(y.detach(), ag.ones_like(y))
        with pytest.raises(NotImplementedError, match="forward AD"):
            ag.special.zeta(dual, 2.0)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_nothing_times_the_logarithm_of_nothing_is_nothing(name):
    zero = 0.0 if name == "xlogy" else -1.0
    results = []
    for T in (torch, ag):
        x = T.tensor([0.0, 0.0, 0.0, 2.0], dtype=T.float64, requires_grad=True)
        y = T.tensor([zero, float("nan"), 1.0, zero], dtype=T.float64, requires_grad=True)
        function = getattr(T.special, name)
        out = function(x, y)
        first, second = T.autograd.grad(out.sum(), (x, y))
        results.append([t.detach().numpy() for t in (out, first, second, function(2.0, x))])
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", OF_ONE)
def test_complex_numbers_are_refused(name):
    for T in (torch, ag):
        with pytest.raises(NotImplementedError):
            getattr(T.special, name)(T.ones(1, dtype=T.complex64))


def test_older_names_are_the_same_functions():
    names = {
        "expit": "sigmoid", "gammaln": "lgamma", "psi": "digamma", "multigammaln": "mvlgamma",
        "round": "round", "sinc": "sinc",
    }  # fmt: skip
    for name, other in names.items():
        assert getattr(ag.special, name) is getattr(ag, other)
    assert set(ag.special.__all__) <= set(dir(torch.special))


def test_the_error_without_scipy_names_it(monkeypatch):
    monkeypatch.setattr("asyncgrad.ops.special.special", None)
    for name in OF_ONE:
        with pytest.raises(ImportError, match=f"{name} needs SciPy"):
            getattr(ag.special, name)(ag.ones(1))
    with pytest.raises(ImportError, match="zeta needs SciPy"):
        ag.special.zeta(2.0, ag.ones(1))
