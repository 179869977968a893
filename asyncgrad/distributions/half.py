"""Distributions of absolute values."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from asyncgrad.distributions import constraints
from asyncgrad.distributions.constraints import Value
from asyncgrad.distributions.continuous import Cauchy, Normal
from asyncgrad.distributions.distribution import Distribution, computed
from asyncgrad.ops.api.creation import full_like
from asyncgrad.ops.api.elementwise import where
from asyncgrad.types import Tensor


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

    mode = computed(lambda self: self.scale * 0)

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
