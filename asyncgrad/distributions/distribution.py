"""What all distributions have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.recording import again, recorders
from asyncgrad.core.size import Size
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.distributions.constraints import Constraint, Value
from asyncgrad.errors import class_of
from asyncgrad.ops.api.data import scalar_tensor
from asyncgrad.ops.api.random import rand, randn
from asyncgrad.ops.api.shape import broadcast_tensors
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.promotion import as_number
from asyncgrad.types import Array, Tensor


class derived:
    """A parameter computed from another one, unless it was passed to the constructor."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self.function(instance)


def computed(rule: Callable[[Any], Tensor], doc: str | None = None) -> Tensor:
    """A property, declared by what it is of a distribution."""
    return property(rule, doc=doc)  # type: ignore[return-value]


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape; numbers get the dtype of the tensors.

    A tensor that has the shape is passed on itself: a parameter of a distribution is then the leaf
    that was given, which gets a `.grad` and can be optimised.
    """
    like = next((x for x in values if isinstance(x, Variable)), None)
    options: Any = {} if like is None else {"dtype": like.dtype, "device": like.device}  # type: ignore[attr-defined]
    for value in values:
        if not isinstance(value, Variable) and as_number(value) is None:
            raise ValueError(
                f"Input arguments must all be instances of Number or Tensor, got "
                f"{class_of(value)}. Make a tensor of it with asyncgrad.tensor()."
            )
    tensors: list[Any] = [
        x if isinstance(x, Variable) else scalar_tensor(float(x), **options) for x in values
    ]
    return broadcast_tensors(*tensors)


def sum_rightmost(value: Any, count: int) -> Any:
    """The sums over the last axes."""
    return value.sum(tuple(range(-count, 0))) if count else value


def check_all(
    good: Any, value: Any, wanted: Callable[[], str], briefly: Callable[[], str] | None = None
) -> None:
    """Raise if not all are true; a replay of a compiled call does that, too.

    Args:
        good: a tensor of truth values.
        value: the tensor that was checked, which the error shows; None if it doesn't.
        wanted: says what the error begins with.
        briefly: says it for replays, if `wanted` shows values of tensors.

    Raises:
        ValueError: as above.
    """
    if not (bool(good.all()) if good._metadata.device.streamed else bool(good._array.all())):
        raise ValueError(_error(wanted(), value))
    if recorders:
        shown = () if value is None else (value._array, value._metadata)
        again(_check_again, (briefly or wanted)(), good._array, *shown)


def _error(wanted: str, value: Any) -> str:
    return wanted if value is None else f"{wanted}, but found invalid values: {value}"


def _check_again(wanted: str, good: Array, *shown: Any) -> None:
    if not good.all():
        raise ValueError(_error(wanted, wrap(*shown) if shown else None))


def standard_normal(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Normal numbers of mean 0 and standard deviation 1, of the dtype and device of `like`."""
    return randn(shape, dtype=like.dtype, device=like.device)


def open_uniform(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Numbers in (0, 1): not 0, of which there is no logarithm."""
    numbers = rand(shape, dtype=like.dtype, device=like.device)
    return numbers.clamp(min=float(floating_info(like.dtype).tiny))


class Distribution:
    """The base of distributions: one for each element of `batch_shape`, over events of one shape.

    Args:
        batch_shape: the shape of the batch of distributions.
        event_shape: the shape of one sample.
        validate_args: whether arguments are checked; if None, as `set_default_validate_args` says.

    Raises:
        ValueError: if an argument violates `arg_constraints`.
    """

    #: Whether samples have gradients by the parameters.
    has_rsample = False
    has_enumerate_support = False
    #: What the parameters have to be, by name.
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {}
    _validate_args = __debug__

    def __init_subclass__(cls) -> None:
        """Name declared properties: `help` looks for the docstring of a base class by its name."""
        super().__init_subclass__()
        for name, value in vars(cls).items():
            rule: Any = value.fget if isinstance(value, property) else None
            if getattr(rule, "__name__", "") == "<lambda>":
                rule.__name__, rule.__qualname__ = name, f"{cls.__qualname__}.{name}"

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._batch_shape, self._event_shape = tuple(batch_shape), tuple(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if not self._validate_args:
            return
        for name, constraint in self.arg_constraints.items():
            value = vars(self).get(name)
            if isinstance(value, Variable) and not value._batched:
                wanted = partial(
                    "Expected parameter {} of distribution {} to satisfy the constraint {}".format,
                    *(name, type(self).__name__, constraint),
                )
                check_all(constraint.check(value), value, wanted)

    def _take(self, given: Mapping[str, Any]) -> None:
        """Initialise with the local names of `__init__`; parameters have `arg_constraints`."""
        values = broadcast_all(*[given[name] for name in self.arg_constraints])
        vars(self).update(zip(self.arg_constraints, values, strict=True))
        Distribution.__init__(self, values[0].shape, validate_args=given["validate_args"])

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether arguments are checked where `validate_args` is not given."""
        if value not in {True, False}:
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}")
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return Size(self._batch_shape)

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return Size(self._event_shape)

    @property
    def support(self) -> Constraint:
        """The constraint that all samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The mode: the most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random samples without gradients, of shape sample_shape + batch_shape + event_shape."""
        with no_grad():
            if type(self)._drawn is Distribution._drawn:
                return self.rsample(sample_shape)
            return self._drawn(self._extended_shape(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random samples with gradients for the parameters.

        Raises:
            NotImplementedError: if there are none: see `has_rsample`.
        """
        if not self.has_rsample:
            raise NotImplementedError(
                f"{type(self).__name__}.rsample: its samples have no gradients by the parameters. "
                f"Use sample(), and log_prob() of it."
            )
        return self._drawn(self._extended_shape(sample_shape))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability or density of values."""
        if self._validate_args:
            self._validate_sample(value)
        return self._log_prob(value)

    def _log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The cumulative distribution function: the probability of values up to `value`."""
        if self._validate_args:
            self._validate_sample(value)
        return self._cdf(value)

    def _cdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The mean of `-log_prob`."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along the first axis.

        Args:
            expand: repeat the values for each distribution of the batch.
        """
        raise NotImplementedError

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with its parameters expanded to another batch.

        Args:
            batch_shape: the shape of the new batch.
            _instance: for the `expand` of a subclass: the object to fill; None for a new one.
        """
        shape = tuple(batch_shape)
        out = object.__new__(type(self)) if _instance is None else _instance
        vars(out).update(vars(self))
        for name, value in vars(self).items():
            if isinstance(value, Variable):
                own = tuple(value.shape)[len(self._batch_shape) :]  # type: ignore[attr-defined]
                vars(out)[name] = value.expand(shape + own)  # type: ignore[attr-defined]
            elif isinstance(value, Distribution):
                vars(out)[name] = value.expand(shape + value.batch_shape[len(self._batch_shape) :])
        out._batch_shape = shape
        return out

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An empty object that the `expand` of a user's class fills.

        A subclass whose `__init__` takes other arguments has to define its own `expand`.
        """
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                f"method must also define a custom .expand() method."
            )
        return object.__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        return tuple(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Variable):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape = tuple(value.shape)
        events = len(shape) - len(self._event_shape)
        wanted = self._batch_shape + self._event_shape
        fits = shape[max(events, 0) :] == self._event_shape and all(
            m == n or 1 in {m, n} for m, n in zip(shape[::-1], wanted[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {wanted}."
            )
        try:
            support = self.support
        except NotImplementedError:
            return
        if not value._batched:
            where = "Expected value argument to be within the support"
            check_all(
                *(support.check(value), value),
                lambda: f"{where} ({support}) of the distribution {self!r}",
                lambda: f"{where} of the distribution {type(self).__name__}",
            )

    def __repr__(self) -> str:
        held = {k: vars(self)[k] for k in self.arg_constraints if k in vars(self)}
        parts = [f"{k}: {v if v.numel() == 1 else v.shape}" for k, v in held.items()]
        return f"{type(self).__name__}({', '.join(parts)})"


class OfRate(Distribution):
    """The base of distributions whose only parameter is `rate`."""

    rate: Tensor

    def __init__(self, rate: Value, validate_args: bool | None = None) -> None:
        self._take(locals())
