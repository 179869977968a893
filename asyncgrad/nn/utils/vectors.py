"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from asyncgrad.core.variable import Variable
from asyncgrad.ops.api.shape import cat, reshape
from asyncgrad.types import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate the elements of all parameters; gradients flow to them."""
    return cat([reshape(parameter, -1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set the data of parameters to consecutive pieces of a vector; they share its memory."""
    if not isinstance(vec, Variable):
        raise TypeError(f"expected asyncgrad.Tensor, but got: {type(vec).__name__}")
    start = 0
    data = vec.detach()
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = reshape(data[start:end], parameter.shape)
        start = end
