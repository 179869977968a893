"""Activation functions that can work in place, and softmax with PyTorch's deprecated default."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asyncgrad.core.frames import warn
from asyncgrad.ops.api import activation
from asyncgrad.ops.api.activation import celu, elu, hardtanh, leaky_relu, selu, threshold
from asyncgrad.ops.api.dropout import rrelu
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.ops.tensors.in_place import change
from asyncgrad.types import DTypeLike, Tensor


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The positive part, elementwise; the derivative at 0 is 0."""
    return change(input, "relu_", R.relu) if inplace else R.relu(input)


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Tensor:
    """Positive numbers that sum to 1 along `dim`."""
    return activation.softmax(input, _chosen_dim("softmax", input, dim), dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Tensor:
    """The logarithm of the softmax along `dim`."""
    return activation.log_softmax(input, _chosen_dim("log_softmax", input, dim), dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Tensor:
    """`softmax` of the negated elements."""
    x = as_tensor_operand(input, "softmin", 1)
    return activation.softmax(R.neg(x), _chosen_dim("softmin", x, dim), dtype)


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of a function."""
    signature = inspect.signature(function)
    known = [p for name, p in signature.parameters.items() if name != "inplace"]

    @functools.wraps(function)
    def changing(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, inplace=True)

    changing.__name__ = changing.__qualname__ = f"{function.__name__}_"
    changing.__doc__ = f"`{function.__name__}`, in place."
    changing.__signature__ = signature.replace(parameters=known)  # type: ignore[attr-defined]
    return changing


celu_ = _in_place(celu)
elu_ = _in_place(elu)
hardtanh_ = _in_place(hardtanh)
leaky_relu_ = _in_place(leaky_relu)
relu_ = _in_place(relu)
rrelu_ = _in_place(rrelu)
selu_ = _in_place(selu)
threshold_ = _in_place(threshold)


def _chosen_dim(name: str, input: Tensor, dim: int | None) -> int:
    """The axis, or PyTorch's deprecated choice if it is None."""
    if dim is not None:
        return dim
    warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        f"dim=X as an argument."
    )
    return 0 if input.ndim in {0, 1, 3} else 1
