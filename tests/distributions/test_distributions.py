"""Distributions beside PyTorch's: probabilities, moments, divergences, gradients, samples."""

import math
import subprocess
import sys

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad import distributions as ours

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
theirs = torch.distributions

pytestmark = pytest.mark.torch

A, B, C = [0.3, 1.5, 0.9], [1.2, 0.4, 2.5], [2.1, 5.5, 3.7]
P, Q = [0.2, 0.7, 0.45], [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]
REAL, ABOVE, SHARES = [-0.7, 0.4, 2.2], [0.7, 0.1, 2.4], [0.3, 0.9, 0.5]
WHOLE, TRUE, ROWS = [0.0, 2.0, 3.0], [1.0, 0.0, 1.0], [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
COUNTS = [[1.0, 1.0, 2.0], [0.0, 4.0, 0.0]]
POINTS, SIMPLEX = [[0.3, -1.0], [1.5, 0.2], [0.0, 0.7]], [[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]]
LOWER = [[1.3, 0.0], [0.4, 0.8]]
COVARIANCE = [[1.7, 0.5], [0.5, 0.8]]


#: How each is made of parameters, the parameters, others for divergences, and events.
CASES = {
    "Normal": (lambda D, a, b: D.Normal(a, b), (REAL, B), (A, C), REAL),
    "Laplace": (lambda D, a, b: D.Laplace(a, b), (REAL, B), (A, C), [-0.5, 0.1, 3.0]),
    "Cauchy": (lambda D, a, b: D.Cauchy(a, b), (REAL, B), (A, C), REAL[::-1]),
    "Gumbel": (lambda D, a, b: D.Gumbel(a, b), (REAL, B), (A, C), REAL[::-1]),
    "HalfNormal": (lambda D, a: D.HalfNormal(a), (B,), (C,), ABOVE),
    "HalfCauchy": (lambda D, a: D.HalfCauchy(a), (B,), (C,), ABOVE),
    "Uniform": (lambda D, a, b: D.Uniform(a, b), (A, C), ([0.1, 1.0, 1.5], [4.0, 6.0, 3.0]),
                [1.0, 2.0, 3.0]),
    "Exponential": (lambda D, a: D.Exponential(a), (B,), (C,), ABOVE),
    "Gamma": (lambda D, a, b: D.Gamma(a, b), (B, C), (C, A), ABOVE),
    "Beta": (lambda D, a, b: D.Beta(a, b), (C, [3.0, 1.5, 2.0]), (A, C), SHARES),
    "StudentT": (lambda D, a, b, c: D.StudentT(a, b, c), ([5.5, 8.0, 12.0], REAL, B), None,
                 REAL[::-1]),
    "LogNormal": (lambda D, a, b: D.LogNormal(a, b), (REAL, B), (A, C), ABOVE),
    "Bernoulli": (lambda D, a: D.Bernoulli(a), (P,), (SHARES,), TRUE),
    "Bernoulli of logits": (lambda D, a: D.Bernoulli(logits=a), (REAL,), (A,), TRUE),
    "Geometric": (lambda D, a: D.Geometric(a), (P,), (SHARES,), WHOLE),
    "Geometric of logits": (lambda D, a: D.Geometric(logits=a), (REAL,), (A,), WHOLE),
    "Binomial": (lambda D, a: D.Binomial(4, a), (P,), (SHARES,), WHOLE),
    "Binomial of logits": (lambda D, a: D.Binomial(4, logits=a), (REAL,), (A,), WHOLE),
    "NegativeBinomial": (lambda D, a, b: D.NegativeBinomial(a, b), (C, P), None, WHOLE),
    "NegativeBinomial of logits": (lambda D, a, b: D.NegativeBinomial(a, logits=b), (C, REAL), None,
                                   WHOLE),
    "Poisson": (lambda D, a: D.Poisson(a), (B,), (C,), WHOLE),
    "Categorical": (lambda D, a: D.Categorical(a), (Q,), (SIMPLEX,), [2, 0]),
    "Categorical of logits": (lambda D, a: D.Categorical(logits=a), (Q,), (SIMPLEX,), [2, 0]),
    "OneHotCategorical": (lambda D, a: D.OneHotCategorical(a), (Q,), (SIMPLEX,), ROWS),
    "OneHotCategoricalStraightThrough": (lambda D, a: D.OneHotCategoricalStraightThrough(a), (Q,),
                                         (SIMPLEX,), ROWS),
    "Multinomial": (lambda D, a: D.Multinomial(4, a), (Q,), None, COUNTS),
    "Multinomial of logits": (lambda D, a: D.Multinomial(4, logits=a), (Q,), None, COUNTS),
    "MixtureSameFamily": (
        lambda D, p, a, b: D.MixtureSameFamily(D.Categorical(p), D.Normal(a, b)),
        (Q, [REAL, A], B), None, [0.3, -1.0]),
    "MixtureSameFamily of vectors": (
        lambda D, p, a, b: D.MixtureSameFamily(
            D.Categorical(logits=p), D.Independent(D.Normal(a, b), 1)),
        (REAL, POINTS, LOWER[1]), None, [0.4, -0.6]),
    "MixtureSameFamily of intervals": (
        lambda D, p, a: D.MixtureSameFamily(D.Categorical(p), D.Exponential(a)), (P, B), None, 0.7),
    "Dirichlet": (lambda D, a: D.Dirichlet(a), ([C, [3.0, 1.5, 2.0]],), (Q,), SIMPLEX),
    "MultivariateNormal": (lambda D, a, b: D.MultivariateNormal(a, b), (POINTS, COVARIANCE),
                           ([0.1, 0.2], [[2.0, 0.1], [0.1, 3.0]]), [0.4, -0.6]),
    "MultivariateNormal of a triangle": (
        lambda D, a, b: D.MultivariateNormal(a, scale_tril=b.tril()), (POINTS, LOWER),
        ([0.1, 0.2], COVARIANCE), POINTS[::-1]),
    "MultivariateNormal of precisions": (
        lambda D, a, b: D.MultivariateNormal(a, precision_matrix=b), (POINTS, COVARIANCE), None,
        POINTS[::-1]),
    "Independent": (lambda D, a, b: D.Independent(D.Normal(a, b), 1), (POINTS, [0.5, 0.7]),
                    ([0.1, 0.2], [1.0, 2.0]), POINTS[::-1]),
    "RelaxedOneHotCategorical": (lambda D, t, a: D.RelaxedOneHotCategorical(t, a), (0.7, Q), None,
                                 SIMPLEX),
    "TransformedDistribution": (
        lambda D, a, b: D.TransformedDistribution(
            D.Normal(a, b), [D.TanhTransform(), D.AffineTransform(0.5, -2.0)]),
        (REAL, B), (A, C), [0.9, 0.1, 1.2]),
    "TransformedDistribution of vectors": (
        lambda D, a, b: D.TransformedDistribution(
            D.MultivariateNormal(a, b),
            D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.SigmoidTransform()])),
        (POINTS, COVARIANCE), None, [0.4, 0.6]),
    "TransformedDistribution by softplus": (
        lambda D, a, b: D.TransformedDistribution(
            D.Normal(a, b), D.transforms.SoftplusTransform(cache_size=1)),
        (REAL, B), (A, C), ABOVE),
    "inverse transform": (
        lambda D, a, b: D.TransformedDistribution(
            D.LogNormal(a, b), [D.ExpTransform().inv, D.AffineTransform(a, b)]),
        (REAL, B), None, REAL[::-1]),
}  # fmt: skip
WITH_GRADIENTS = (
    "Normal", "Laplace", "Cauchy", "Gumbel", "HalfNormal", "HalfCauchy", "Uniform", "Exponential",
    "Gamma", "Beta", "StudentT", "LogNormal", "Dirichlet", "MultivariateNormal", "Independent",
    "RelaxedOneHotCategorical", "TransformedDistribution",
)  # fmt: skip
ASKED = ("mean", "mode", "variance", "stddev", "entropy", "perplexity", "cdf", "icdf",
         "enumerate_support")  # fmt: skip


def made(name, place=1):
    """PyTorch's and our distribution, and the pairs of their parameters."""
    make, *parameters = CASES[name]
    leaves = [
        [T.tensor(x, dtype=T.float64, requires_grad=True) for T in (torch, ag)]
        for x in parameters[place - 1]
    ]
    pair = [make(D, *[leaf[i] for leaf in leaves]) for i, D in enumerate((theirs, ours))]
    return pair, [tuple(leaf) for leaf in leaves]


def events(name):
    values = CASES[name][3]
    if isinstance(np.ravel(values)[0], np.integer):
        return [T.tensor(values) for T in (torch, ag)]
    return [T.tensor(values, dtype=T.float64, requires_grad=True) for T in (torch, ag)]


def alike(results, leaves, order=1):
    oracle.compare(*results)
    oracle.compare_derivatives(*results, leaves, order)


@pytest.mark.parametrize("name", CASES)
def test_probabilities_and_their_derivatives_are_pytorchs(name):
    pair, leaves = made(name)
    values = events(name)
    if pair[1].support.is_discrete:
        values = [x.detach() for x in values]
    else:
        leaves.append(tuple(values))
    alike([d.log_prob(x) for d, x in zip(pair, values, strict=True)], leaves, 2)
    assert tuple(pair[0].batch_shape) == tuple(pair[1].batch_shape)
    assert tuple(pair[0].event_shape) == tuple(pair[1].event_shape)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", CASES)
def test_what_else_is_known_is_pytorchs(name, asked):
    pair, leaves = made(name)
    values = [x.detach() for x in events(name)]
    if asked == "icdf":
        values = [T.tensor(SHARES, dtype=T.float64) for T in (torch, ag)]

    def answer(d, x):
        found = getattr(d, asked)
        return found if not callable(found) else found(x) if "cdf" in asked else found()

    if (name, asked) == ("Gamma", "cdf"):
        # There is no slope by the shape.
        pair = [D.Gamma(*[x[i].detach() for x in leaves]) for i, D in enumerate((theirs, ours))]

    try:
        expected = answer(pair[0], values[0])
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            answer(pair[1], values[1])
        return
    found = answer(pair[1], values[1])
    if name.startswith("Multinomial") and asked in {"entropy", "perplexity"}:
        # PyTorch adds a constant that is computed in float32.
        oracle.compare(expected, found, 1e-6)
    elif expected.requires_grad:
        alike([expected, found], leaves)
    else:
        oracle.compare(expected, found.detach())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] is not None])
def test_divergences_and_their_derivatives_are_pytorchs(name):
    pair, leaves = made(name)
    others, more = made(name.replace(" of a triangle", ""), 2)
    found = [D.kl_divergence(p, q) for D, p, q in zip((theirs, ours), pair, others, strict=True)]
    alike(found, leaves + more, 2)


MIXED = (
    "Normal", "Laplace", "Gumbel", "Uniform", "Exponential", "Gamma", "Beta", "Bernoulli",
    "Binomial", "Poisson", "Categorical", "OneHotCategorical", "Multinomial",
)  # fmt: skip


@pytest.mark.parametrize("first", MIXED)
def test_divergences_of_two_families_are_pytorchs(first):
    for second in set(MIXED) - {first}:
        pairs = made(first), made(second)
        both = [(D, pairs[0][0][i], pairs[1][0][i]) for i, D in enumerate((theirs, ours))]
        try:
            expected = theirs.kl_divergence(*both[0][1:])
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                ours.kl_divergence(*both[1][1:])
            continue
        found = ours.kl_divergence(*both[1][1:])
        oracle.compare(expected, found)
        if torch.isfinite(expected).all():
            oracle.compare_derivatives(expected, found, pairs[0][1] + pairs[1][1], 1)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.8), (-1.0, 0.5), (0.5, 2.0)])
def test_divergences_of_a_uniform_distribution_depend_on_its_bounds(low, high):
    for name in ("Normal", "Gumbel", "Exponential", "Gamma", "Beta"):
        pair, leaves = made(name)
        found = [
            D.kl_divergence(D.Uniform(*T.tensor([low, high], dtype=T.float64)), q)
            for D, T, q in zip((theirs, ours), (torch, ag), pair, strict=True)
        ]
        oracle.compare(*found)
        if torch.isfinite(found[0]).all():
            oracle.compare_derivatives(*found, leaves, 1)


def test_inverses_know_their_shapes():
    for D, T in ((theirs, torch), (ours, ag)):
        wide = D.AffineTransform(T.zeros(3, 1), T.ones(2))
        both = D.ComposeTransform([D.ExpTransform(), wide])
        for transform in (wide, wide.inv, both, both.inv):
            assert transform.forward_shape((2,)) == transform.inverse_shape((1,)) == (3, 2)
        assert repr(D.ExpTransform().inv) == "_InverseTransform(ExpTransform())"


@pytest.mark.parametrize("several", [True, False], ids=["a list", "one composition"])
@pytest.mark.parametrize("wide_first", [True, False])
def test_a_composition_has_events_of_the_most_axes(several, wide_first):
    """Else the density of each element would be scaled as that of the whole event."""
    found = []
    for D, T in ((theirs, torch), (ours, ag)):
        parts = [D.AffineTransform(0.0, 2.0, event_dim=1), D.ExpTransform()]
        parts = parts if wide_first else parts[::-1]
        given = parts if several else D.ComposeTransform(parts)
        kind = D.TransformedDistribution(D.Normal(T.zeros(2, 3), 1.0), given)
        whole = D.ComposeTransform(parts)
        shapes = [*kind.batch_shape, *kind.event_shape, *kind.expand((4, 2)).batch_shape]
        axes = whole.domain.event_dim, whole.codomain.event_dim, kind.support.event_dim
        value = kind.log_prob(T.tensor([0.6, 0.7, 0.8]))
        found.append((shapes, axes, kind.sample((5,)).shape, repr(kind.support), value))
    assert found[0][:4] == found[1][:4]
    oracle.compare(found[0][4], found[1][4])


def columns(D):
    """Makes a vector a column: its events have one axis more."""
    C = D.constraints
    scaled = {
        "bijective": True,
        "domain": C.independent(C.real, 1),
        "codomain": C.independent(C.real, 2),
        "forward_shape": lambda self, shape: (*shape, 1),
        "inverse_shape": lambda self, shape: shape[:-1],
        "_call": lambda self, x: (2 * x)[..., None],
        "_inverse": lambda self, y: y[..., 0] / 2,
        "log_abs_det_jacobian": lambda self, x, y: (0 * x + 2).log().sum(-1),
        "__eq__": object.__eq__,
        "__hash__": object.__hash__,
    }
    return type("Columns", (D.transforms.Transform,), scaled)()


@pytest.mark.parametrize("back", [False, True])
def test_a_composition_follows_events_whose_axes_change(back):
    found = []
    for D, T in ((theirs, torch), (ours, ag)):
        matrix = D.AffineTransform(0.0, 3.0, event_dim=2)
        parts = [matrix, columns(D).inv] if back else [columns(D), matrix]
        whole = D.ComposeTransform([*parts, D.ExpTransform()])
        x = T.tensor([[[0.1], [0.2], [0.3]]]) if back else T.tensor([[0.1, 0.2, 0.3]])
        axes = whole.domain.event_dim, whole.codomain.event_dim
        found.append((axes, whole.log_abs_det_jacobian(x, whole(x))))
    assert found[0][0] == found[1][0]
    oracle.compare(found[0][1], found[1][1])


def test_independent_events_are_enumerated_if_they_have_no_axes():
    made = [D.Bernoulli(T.tensor([0.2, 0.5])) for D, T in ((theirs, torch), (ours, ag))]
    kinds = [D.Independent(base, 0) for D, base in zip((theirs, ours), made, strict=True)]
    assert all(kind.has_enumerate_support for kind in kinds)
    oracle.compare(*[kind.enumerate_support() for kind in kinds])
    oracle.compare(*[kind.enumerate_support(expand=False) for kind in kinds])
    for D, base in zip((theirs, ours), made, strict=True):
        whole = D.Independent(base, 1)
        assert not whole.has_enumerate_support
        with pytest.raises(NotImplementedError, match="cartesian product"):
            whole.enumerate_support()


@pytest.mark.parametrize("name", ["Binomial", "NegativeBinomial"])
def test_parameters_are_shown_in_the_order_of_the_constraints(name):
    kinds = [getattr(D, name)(4, T.tensor([0.2, 0.5])) for D, T in ((theirs, torch), (ours, ag))]
    assert repr(kinds[0]).replace("torch.", "") == repr(kinds[1]).replace("asyncgrad.", "")


def test_classes_of_events_are_told_apart():
    probs = ag.tensor([0.2, 0.8])
    for kind in (ours.OneHotCategorical(probs), ours.Multinomial(2, probs)):
        assert not isinstance(kind, ours.Categorical)


def test_fewer_events_than_a_multinomial_counts_have_a_probability():
    found = [D.Multinomial(4, T.tensor([0.2, 0.8])).log_prob(T.tensor([1.0, 1.0]))
             for D, T in ((theirs, torch), (ours, ag))]  # fmt: skip
    oracle.compare(*found)


def test_divergences_of_two_kinds():
    for make in (
        lambda D, T: D.kl_divergence(
            D.Uniform(T.tensor(0.5), T.tensor(2.0)), D.Normal(T.tensor(0.3), T.tensor(1.4))
        ),
        lambda D, T: D.kl_divergence(
            D.Uniform(T.tensor(0.5), T.tensor(2.0)), D.Uniform(T.tensor(1.0), T.tensor(3.0))
        ),
        lambda D, T: D.kl_divergence(
            D.Categorical(T.tensor([0.5, 0.5])), D.Categorical(T.tensor([1.0, 0.0]))
        ),
        lambda D, T: D.kl_divergence(D.Bernoulli(T.tensor(0.5)), D.Bernoulli(T.tensor(1.0))),
    ):
        oracle.compare(make(theirs, torch), make(ours, ag))
    for D, T in ((theirs, torch), (ours, ag)):
        with pytest.raises(NotImplementedError):
            D.kl_divergence(D.Normal(T.tensor(0.0), 1.0), D.Bernoulli(T.tensor(0.5)))
        with pytest.raises(NotImplementedError, match="total_count"):
            D.kl_divergence(D.Binomial(3, T.tensor(0.5)), D.Binomial(5, T.tensor(0.5)))


def test_a_registered_divergence_is_found_by_the_nearest_classes():
    class Mine(ours.Normal):
        pass

    @ours.register_kl(Mine, ours.Distribution)
    def _mine(p, q):
        return "mine"

    assert ours.kl_divergence(Mine(0.0, 1.0), ours.Poisson(1.0)) == "mine"
    assert ours.kl_divergence(ours.Normal(0.0, 1.0), Mine(0.0, 1.0)).item() == 0
    with pytest.raises(TypeError):
        ours.register_kl(Mine, "Normal")


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_moments(name):
    """Of a fixed seed, within six standard errors; Cauchy's have none, but quantiles."""
    _, d = made(name)[0]
    ag.manual_seed(0)
    x = d.sample((20_000,))
    assert tuple(x.shape) == (20_000, *d.batch_shape, *d.event_shape)
    assert not x.requires_grad
    assert d.log_prob(x[:50]).isfinite().all()
    if name.endswith("Cauchy"):
        x, mean, variance = (d.cdf(x) < 0.25).double(), d.scale * 0 + 0.25, d.scale * 0 + 0.1875
    elif name in {"Categorical", "Categorical of logits"}:
        x, mean = (x == 0).double(), d.probs[..., 0]
        variance = mean * (1 - mean)
    elif name.startswith(("Relaxed", "Transformed", "inverse")):
        assert (x.var(0) > 0).all()
        return
    else:
        mean, variance = d.mean, d.variance
    error = (variance / 20_000).sqrt()
    assert (abs(x.mean(0) - mean) < 6 * error).all()
    kurtosis = (((x - mean) ** 4).mean(0) / variance**2).clamp(min=1.0)
    assert (abs(x.var(0) / variance - 1) < 6 * (kurtosis / 20_000).sqrt()).all()


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients_of_samples_are_those_of_their_cdf(name):
    """What is below a sample stays: its slope is that of the cdf, over the density."""
    (_, d), leaves = made(name)
    ag.manual_seed(1)
    x = d.rsample()
    assert d.has_rsample
    assert x.requires_grad
    gradients = ag.grad(x.sum(), [leaf for _, leaf in leaves], retain_graph=True)
    assert all(g.isfinite().all() for g in gradients)
    if d.event_shape or name in {"Beta", "StudentT"}:
        return
    point = x.detach().requires_grad_()
    cdf = d.cdf(point) if name != "Gamma" else None
    if cdf is None:
        # There is no slope of igamma by its first argument.
        a, rate = (leaf.detach() for _, leaf in leaves)
        step = 1e-6
        below = [ag.igamma(a + s, rate * x.detach()) for s in (-step, step)]
        slope = (below[1] - below[0]) / (2 * step)
        expected = [-slope / d.log_prob(x.detach()).exp(), -x.detach() / rate]
    else:
        (density,) = ag.grad(cdf.sum(), point, retain_graph=True)
        slopes = ag.grad((cdf / density.detach()).sum(), [leaf for _, leaf in leaves])
        expected = [-slope for slope in slopes]
    for g, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(g.numpy(), wanted.detach().numpy(), rtol=1e-6, atol=1e-9)


def test_gradients_of_gamma_samples_are_exact():
    """PyTorch's have three digits."""
    rng = np.random.default_rng(0)
    shapes = 10 ** rng.uniform(-1.5, 2.5, 200)
    x = ag.tensor(shapes, requires_grad=True)
    ag.manual_seed(0)
    y = ours.Gamma(x, 1.0).rsample()
    (g,) = ag.grad(y.sum(), x)
    expected = torch._standard_gamma_grad(torch.tensor(shapes), torch.tensor(y.detach().numpy()))
    np.testing.assert_allclose(g.numpy(), expected.numpy(), rtol=1e-3)
    step = 1e-5 * shapes
    below = [ag.igamma(ag.tensor(shapes + s), y.detach()).numpy() for s in (-step, step)]
    density = ours.Gamma(x.detach(), 1.0).log_prob(y.detach()).exp().numpy()
    np.testing.assert_allclose(g.numpy(), (below[0] - below[1]) / (2 * step) / density, rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["Bernoulli", "Geometric", "Binomial", "Poisson", "Categorical", "OneHotCategorical"]
)
def test_rsample_says_where_there_is_none(name):
    pair, _ = made(name)
    with pytest.raises(NotImplementedError):
        pair[0].rsample()
    with pytest.raises(NotImplementedError, match="log_prob"):
        pair[1].rsample()


@pytest.mark.parametrize("name", CASES)
def test_an_expanded_distribution_is_pytorchs(name):
    pair, leaves = made(name)
    values = [x.detach() for x in events(name)]
    wide = [d.expand((4, *d.batch_shape)) for d in pair]
    assert tuple(wide[0].batch_shape) == wide[1].batch_shape
    assert tuple(wide[1].sample((2,)).shape) == (2, 4, *pair[1].batch_shape, *pair[1].event_shape)
    alike([d.log_prob(x) for d, x in zip(wide, values, strict=True)], leaves)


WRONG = {
    "a negative scale": lambda D, T: D.Normal(T.tensor(0.0), T.tensor(-1.0)),
    "NaN": lambda D, T: D.Normal(T.tensor(math.nan), T.tensor(1.0)),
    "text": lambda D, T: D.Normal("0", 1.0),
    "shapes": lambda D, T: D.Normal(T.ones(2), T.ones(3)),
    "no chances": lambda D, T: D.Bernoulli(),
    "chances twice": lambda D, T: D.Bernoulli(T.tensor(0.5), T.tensor(0.5)),
    "a chance of 2": lambda D, T: D.Bernoulli(T.tensor(2.0)),
    "a chance of 0": lambda D, T: D.Geometric(T.tensor(0.0)),
    "no interval": lambda D, T: D.Uniform(T.tensor(1.0), T.tensor(1.0)),
    "a class of none": lambda D, T: D.Categorical(T.tensor(0.5)),
    "a negative weight": lambda D, T: D.Categorical(T.tensor([0.5, -0.5, 1.0])),
    "no matrix": lambda D, T: D.MultivariateNormal(T.ones(2)),
    "not definite": lambda D, T: D.MultivariateNormal(T.ones(2), T.tensor([[1.0, 2], [2, 1]])),
    "no triangle": lambda D, T: D.MultivariateNormal(T.ones(2), scale_tril=T.ones(2, 2)),
    "too many axes": lambda D, T: D.Independent(D.Normal(T.ones(2), 1.0), 2),
    "no transform": lambda D, T: D.TransformedDistribution(D.Normal(T.ones(2), 1.0), "exp"),
    "no event": lambda D, T: D.Normal(T.ones(2), 1.0).log_prob(0.5),
    "events of another shape": lambda D, T: D.Normal(T.ones(2), 1.0).log_prob(T.ones(3)),
    "beyond the support": lambda D, T: D.Exponential(T.ones(2)).log_prob(T.tensor([1.0, -1.0])),
    "half an event": lambda D, T: D.Poisson(T.ones(2)).log_prob(T.tensor([1.0, 0.5])),
    "no simplex": lambda D, T: D.Dirichlet(T.ones(3)).log_prob(T.tensor([0.5, 0.6, 0.1])),
    "a class too many": lambda D, T: D.Categorical(T.ones(3)).log_prob(T.tensor(3)),
    "a chance of 1": lambda D, T: D.NegativeBinomial(T.tensor(2.0), T.tensor(1.0)),
    "too many counts": lambda D, T: D.Multinomial(2, T.ones(3)).log_prob(T.ones(3)),
    "counts that differ": lambda D, T: D.Multinomial(T.tensor([1, 2]), T.ones(2, 3)),
    "a mixture by numbers": lambda D, T: D.MixtureSameFamily(T.ones(2), D.Normal(T.ones(2), 1.0)),
    "a mixture of numbers": lambda D, T: D.MixtureSameFamily(D.Categorical(T.ones(2)), T.ones(2)),
    "weights of others": lambda D, T: D.MixtureSameFamily(
        D.Categorical(T.ones(2)), D.Normal(T.ones(3), 1.0)
    ),
    "weights of another batch": lambda D, T: D.MixtureSameFamily(
        D.Categorical(T.ones(4, 2)), D.Normal(T.ones(3, 2), 1.0)
    ),
    "a cache of two": lambda D, T: D.ExpTransform(cache_size=2),
    "several counts": lambda D, T: D.Binomial(T.tensor([1.0, 2.0]), T.tensor(0.5)).entropy(),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_pytorch_refuses_is_refused(name):
    oracle.check_refused(lambda T: WRONG[name](T.distributions, T))


def test_nothing_is_checked_if_so_asked():
    assert ours.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    x = ours.Exponential(1.0, validate_args=False).log_prob(ag.tensor(-1.0))
    assert x.item() == 1
    ours.Distribution.set_default_validate_args(False)
    try:
        ours.Normal(0.0, -1.0)
    finally:
        ours.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="True or False"):
        ours.Distribution.set_default_validate_args("no")


def test_programs_make_their_own():
    """As in PyTorch: by what is public, within others, too; on other devices as well."""

    class Wave(ours.Transform):
        codomain = ours.constraints.interval(-1.0, 1.0)

        def _call(self, x):
            return x.sin()

        def _inverse(self, y):
            return y.asin()

        def log_abs_det_jacobian(self, x, y):
            return x.cos().abs().log()

    class Two(ours.Distribution):
        support = ours.constraints.real
        has_rsample = True

        def rsample(self, sample_shape=()):
            return ag.full(self._extended_shape(sample_shape), 2.0)

        sample = rsample

        def log_prob(self, value):
            return ag.where(value == 2, value * 0, -math.inf)

    both = ours.Independent(Two((3,)), 1)
    assert both.sample((4,)).shape == (4, 3)
    assert both.log_prob(ag.full((3,), 2.0)).item() == 0
    scaled = ours.TransformedDistribution(both, [ours.AffineTransform(ag.ones(2, 1), 3.0)])
    assert scaled.rsample().tolist() == [[7.0] * 3] * 2
    waves = ours.TransformedDistribution(ours.Uniform(-1.0, 1.0), Wave())
    assert waves.log_prob(ag.tensor(0.0)).item() == pytest.approx(-math.log(2))
    place = ag.zeros(2, device="sim:0")
    moved = ours.TransformedDistribution(ours.Normal(place, 1.0), ours.AffineTransform(place, 2.0))
    assert moved.log_prob(moved.sample()).device == place.device


def test_numbers_are_parameters_of_the_default_dtype():
    d = ours.Normal(0, 1)
    assert d.loc.dtype == d.sample().dtype == ag.float32
    assert d.batch_shape == ()
    assert ours.Normal(ag.zeros(2, dtype=ag.float64), 1.0).scale.dtype == ag.float64
    assert repr(d) == "Normal(loc: 0.0, scale: 1.0)"


def test_a_policy_is_learnt_by_the_gradient_of_log_prob():
    """As in every first program of reinforcement learning."""
    logits = ag.zeros(3, requires_grad=True)
    ag.manual_seed(0)
    for _ in range(200):
        d = ours.Categorical(logits=logits)
        action = d.sample((16,))
        loss = -(d.log_prob(action) * (action == 2)).mean() - 1e-3 * d.entropy()
        (g,) = ag.grad(loss, logits)
        logits = (logits - g).detach().requires_grad_()
    assert ours.Categorical(logits=logits).probs[2].item() > 0.9


def test_the_package_is_imported_when_it_is_asked_for():
    program = (
        "import sys, asyncgrad as ag; assert 'asyncgrad.distributions' not in sys.modules;"
        "assert ag.distributions.Normal(0.0, 1.0).mean.item() == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
