"""Signatures that several functions share and whose result's type depends on arguments.

Type checkers take them for those of the functions that the decorators below mark. At run time a
marked function is as it was written, with its own signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from asyncgrad.scheduler.results import Results
from asyncgrad.types import Tensor

_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)


class Product(Protocol):
    """A function that computes the product of a Jacobian or Hessian with a vector."""

    @overload
    def __call__(
        self, func: Callable[..., Tensor], inputs: Tensor,
        v: Tensor | tuple[Tensor, ...] | None = None, create_graph: bool = False,
        strict: bool = False,
    ) -> Results[Tensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
        v: Tensor | tuple[Tensor, ...] | None = None, create_graph: bool = False,
        strict: bool = False,
    ) -> Results[Any]: ...  # fmt: skip


class OfTensor(Protocol[_P, _R_co]):
    """A function whose first argument is a tensor.

    As a `Callable[Concatenate[Tensor, _P], _R_co]`, mypy would take it for untyped where it was
    made from a lambda.
    """

    def __call__(self, x: Tensor, /, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Call it."""


class Gradient(Protocol[_R_co]):
    """Makes a function that gives `_R_co` for the gradient by one tensor."""

    @overload
    def __call__(
        self,
        func: Callable[Concatenate[Tensor, _P], object],
        argnums: Literal[0] = 0,
        has_aux: Literal[False] = False,
    ) -> OfTensor[_P, _R_co]: ...
    @overload
    def __call__(
        self, func: Callable[_P, Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
    ) -> Callable[_P, Any]: ...


def gradient(function: Any) -> Gradient[Tensor]:
    """Mark a function as a `Gradient` that gives the gradient alone."""
    return function  # type: ignore[no-any-return]


def gradient_and_value(function: Any) -> Gradient[Results[Tensor]]:
    """Mark a function as a `Gradient` that gives the value, too."""
    return function  # type: ignore[no-any-return]
