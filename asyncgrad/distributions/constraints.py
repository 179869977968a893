"""What parameters and samples have to be: `check` says where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

from asyncgrad.ops.api.elementwise import isfinite
from asyncgrad.ops.api.matrices import cholesky_ex
from asyncgrad.types import Tensor

__all__ = [
    "Constraint", "boolean", "dependent_property", "greater_than", "greater_than_eq",
    "half_open_interval", "independent", "integer_interval", "interval", "less_than",
    "lower_cholesky", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "real", "real_vector", "simplex", "unit_interval",
]  # fmt: skip

#: A parameter: a tensor or a number.
Value: TypeAlias = "Tensor | float"


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A set of allowed values; each value has `event_dim` axes."""

    #: With a pair of braces for each of `bounds`.
    name: str
    #: Where values of a tensor are in the set: a tensor of booleans without the last axes.
    check: Callable[[Any], Any]
    event_dim: int = 0
    is_discrete: bool = False
    bounds: tuple[Value, ...] = dataclasses.field(default=(), compare=False)

    def __repr__(self) -> str:
        return self.name.format(*self.bounds) if self.bounds else self.name


class dependent_property(property):
    """A property that is a constraint, such as a `support` that depends on parameters.

    Args:
        fget: the function that returns the constraint.
        is_discrete: accepted for PyTorch's sake; the constraint says it.
        event_dim: likewise.
    """

    def __init__(
        self, fget: Callable[[Any], Constraint] | None = None, *, is_discrete: bool | None = None,
        event_dim: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(fget)

    def __call__(self, fget: Callable[[Any], Constraint]) -> dependent_property:
        """The property of a function, if the arguments were given first."""
        return dependent_property(fget)


def _whole(x: Tensor) -> Any:
    return x % 1 == 0


def greater_than(lower_bound: Value) -> Constraint:
    """Numbers greater than a bound."""
    return Constraint(
        "GreaterThan(lower_bound={})", lambda x: x > lower_bound, bounds=(lower_bound,)
    )


def greater_than_eq(lower_bound: Value) -> Constraint:
    """Numbers greater than or equal to a bound."""
    return Constraint(
        "GreaterThanEq(lower_bound={})", lambda x: x >= lower_bound, bounds=(lower_bound,)
    )


def less_than(upper_bound: Value) -> Constraint:
    """Numbers less than a bound."""
    return Constraint("LessThan(upper_bound={})", lambda x: x < upper_bound, bounds=(upper_bound,))


def interval(lower_bound: Value, upper_bound: Value) -> Constraint:
    """Numbers from one bound to another, both included."""
    return Constraint(
        "Interval(lower_bound={}, upper_bound={})",
        lambda x: (x >= lower_bound) & (x <= upper_bound),
        bounds=(lower_bound, upper_bound),
    )


def half_open_interval(lower_bound: Value, upper_bound: Value) -> Constraint:
    """Numbers from the lower bound, included, to the upper bound, excluded."""
    return Constraint(
        "HalfOpenInterval(lower_bound={}, upper_bound={})",
        lambda x: (x >= lower_bound) & (x < upper_bound),
        bounds=(lower_bound, upper_bound),
    )


def integer_interval(lower_bound: Value, upper_bound: Value) -> Constraint:
    """Integers from one bound to another, both included."""
    return Constraint(
        "IntegerInterval(lower_bound={}, upper_bound={})",
        lambda x: _whole(x) & (x >= lower_bound) & (x <= upper_bound),
        is_discrete=True,
        bounds=(lower_bound, upper_bound),
    )


def multinomial(upper_bound: int) -> Constraint:
    """Vectors of integers, none negative, whose sum is at most a bound."""
    return Constraint(
        f"Multinomial(upper_bound={upper_bound})",
        lambda x: (x >= 0).all(-1) & (x.sum(-1) <= upper_bound),
        event_dim=1,
        is_discrete=True,
    )


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Values whose elements along the last axes all satisfy a constraint."""

    if not reinterpreted_batch_ndims:
        return base
    events = base.event_dim + reinterpreted_batch_ndims

    def check(x: Tensor) -> Any:
        if x.ndim < events:
            raise ValueError(f"Expected value.dim() >= {events} but got {x.ndim}")
        return base.check(x).flatten(-reinterpreted_batch_ndims).all(-1)

    name = f"IndependentConstraint({base}, {reinterpreted_batch_ndims})"
    return Constraint(name, check, events, base.is_discrete)


real = Constraint("Real()", lambda x: x == x)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), is_discrete=True)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda x: _whole(x) & (x >= 0), is_discrete=True
)
positive_integer = Constraint(
    "IntegerGreaterThan(lower_bound=1)", lambda x: _whole(x) & (x >= 1), is_discrete=True
)
real_vector = independent(real, 1)
simplex = Constraint(
    "Simplex()", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), event_dim=1
)
one_hot = Constraint(
    "OneHot()",
    lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1),
    event_dim=1,
    is_discrete=True,
)
lower_cholesky = Constraint(
    "LowerCholesky()",
    lambda x: (x.tril() == x).flatten(-2).all(-1) & (x.diagonal(0, -2, -1) > 0).all(-1),
    event_dim=2,
)


def _is_positive_definite(x: Tensor) -> Any:
    symmetric = ((x - x.mT).abs() <= 1e-6 + 1e-5 * x.abs()).flatten(-2).all(-1)
    return symmetric & isfinite(x).flatten(-2).all(-1) & (cholesky_ex(x).info == 0)


positive_definite = Constraint("PositiveDefinite()", _is_positive_definite, event_dim=2)
