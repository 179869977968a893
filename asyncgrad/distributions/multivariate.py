"""Distributions of vectors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from asyncgrad.distributions import constraints
from asyncgrad.distributions.constraints import Value
from asyncgrad.distributions.continuous import Gamma
from asyncgrad.distributions.distribution import Distribution, computed, derived
from asyncgrad.ops.api.creation import zeros_like
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.linalg import matmul
from asyncgrad.ops.api.linalg_legacy import cholesky_inverse
from asyncgrad.ops.api.matrices import cholesky, solve_triangular
from asyncgrad.ops.api.random import randn
from asyncgrad.ops.api.rearrange import broadcast_shapes
from asyncgrad.ops.api.shape import stack
from asyncgrad.ops.api.transcendental import xlogy
from asyncgrad.types import Tensor


class Dirichlet(Distribution):
    """The Dirichlet distribution over vectors of probabilities that sum to 1.

    Args:
        concentration: the positive concentration of each class, along the last axis.
    """

    has_rsample = True
    arg_constraints: ClassVar[Any] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    support = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    mean = computed(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def mode(self) -> Tensor:
        a = self.concentration
        over = (a - 1).clamp(min=0)
        corner = zeros_like(a).scatter(-1, a.argmax(-1, True), 1.0)
        return where((a < 1).all(-1, True), corner, over / over.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        weights = Gamma(self.concentration, 1.0, validate_args=False)._drawn(shape)
        return weights / weights.sum(-1, True)

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        total = a.sum(-1)
        inside = (a.shape[-1] - total) * total.digamma() + ((a - 1) * a.digamma()).sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - inside


class Beta(Distribution):
    """The beta distribution over probabilities.

    Args:
        concentration1: the first shape parameter (alpha): a floating tensor or a number, above 0.
        concentration0: the second shape parameter (beta), broadcast against the first.
    """

    concentration1: Tensor
    concentration0: Tensor
    has_rsample = True
    arg_constraints: ClassVar[Any] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    support = constraints.unit_interval

    def __init__(
        self, concentration1: Tensor, concentration0: Value, validate_args: bool | None = None
    ) -> None:
        self._take(locals())

    @property
    def _dirichlet(self) -> Dirichlet:
        both = stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False)

    mean = computed(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode = computed(lambda self: self._dirichlet.mode[..., 0])

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return self._dirichlet._drawn((*shape, 2))[..., 0]

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(stack([value, 1 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()


class MultivariateNormal(Distribution):
    """The multivariate normal distribution.

    Args:
        loc: the means, along the last axis.
        covariance_matrix: the covariance matrix; give exactly one of the three matrices.
        precision_matrix: the inverse of the covariance matrix.
        scale_tril: the lower triangular Cholesky factor of the covariance matrix.
    """

    has_rsample = True
    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: matrix for name, matrix in matrices.items() if matrix is not None}
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional.")
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        self.loc = loc.expand((*batch, -1))
        vars(self)[name] = matrix.expand((*batch, -1, -1))
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)
        if name == "covariance_matrix":
            self._lower = cholesky(self.covariance_matrix)
        elif name == "precision_matrix":
            # With an upper triangular U, the precision matrix is `U @ U.T`, and `inverse(U.T)` is a
            # lower factor of the covariance matrix. U is the factor of the flipped matrix, flipped.
            flipped = cholesky(self.precision_matrix.flip((-2, -1)))
            lower = flipped.flip((-2, -1)).mT
            one = matrix.new_zeros(tuple(matrix.shape[-2:])).fill_diagonal_(1.0)
            self._lower = solve_triangular(lower, one.expand(tuple(lower.shape)), upper=False)
        else:
            self._lower = self.scale_tril

    @derived
    def scale_tril(self) -> Tensor:
        """The lower triangular Cholesky factor of the covariance matrix."""
        return self._lower

    @derived
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        return matmul(self._lower, self._lower.mT)

    @derived
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return cholesky_inverse(self._lower)

    mean = computed(lambda self: self.loc)
    mode = computed(lambda self: self.loc)
    variance = computed(lambda self: (self._lower**2).sum(-1))

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        eps = randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + matmul(self._lower, eps.unsqueeze(-1)).squeeze(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        size = squared_distances(self._lower, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + size) - self._half_log_det

    _half_log_det = computed(lambda self: self._lower.diagonal(0, -2, -1).log().sum(-1))

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det


def squared_distances(lower: Any, difference: Any) -> Any:
    """Squared Mahalanobis distances, from a Cholesky factor of the covariance matrix."""
    shape = broadcast_shapes(tuple(lower.shape[:-1]), tuple(difference.shape))
    column = difference.expand(shape).unsqueeze(-1)
    lower = lower.expand((*shape, shape[-1]))
    return (solve_triangular(lower, column, upper=False) ** 2).sum((-2, -1))
