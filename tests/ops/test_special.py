"""Special functions."""

import subprocess
import sys

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops import series

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
scipy_special = pytest.importorskip("scipy.special", reason="SciPy is not installed")

pytestmark = pytest.mark.torch

OF_ONE = ["entr", "ndtr", "ndtri", "log_ndtr", "erfcx", "i0", "i0e", "i1", "i1e"]
NAMES = [
    "i0",
    *[f"special.{name}" for name in ("polygamma", "xlog1py", "zeta", *OF_ONE) if name != "i0"],
    "mvlgamma",
]


test_samples = oracle.as_in_pytorch(
    NAMES, errors=False, dtypes=("float64", "int64", "bool"), limit=6
)


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


BESSEL = [name for name in ag.special.__all__ if "bessel" in name]


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions_are_pytorchs(name):
    """They have derivatives; PyTorch's have none, and at 5 eight digits."""
    x = [0.0, 0.3, 1.0, 4.0, 30.0, 700.0]
    found = [
        getattr(T.special, name)(T.tensor(x).to(dtype))
        for T in (torch, ag)
        for dtype in (T.float64, T.int64)
    ]
    oracle.compare(found[:2], found[2:])
    y = ag.tensor([0.3, 1.0, 5.0], dtype=ag.float64, requires_grad=True)
    function = getattr(ag.special, name)
    assert ag.autograd.gradcheck(function, y, check_forward_ad=True)
    assert ag.autograd.gradgradcheck(function, y)
    oracle.check_refused(lambda T: getattr(T.special, name)(T.tensor([1j])))


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


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_are_pytorchs(name):
    """Their slope by the second number; by the first PyTorch has none either."""
    results = []
    for T in (torch, ag):
        x = T.tensor([[0.3], [1.0], [4.5]], dtype=T.float64)
        y = T.tensor([0.0, 0.2, 1.0, 7.0, 90.0], dtype=T.float64, requires_grad=True)
        out = getattr(T, name)(x, y)
        (g,) = T.autograd.grad(out[:, 1:].sum(), y, create_graph=True)
        (h,) = T.autograd.grad(g[1:].sum(), y)
        narrow = getattr(T.special, {"igamma": "gammainc", "igammac": "gammaincc"}[name])
        results.append([out, g, h, narrow(x.float(), y.detach().float())])
    oracle.compare(*results)
    oracle.check_refused(lambda T: getattr(T, name)(T.tensor([1]), T.tensor([2])))
    oracle.check_refused(
        lambda T: getattr(T, name)(T.ones(1, requires_grad=True), T.ones(1)).sum().backward()
    )
    x = ag.tensor(2.5, dtype=ag.float64)
    y = ag.tensor([0.5, 3.0], dtype=ag.float64, requires_grad=True)
    assert ag.autograd.gradcheck(lambda y: getattr(ag, name)(x, y), y, check_forward_ad=True)


@pytest.fixture
def without_scipy(monkeypatch):
    monkeypatch.setattr("asyncgrad.ops.special.special", series)


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("name", [*NAMES, "erf", "erfc", "erfinv", "lgamma", "digamma"])
def test_values_and_derivatives_without_scipy_are_pytorchs(name):
    oracle.check(name, dtypes=("float64", "float32", "int64"), limit=4)


@pytest.mark.usefixtures("without_scipy")
def test_devices_have_scipys_functions_alone():
    """NumPy's can't compute on a device, and the error says what to install."""
    with pytest.raises(ImportError, match=r"erf on a device needs SciPy.*asyncgrad\[scipy\]"):
        ag.erf(ag.ones(2, device="sim:0"))


FAR = [-1e300, -1e5, -38.5, -30.0, -3.0, -2.5, -1.0, -0.3, -1e-300, -0.0, 0.0, 1e-300, 0.2, 0.5,
       0.8, 1.0, 1.4616321449683622, 2.0, 3.0, 19.9, 20.1, 25.1, 30.0, 100.0, 700.0, 720.0, 1e17,
       1e300, float("inf"), float("nan")]  # fmt: skip


@pytest.mark.parametrize(
    "name", [*OF_ONE, "erf", "erfc", "erfinv", "gammaln", "digamma", "polygamma", "zeta"]
)
def test_values_without_scipy_are_scipys_everywhere(name):
    """In the tails, at poles, and what is not finite."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [FAR, rng.uniform(-50, 50, 300), rng.random(300), 10 ** rng.uniform(-9, 3, 99)]
    )
    leading = {"polygamma": [(1,), (4,)], "zeta": [(2.5,), (3.0,), (1.0,), (0.5,)]}
    for before in leading.get(name, [()]):
        with np.errstate(all="ignore"):
            found, expected = (getattr(m, name)(*before, x) for m in (series, scipy_special))
        # Near zeros digits are lost, by SciPy's, too; PyTorch says what gammaln is at -inf.
        known = x != -np.inf if name == "gammaln" else x == x
        for side in (known & (x < 0), known & ~(x < 0)):
            crosses = name in {"gammaln", "digamma"} or (before and x[side][0] < 0)
            near = 1e-10 if name == "polygamma" else 1e-13
            np.testing.assert_allclose(
                found[side], expected[side], rtol=5e-13, atol=near if crosses else 1e-300
            )
        assert np.isnan(found[x != x]).all() or name == "zeta"
    assert series.gammaln(-np.inf) == np.inf


@pytest.mark.parametrize("first", ["asyncgrad", "scipy.special"])
def test_scipys_package_is_not_imported_with_its_functions(first):
    """It takes ten times as long; whoever imports it gets the same functions."""
    program = (
        f"import sys, {first};"
        "loaded = any(x in sys.modules for x in ('scipy.special._basic', 'scipy.linalg'));"
        "import asyncgrad as ag;"
        "from asyncgrad.ops import special; import scipy.special as whole;"
        "assert special.special.erf is whole.erf and whole.gamma(5.0) == 24;"
        "x = ag.tensor([0.5, 2.0], dtype=ag.float64); y = ag.special.polygamma(2, x).numpy();"
        "assert (y == whole.polygamma(2, x.numpy())).all();"
        "import scipy.linalg, scipy.linalg.cython_lapack;"
        "assert scipy.linalg.cython_lapack.__pyx_capi__ and scipy.linalg.inv; print(loaded)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(first == "scipy.special")


def test_the_rest_names_the_extra_without_scipy():
    """And importing the package needs no SciPy."""
    program = (
        "import sys; sys.modules['scipy'] = None; import asyncgrad as ag; x = ag.ones(3).double();"
        "assert abs(ag.nn.functional.gelu(ag.erf(x))[0].item() - 0.67441) < 1e-5; ag.igamma(x, x)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ImportError: igamma needs SciPy" in done.stderr
    assert "pip install asyncgrad[scipy]" in done.stderr
