"""Linear and bilinear maps, and modules that only change the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import Parameter
from asyncgrad.ops.api.shape import flatten, unflatten
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class Identity(Module):
    """Returns its input; the constructor accepts and ignores any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input itself."""
        return input


class _Weighted(FunctionModule):
    """The base of linear maps and convolutions."""

    def reset_parameters(self) -> None:
        """Redraw the parameters, uniform in +-1/sqrt(number of inputs)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = math.prod(self.weight.shape[1:])
            bound = 1 / math.sqrt(fan_in) if fan_in else 0
            init.uniform_(self.bias, -bound, bound)


class Linear(_Weighted, shown=("in_features", "out_features", "bias")):
    """`x @ weight.T + bias`.

    Args:
        in_features: the length of the input's last axis.
        out_features: the length of the output's last axis.
    """

    in_features: int
    out_features: int
    weight: Parameter

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        self._keep(locals())
        shapes = {"weight": (out_features, in_features), "bias": (out_features,) if bias else None}
        self._add_parameters(shapes, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Apply the map to an input of shape (..., in_features)."""
        return F.linear(input, self.weight, self.bias)


class Bilinear(
    FunctionModule, function=F.bilinear, members=("weight", "bias"),
    shown=("in1_features", "in2_features", "out_features", "bias"),
):  # fmt: skip
    """`x1 @ weight @ x2 + bias`, for each of several matrices.

    Args:
        in1_features: the length of the first input's last axis.
        in2_features: the length of the second's.
        out_features: the length of the output's.
    """

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:  # type: ignore[override,empty-body]
        """Call the function with the options."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self._keep(locals())
        weight = out_features, in1_features, in2_features
        shapes = {"weight": weight, "bias": (out_features,) if bias else None}
        self._add_parameters(shapes, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the parameters, uniform in +-1/sqrt(number of inputs)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)


class Flatten(FunctionModule, shown=("start_dim", "end_dim")):
    """Merges the axes from `start_dim` to `end_dim` into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self._keep(locals())

    def forward(self, input: Tensor) -> Tensor:
        """The input with fewer axes."""
        return flatten(input, self.start_dim, self.end_dim)


class Unflatten(FunctionModule, shown=("dim", "unflattened_size")):
    """Splits an axis into several.

    Args:
        unflattened_size: the lengths of the new axes, of which one may be -1.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        if not isinstance(dim, int):
            raise TypeError(f"expected dim to be an int, but got {type(dim).__name__}")
        if not isinstance(unflattened_size, (tuple, list)) or not all(
            isinstance(size, int) for size in unflattened_size
        ):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but got {unflattened_size!r}"
            )
        self._keep(locals())

    def forward(self, input: Tensor) -> Tensor:
        """The input with more axes."""
        return unflatten(input, self.dim, self.unflattened_size)
