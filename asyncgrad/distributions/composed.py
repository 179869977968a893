"""Distributions that are made of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from asyncgrad.autograd.modes import no_grad
from asyncgrad.distributions import constraints
from asyncgrad.distributions.constraints import Constraint, Value
from asyncgrad.distributions.continuous import Gumbel, Normal
from asyncgrad.distributions.discrete import Categorical, OfClasses
from asyncgrad.distributions.distribution import Distribution, computed, sum_rightmost
from asyncgrad.distributions.transforms import ComposeTransform, ExpTransform, Transform
from asyncgrad.ops.api.activation import log_softmax
from asyncgrad.ops.api.data import scalar_tensor
from asyncgrad.types import Tensor


def _of_base(name: str, doc: str | None = None) -> Any:
    """A property that is one of the base distribution's."""
    return property(lambda self: getattr(self.base_dist, name), doc=doc)


class Independent(Distribution):
    """Treats the last batch axes of a distribution as axes of one event.

    `log_prob` and `entropy` are summed over these axes.

    Args:
        reinterpreted_batch_ndims: how many of the last batch axes become event axes.
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        shape = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(shape):
            raise ValueError(
                f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{reinterpreted_batch_ndims} vs {len(shape)}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(shape) - reinterpreted_batch_ndims
        events = shape[cut:] + base_distribution.event_shape
        super().__init__(shape[:cut], events, validate_args=validate_args)

    has_rsample: bool = _of_base("has_rsample")

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether there is `enumerate_support`, as without axes that become event axes."""
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @property
    def support(self) -> Constraint:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    mean, mode, variance = _of_base("mean"), _of_base("mode"), _of_base("variance")

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError(
                "Enumeration over cartesian product is not implemented. Enumerate base_dist."
            )
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of transformed samples of another distribution.

    Args:
        transforms: one transform, or a list of transforms that are applied in order.
    """

    def __init__(
        self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(
                f"transforms must be a Transform or a list of Transforms, but was {transforms}"
            )
        whole = self._whole
        events = max(len(base_distribution.event_shape), whole.codomain.event_dim)
        more = events - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more else base_distribution
        shape, own = self.base_dist.batch_shape, self.base_dist.event_shape
        # What transforms hold may be of a larger shape.
        made = whole.forward_shape(shape + own)
        cut = len(made) - len(own)
        if made[:cut] != shape:
            self.base_dist = self.base_dist.expand(made[:cut])
        super().__init__(made[:cut], made[cut:], validate_args=validate_args)

    has_rsample: bool = _of_base("has_rsample")

    @property
    def _whole(self) -> ComposeTransform:
        return ComposeTransform(self.transforms)

    @property
    def support(self) -> Constraint:
        found = self._whole.codomain if self.transforms else self.base_dist.support
        return constraints.independent(found, len(self._event_shape) - found.event_dim)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._whole(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._whole(self.base_dist.rsample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        events = len(self._event_shape)
        stretched: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform._inv_call(y)
            part = transform.log_abs_det_jacobian(x, y)
            stretched = stretched - sum_rightmost(part, events - transform.domain.event_dim)
            y = x
        own = events - len(self.base_dist.event_shape)
        return sum_rightmost(self.base_dist.log_prob(y), own) + stretched

    def cdf(self, value: Tensor) -> Tensor:
        # The base distribution checks the value: its support has the border that this one's lacks.
        return _from_below(self._whole.sign, self.base_dist.cdf(self._whole._inverse(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self._whole(self.base_dist.icdf(_from_below(self._whole.sign, value)))


def _from_below(sign: Any, probability: Tensor) -> Tensor:
    """A probability up to a number, or where the transform decreases, from the number on."""
    if isinstance(sign, int) and sign == 1:
        # Adding 0.5 would round what is near to 0.
        return probability
    return sign * (probability - 0.5) + 0.5


class MixtureSameFamily(Distribution):
    """A mixture of the distributions along the last batch axis of one distribution.

    Args:
        mixture_distribution: a `Categorical` of the components' weights.
        component_distribution: the components.
    """

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of Distribution")
        *batch, count = component_distribution.batch_shape or (None,)
        own = mixture_distribution.batch_shape
        if mixture_distribution._num_events != count or own not in {(), tuple(batch)}:
            raise ValueError(
                f"MixtureSameFamily: weights of {mixture_distribution._num_events} components, in "
                f"a batch of {tuple(own)}, do not fit components of batch shape "
                f"{tuple(component_distribution.batch_shape)}, whose last axis is the components."
            )
        self.mixture_distribution = mixture_distribution.expand(batch)
        self.component_distribution = component_distribution
        super().__init__(batch, component_distribution.event_shape, validate_args)

    @property
    def _axis(self) -> int:
        """The axis of the components, before those of an event."""
        return -1 - len(self._event_shape)

    def _mixed(self, values: Any) -> Any:
        """Values of the components, or their means, weighted and summed."""
        weights = self.mixture_distribution.probs
        return (weights.reshape(*weights.shape, *(1,) * (-1 - self._axis)) * values).sum(self._axis)

    @property
    def support(self) -> Constraint:
        base, axis = self.component_distribution.support, self._axis

        def check(x: Tensor) -> Any:
            return base.check(x.unsqueeze(axis)).all(-1)

        name = f"MixtureSameFamilyConstraint({base})"
        return Constraint(name, check, base.event_dim, base.is_discrete)

    mean = computed(lambda self: self._mixed(self.component_distribution.mean))

    @property
    def variance(self) -> Tensor:
        parts = self.component_distribution
        distance = parts.mean - self.mean.unsqueeze(self._axis)
        return self._mixed(parts.variance) + self._mixed(distance**2)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        cut = len(shape) - len(self._batch_shape) - len(self._event_shape)
        chosen = self.mixture_distribution.sample(shape[:cut])
        drawn, axis = self.component_distribution.sample(shape[:cut]), self._axis
        index = chosen.reshape(*chosen.shape, *(1,) * -axis)
        index = index.expand((*chosen.shape, 1, *self._event_shape))
        return drawn.gather(axis, index).squeeze(axis)

    def _log_prob(self, value: Tensor) -> Tensor:
        found = self.component_distribution.log_prob(value.unsqueeze(self._axis))
        return (found + log_softmax(self.mixture_distribution.logits, -1)).logsumexp(-1)

    def _cdf(self, value: Tensor) -> Tensor:
        return self._mixed(self.component_distribution.cdf(value.unsqueeze(self._axis)))

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution}, {self.component_distribution})"


class LogNormal(TransformedDistribution):
    """The log-normal distribution: the logarithm has mean `loc` and deviation `scale`."""

    arg_constraints: ClassVar[Any] = Normal.arg_constraints

    def __init__(self, loc: Value, scale: Value, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    loc = _of_base("loc", "The mean of the logarithm.")
    scale = _of_base("scale", "The standard deviation of the logarithm.")

    mean = computed(lambda self: (self.loc + self.scale**2 / 2).exp())
    mode = computed(lambda self: (self.loc - self.scale**2).exp())

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class ExpRelaxedCategorical(OfClasses):
    """The logarithms of samples of `RelaxedOneHotCategorical`, without underflow to 0."""

    has_rsample = True
    support = constraints.real_vector
    _event_ndim = 1
    #: There is none, as in PyTorch: that of the classes is not that of the vectors.
    entropy = Distribution.entropy

    def __init__(
        self, temperature: Value, probs: Value | None = None, logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(probs, logits, validate_args)
        # One for the whole batch: it is not expanded with it.
        self._one_temperature = (temperature,)

    @property
    def temperature(self) -> Value:
        """The temperature; the lower it is, the closer samples are to one-hot vectors."""
        return self._one_temperature[0]

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        logits = self.logits.expand(shape)
        noise = Gumbel(logits.detach() * 0, 1.0, validate_args=False)._drawn(shape)
        return log_softmax((logits + noise) / self.temperature, -1)

    def _log_prob(self, value: Tensor) -> Tensor:
        count = self._num_events
        temperature: Any = self.temperature
        if not hasattr(temperature, "log"):
            temperature = scalar_tensor(temperature, dtype=self._given.dtype)
        scores = log_softmax(self.logits - value * temperature, -1).sum(-1)
        return scores + math.lgamma(count) + (count - 1) * temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """The concrete (Gumbel-softmax) distribution: nearly one-hot vectors, with gradients.

    Args:
        temperature: the lower it is, the closer samples are to one-hot vectors.
        probs: weights of the classes along the last axis, which are divided by their sum.
        logits: the logarithms of the weights, instead of `probs`.
    """

    arg_constraints = OfClasses.arg_constraints
    support = constraints.simplex

    def __init__(
        self, temperature: Value, probs: Value | None = None, logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    temperature = _of_base("temperature", "How nearly samples are one of the classes.")
    probs = _of_base("probs", "The probabilities of the classes.")
    logits = _of_base("logits", "Their logarithms.")
