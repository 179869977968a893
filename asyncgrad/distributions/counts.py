"""Distributions of how often something happens."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from asyncgrad.distributions import constraints
from asyncgrad.distributions.constraints import Constraint, Value
from asyncgrad.distributions.discrete import OfChances, OfClasses
from asyncgrad.distributions.distribution import Distribution, OfRate, computed
from asyncgrad.ops.api.activation import softplus
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.random import binomial, poisson, standard_gamma
from asyncgrad.ops.api.shape import broadcast_tensors
from asyncgrad.ops.api.transcendental import xlogy
from asyncgrad.types import Tensor


class _Counted(OfChances):
    """The base of distributions with a `total_count` for each probability."""

    total_count: Tensor

    def __init__(
        self, total_count: Value, probs: Value | None = None, logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (count,) = self._hold(probs, logits, total_count)
        self.total_count = count.to(self._given.dtype)
        Distribution.__init__(self, self._given.shape, validate_args=validate_args)


class Binomial(_Counted):
    """The binomial distribution: the number of successes in `total_count` trials.

    Args:
        total_count: the number of trials: a tensor or a number.
        probs: the probability of success, broadcast against `total_count`.
        logits: the log-odds, instead of `probs`.
    """

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative_integer, **OfChances.arg_constraints,
    }  # fmt: skip
    has_enumerate_support = True

    def __init__(
        self, total_count: Value = 1, probs: Value | None = None, logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(total_count, probs, logits, validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    mean = computed(lambda self: self.total_count * self.probs)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    variance = computed(lambda self: self.total_count * self.probs * (1 - self.probs))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * logits - n * softplus(logits)

    def entropy(self) -> Tensor:
        """The mean of `-log_prob`.

        Raises:
            NotImplementedError: if the numbers of trials differ.
        """
        found = self.log_prob(self.enumerate_support(False))
        return -(found.exp() * found).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The integers from 0 to `total_count`, along the first axis.

        Raises:
            NotImplementedError: if the numbers of trials differ.
        """
        count = int(self.total_count.max())
        if int(self.total_count.min()) != count:
            raise NotImplementedError(
                "Inhomogeneous total count not supported. Enumerate the support one by one."
            )
        return self._numbers(1 + count, self._given.dtype, expand)


class Poisson(OfRate):
    """The Poisson distribution: the number of independent events, with mean `rate`."""

    arg_constraints: ClassVar[Any] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    mean = computed(lambda self: self.rate)
    mode = computed(lambda self: self.rate.floor())
    variance = computed(lambda self: self.rate)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return poisson(self.rate.expand(shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return xlogy(value, self.rate) - self.rate - (value + 1).lgamma()


class NegativeBinomial(_Counted):
    """The number of successes before a number of failures.

    Args:
        total_count: the number of failures, which need not be whole: a tensor or a number.
        probs: the probability of success, broadcast against `total_count`.
        logits: the log-odds, instead of `probs`.
    """

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative,
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    mean = computed(lambda self: self.total_count * self.logits.exp())
    mode = computed(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0))
    variance = computed(lambda self: self.mean / (-self.logits).sigmoid())

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return poisson(standard_gamma(self.total_count.expand(shape)) * self.logits.exp())

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        ways = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        # If no failure is waited for, the count is 0 for certain; `lgamma(0)` would give NaN.
        ways = where(n + value == 0, 0.0, ways)
        return ways - n * softplus(logits) - value * softplus(-logits)


class Multinomial(OfClasses):
    """How often each class occurs among `total_count` samples of `Categorical`.

    Args:
        total_count: the number of samples.
        probs: weights of the classes along the last axis, which are divided by their sum.
        logits: the logarithms of the weights, instead of `probs`.
    """

    _event_ndim = 1

    def __init__(
        self, total_count: int = 1, probs: Value | None = None, logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(total_count, int):
            raise NotImplementedError(
                f"Multinomial: inhomogeneous total_count is not supported: give one int, not "
                f"{type(total_count).__name__}."
            )
        if total_count < 0:
            raise ValueError(f"Multinomial: total_count has to be non-negative, got {total_count}.")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    mean = computed(lambda self: self.probs * self.total_count)
    variance = computed(lambda self: self.total_count * self.probs * (1 - self.probs))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        classes = super()._drawn((self.total_count, *shape[:-1])).movedim(0, -1)
        counts = self._given.new_zeros(shape)
        return counts.scatter_add_(-1, classes, counts.new_ones(tuple(classes.shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_tensors(self.logits, value)
        # A class of probability 0 that does not occur adds nothing; `-inf * 0` would be NaN.
        logits = where((value == 0) & (logits == -math.inf), 0.0, logits)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        single = Binomial(n, self.probs, validate_args=False)
        counts = single._numbers(1 + n, self._given.dtype, expand=False)
        ways = (single.log_prob(counts).exp() * (counts + 1).lgamma()).sum((0, -1))
        return n * super().entropy() - math.lgamma(n + 1) + ways
