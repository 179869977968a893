"""Distributions of real numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from asyncgrad.distributions import constraints
from asyncgrad.distributions.constraints import Constraint, Value
from asyncgrad.distributions.distribution import (
    Distribution,
    OfRate,
    check_all,
    computed,
    open_uniform,
    standard_normal,
)
from asyncgrad.ops.api.creation import full_like, zeros_like
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.random import rand, standard_gamma
from asyncgrad.ops.api.special import ndtr
from asyncgrad.ops.api.transcendental import igamma, xlogy
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.types import Tensor

#: The Euler-Mascheroni constant.
EULER = 0.57721566490153286
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class _LocationScale(Distribution):
    """The base of distributions of `loc + scale * z`; subclasses say what holds for z."""

    loc: Tensor
    scale: Tensor
    has_rsample = True
    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    #: The standard deviation of z, and its entropy.
    _deviation: ClassVar[float]
    _information: ClassVar[float]

    def __init__(self, loc: Value, scale: Value, validate_args: bool | None = None) -> None:
        self._take(locals())

    mean = computed(lambda self: self.loc)
    mode = mean
    stddev = computed(lambda self: self.scale * self._deviation)
    variance = computed(lambda self: self.scale**2 * self._deviation**2)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return self.icdf(open_uniform(self.loc, shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._log_density((value - self.loc) / self.scale) - self.scale.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return self._below((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * self._quantile(value)

    def entropy(self) -> Tensor:
        return self.scale.log() + self._information

    def _log_density(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def _below(self, z: Tensor) -> Tensor:
        """The cumulative distribution function of z."""
        raise NotImplementedError

    def _quantile(self, share: Tensor) -> Tensor:
        """The inverse of `_below`."""
        raise NotImplementedError


class Normal(_LocationScale):
    """The normal distribution.

    Args:
        loc: the mean: a floating tensor or a number.
        scale: the standard deviation, broadcast against the other parameter.

    Example:
        >>> from asyncgrad.distributions import Normal
        >>> Normal(0.0, 1.0).cdf(ag.tensor(0.0)).item()
        0.5
    """

    _information = 0.5 + _HALF_LOG_TWO_PI

    stddev = computed(lambda self: self.scale)
    variance = computed(lambda self: self.scale**2)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return self.loc + standard_normal(self.loc, shape) * self.scale

    def _log_density(self, z: Tensor) -> Tensor:
        return -0.5 * z**2 - _HALF_LOG_TWO_PI

    def _below(self, z: Tensor) -> Tensor:
        return ndtr(z)

    def _quantile(self, share: Tensor) -> Tensor:
        return (2 * share - 1).erfinv() * math.sqrt(2)


class Laplace(_LocationScale):
    """The Laplace (double exponential) distribution with mean `loc` and scale `scale`."""

    _deviation = math.sqrt(2)
    _information = 1 + math.log(2)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        share = open_uniform(self.loc, shape)
        # The quantile of less would be infinite.
        return self.icdf(share.clamp(min=float(floating_info(share.dtype).eps) / 4))

    def _log_density(self, z: Tensor) -> Tensor:
        return -z.abs() - math.log(2)

    def _below(self, z: Tensor) -> Tensor:
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def _quantile(self, share: Tensor) -> Tensor:
        rest = 0.5 - share
        return rest.sign() * (-2 * rest.abs()).log1p()


class Cauchy(_LocationScale):
    """The Cauchy distribution with median `loc`; it has no mean and no finite variance."""

    _information = math.log(4 * math.pi)

    mean = computed(lambda self: full_like(self.loc, math.nan), "NaN: the mean does not exist.")
    variance = computed(lambda self: full_like(self.loc, math.inf), "Infinity, for every scale.")
    stddev = variance

    def _log_density(self, z: Tensor) -> Tensor:
        return -math.log(math.pi) - (z**2).log1p()

    def _below(self, z: Tensor) -> Tensor:
        return z.atan() / math.pi + 0.5

    def _quantile(self, share: Tensor) -> Tensor:
        return (math.pi * (share - 0.5)).tan()


class Gumbel(_LocationScale):
    """The Gumbel distribution, the limit of maxima of many samples; `loc` is the mode."""

    _deviation = math.pi / math.sqrt(6)
    _information = 1 + EULER

    mean = computed(lambda self: self.loc + self.scale * EULER)

    def _log_density(self, z: Tensor) -> Tensor:
        return -z - (-z).exp()

    def _below(self, z: Tensor) -> Tensor:
        return (-(-z).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()


class Uniform(Distribution):
    """The uniform distribution on the interval from `low`, included, to `high`, excluded."""

    low: Tensor
    high: Tensor
    has_rsample = True
    #: `__init__` checks that `high` is above `low`, with PyTorch's words.
    arg_constraints: ClassVar[Any] = {"low": constraints.real, "high": constraints.real}

    def __init__(self, low: Value, high: Value, validate_args: bool | None = None) -> None:
        self._take(locals())
        if self._validate_args:
            check_all(self.low < self.high, None, lambda: "Uniform is not defined when low>= high")

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    mean = computed(lambda self: (self.high + self.low) / 2)
    mode = computed(lambda self: self.high * math.nan, "NaN: the density is constant.")
    stddev = computed(lambda self: (self.high - self.low) / math.sqrt(12))
    variance = computed(lambda self: (self.high - self.low) ** 2 / 12)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        share = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + share * (self.high - self.low)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(OfRate):
    """The exponential distribution: the time to the next event of a Poisson process of a `rate`."""

    has_rsample = True
    arg_constraints: ClassVar[Any] = {"rate": constraints.positive}
    support = constraints.nonnegative

    mean = computed(lambda self: self.rate.reciprocal())
    mode = computed(lambda self: zeros_like(self.rate))
    stddev = mean
    variance = computed(lambda self: self.rate**-2)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return -open_uniform(self.rate, shape).log() / self.rate

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Gamma(Distribution):
    """The gamma distribution; its samples have gradients by both parameters.

    Args:
        concentration: the shape: a floating tensor or a number.
        rate: the inverse of the scale, broadcast against the other parameter.
    """

    concentration: Tensor
    rate: Tensor
    has_rsample = True
    arg_constraints: ClassVar[Any] = dict.fromkeys(("concentration", "rate"), constraints.positive)
    support = constraints.nonnegative

    def __init__(
        self, concentration: Value, rate: Value, validate_args: bool | None = None
    ) -> None:
        self._take(locals())

    mean = computed(lambda self: self.concentration / self.rate)
    mode = computed(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = computed(lambda self: self.concentration / self.rate**2)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        value = standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        # 0 has no logarithm, which `log_prob` takes of samples.
        value.detach().clamp_(min=float(floating_info(value.dtype).tiny))
        return value

    def _log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return xlogy(a, rate) + xlogy(a - 1, value) - rate * value - a.lgamma()

    def _cdf(self, value: Tensor) -> Tensor:
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class StudentT(_LocationScale):
    """Student's t-distribution with `df` degrees of freedom, shifted and scaled.

    Args:
        df: the degrees of freedom: a floating tensor or a number.
        loc: the location, which is the mode.
    """

    df: Tensor
    arg_constraints: ClassVar[Any] = {
        "df": constraints.positive, **_LocationScale.arg_constraints,
    }  # fmt: skip

    def __init__(
        self, df: Value, loc: Value = 0.0, scale: Value = 1.0, validate_args: bool | None = None
    ) -> None:
        self._take(locals())

    mean = computed(
        lambda self: where(self.df > 1, self.loc, math.nan),
        "The mean; NaN up to one degree of freedom.",
    )
    stddev = computed(lambda self: self.variance.sqrt())

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        """The variance; infinite up to two degrees of freedom, and NaN up to one."""
        many = self.df > 2
        df = where(many, self.df, 3.0)
        found = where(many, self.scale**2 * df / (df - 2), math.inf)
        return where(self.df > 1, found, math.nan)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        squares = 2 * standard_gamma((self.df / 2).expand(shape))
        return (
            self.loc + self.scale * standard_normal(self.loc, shape) * (squares / self.df).rsqrt()
        )

    def _log_density(self, z: Tensor) -> Tensor:
        half = 0.5 * self.df
        size = 0.5 * (self.df.log() + math.log(math.pi)) + half.lgamma() - (half + 0.5).lgamma()
        return -(half + 0.5) * (z**2 / self.df).log1p() - size

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        more = half + 0.5
        beta = half.lgamma() + math.log(math.sqrt(math.pi)) - more.lgamma()
        slopes = more.digamma() - half.digamma()
        return self.scale.log() + more * slopes + 0.5 * self.df.log() + beta


class _Half(Distribution):
    """The base of distributions of `abs(x)`, for x of a symmetric one around 0."""

    scale: Tensor
    has_rsample = True
    arg_constraints: ClassVar[Any] = {"scale": constraints.positive}
    support = constraints.nonnegative
    _symmetric: type[Normal | Cauchy]

    def __init__(self, scale: Value, validate_args: bool | None = None) -> None:
        self._take(locals())

    @property
    def _whole(self) -> Any:
        return self._symmetric(0.0, self.scale, validate_args=False)

    mode = computed(lambda self: zeros_like(self.scale))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return self._whole._drawn(shape).abs()

    def _log_prob(self, value: Tensor) -> Tensor:
        found = self._whole.log_prob(value) + math.log(2)
        return where(value >= 0, found, -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        return 2 * self._whole.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self._whole.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self._whole.entropy() - math.log(2)


class HalfNormal(_Half):
    """The half-normal distribution: `abs(x)` of a normal x with mean 0 and deviation `scale`."""

    _symmetric = Normal

    mean = computed(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = computed(lambda self: self.scale**2 * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """The half-Cauchy distribution: `abs(x)` of a Cauchy x with median 0 and scale `scale`."""

    _symmetric = Cauchy

    mean = computed(lambda self: full_like(self.scale, math.inf), "Infinity, for every scale.")
    variance = mean
