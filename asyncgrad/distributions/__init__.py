"""PyTorch's `torch.distributions`: samples, probabilities and their gradients.

It is imported by itself, or when it is first asked for: `import asyncgrad.distributions`.
"""

from functools import partial

from asyncgrad.distributions import constraints, transforms
from asyncgrad.distributions.composed import (
    ExpRelaxedCategorical,
    Independent,
    LogNormal,
    RelaxedOneHotCategorical,
    TransformedDistribution,
)
from asyncgrad.distributions.continuous import (
    Cauchy,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Laplace,
    Normal,
    StudentT,
    Uniform,
)
from asyncgrad.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from asyncgrad.distributions.distribution import Distribution
from asyncgrad.distributions.kl import kl_divergence, register_kl
from asyncgrad.distributions.multivariate import Beta, Dirichlet, MultivariateNormal
from asyncgrad.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
)

__all__ = [
    "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "ComposeTransform",
    "Dirichlet", "Distribution", "ExpRelaxedCategorical", "ExpTransform", "Exponential", "Gamma",
    "Geometric", "Gumbel", "HalfNormal", "Independent", "Laplace", "LogNormal",
    "MultivariateNormal", "Normal", "OneHotCategorical", "Poisson", "RelaxedOneHotCategorical",
    "SigmoidTransform", "StudentT", "TanhTransform", "Transform", "TransformedDistribution",
    "Uniform", "constraints", "kl_divergence", "register_kl", "transforms",
]  # fmt: skip
__dir__ = partial(sorted, __all__)
