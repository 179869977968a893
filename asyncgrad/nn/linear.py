"""Linear and bilinear maps, and modules that only change the shape."""

from __future__ import annotations

import math
from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import new_parameter
from asyncgrad.ops.api.shape import flatten, unflatten


class Identity(Module):
    """Returns its input; the constructor accepts and ignores any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return the input."""
        return input


class Linear(Module):
    """`x @ weight.T + bias`.

    Args:
        in_features: the length of the input's last axis.
        out_features: the length of the output's last axis.
        bias: add a bias.
        device: the device of the parameters.
        dtype: their dtype.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = new_parameter(out_features, in_features, device=device, dtype=dtype)
        if bias:
            self.bias = new_parameter(out_features, device=device, dtype=dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the parameters, uniform in +-1/sqrt(number of inputs)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Any) -> Any:
        """Apply the map to an input of shape (..., in_features)."""
        out = input @ self.weight.T
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        """The sizes, as `repr` shows them."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Bilinear(Module):
    """`x1 @ weight @ x2 + bias`, for each of several matrices.

    Args:
        in1_features: the length of the first input's last axis.
        in2_features: the length of the second's.
        out_features: the length of the output's.
        bias: add a bias.
        device: the device of the parameters.
        dtype: their dtype.

    Raises:
        ValueError: if `in1_features` is not positive.
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = new_parameter(*shape, device=device, dtype=dtype)
        if bias:
            self.bias = new_parameter(out_features, device=device, dtype=dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the parameters, uniform in +-1/sqrt(number of inputs)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Any, input2: Any) -> Any:
        """Apply the map to inputs of shapes (..., in1_features) and (..., in2_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes, as `repr` shows them."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Flatten(Module):
    """Merges the axes from `start_dim` to `end_dim` into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Any) -> Any:
        """The input with fewer axes."""
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The axes, as `repr` shows them."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits an axis into several.

    Args:
        dim: the axis.
        unflattened_size: the lengths of the new axes, of which one may be -1.

    Raises:
        TypeError: if `unflattened_size` is neither an integer nor a sequence of integers.
    """

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"expected dim to be an int, but got {type(dim).__name__}")
        if not isinstance(unflattened_size, (tuple, list)) or not all(
            isinstance(size, int) for size in unflattened_size
        ):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but got {unflattened_size!r}"
            )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Any) -> Any:
        """The input with more axes."""
        return unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """The axis and its new lengths."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
