"""Distributions of trials: one success, the first success, and one of several classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from asyncgrad.distributions import constraints
from asyncgrad.distributions.constraints import Constraint, Value
from asyncgrad.distributions.distribution import (
    Distribution,
    broadcast_all,
    computed,
    derived,
    open_uniform,
)
from asyncgrad.ops.api.activation import softmax
from asyncgrad.ops.api.creation import arange, eye, zeros_like
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.loss import binary_cross_entropy_with_logits
from asyncgrad.ops.api.random import bernoulli, multinomial
from asyncgrad.ops.api.shape import broadcast_tensors
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.types import Tensor

_INT64 = np.dtype("int64")


def _clamped(probs: Tensor) -> Any:
    eps = float(floating_info(probs.dtype).eps)
    return probs.clamp(min=eps, max=1 - eps)


class OfChances(Distribution):
    """The base of distributions that take either probabilities or log-odds."""

    arg_constraints: ClassVar[Any] = {
        "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip

    def _hold(self, probs: Value | None, logits: Value | None, *others: Any) -> tuple[Any, ...]:
        """Keep `probs` or `logits`, broadcast with other parameters, and return the others."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name = "probs" if logits is None else "logits"
        given, *rest = broadcast_all(probs if logits is None else logits, *others)
        vars(self)[name] = given
        return tuple(rest)

    @property
    def param_shape(self) -> Any:
        """The shape of `probs` or `logits`."""
        return self._given.shape

    @property
    def _given(self) -> Any:
        return vars(self).get("probs", vars(self).get("logits"))

    @derived
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.logits.sigmoid()

    @derived
    def logits(self) -> Tensor:
        """The logarithms of the odds."""
        probs = _clamped(self.probs)
        return probs.log() - (-probs).log1p()

    def _numbers(self, count: int, dtype: Any, expand: bool) -> Any:
        """The integers from 0 to `count - 1`, along the first axis."""
        values = arange(count, dtype=dtype, device=self._given.device)
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class _OneChance(OfChances):
    """The base of distributions with one probability per element of the batch."""

    def __init__(
        self, probs: Value | None = None, logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._hold(probs, logits)
        super().__init__(self._given.shape, validate_args=validate_args)

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


class Bernoulli(_OneChance):
    """The Bernoulli distribution: 1 with probability `probs`, otherwise 0.

    Args:
        probs: the probability: a floating tensor or a number.
        logits: the log-odds, instead of `probs`.
    """

    support = constraints.boolean
    has_enumerate_support = True

    mean = computed(lambda self: self.probs)

    @property
    def mode(self) -> Tensor:
        """The mode; NaN where 0 and 1 are equally probable."""
        probs = self.probs
        return where(probs == 0.5, math.nan, (probs >= 0.5).to(probs.dtype))

    variance = computed(lambda self: self.probs * (1 - self.probs))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return bernoulli(self.probs.expand(shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The values 0 and 1, along the first axis."""
        return self._numbers(2, self._given.dtype, expand)


class Geometric(_OneChance):
    """The number of failures before the first success; arguments as for `Bernoulli`."""

    arg_constraints: ClassVar[Any] = {
        # Without any success, the number of failures would be infinite.
        "probs": Constraint("Positive and at most 1", lambda x: (x > 0) & (x <= 1)),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    mean = computed(lambda self: 1 / self.probs - 1)
    mode = computed(lambda self: zeros_like(self.probs))
    variance = computed(lambda self: (1 / self.probs - 1) / self.probs)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        probs = self.probs
        return (open_uniform(probs, shape).log() / (-probs).log1p()).floor()

    def _log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast_tensors(value, self.probs)
        # Without failures, certain success has probability 1; `0 * log(0)` would be NaN.
        probs = where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return super().entropy() / self.probs


class OfClasses(OfChances):
    """The base of distributions of classes, whose weights are along the last axis."""

    arg_constraints: ClassVar[Any] = {
        "probs": constraints.simplex, "logits": constraints.real_vector,
    }  # fmt: skip
    #: The number of axes of an event: 1 if it is a vector over the classes.
    _event_ndim = 0

    def __init__(
        self, probs: Value | None = None, logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._hold(probs, logits)
        if self._given.ndim < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is None:
            vars(self)["logits"] = self.logits - self.logits.logsumexp(-1, True)
        else:
            vars(self)["probs"] = self.probs / self.probs.sum(-1, True)
        batch, classes = self._given.shape[:-1], self._given.shape[-1:]
        super().__init__(batch, classes[: self._event_ndim], validate_args)

    @derived
    def probs(self) -> Tensor:
        """The probabilities."""
        return softmax(self.logits, -1)

    @derived
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return _clamped(self.probs).log()

    @property
    def _num_events(self) -> int:
        return int(self._given.shape[-1])

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        count = math.prod(shape[: len(shape) - len(self._batch_shape)])
        rows = self.probs.reshape(-1, self._num_events)
        if not count or not rows.shape[0]:
            return self._given.new_zeros(shape, dtype=_INT64)
        return multinomial(rows, count, True).t().reshape(shape)

    def entropy(self) -> Tensor:
        least = float(floating_info(self._given.dtype).min)
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)


class Categorical(OfClasses):
    """The categorical distribution over the integers from 0 to the number of classes less one.

    Args:
        probs: weights of the classes along the last axis, which are divided by their sum.
        logits: the logarithms of the weights, instead of `probs`.
    """

    has_enumerate_support = True

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    mean = computed(
        lambda self: self._given[..., 0].detach() * 0 + math.nan, "NaN: classes have no order."
    )
    mode = computed(lambda self: self.probs.argmax(-1))
    variance = computed(lambda self: self.mean, "NaN: classes have no order.")

    def _log_prob(self, value: Tensor) -> Tensor:
        value, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All class indices, along the first axis."""
        return self._numbers(self._num_events, _INT64, expand)


class OneHotCategorical(OfClasses):
    """The categorical distribution with one-hot vectors as samples; see `Categorical`."""

    has_enumerate_support = True
    support = constraints.one_hot
    _event_ndim = 1

    mean = computed(lambda self: self.probs)
    mode = computed(lambda self: self._one_hot(self.probs.argmax(-1)))
    variance = computed(lambda self: self.probs * (1 - self.probs))

    def _one_hot(self, numbers: Any) -> Any:
        return eye(self._num_events, dtype=self._given.dtype, device=self._given.device)[numbers]

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return self._one_hot(super()._drawn(shape[:-1]))

    def _log_prob(self, value: Tensor) -> Tensor:
        value, logits = broadcast_tensors(value, self.logits)
        return logits.gather(-1, value.argmax(-1, True)).squeeze(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All one-hot vectors, along the first axis."""
        return self._one_hot(self._numbers(self._num_events, _INT64, expand))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose samples pass their gradients on to the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())
