"""All parameters as one vector, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.variable import Variable
from asyncgrad.ops.api.shape import cat, reshape

if TYPE_CHECKING:
    from collections.abc import Iterable


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """The elements of all parameters, one after another, recorded."""
    return cat([reshape(parameter, -1) for parameter in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Make consecutive pieces of a vector the data of the parameters; the memory is shared.

    Raises:
        TypeError: if `vec` is no tensor.
    """
    if not isinstance(vec, Variable):
        raise TypeError(f"expected asyncgrad.Tensor, but got: {type(vec).__name__}")
    start = 0
    data = vec.detach()  # type: ignore[attr-defined]
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = reshape(data[start:end], parameter.shape)
        start = end
