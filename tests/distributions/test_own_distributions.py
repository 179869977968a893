"""Distributions and transforms that programs define themselves, and what these rely on."""

import importlib
import math

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import distributions as D


@pytest.mark.parametrize(
    "transform",
    [
        D.TanhTransform(cache_size=1),
        D.ComposeTransform([D.TanhTransform(), D.AffineTransform(0.0, 2.0)], cache_size=1),
        D.ComposeTransform([D.TanhTransform(), D.AffineTransform(0.0, 2.0)]).with_cache(),
        D.AffineTransform(0.0, 1e-50, cache_size=1),
    ],
)
def test_a_cache_makes_the_inverse_exact(transform):
    """In float32 the results are 1, 2, 2 and 0, from which no inverse finds the way back."""
    x = ag.tensor([30.0, 50.0])
    assert transform.inv(transform(x)) is x
    y = transform(x)
    assert transform(x) is y
    assert transform.inv(y.clone()) is not x


def test_a_transform_without_a_cache_rounds():
    cached = D.TanhTransform(cache_size=1)
    x = ag.tensor(30.0)
    cached(x)
    plain = cached.with_cache(0)
    assert plain == cached
    assert plain.with_cache(0) is plain
    assert plain.inv(plain(x)).item() == math.inf


def test_the_density_of_a_policys_own_sample_is_finite():
    """As in soft actor-critic: what tanh rounds to 1 is inverted by the cache."""
    loc = ag.tensor([12.0], requires_grad=True)
    d = D.TransformedDistribution(D.Normal(loc, 1.0), [D.TanhTransform(cache_size=1)])
    action = d.rsample()
    assert action.item() == 1
    d.log_prob(action).sum().backward()
    assert loc.grad.isfinite().all()


class Squash(D.Transform):
    domain = D.constraints.real
    codomain = D.constraints.interval(-1.0, 1.0)
    sign = +1

    def __init__(self, cache_size=1):
        super().__init__(cache_size=cache_size)

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - ag.nn.functional.softplus(-2.0 * x))


def test_a_transform_of_users_has_a_cache_and_a_sign():
    own = D.TransformedDistribution(D.Normal(0.5, 2.0), Squash())
    known = D.TransformedDistribution(D.Normal(0.5, 2.0), D.TanhTransform())
    x = ag.tensor([0.25, -0.5])
    for name in ("log_prob", "cdf"):
        np.testing.assert_allclose(getattr(own, name)(x), getattr(known, name)(x), rtol=1e-6)
    far = ag.tensor(40.0)
    assert own.transforms[0].inv(own.transforms[0](far)) is far
    assert Squash().inv.sign == 1

    class Nameless(D.Transform):
        _call = _inverse = staticmethod(lambda x: -x)

    with pytest.raises(NotImplementedError, match="Nameless has no sign"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), Nameless()).cdf(ag.tensor(0.0))


class Truncated(D.Distribution):
    """As programs for PyTorch define them."""

    arg_constraints = {"low": D.constraints.real, "high": D.constraints.real}  # noqa: RUF012
    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        utils = importlib.import_module("asyncgrad.distributions.utils")
        self.low, self.high = utils.broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @D.constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return D.constraints.interval(self.low, self.high)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Truncated, _instance)
        new.low, new.high = self.low.expand(batch_shape), self.high.expand(batch_shape)
        super(Truncated, new).__init__(batch_shape, validate_args=False)
        return new

    def rsample(self, sample_shape=()):
        return self.low + (self.high - self.low) * ag.rand(self._extended_shape(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -(self.high - self.low).log() + 0 * value


@pytest.mark.parametrize("kind", [D.Normal, D.Gumbel, D.Gamma])
def test_expand_of_a_subclass_fills_its_object_by_the_class_above(kind):
    class Labelled(kind):
        def __init__(self, one, other, label):
            super().__init__(one, other)
            self.label = label

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Labelled, _instance)
            assert super().expand(batch_shape, _instance=new) is new
            new.label = self.label
            return new

    value = ag.tensor([[0.5], [1.5]])
    d = Labelled(ag.tensor([1.0, 2.0, 3.0]), 2.0, "three")
    wide = d.expand((2, 3))
    assert (type(wide), wide.label, wide.batch_shape) == (Labelled, "three", (2, 3))
    assert wide.log_prob(value).equal(d.log_prob(value))
    assert d.batch_shape == (3,)


def test_a_distribution_of_users_is_sampled_expanded_and_mixed():
    low = ag.zeros(3, requires_grad=True)
    d = Truncated(low, 2.0)
    assert d.rsample((4,)).requires_grad
    assert not d.sample((4,)).requires_grad
    assert d.expand((2, 3)).sample().shape == (2, 3)
    with pytest.raises(ValueError, match="support"):
        d.log_prob(ag.full((3,), 3.0))
    mixture = D.MixtureSameFamily(D.Categorical(ag.ones(3)), d)
    assert mixture.log_prob(mixture.sample((5,))).exp().allclose(ag.full((5,), 0.5))

    class Other(Truncated):
        def __init__(self):
            super().__init__(0.0, 1.0)

    with pytest.raises(NotImplementedError, match="must also define"):
        Other().expand((2,))
    with pytest.raises(NotImplementedError):
        D.Distribution().sample()

    class Bare(D.Distribution):
        @D.constraints.dependent_property
        def support(self):
            return D.constraints.real

    assert Bare().support is D.constraints.real


def test_samples_pass_their_gradients_straight_to_the_probabilities():
    logits = ag.tensor([0.5, -1.0, 2.0], requires_grad=True)
    d = D.OneHotCategoricalStraightThrough(logits=logits)
    x = d.rsample((2,))
    assert x.sum(-1).tolist() == [1, 1]
    weights = ag.tensor([1.0, 2.0, 3.0])
    (g,) = ag.grad((x * weights).sum(), logits, retain_graph=True)
    (expected,) = ag.grad(2 * (d.probs * weights).sum(), logits)
    np.testing.assert_allclose(g, expected, rtol=1e-6)


def test_a_mixture_says_what_it_is_made_of():
    d = D.MixtureSameFamily(D.Categorical(ag.ones(2)), D.Normal(ag.zeros(2), ag.ones(2)))
    assert repr(d) == (
        "MixtureSameFamily(Categorical(probs: asyncgrad.Size([2])), "
        "Normal(loc: asyncgrad.Size([2]), scale: asyncgrad.Size([2])))"
    )
    assert repr(D.ComposeTransform([D.ExpTransform()])) == "ComposeTransform([ExpTransform()])"


def test_each_distribution_is_found_by_the_name_of_pytorchs_file():
    for file, name in (
        ("normal", "Normal"), ("categorical", "Categorical"), ("studentT", "StudentT"),
        ("one_hot_categorical", "OneHotCategoricalStraightThrough"), ("log_normal", "LogNormal"),
        ("transformed_distribution", "TransformedDistribution"), ("half_cauchy", "HalfCauchy"),
        ("relaxed_categorical", "RelaxedOneHotCategorical"), ("gamma", "Gamma"),
        ("mixture_same_family", "MixtureSameFamily"), ("distribution", "Distribution"),
    ):  # fmt: skip
        module = importlib.import_module(f"asyncgrad.distributions.{file}")
        assert getattr(module, name) is getattr(D, name)
        assert getattr(D, file) is module


@pytest.mark.parametrize("kind", [D.Normal, D.Beta, D.Gamma])
def test_parameters_are_the_leaves_that_were_given(kind):
    """Programs optimise `d.loc` and read `d.loc.grad`."""
    first, second = ag.ones(2, requires_grad=True), ag.ones(2, requires_grad=True)
    d = kind(first, second)
    kept = [getattr(d, name) for name in d.arg_constraints]
    assert kept[0] is first
    assert kept[1] is second
    d.log_prob(ag.tensor([0.3, 0.6])).sum().backward()
    assert kept[0].grad is first.grad is not None


@pytest.mark.parametrize("kind", [D.Normal, D.Laplace, D.Gumbel])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_deviations_are_finite_where_variances_are_not(kind, scale):
    d = kind(0.0, ag.tensor(scale))
    ratio = kind(0.0, ag.tensor(1.0)).variance.sqrt().item()
    assert d.stddev.item() == pytest.approx(scale * ratio, rel=1e-6, abs=0)
    assert d.variance.item() in {0, math.inf}
