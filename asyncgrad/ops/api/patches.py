"""Unfold, fold and functions of neighbourhoods in images; all are in `nn.functional`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.recording import note_constant
from asyncgrad.ops.api import pooling
from asyncgrad.ops.api.convolution import SHAPES, for_each
from asyncgrad.ops.api.linalg import einsum
from asyncgrad.ops.api.shape import narrow, pad, reshape, transpose
from asyncgrad.ops.converted import one_node
from asyncgrad.ops.dtype import REAL, check_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.types import Alike, AtLeast3D, Ints, Tensor

#: Max- and average-pooling of lines, images and volumes.
_POOLS = (
    (pooling.max_pool1d, pooling.avg_pool1d),
    (pooling.max_pool2d, pooling.avg_pool2d),
    (pooling.max_pool3d, pooling.avg_pool3d),
)


def _patches(
    name: str, image: tuple[int, ...], kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[Any, ...]]:
    """The checked kernel size and padding, the number of patches per axis, and their indices."""
    sizes, apart, frame, steps = (
        for_each(name, what, value, 2)
        for what, value in (
            ("kernel_size", kernel), ("dilation", dilation), ("padding", padding),
            ("stride", stride),
        )
    )  # fmt: skip
    for what, values, least in (
        ("kernel_size", sizes, 1), ("dilation", apart, 1), ("stride", steps, 1),
        ("padding", frame, 0),
    ):  # fmt: skip
        if min(values) < least:
            bound = "greater than zero" if least else "non-negative"
            raise unmet(name, f"{what.replace('_', ' ')} should be {bound}", **{what: values})
    counts = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(image, frame, apart, sizes, steps, strict=True)
    )
    if min(counts) < 1:
        raise unmet(name, f"calculated shape of the array of sliding blocks as {counts}, but its "
                    "components must be at least one",
                    spatial_size=image, kernel_size=sizes)  # fmt: skip
    rows, columns = (
        d * np.arange(k)[:, None] + s * np.arange(count)
        for d, k, s, count in zip(apart, sizes, steps, counts, strict=True)
    )
    lines = (rows[:, None, :, None], columns[None, :, None, :])
    for line in lines:
        note_constant(line)
    return sizes, frame, counts, (slice(None), slice(None), *lines)


@one_node("Im2ColBackward0")
@requires(
    "input.ndim in {3, 4} and 0 not in input.shape[-3:]  # Expected 3D or 4D (batch mode) tensor "
    "with possibly 0 batch size and other non-zero dimensions for input"
)
def unfold(
    input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Tensor:
    """Extract the patches of images as columns: (n, channels * elements of a patch, patches).

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the patches, a number or one for each axis.
        dilation: the distance between the patch's elements.
        padding: zeros on both sides.
        stride: the distance between patches.
    """
    sizes, frame, counts, places = _patches(
        "unfold", input.shape[-2:], kernel_size, dilation, padding, stride
    )
    images = reshape(input, (-1, *input.shape[-3:])) if input.ndim == 3 else input
    if any(frame):
        images = pad(images, (frame[1], frame[1], frame[0], frame[0]))
    found = R.index(images, places)
    shape = (input.shape[-3] * math.prod(sizes), math.prod(counts))
    return reshape(found, shape if input.ndim == 3 else (input.shape[0], *shape))


@requires(
    "input.ndim in {2, 3} and 0 not in input.shape[-2:]  # Expected 2D or 3D (batch mode) tensor "
    "for input with possibly 0 batch size and non-zero dimensions for input"
)
def fold(
    input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
    stride: Ints = 1,
) -> Tensor:  # fmt: skip
    """Assemble images from patches, added where they overlap: the adjoint of `unfold`.

    Args:
        input: of shape (n, channels * elements of a patch, patches), or without n.
        output_size: the size of the images.
        kernel_size, dilation, stride: as in `unfold`.
        padding: the width that is cut off on each side.
    """
    image = for_each("fold", "output_size", output_size, 2)
    if min(image) < 1:
        raise RuntimeError(f"fold: output size should be greater than zero, but got {image}")
    sizes, frame, counts, places = _patches("fold", image, kernel_size, dilation, padding, stride)
    elements = math.prod(sizes)
    if input.shape[-2] % elements:
        raise unmet("fold", "Expected size of input's dimension 1 to be divisible by the product "
                    "of kernel_size", input=input, kernel_size=sizes)  # fmt: skip
    if input.shape[-1] != math.prod(counts):
        raise unmet("fold", "expected size of input's dimension 2 to match the calculated number "
                    f"of sliding blocks {' * '.join(map(str, counts))}",
                    input=input, output_size=image, kernel_size=sizes)  # fmt: skip
    channels = input.shape[-2] // elements
    batch = input.shape[0] if input.ndim == 3 else 1
    patches = reshape(input, (batch, channels, *sizes, *counts))
    framed = tuple(n + 2 * p for n, p in zip(image, frame, strict=True))
    out = R.zeros_plus(patches, (batch, channels, *framed), places)
    for axis, (n, p) in enumerate(zip(image, frame, strict=True), 2):
        out = narrow(out, axis, p, n) if p else out
    return out if input.ndim == 3 else reshape(out, (channels, *image))


@requires(
    "groups > 0  # Number of groups to divide channels in must be positive",
    "input.shape[1] % groups == 0  # Number of channels must be divisible by groups",
)
def channel_shuffle(input: AtLeast3D, groups: int) -> Tensor:
    """Reorder channels: the first of each group, then the second, and so on.

    Args:
        input: of shape (n, channels, ...).
    """
    n, channels, *image = input.shape
    dealt = transpose(reshape(input, (n, groups, channels // groups, *image)), 1, 2)
    return reshape(dealt, input.shape)


@requires("input.ndim >= 3  # Expected 3D or higher dimensionality input", error=ValueError)
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide elements by a power of the mean square over neighbouring channels.

    Args:
        input: of shape (n, channels, ...), three axes at least.
        size: the number of neighbouring channels.
        alpha: the factor of the mean square.
        beta: the power.
        k: added to that product before the power is taken.
    """
    if not input.numel():
        return input
    check_dtype("local_response_norm", input._metadata.dtype, REAL)
    channels = input.shape[1]
    frame = (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2)
    squares = pad(input * input, frame)
    total = narrow(squares, 1, 0, channels)
    for shift in range(1, size):
        total = total + narrow(squares, 1, shift, channels)
    return input / (total / size * alpha + k).pow(beta)


def _lp_pool(ndim: int) -> Callable[..., Tensor]:
    name = f"lp_pool{ndim}d"
    greatest, mean = _POOLS[ndim - 1]

    def function(
        input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:  # fmt: skip
        if abs(norm_type) == math.inf:
            sign = math.copysign(1.0, norm_type)
            return greatest(R.abs(input) * sign, kernel_size, stride, 0, 1, ceil_mode) * sign
        means = mean(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
        elements = math.prod(for_each(name, "kernel_size", kernel_size, ndim))
        return (R.sign(means) * R.relu(R.abs(means)) * elements).pow(1.0 / norm_type)

    doc = f"""The p-norm of each window of a {pooling.WHOLE[ndim]}, `norm_type` being p.

    Args:
        input: {SHAPES[ndim]}
        norm_type: the power.
        {pooling.WINDOWS}
        ceil_mode: let the last windows reach beyond the end.
    """
    return named(function, name, doc)


lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool, (1, 2, 3))


@requires(
    "input1.ndim == input2.ndim  # input dimensions do not match",
    "input1.shape[:-1] == input2.shape[:-1]  # input batch dimensions do not match",
    "weight.ndim == 3 and weight.shape[1:] == input1.shape[-1:] + input2.shape[-1:]"
    "  # input1 and input2 size does not match weight size",
    "bias.shape == weight.shape[:1]  # bias size does not match weight size",
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Alike | None = None) -> Tensor:
    """`x1 @ weight @ x2 + bias`, for each of several matrices: of shape (..., k).

    Args:
        input1: of shape (..., m).
        input2: of shape (..., n).
        weight: of shape (k, m, n).
        bias: of shape (k,).
    """
    out = einsum("...i,oij,...j->...o", input1, weight, input2)
    return out if bias is None else out + bias
