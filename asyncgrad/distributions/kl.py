"""How far one distribution is from another: the Kullback-Leibler divergence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from asyncgrad.distributions.composed import Independent, TransformedDistribution
from asyncgrad.distributions.continuous import (
    EULER,
    Cauchy,
    Exponential,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    Normal,
    Uniform,
)
from asyncgrad.distributions.counts import Binomial, Poisson
from asyncgrad.distributions.discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    OfClasses,
    OneHotCategorical,
)
from asyncgrad.distributions.distribution import Distribution, sum_rightmost
from asyncgrad.distributions.multivariate import (
    Beta,
    Dirichlet,
    MultivariateNormal,
    squared_distances,
)
from asyncgrad.ops.api.activation import softplus
from asyncgrad.ops.api.creation import full_like
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.matrices import solve_triangular
from asyncgrad.ops.api.shape import broadcast_tensors
from asyncgrad.special import xlogy
from asyncgrad.types import Tensor

__all__ = ["kl_divergence", "register_kl"]
_KNOWN: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Decorate a function that computes `kl_divergence` for two classes of distributions."""
    if not (isinstance(type_p, type) and isinstance(type_q, type)):
        raise TypeError(f"register_kl: expected classes, got {type_p!r} and {type_q!r}")

    def decorate(function: Any) -> Any:
        _KNOWN[type_p, type_q] = function
        return function

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence: the mean of `p.log_prob(x) - q.log_prob(x)` over x from p.

    Args:
        p: a distribution.
        q: another one, whose batch shape can be broadcast with that of p.

    Raises:
        NotImplementedError: if no function is registered for the two classes or their base classes.
    """
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            if (first, second) in _KNOWN:
                return _KNOWN[first, second](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}. Register one with register_kl, or take the mean over samples."
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    rest = distance / q.scale + ratio * (-distance / p.scale).exp()
    return -ratio.log() + rest - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    over = (p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2
    return over.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, shift = p.scale / q.scale, p.loc / q.scale
    rest = q.loc / q.scale
    power = (rest - shift + (1 + ratio).lgamma()).exp()
    return -ratio.log() - rest + shift + ratio * EULER + power - (1 + EULER)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    sizes = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return sizes + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    sizes = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return sizes + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            "computed"
        )
    ratio = solve_triangular(*broadcast_tensors(q._lower, p._lower), upper=False)
    sizes = q._half_log_det - p._half_log_det
    distance = squared_distances(q._lower, p.loc - q.loc)
    return sizes + 0.5 * ((ratio**2).sum((-2, -1)) + distance - p.event_shape[0])


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    inside = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    found = inside + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    endless = ((q.probs == 0) & (p.probs != 0)) | ((q.probs == 1) & (p.probs != 1))
    return where(endless, math.inf, found)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    n = p.total_count
    if (n < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    inside = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return where(n > q.total_count, math.inf, n * inside)


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _of_classes(p: OfClasses, q: OfClasses) -> Tensor:
    found = p.probs * (p.logits - q.logits)
    found = where(q.probs == 0, math.inf, found)
    return where(p.probs == 0, 0.0, found).sum(-1)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of Independents whose numbers of such axes differ")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of distributions whose transforms or events differ")
    return kl_divergence(p.base_dist, q.base_dist)


# -- of two families: the negated entropy of p, less the mean of q's logarithm --------------------


def _where_positive(p: Distribution, found: Tensor) -> Tensor:
    """Infinity where p also has negative numbers, of which a q of positive ones has none."""
    return where(p.low < 0, math.inf, found) if isinstance(p, Uniform) else found


def _mean_of_log(p: Distribution) -> Tensor:
    """The mean of the logarithm of p's positive numbers."""
    if isinstance(p, Beta):
        a = p.concentration1
        return a.digamma() - (a + p.concentration0).digamma()
    if isinstance(p, Exponential):
        return -EULER - p.rate.log()
    return _mean_log_between(p.low, p.high)  # type: ignore[attr-defined]


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    """The mean of the logarithm between two numbers."""
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


def _log_of_mean_exp(p: Any, rate: Tensor) -> Tensor:
    """The logarithm of the mean of `exp(-rate * x)` over x from p."""
    if isinstance(p, Normal):
        return (p.scale * rate) ** 2 / 2 - p.loc * rate
    if isinstance(p, Uniform):
        width = (p.high - p.low) * rate
        return (-(-width).expm1() / width).log() - p.low * rate
    number = p.concentration if isinstance(p, Gamma) else 1.0
    return -(rate / p.rate).log1p() * number


@register_kl(Beta, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _to_normal(p: Distribution, q: Normal) -> Tensor:
    squares = (p.variance + (p.mean - q.loc) ** 2) / q.scale**2
    return 0.5 * (squares + math.log(2 * math.pi)) + q.scale.log() - p.entropy()


@register_kl(Beta, Exponential)
@register_kl(Gamma, Exponential)
@register_kl(Uniform, Exponential)
def _to_exponential(p: Distribution, q: Exponential) -> Tensor:
    return _where_positive(p, q.rate * p.mean - q.rate.log() - p.entropy())


@register_kl(Beta, Gamma)
@register_kl(Exponential, Gamma)
@register_kl(Uniform, Gamma)
def _to_gamma(p: Distribution, q: Gamma) -> Tensor:
    size = q.concentration.lgamma() - q.concentration * q.rate.log()
    rest = (1 - q.concentration) * _mean_of_log(p) + q.rate * p.mean
    return _where_positive(p, size + rest - p.entropy())


@register_kl(Exponential, Gumbel)
@register_kl(Gamma, Gumbel)
@register_kl(Normal, Gumbel)
@register_kl(Uniform, Gumbel)
def _to_gumbel(p: Distribution, q: Gumbel) -> Tensor:
    power = (q.loc / q.scale + _log_of_mean_exp(p, 1 / q.scale)).exp()
    return q.scale.log() + (p.mean - q.loc) / q.scale + power - p.entropy()


@register_kl(Normal, Laplace)
def _to_laplace(p: Normal, q: Laplace) -> Tensor:
    ratio = (p.loc - q.loc) / (p.scale * math.sqrt(2))
    distance = (-(ratio**2)).exp() * math.sqrt(2 / math.pi) * p.scale
    distance = distance + (p.loc - q.loc) * ratio.erf()
    return (2 * q.scale).log() + distance / q.scale - p.entropy()


@register_kl(Uniform, Beta)
def _to_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    rest = (1 - a) * _mean_of_log(p) + (1 - b) * _mean_log_between(1 - p.high, 1 - p.low)
    found = a.lgamma() + b.lgamma() - (a + b).lgamma() + rest - p.entropy()
    return where((p.low < 0) | (p.high > 1), math.inf, found)


# -- of one expression ----------------------------------------------------------------------------


_RULES: tuple[tuple[type, type, Callable[[Any, Any], Tensor]], ...] = (
    (HalfCauchy, HalfCauchy, lambda p, q: kl_divergence(p._whole, q._whole)),
    (HalfNormal, HalfNormal, lambda p, q: kl_divergence(p._whole, q._whole)),
    (Beta, Beta, lambda p, q: _dirichlet(p._dirichlet, q._dirichlet)),
    (Geometric, Geometric, lambda p, q: (
        -p.entropy() - (-q.probs).log1p() / p.probs - q.logits
    )),
    (Poisson, Poisson, lambda p, q: (
        xlogy(p.rate, p.rate) - xlogy(p.rate, q.rate) - (p.rate - q.rate)
    )),
    (Bernoulli, Poisson, lambda p, q: q.rate - xlogy(p.probs, q.rate) - p.entropy()),
    (Beta, Uniform, lambda p, q: where(
        (q.low > 0) | (q.high < 1), math.inf, (q.high - q.low).log() - p.entropy()
    )),
)  # fmt: skip
for _p, _q, _rule in _RULES:
    register_kl(_p, _q)(_rule)
# What p has numbers for that q never has is infinitely far away.
for _p, _others in {
    Exponential: (Beta, Uniform),
    Gamma: (Beta, Uniform),
    Gumbel: (Beta, Exponential, Gamma, Uniform),
    Laplace: (Beta, Exponential, Gamma, Uniform),
    Normal: (Beta, Exponential, Gamma, Uniform),
    Poisson: (Bernoulli, Binomial),
}.items():
    for _q in _others:
        register_kl(_p, _q)(lambda p, q: full_like(p.mean, math.inf))
