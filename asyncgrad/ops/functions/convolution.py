"""Convolution and pooling."""

from __future__ import annotations

import operator
from typing import Any

from asyncgrad.core.variable import wrap
from asyncgrad.ops.derivatives.convolution import Geometry
from asyncgrad.ops.derivatives.pooling import Counts, Window, peak_indices
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand, category

#: Of PyTorch's top level; all are functions of `nn.functional`.
__all__ = ["conv1d", "conv2d"]
#: Those that are methods of tensors, and those that have a form in place (`add_`).
METHODS = ()
IN_PLACE = ()


def _for_each(name: str, what: str, value: Any, ndim: int) -> tuple[int, ...]:
    """A number for each axis of the image, given as one for all or a sequence."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    try:
        numbers = tuple(map(operator.index, values))
    except TypeError:
        raise TypeError(
            f"{name}(): argument {what!r} must be an int or {ndim} of them, not {value!r}"
        ) from None
    if len(numbers) == 1:
        numbers *= ndim
    if len(numbers) != ndim:
        raise RuntimeError(
            f"{name}: expected {what} to be a single integer value or a list of {ndim} values, got "
            f"{what}={list(numbers)}"
        )
    return numbers


def _sides(
    name: str, padding: Any, kernel: tuple[int, ...], stride: Any, dilation: Any
) -> tuple[tuple[int, int], ...]:
    """What is added before and after each axis."""
    ndim = len(kernel)
    if not isinstance(padding, str):
        numbers = _for_each(name, "padding", padding, ndim)
        if min(numbers) < 0:
            raise RuntimeError(f"{name}: negative padding is not supported, got {padding}")
        return tuple((p, p) for p in numbers)
    if padding == "valid":
        return ((0, 0),) * ndim
    if padding != "same":
        raise RuntimeError(f"{name}: padding must be numbers, 'valid' or 'same', got {padding!r}.")
    if any(s != 1 for s in stride):
        raise RuntimeError(
            f"{name}: padding='same' is not supported for strided convolutions, got stride {stride}"
        )
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((r // 2, r - r // 2) for r in reach)


def _convolve(
    name: str,
    ndim: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    x = as_tensor_operand(input, name, 1)
    w = as_tensor_operand(weight, name, 2)
    shape, kernel = x._metadata.shape, w._metadata.shape
    if len(kernel) != ndim + 2 or len(shape) not in {ndim + 1, ndim + 2}:
        raise RuntimeError(
            f"{name}: Expected {ndim + 1}D (unbatched) or {ndim + 2}D (batched) input and a "
            f"{ndim + 2}D weight, but got input of size: {list(shape)} and weight of size: "
            f"{list(kernel)}"
        )
    dtype = x._metadata.dtype
    for what, tensor in (("weight", w), ("bias", bias)):
        if tensor is not None and tensor._metadata.dtype != dtype:
            raise RuntimeError(
                f"{name}: Input type ({dtype}) and {what} type ({tensor._metadata.dtype}) should "
                f"be the same. Convert one with .to()."
            )
    strides = _for_each(name, "stride", stride, ndim)
    dilations = _for_each(name, "dilation", dilation, ndim)
    if min(strides) <= 0:
        raise RuntimeError(f"{name}: non-positive stride is not supported, got {stride}")
    if min(dilations) <= 0:
        raise RuntimeError(f"{name}: dilation should be greater than zero, got {dilation}")
    if groups <= 0:
        raise RuntimeError(f"{name}: non-positive groups is not supported, got {groups}")
    channels = shape[-ndim - 1]
    if channels != kernel[1] * groups or kernel[0] % groups or kernel[0] < groups:
        raise RuntimeError(
            f"{name}: Given groups={groups}, weight of size {list(kernel)}, expected input to have "
            f"{kernel[1] * groups} channels and the weight's first axis to be a multiple of the "
            f"groups, but got input of size {list(shape)}"
        )
    if bias is not None and bias._metadata.shape != kernel[:1]:
        raise RuntimeError(
            f"{name}: Given weight of size {list(kernel)}, expected bias to be 1-dimensional with "
            f"{kernel[0]} elements, but got bias of size {list(bias._metadata.shape)}"
        )
    sides = _sides(name, padding, kernel[2:], strides, dilations)
    geometry = Geometry(strides, sides, dilations, groups)
    if any(n <= 0 for n in geometry.out_shape(shape[-ndim:], kernel[2:])):
        raise RuntimeError(
            f"{name}: Kernel size can't be greater than actual input size: the image is "
            f"{list(shape[-ndim:])}, padded by {list(sides)}, the kernel {list(kernel[2:])} with "
            f"dilation {dilations}"
        )
    batched = len(shape) == ndim + 2
    if not batched:
        x = R.reshape(x, (1, *shape))
    if bias is None:
        out = R.convolution(x, w, geometry)
    else:
        out = R.convolution_with_bias(x, w, bias, geometry)
    return out if batched else R.reshape(out, out._metadata.shape[1:])


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A one-dimensional convolution (without turning the kernel round).

    Args:
        input: of shape (n, channels, length) or (channels, length).
        weight: of shape (outputs, channels / groups, kernel).
        bias: of shape (outputs,).
        stride: how far the kernel moves.
        padding: zeros on both sides; "same" for an output of the input's length, "valid" for none.
        dilation: how far apart the kernel's elements are.
        groups: outputs of a group see the channels of that group only.

    Raises:
        RuntimeError: if shapes, dtypes or numbers do not fit.
    """
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A two-dimensional convolution (without turning the kernel round).

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        weight: of shape (outputs, channels / groups, kernel rows, kernel columns).
        bias: of shape (outputs,).
        stride: how far the kernel moves, a number or one for each axis.
        padding: zeros on both sides, likewise; "same" for an output of the input's size, "valid"
            for none.
        dilation: how far apart the kernel's elements are.
        groups: outputs of a group see the channels of that group only.

    Raises:
        RuntimeError: if shapes, dtypes or numbers do not fit.
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def _window(
    name: str,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Window:
    """The windows of a pooling of two axes, checked."""
    shape = x._metadata.shape
    kernel = _for_each(name, "kernel_size", kernel_size, 2)
    strides = (
        kernel
        if stride is None or (isinstance(stride, (tuple, list)) and not stride)
        else _for_each(name, "stride", stride, 2)
    )
    pads = _for_each(name, "padding", padding, 2)
    dilations = _for_each(name, "dilation", dilation, 2)
    if min(kernel) <= 0 or min(strides) <= 0 or min(dilations) <= 0:
        raise RuntimeError(
            f"{name}: kernel size, stride and dilation should be greater than zero, but got "
            f"{kernel}, {strides} and {dilations}"
        )
    if min(pads) < 0:
        raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {pads}")
    if any(p > (d * (k - 1) + 1) // 2 for k, p, d in zip(kernel, pads, dilations, strict=True)):
        raise RuntimeError(
            f"{name}: pad should be at most half of effective kernel size, but got pad={pads}, "
            f"kernel_size={kernel} and dilation={dilations}"
        )
    if len(shape) not in {3, 4} or 0 in shape[-3:]:
        raise RuntimeError(
            f"{name}: Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got: {list(shape)}"
        )
    image = shape[-2:]
    out = tuple(
        _pooled_length(*axis, ceil_mode)
        for axis in zip(image, kernel, strides, pads, dilations, strict=True)
    )
    if min(out) <= 0:
        raise RuntimeError(
            f"{name}: Given input size: {list(shape[-3:])}. Calculated output size: {list(out)}. "
            f"Output size is too small"
        )
    return Window(kernel, strides, pads, dilations, image, out)


def _pooled_length(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """How many windows fit; in ceil mode the last may reach beyond the end, but not begin there."""
    free = n + 2 * p - d * (k - 1) - 1
    length = (free + (s - 1 if ceil_mode else 0)) // s + 1
    return length - 1 if ceil_mode and (length - 1) * s >= n + p else length


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of each window.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the window, a number or one for each axis.
        stride: how far it moves; its size if None.
        padding: how far windows may reach beyond the sides.
        dilation: how far apart a window's elements are.
        ceil_mode: the last windows may reach beyond the end.
        return_indices: return where the elements are in their planes, too.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "max_pool2d"
    x = as_tensor_operand(input, name, 1)
    window = _window(name, x, kernel_size, stride, padding, dilation, ceil_mode)
    if x._metadata.dtype.kind in "bc":
        raise NotImplementedError(f'"{name}" not implemented for {x._metadata.dtype}')
    out = R.max_pool(x, window)
    if not return_indices:
        return out
    F = x._metadata.F
    indices = peak_indices(F.xp, x._array, out._array, window)
    return out, wrap(indices, F.metadata_of(indices))


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the window, a number or one for each axis.
        stride: how far it moves; its size if None.
        padding: zeros on both sides.
        ceil_mode: the last windows may reach beyond the end.
        count_include_pad: those zeros count.
        divisor_override: divide the sums by this number.

    Raises:
        RuntimeError: if shapes or numbers do not fit.
    """
    name = "avg_pool2d"
    x = as_tensor_operand(input, name, 1)
    window = _window(name, x, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    if category(x._metadata.dtype) == 0 or x._metadata.is_complex:
        raise NotImplementedError(f'"{name}" not implemented for {x._metadata.dtype}')
    return R.avg_pool(x, window, Counts(count_include_pad, divisor_override))
