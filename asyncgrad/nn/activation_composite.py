"""More activations, and pixel shuffles, as modules."""

from __future__ import annotations

import warnings
from typing import Any

from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import new_parameter


class _InPlace(Module):
    """The base of activations that can overwrite their input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Whether the input is overwritten."""
        return "inplace=True" if self.inplace else ""


class Hardsigmoid(_InPlace):
    """Piecewise linear: 0 below -3, 1 above 3, and a line between."""

    def forward(self, input: Any) -> Any:
        """`clamp(x / 6 + 0.5, 0, 1)` of each element."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        """Show no options, as in PyTorch."""
        return ""


class Hardswish(_InPlace):
    """The input times its `Hardsigmoid`."""

    def forward(self, input: Any) -> Any:
        """`x * hardsigmoid(x)` of each element."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        """Show no options, as in PyTorch."""
        return ""


class Mish(_InPlace):
    """The input times the hyperbolic tangent of its softplus."""

    def forward(self, input: Any) -> Any:
        """`x * tanh(softplus(x))` of each element."""
        return F.mish(input, self.inplace)


class SELU(_InPlace):
    """A scaled `ELU` whose constants keep mean 0 and variance 1 in self-normalising networks."""

    def forward(self, input: Any) -> Any:
        """The positive elements and `alpha * (exp(x) - 1)` of the others, times a scale."""
        return F.selu(input, self.inplace)


class CELU(_InPlace):
    """The positive elements, and `alpha * (exp(x / alpha) - 1)` of the others."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        """The positive elements, and `alpha * (exp(x / alpha) - 1)` of the others."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Hardtanh(_InPlace):
    """The input clamped between two bounds.

    Args:
        min_val: the lower bound.
        max_val: the upper bound.
        inplace: overwrite the input.
        min_value: the old name of `min_val`.
        max_value: the old name of `max_val`.
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__(inplace)
        if min_value is not None or max_value is not None:
            warnings.warn(
                "keyword arguments `min_value` and `max_value` are deprecated; use `min_val` and "
                "`max_val`.",
                FutureWarning,
                stacklevel=2,
            )
            min_val = min_val if min_value is None else min_value
            max_val = max_val if max_value is None else max_value
        if max_val <= min_val:
            raise AssertionError(f"Hardtanh: max_val has to be above min_val, got {max_val}")
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Any) -> Any:
        """`clamp(x, min_val, max_val)` of each element."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The bounds, and whether the input is overwritten."""
        bounds = f"min_val={self.min_val}, max_val={self.max_val}"
        return bounds + (", inplace=True" if self.inplace else "")


class ReLU6(_InPlace):
    """The input clamped between 0 and 6."""

    def forward(self, input: Any) -> Any:
        """`clamp(x, 0, 6)` of each element."""
        return F.relu6(input, self.inplace)


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def forward(self, input: Any) -> Any:
        """`x / (1 + |x|)` of each element."""
        return F.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`."""

    def forward(self, input: Any) -> Any:
        """`x - tanh(x)` of each element."""
        return F.tanhshrink(input)


class PReLU(Module):
    """The input, the negative elements times a learnt slope.

    Args:
        num_parameters: one slope, or one for each channel.
        init: their initial value.
        device: their device.
        dtype: their dtype.
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = new_parameter(num_parameters, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters to their initial values."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Any) -> Any:
        """The elements, the negative ones times the slope."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """How many slopes there are."""
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """The first half of an axis times the logistic function of the second.

    Args:
        dim: the axis.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The gated half, half as long as the input along the axis."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The axis, as `repr` shows it."""
        return f"dim={self.dim}"


class PixelShuffle(Module):
    """Channels laid out as squares of pixels.

    Args:
        upscale_factor: the length of the squares.
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Any) -> Any:
        """(..., channels * factor**2, h, w) as (..., channels, h * factor, w * factor)."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """The factor, as `repr` shows it."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """The inverse of `PixelShuffle`.

    Args:
        downscale_factor: the length of the squares.
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Any) -> Any:
        """(..., channels, h * factor, w * factor) as (..., channels * factor**2, h, w)."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """The factor, as `repr` shows it."""
        return f"downscale_factor={self.downscale_factor}"


class Softmin(Module):
    """The softmax of the negated elements.

    Args:
        dim: the axis.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The softmin, of the input's shape."""
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        """The axis, as `repr` shows it."""
        return f"dim={self.dim}"


class Softmax2d(Module):
    """The softmax over the channels at each place of an image."""

    def forward(self, input: Any) -> Any:
        """An input of shape (n, channels, rows, columns) or (channels, rows, columns)."""
        if input.ndim not in {3, 4}:
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)


class Threshold(_InPlace):
    """Replaces elements that are not above a threshold by a number.

    Args:
        threshold: the threshold.
        value: the number.
        inplace: overwrite the input.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Any) -> Any:
        """The elements above the threshold, and `value` for the others."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """The options, as `repr` shows them."""
        more = ", inplace=True" if self.inplace else ""
        return f"threshold={self.threshold}, value={self.value}{more}"


class _Shrink(Module):
    """The base of functions that are zero near zero.

    Args:
        lambd: the function is zero where `|x| <= lambd`.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The bound `lambd`, as `repr` shows it."""
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """Zero where `|x| <= lambd`, and the elements themselves elsewhere."""

    def forward(self, input: Any) -> Any:
        """The elements with `|x| > lambd`, and zero for the others."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """Zero where `|x| <= lambd`, and the elements moved towards zero by `lambd` elsewhere."""

    def forward(self, input: Any) -> Any:
        """The elements moved towards zero by `lambd`, and zero where they are nearer."""
        return F.softshrink(input, self.lambd)


class RReLU(_InPlace):
    """The elements, with negative ones times slopes that are random in training.

    Args:
        lower: the least slope.
        upper: the greatest; in evaluation all slopes are the mean of both.
        inplace: overwrite the input.
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Any) -> Any:
        """The elements, the negative ones times random or, in evaluation, mean slopes."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The slopes, and whether the input is overwritten."""
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" * self.inplace)
