"""Activation functions, softmax, and normalisations composed of other functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from asyncgrad.choices import GeluFormula
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.normalisation import layer_norm
from asyncgrad.ops.api.reduction import vector_norm
from asyncgrad.ops.api.shape import permute, reshape, split
from asyncgrad.ops.converted import one_node, writes_exactly
from asyncgrad.ops.dtype import FLOATING, check_dtype
from asyncgrad.ops.float32_compute import computing_dtype, in_float32, in_parameters_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import cast
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.out import put
from asyncgrad.types import (
    Alike,
    AtLeast3D,
    Axis,
    DTypeLike,
    Floating,
    Inexact,
    InPlace,
    Ints,
    Real,
    Tensor,
)

#: The functions at PyTorch's top level; the others are in `nn.functional`.
__all__ = ["hardshrink", "log_softmax", "prelu", "softmax"]
METHODS = ("hardshrink", "log_softmax", "prelu", "softmax")

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def leaky_relu(input: Floating, negative_slope: float = 0.01, inplace: InPlace = False) -> Tensor:
    """The elements, the negative ones times a slope; the derivative at 0 is the slope."""
    return R.leaky_relu(input, negative_slope)


def elu(input: Floating, alpha: float = 1.0, inplace: InPlace = False) -> Tensor:
    """The positive elements, and `alpha * (exp(x) - 1)` of the others."""
    return R.elu(input, alpha)


@writes_exactly
def gelu(input: Floating, *, approximate: GeluFormula = "none") -> Tensor:
    """The elements times the standard normal distribution function of them.

    Args:
        input: a tensor of a floating dtype.
        approximate: "none", or "tanh" for a formula without the error function.
    """
    return R.gelu(input) if approximate == "none" else R.gelu_tanh(input)


def silu(input: Inexact, inplace: InPlace = False) -> Tensor:
    """The elements times their logistic function."""
    return R.silu(input)


@writes_exactly
def softplus(input: Floating, beta: float = 1, threshold: float = 20) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, and x itself where `beta * x` is above the threshold."""
    return R.softplus(input, beta, threshold)


@writes_exactly
def logsigmoid(input: Floating) -> Tensor:
    """The logarithm of the logistic function."""
    return R.logsigmoid(input)


def _normalised(name: str, doc: str) -> Callable[..., Tensor]:
    dispatch = getattr(R, name)
    node = "".join(word.capitalize() for word in name.split("_")) + "Backward0"

    def function(input: Tensor, dim: Axis, dtype: DTypeLike | None = None) -> Tensor:
        if dtype is not None:
            input = cast(input, dtype)
        shape = input._metadata.shape
        check_dtype(name, input._metadata.dtype, FLOATING)
        if not shape:
            return renamed(R.reshape(dispatch(R.reshape(input, (1,)), 0), ()), node)
        if input._metadata.size:
            return dispatch(input, dim)
        return renamed(R.clone(input), node, saves=True)

    doc = f"""{doc}

    Args:
        input: a tensor of a floating dtype, or of any if `dtype` is given.
        dtype: the floating dtype to compute in.

    Raises:
        NotImplementedError: for a dtype that is not floating.
    """
    return writes_exactly(named(function, name, doc))


softmax = _normalised("softmax", "The exponentials, divided by their sum along `dim`.")
log_softmax = _normalised("log_softmax", "The logarithm of the softmax along `dim`.")


# -- composed functions ---------------------------------------------------------------------------


@one_node("HardtanhBackward0")
@requires("not min_val > max_val  # min_val cannot be greater than max_val", error=ValueError)
@requires(
    "input.dtype.kind != 'u' or min_val > -1"
    "  # cannot do hardtanh on an unsigned type with negative limits"
)
def hardtanh(
    input: Real, min_val: float = -1.0, max_val: float = 1.0, inplace: InPlace = False
) -> Tensor:
    """Clamp the elements between two bounds; the gradient is 0 at the bounds and beyond."""
    # As in PyTorch, NaN is treated as inside the bounds.
    within = ~((input <= min_val) | (input >= max_val))
    bounded = input.detach().clamp(min_val, max_val).to(input.dtype)
    return where(within, input, bounded)


def relu6(input: Tensor, inplace: InPlace = False) -> Tensor:
    """Clamp the elements between 0 and 6."""
    return hardtanh(input, 0.0, 6.0)


@one_node("HardsigmoidBackward0")
def hardsigmoid(input: Floating, inplace: InPlace = False) -> Tensor:
    """`clamp(x / 6 + 0.5, 0, 1)`: linear from 0 at -3 to 1 at 3."""
    if input._metadata.dtype.itemsize == 2:
        return in_float32(hardsigmoid, input)
    inside = (input > -3) & (input < 3)
    return where(inside, input + 3, (input.detach() + 3).clamp(0.0, 6.0)) / 6


def hardswish(input: Floating, inplace: InPlace = False) -> Tensor:
    """The elements times their `hardsigmoid`."""
    return R.hardswish(input)


def mish(input: Floating, inplace: InPlace = False) -> Tensor:
    """The elements times the hyperbolic tangent of their `softplus`."""
    return R.mish(input)


@one_node("EluBackward0")
def selu(input: Floating, inplace: InPlace = False) -> Tensor:
    """A scaled `elu` whose constants keep mean 0 and variance 1 in self-normalising networks."""
    return elu(input, _SELU_ALPHA) * _SELU_SCALE


@one_node("CeluBackward0")
@requires("alpha != 0  # ZeroDivisionError: alpha cannot be 0 for CELU")
def celu(input: Floating, alpha: float = 1.0, inplace: InPlace = False) -> Tensor:
    """The positive elements, and `alpha * (exp(x / alpha) - 1)` of the others."""
    below = input < 0
    quotient = where(below, input, input.new_zeros(())) / alpha
    # The gradient of `elu` is exp(x), that of `expm1` a sum that loses digits far below 0.
    curve = (R.elu(quotient, 1.0) if alpha > 0 else R.expm1(quotient)) * alpha
    return where(below, curve, input)


def softsign(input: Tensor) -> Tensor:
    """`x / (1 + |x|)`."""
    return R.div(input, R.add(R.abs(input), 1))


def tanhshrink(input: Tensor) -> Tensor:
    """`x - tanh(x)`."""
    return R.sub(input, R.tanh(input))


@one_node("HardshrinkBackward0", writes_exactly)
def hardshrink(input: Floating, lambd: float = 0.5) -> Tensor:
    """The elements, and 0 where they are between `-lambd` and `lambd`."""
    return where((input >= -lambd) & (input <= lambd), input.new_zeros(()), input)


@one_node("SoftshrinkBackward0", writes_exactly)
@requires("lambd >= 0  # lambda must be in range [0, max], greater or equal to 0")
def softshrink(input: Floating, lambd: float = 0.5) -> Tensor:
    """The elements moved towards 0 by `lambd`, and 0 where they are nearer than that."""
    moved = where(input > lambd, input - lambd, input + lambd)
    # x * 0 keeps the signs of zeros; NaN fails both comparisons and is passed on.
    return where((input >= -lambd) & (input <= lambd), input.detach() * 0, moved)


@one_node("ThresholdBackward0")
def threshold(input: Real, threshold: float, value: float, inplace: InPlace = False) -> Tensor:
    """The elements above a threshold, and one value for the others."""
    # Compared before the threshold is rounded to the input's dtype.
    dtype = input._metadata.dtype
    computing = computing_dtype(dtype)
    known = input if computing is dtype else cast(input.detach(), computing)
    return where(known <= threshold, input.new_full((), value), input)


@one_node("PreluKernelBackward0")
@requires(
    "weight.ndim <= 1  # Expected `weight` to be a scalar or 1D tensor",
    "weight.numel() == 1 or input.ndim > 0  # Not allow zero-dim input tensor",
    "weight.numel() == 1 or weight.shape == (input.shape[1:2] or (1,))"
    "  # Mismatch of parameter numbers and input channel size",
)
def prelu(input: Floating, weight: Alike) -> Tensor:
    """The elements, the negative ones times a learnt slope.

    Args:
        input: a floating tensor.
        weight: one slope, or one for each index of the second axis.
    """
    shape = [1] * input.ndim
    if input.ndim:
        shape[min(1, input.ndim - 1)] = weight.numel()
    above = input > 0
    # Positive elements are masked to 0 in the product, as infinities would make gradients NaN.
    return where(above, input, reshape(weight, tuple(shape)) * R.mask(input, ~above))


@one_node("GluBackward0")
@requires(
    "input.ndim > 0  # glu does not support scalars because halving size must be even",
    "input.shape[dim] % 2 == 0  # Halving dimension must be even",
)
def glu(input: Floating, dim: Axis = -1) -> Tensor:
    """The first half of an axis times the logistic function of the second."""
    if input._metadata.dtype.itemsize == 2:
        return in_float32(glu, input, dim)
    size = input.shape[dim]
    first, second = split(input, size // 2, dim) if size else (input, input)
    return first * R.sigmoid(second)


def normalize(
    input: Tensor, p: float = 2.0, dim: Ints = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """Divide vectors along an axis by their norms, which are clamped to at least `eps`."""
    if out is not None:
        return put(out, "normalize", normalize(input, p, dim, eps))
    return R.div(input, vector_norm(input, p, dim, True).clamp_min(eps))


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norms of `x1 - x2 + eps` over the last axis, broadcast."""
    return vector_norm(R.add(R.sub(x1, x2), eps), p, -1, keepdim)


@one_node("NativeGroupNormBackward0")
@requires(
    "input.ndim >= 2  # Expected at least 2 dimensions for input tensor",
    "num_groups > 0 and input.shape[1] % num_groups == 0"
    "  # Expected number of channels in input to be divisible by num_groups",
    *[
        f"{x}.shape == input.shape[1:2]  # Expected {x} to be a vector of size equal to the number "
        "of channels in input"
        for x in ("weight", "bias")
    ],
)
def group_norm(
    input: Floating, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise groups of channels to mean 0 and variance 1, then scale and shift.

    Args:
        input: of shape (n, channels, ...).
        weight: the factors, of shape (channels,).
        bias: the summands, of that shape.
        eps: added to the variance.

    Raises:
        ValueError: if there is one value per group, and one example.
    """
    shape = input.shape
    batch, channels, *rest = shape
    size = channels // num_groups * math.prod(rest)
    if batch * size == 1:
        raise unmet("group_norm", "Expected more than 1 value per channel when training",
                    ValueError, input=input)  # fmt: skip
    x = in_parameters_dtype("group_norm", input, weight, bias)
    x = cast(x, computing_dtype(x._metadata.dtype))
    out = reshape(layer_norm(reshape(x, (batch, num_groups, size)), (size,), eps=eps), shape)
    wide = (1, channels, *[1] * len(rest))
    out = out if weight is None else out * reshape(weight, wide)
    out = out if bias is None else out + reshape(bias, wide)
    return cast(out, input._metadata.dtype)


@one_node("PixelShuffleBackward0")
@requires(
    "upscale_factor > 0  # pixel_shuffle expects a positive upscale_factor",
    "input.shape[-3] % upscale_factor**2 == 0  # pixel_shuffle expects its input's 'channel' "
    "dimension to be divisible by the square of upscale_factor",
)
def pixel_shuffle(input: AtLeast3D, upscale_factor: int) -> Tensor:
    """Channels laid out as squares of pixels.

    Args:
        input: of shape (..., channels * factor**2, height, width).
    """
    r = upscale_factor
    *lead, channels, height, width = input.shape
    n = len(lead)
    input = reshape(input, (*lead, channels // (r * r), r, r, height, width))
    input = permute(input, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    # With a factor of 1, too, the result is a copy.
    return reshape(R.clone(input, "C"), (*lead, channels // (r * r), height * r, width * r))


@one_node("PixelUnshuffleBackward0")
@requires(
    "downscale_factor > 0  # pixel_unshuffle expects a positive downscale_factor",
    "input.shape[-2] % downscale_factor == 0"
    "  # pixel_unshuffle expects height to be divisible by downscale_factor",
    "input.shape[-1] % downscale_factor == 0"
    "  # pixel_unshuffle expects width to be divisible by downscale_factor",
)
def pixel_unshuffle(input: AtLeast3D, downscale_factor: int) -> Tensor:
    """Undo `pixel_shuffle`."""
    r = downscale_factor
    *lead, channels, height, width = input.shape
    n = len(lead)
    x = reshape(input, (*lead, channels, height // r, r, width // r, r))
    x = permute(x, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return reshape(R.clone(x, "C"), (*lead, channels * r * r, height // r, width // r))
