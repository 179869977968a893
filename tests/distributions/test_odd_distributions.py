"""Distributions, transforms and divergences of unusual and wrong arguments, beside PyTorch's."""

import pytest

short_programs = pytest.importorskip("short_programs", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

DISTRIBUTIONS = """
    D.Normal(t([0.0, 1.0]), t([1.0, 2.0, 3.0]))
    D.Normal("a", 1.0)
    D.Normal(0.0, -1.0)
    D.Uniform(1.0, 0.0)
    D.Geometric(0.0)
    D.Geometric(1.0).log_prob(t(0.0))
    D.Geometric(logits=t([0.3, float("-inf")])).logits
    D.Bernoulli(0.3, 0.4)
    D.Bernoulli(t([0.3, 0.4])).param_shape
    D.Categorical(t([[0.1, 0.9], [0.5, 0.5]])).param_shape
    D.Categorical(T.ones(0, 3)).sample((2,)).shape
    D.Dirichlet(t(1.0))
    D.Binomial(t([3.0, 4.0]), 0.5).entropy()
    D.Binomial(t([3.0, 4.0]), 0.5).enumerate_support()
    D.MultivariateNormal(t(1.0), T.eye(2))
    D.MultivariateNormal(T.zeros(2), t([1.0, 2.0]))
    D.MultivariateNormal(T.zeros(2))
    D.MultivariateNormal(T.zeros(2), precision_matrix=P).scale_tril
    D.MultivariateNormal(T.zeros(2), precision_matrix=P).covariance_matrix
    D.MultivariateNormal(T.zeros(2), P).precision_matrix
    D.kl_divergence(D.MultivariateNormal(T.zeros(2), P), D.MultivariateNormal(T.zeros(3), T.eye(3)))
    D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0))
    repr(D.Independent(D.Normal(T.zeros(2), 1.0), 1))
    D.Independent(D.Normal(0.0, 1.0), 1)
    D.TransformedDistribution(D.Normal(0.0, 1.0), "a")
    D.Normal(0.0, 1.0).log_prob(0.5)
    D.Normal(0.0, 1.0).log_prob(t(float("nan")))
    D.Normal(T.zeros(2), 1.0).log_prob(T.zeros(3))
    Plain().log_prob(t(0.5))
    D.LogNormal(0.0, 1.0).cdf(t([0.0, -0.0, 1e-30]))
    D.TransformedDistribution(D.Normal(0.0, 1.0), D.SigmoidTransform()).cdf(t([-1.0, 1.0, 2.0]))
    D.TransformedDistribution(D.Exponential(1.0), D.AffineTransform(0.0, 1e20)).icdf(t(1e-20))
    D.TransformedDistribution(D.Exponential(1.0), D.AffineTransform(0.0, -2.0)).cdf(t(-0.5))
    D.Exponential(t(2)).sample()
    D.Cauchy(0.0, leaf).variance.requires_grad
    D.HalfNormal(leaf).mode.requires_grad
    D.Exponential(leaf).mode.requires_grad
    D.Cauchy(t(0), t(1)).sample()
    D.relaxed_categorical.ExpRelaxedCategorical(t(0.5), T.ones(3)).mean
    D.relaxed_categorical.ExpRelaxedCategorical(t(0.5), T.ones(3)).mode
    D.relaxed_categorical.ExpRelaxedCategorical(t(0.5), T.ones(3)).variance
    D.relaxed_categorical.ExpRelaxedCategorical(t(0.5), T.ones(3)).entropy()
    D.relaxed_categorical.ExpRelaxedCategorical(t(0.5), T.ones(3)).enumerate_support()
    D.Multinomial(-1, T.ones(2))
    D.constraints.real_vector.check(t(1.0))
    D.constraints.independent(D.constraints.simplex, 1).check(t([0.5, 0.5]))
"""

TRANSFORMS = """
    D.ExpTransform(3)
    D.ExpTransform().inv == D.ExpTransform().inv
    D.ExpTransform().inv.inv == D.ExpTransform()
    D.ExpTransform().inv == D.TanhTransform().inv
    repr(D.TanhTransform().inv.codomain)
    D.AffineTransform(0.0, 2.0) == D.ExpTransform()
    D.AffineTransform(t([0.0]), 2.0) == D.AffineTransform(t([0.0]), 2.0)
    D.ComposeTransform([D.ExpTransform()]) == D.ComposeTransform([D.ExpTransform()])
    D.ComposeTransform([D.ExpTransform()]) == D.ComposeTransform([])
    D.ComposeTransform([]).log_abs_det_jacobian(t([1.0]), t([1.0]))
    D.ComposeTransform([D.ExpTransform(), D.AffineTransform(0.0, -2.0)]).sign * 1.0
    D.ComposeTransform([wide, D.ExpTransform()]).log_abs_det_jacobian(T.ones(2, 3), T.ones(2, 3))
    D.ComposeTransform([D.ExpTransform(), wide]).inv.domain.event_dim
    D.AffineTransform(0.0, -2.0).sign
    D.AffineTransform(0.0, 0.0).sign
    D.AffineTransform(t(0.0), t([2.0, 3.0])).log_abs_det_jacobian(infinite, infinite)
"""

_BEFORE = """
P = t([[2.0, 0.5], [0.5, 1.0]])
leaf = t(1.0, requires_grad=True)
infinite = t([float("inf"), 1.0])
wide = D.AffineTransform(0.0, 2.0, event_dim=1)
class Plain(D.Distribution):
    arg_constraints = {}
    def log_prob(self, value):
        self._validate_sample(value)
        return -value
"""


@pytest.mark.parametrize(
    "programs", [DISTRIBUTIONS, TRANSFORMS], ids=["distributions", "transforms"]
)
def test_what_unusual_arguments_do(programs):
    assert not short_programs.differences(programs, _BEFORE)
