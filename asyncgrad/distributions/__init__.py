"""PyTorch's `torch.distributions`: samples, probabilities and their gradients.

It is imported by itself, or when it is first asked for: `import asyncgrad.distributions`.
"""

from functools import partial
from re import sub

from asyncgrad.distributions import constraints, transforms
from asyncgrad.distributions.composed import (
    ExpRelaxedCategorical,
    Independent,
    LogNormal,
    MixtureSameFamily,
    RelaxedOneHotCategorical,
    TransformedDistribution,
)
from asyncgrad.distributions.continuous import (
    Cauchy,
    Exponential,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    Normal,
    StudentT,
    Uniform,
)
from asyncgrad.distributions.counts import Binomial, Multinomial, NegativeBinomial, Poisson
from asyncgrad.distributions.discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from asyncgrad.distributions.distribution import Distribution, broadcast_all, derived
from asyncgrad.distributions.kl import kl_divergence, register_kl
from asyncgrad.distributions.multivariate import Beta, Dirichlet, MultivariateNormal
from asyncgrad.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
)
from asyncgrad.submodules import offer

__all__ = [
    "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "ComposeTransform",
    "Dirichlet", "Distribution", "ExpRelaxedCategorical", "ExpTransform", "Exponential", "Gamma",
    "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "Laplace", "LogNormal",
    "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
    "OneHotCategorical", "OneHotCategoricalStraightThrough", "Poisson", "RelaxedOneHotCategorical",
    "SigmoidTransform", "SoftplusTransform", "StudentT", "TanhTransform", "Transform",
    "TransformedDistribution", "Uniform", "constraints", "kl_divergence", "register_kl",
    "transforms",
]  # fmt: skip
__dir__ = partial(sorted, __all__)

#: PyTorch's files that are not named as their class.
_FILES = {
    "ExpRelaxedCategorical": "relaxed_categorical",
    "OneHotCategoricalStraightThrough": "one_hot_categorical",
    "RelaxedOneHotCategorical": "relaxed_categorical",
    "StudentT": "studentT",
}
for _name in __all__:
    _class = globals()[_name]
    if isinstance(_class, type) and issubclass(_class, Distribution):
        _file = _FILES.get(_name, sub("(?<=[a-z])(?=[A-Z])", "_", _name).lower())
        offer(__name__, _file, {_name: _class})
offer(__name__, "utils", {"broadcast_all": broadcast_all, "lazy_property": derived})
