"""Functions with an inverse, and how they stretch."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

from asyncgrad.core.variable import Variable
from asyncgrad.distributions import constraints
from asyncgrad.distributions.constraints import Value
from asyncgrad.distributions.distribution import sum_rightmost
from asyncgrad.ops.api.activation import softplus
from asyncgrad.ops.api.creation import full_like
from asyncgrad.ops.api.rearrange import broadcast_shapes
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.types import Tensor

__all__ = [
    "AffineTransform", "ComposeTransform", "ExpTransform", "SigmoidTransform", "SoftplusTransform",
    "TanhTransform", "Transform",
]  # fmt: skip


class Transform:
    """The base of invertible transforms: `transform(x)`, and back by `transform.inv(y)`.

    Args:
        cache_size: if 1, the last input and result are kept, and the inverse of that result is that
            input: exact, also where the inverse of the rounded result would be infinite.
    """

    domain = constraints.real
    codomain = constraints.real
    bijective = True
    _cache_size = 0
    #: The last input and its result, if they are kept.
    _cached: tuple[Any, Any] = (None, None)

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in {0, 1}:
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size!r}")
        # Some transforms are frozen.
        vars(self)["_cache_size"] = cache_size

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with another size of the cache."""
        if self._cache_size == cache_size:
            return self
        other = copy.copy(self)
        vars(other).pop("_cached", None)
        Transform.__init__(other, cache_size)
        return other

    @property
    def sign(self) -> Any:
        """1 where the transform increases, -1 where it decreases."""
        raise NotImplementedError(
            f"{type(self).__name__} has no sign: only cdf and icdf need one, where it increases"
        )

    @property
    def inv(self) -> Transform:
        """The inverse transform."""
        return _Inverse(self)

    def __call__(self, x: Tensor) -> Tensor:
        """The transformed tensor."""
        known, result = self._cached
        return result if x is known else self._keep(x, self._call(x))[1]

    def _inv_call(self, y: Tensor) -> Tensor:
        known, result = self._cached
        return known if y is result else self._keep(self._inverse(y), y)[0]

    def _keep(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Keep an input with its result, if there is a cache, and return both."""
        if self._cache_size:
            vars(self)["_cached"] = x, y
        return x, y

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the result for an input of a shape."""
        return shape

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the input for a result of a shape."""
        return shape

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The log of the absolute determinant of the Jacobian at x; y is `transform(x)`."""
        raise NotImplementedError


class _Inverse(Transform):
    def __init__(self, of: Transform) -> None:
        self._of = of

    @property
    def sign(self) -> Any:
        return self._of.sign

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inverse) and self._of == other._of

    def __repr__(self) -> str:
        return f"_InverseTransform({self._of!r})"

    @property
    def inv(self) -> Transform:
        return self._of

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self._of.codomain

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return self._of.domain

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._of.forward_shape(shape)

    def _call(self, x: Tensor) -> Tensor:
        return self._of._inv_call(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)


class _Fixed(Transform):
    """The base of increasing transforms without parameters: all of a class are equal."""

    sign = 1

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ExpTransform(_Fixed):
    """`y = exp(x)`; the argument is that of `Transform`."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(_Fixed):
    """`y = 1 / (1 + exp(-x))`; the argument is that of `Transform`."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        info = floating_info(x.dtype)
        return x.sigmoid().clamp(min=float(info.tiny), max=1 - float(info.eps))

    def _inverse(self, y: Tensor) -> Tensor:
        info = floating_info(y.dtype)
        y = y.clamp(min=float(info.tiny), max=1 - float(info.eps))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Fixed):
    """`y = log(1 + exp(x))`; the argument is that of `Transform`."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(_Fixed):
    """`y = tanh(x)`; the argument is that of `Transform`."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2) - x - softplus(-2 * x))


@dataclasses.dataclass(frozen=True, eq=False)
class AffineTransform(Transform):
    """`y = loc + scale * x`.

    Args:
        loc: what is added.
        scale: the factor.
        event_dim: how many of the last axes are those of one event.
        cache_size: that of `Transform`.
    """

    loc: Value
    scale: Value
    event_dim: int = 0
    cache_size: dataclasses.InitVar[int] = 0

    def __post_init__(self, cache_size: int) -> None:
        super().__init__(cache_size)

    @property
    def sign(self) -> Any:
        """The sign of the factor."""
        if isinstance(self.scale, Variable):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The constraint on inputs."""
        return constraints.independent(constraints.real, self.event_dim)

    codomain = domain

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        return all(
            bool((a == b).all()) if isinstance(a == b, Variable) else a == b  # type: ignore[union-attr]
            for a, b in ((self.loc, other.loc), (self.scale, other.scale))
        )

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        held = [getattr(x, "shape", ()) for x in (self.loc, self.scale)]
        return broadcast_shapes(shape, *map(tuple, held))

    inverse_shape = forward_shape

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Variable):
            size = self.scale.abs().log().expand(self.forward_shape(tuple(x.shape)))
        else:
            size = full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(size, self.event_dim)


class ComposeTransform(Transform):
    """The composition of several transforms, applied in order.

    Args:
        cache_size: that of `Transform`; if 1, the parts have caches, too.
    """

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache() if cache_size else part for part in parts]

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts})"

    @property
    def sign(self) -> Any:
        """The product of the parts' signs."""
        return math.prod(part.sign for part in self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The constraint on inputs, of as many axes as any of the transforms needs."""
        return _widened([(part.domain, part.codomain) for part in self.parts])

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """The constraint on results, of as many axes as any of the transforms needs."""
        return _widened([(part.codomain, part.domain) for part in reversed(self.parts)])

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of the log determinants of all transforms."""
        events = self.domain.event_dim
        total: Any = full_like(sum_rightmost(x, events), 0.0)
        for part in self.parts:
            after = part(x)
            stretched = part.log_abs_det_jacobian(x, after)
            total = total + sum_rightmost(stretched, events - part.domain.event_dim)
            events += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total


def _widened(ends: list[tuple[Any, Any]]) -> Any:
    """The first constraint of the first pair, over events with the axes that all pairs need."""
    if not ends:
        return constraints.real
    events = 0
    for one, other in reversed(ends):
        events = max(events - other.event_dim, 0) + one.event_dim
    first, _ = ends[0]
    return constraints.independent(first, events - first.event_dim)
