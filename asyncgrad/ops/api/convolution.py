"""Convolutions and transposed convolutions over one to three axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from asyncgrad.choices import ConvPadding, words
from asyncgrad.ops.arguments import whole_numbers
from asyncgrad.ops.columns import Geometry
from asyncgrad.ops.dtype import INEXACT, REAL, check_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.signatures import named
from asyncgrad.types import Alike, Ints, Shape, Tensor

#: The functions at PyTorch's top level; all functions here are in `nn.functional`.
__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


def for_each(name: str, what: str, value: Ints, ndim: int) -> tuple[int, ...]:
    """Expand an option to one number for each axis of the image."""
    if value.__class__ is int:
        return (value,) * ndim
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    try:
        numbers = whole_numbers(values)
    except TypeError:
        raise TypeError(
            f"{name}(): argument {what!r} must be an int or {ndim} of them, not {value!r}"
        ) from None
    if len(numbers) == 1:
        numbers *= ndim
    if len(numbers) != ndim:
        raise unmet(name, f"expected {what} to be a single integer value or a list of {ndim} "
                    "values", **{what: value})  # fmt: skip
    return numbers


def _sides(
    name: str, padding: Shape | ConvPadding, kernel: Shape, stride: Shape, dilation: Shape
) -> tuple[tuple[int, int], ...]:
    """The padding before and after each axis."""
    if not isinstance(padding, str):
        if min(padding) < 0:
            raise RuntimeError(f"{name}: negative padding is not supported, got {list(padding)}")
        return tuple((p, p) for p in padding)
    if padding not in words(ConvPadding):
        raise RuntimeError(f"{name}: padding must be numbers, 'valid' or 'same', got {padding!r}.")
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if any(s != 1 for s in stride):
        raise unmet(name, "padding='same' is not supported for strided convolutions", stride=stride)
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((r // 2, r - r // 2) for r in reach)


@functools.lru_cache(1024)
def _geometry(
    name: str, image: Shape, kernel: Shape, padding: Shape | ConvPadding, stride: Shape,
    dilation: Shape, groups: int,
) -> Geometry:  # fmt: skip
    """How the kernel moves over the image; a cache holds it, as most calls repeat another."""
    sides = _sides(name, padding, kernel, stride, dilation)
    geometry = Geometry(stride, sides, dilation, groups)
    if min(geometry.out_shape(image, kernel)) <= 0:
        raise RuntimeError(
            f"{name}: Kernel size can't be greater than actual input size: the image is "
            f"{list(image)}, padded by {list(sides)}, the kernel {list(kernel)} with dilation "
            f"{dilation}"
        )
    return geometry


def _conditions(name: str, ndim: int) -> Iterator[str]:
    """What has to hold for the arguments of a convolution."""
    yield (
        f"weight.ndim == {ndim + 2} and input.ndim in {{{ndim + 1}, {ndim + 2}}}  # Expected "
        f"{ndim + 1}D (unbatched) or {ndim + 2}D (batched) input to {name}"
    )
    yield "groups > 0  # non-positive groups is not supported"


def _check_channels(
    name: str, shape: Shape, kernel: Shape, groups: int, wanted: int, kind: str
) -> None:
    """Raise unless the input has the channels that the weight wants, which groups can divide."""
    if kernel[0] % groups or kernel[0] < groups:
        bound = "divisible by" if kernel[0] > groups else "at least"
        raise unmet(name, f"Given groups={groups}, expected weight to be {bound} {groups} at "
                    f"dimension 0, but got weight of size {list(kernel)} instead")  # fmt: skip
    channels = shape[1 - len(kernel)]
    if channels != wanted:
        raise unmet(name, f"Given {kind}, weight of size {list(kernel)}, expected "
                    f"input{list(shape)} to have {wanted} channels, but got {channels} channels "
                    "instead")  # fmt: skip


def _check_bias(name: str, bias: Tensor | None, weight: Tensor, outputs: int) -> None:
    """Raise unless there is one element for each output channel."""
    if bias is not None and bias._metadata.shape != (outputs,):
        raise unmet(name, f"Given weight of size {list(weight._metadata.shape)}, expected bias to "
                    f"be 1-dimensional with {outputs} elements", bias=bias)  # fmt: skip


def _steps(name: str, ndim: int, stride: Ints, dilation: Ints) -> tuple[Shape, Shape]:
    strides = for_each(name, "stride", stride, ndim)
    dilations = for_each(name, "dilation", dilation, ndim)
    if min(strides) <= 0:
        raise RuntimeError(f"{name}: non-positive stride is not supported, got {stride}")
    if min(dilations) <= 0:
        raise RuntimeError(f"{name}: dilation should be greater than zero, got {dilation}")
    return strides, dilations


def _unbatched(out: Tensor) -> Any:
    return renamed(R.reshape(out, out._metadata.shape[1:]), "SqueezeBackward1")


#: What docstrings say of images with one, two and three axes.
SHAPES = {
    1: "of shape (n, channels, length) or (channels, length).",
    2: "of shape (n, channels, rows, columns) or (channels, rows, columns).",
    3: "of shape (n, channels, layers, rows, columns), or without n.",
}


def _convolution(ndim: int) -> Callable[..., Tensor]:
    name = f"conv{ndim}d"

    @requires(*_conditions(name, ndim))
    def function(
        input: Tensor, weight: Alike, bias: Alike | None = None, stride: Ints = 1,
        padding: Ints | ConvPadding = 0, dilation: Ints = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        strides, dilations = _steps(name, ndim, stride, dilation)
        shape, kernel = input._metadata.shape, weight._metadata.shape
        _check_channels(name, shape, kernel, groups, kernel[1] * groups, f"groups={groups}")
        _check_bias(name, bias, weight, kernel[0])
        if not isinstance(padding, str):
            padding = for_each(name, "padding", padding, ndim)
        geometry = _geometry(name, shape[-ndim:], kernel[2:], padding, strides, dilations, groups)
        if input._metadata.needs_checks:
            check_dtype(name, input._metadata.dtype, f"{REAL}c")
        batched = len(shape) == ndim + 2
        x = input if batched else R.reshape(input, (1, *shape))
        if bias is None:
            out = R.convolution(x, weight, geometry)
        else:
            out = R.convolution_with_bias(x, weight, bias, geometry)
        return out if batched else _unbatched(out)

    doc = f"""The convolution over the last axes ({ndim}); the kernel is not flipped.

    Args:
        input: {SHAPES[ndim]}
        weight: of shape (outputs, channels / groups, *kernel).
        bias: of shape (outputs,).
        stride: the step of the kernel: a number, or one for each axis.
        padding: zeros added on both sides: a number, or one for each axis; "same" for an output of
            the input's size, "valid" for none.
        dilation: the distance between the kernel's elements.
        groups: into how many groups channels and outputs are divided; each output is computed from
            the channels of its own group.
    """
    return named(function, name, doc)


def _transposed(ndim: int) -> Callable[..., Tensor]:
    name = f"conv_transpose{ndim}d"

    @requires(*_conditions(name, ndim))
    def function(
        input: Tensor, weight: Alike, bias: Alike | None = None, stride: Ints = 1,
        padding: Ints = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
    ) -> Tensor:  # fmt: skip
        strides, dilations = _steps(name, ndim, stride, dilation)
        shape, kernel = input._metadata.shape, weight._metadata.shape
        pads = for_each(name, "padding", padding, ndim)
        extra = for_each(name, "output_padding", output_padding, ndim)
        if min(pads) < 0 or min(extra) < 0:
            raise unmet(
                name, "negative padding is not supported", padding=pads, output_padding=extra
            )
        if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
            raise unmet(name, "output padding must be smaller than either stride or dilation",
                        output_padding=extra, stride=strides, dilation=dilations)  # fmt: skip
        _check_channels(name, shape, kernel, groups, kernel[0], "transposed=1")
        outputs = kernel[1] * groups
        _check_bias(name, bias, weight, outputs)
        if 0 in shape[-ndim:] and 0 not in shape[:-ndim]:
            raise unmet(name, "Only zero batch or zero channel inputs are supported", input=input)
        axes = zip(shape[-ndim:], kernel[2:], strides, dilations, pads, extra, strict=True)
        image = tuple((n - 1) * s + d * (k - 1) + 1 - 2 * p + e for n, k, s, d, p, e in axes)
        if min(image) < (1 if input._metadata.size else 0):
            raise unmet(name, f"Given input size per channel: {list(shape[-ndim:])}. "
                        f"Calculated output size per channel: {list(image)}. Output "
                        "size is too small. Use less padding")  # fmt: skip
        if input._metadata.needs_checks and input._metadata.dtype != np.int64:
            check_dtype(name, input._metadata.dtype, INEXACT)
        batched = len(shape) == ndim + 2
        x = input if batched else R.reshape(input, (1, *shape))
        # `output_padding` extends the output's end, so the padding there is less by as much.
        sides = tuple((p, p - e) for p, e in zip(pads, extra, strict=True))
        geometry = Geometry(strides, sides, dilations, groups)
        out = R.convolution_input(x, weight, (x._metadata.shape[0], outputs, *image), geometry)
        if bias is not None:
            out = R.add(out, R.reshape(bias, (outputs,) + (1,) * ndim))
        return renamed(out, "ConvolutionBackward0") if batched else _unbatched(out)

    doc = f"""The adjoint of `conv{ndim}d`: the sum of kernels, each times an element of the input.

    Args:
        input: {SHAPES[ndim]}
        weight: of shape (channels, outputs / groups, *kernel).
        bias: of shape (outputs,).
        stride: the distance in the output between the kernels of neighbours: a number, or one for
            each axis.
        padding: what is cut off the output on both sides.
        output_padding: what is added to the output's length at the end.
        groups: see `conv{ndim}d`.
        dilation: the distance between the kernel's elements.
    """
    return named(function, name, doc)


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, (1, 2, 3))
