"""Tensors from shapes, and ranges of numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices import CPU, Device
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.errors import class_of
from asyncgrad.ops.arguments import one_int
from asyncgrad.ops.batching import by_parts, for_each, level_of, mapped
from asyncgrad.ops.dtype import REAL, check_dtype, refuse
from asyncgrad.ops.dtype_device import as_dtype, as_memory_format, memory_format
from asyncgrad.ops.promotion import (
    as_number,
    as_tensor_operand,
    category,
    default_complex_dtype,
    default_dtype,
    number_dtype,
)
from asyncgrad.ops.requirements import unmet
from asyncgrad.ops.scalar_cast import fitted
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.new_tensors import from_host, leaf, new_shape, place_of, sequence_shape
from asyncgrad.ops.tensors.out import as_made, makes
from asyncgrad.ops.tensors.transfer import on_host
from asyncgrad.types import Array, DeviceLike, DTypeLike, Ints, Number, Tensor

__all__ = [
    "arange", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace",
    "logspace", "ones", "ones_like", "tril_indices", "triu_indices", "zeros", "zeros_like",
]  # fmt: skip
METHODS = ("new_empty", "new_full", "new_ones", "new_zeros")

_INT64 = np.dtype("int64")
_WITHIN = float(np.finfo(np.float32).max) / 2
_WITHIN_INT64 = 1 << 63
#: Evenly spaced numbers that are computed at a time.
_BLOCK = 1 << 15


def _dtype(name: str, dtype: DTypeLike | None) -> Any:
    return default_dtype() if dtype is None else as_dtype(name, dtype)


# -- of one value ---------------------------------------------------------------------------------


@makes
def zeros(
    *sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of zeros.

    Args:
        sizes: the shape, as one sequence or as several numbers.
        size: the shape, by name.
        dtype: the dtype; the default one if None.
        device: the device; the default device if None.
        requires_grad: whether gradients are accumulated for the tensor.
    """
    place = place_of("zeros", device)
    array = place.xp.zeros(new_shape("zeros", sizes, size), dtype=_dtype("zeros", dtype))
    return leaf("zeros", array, place, requires_grad)


@makes
def ones(
    *sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of ones; see `zeros`."""
    place = place_of("ones", device)
    array = _constant(place, new_shape("ones", sizes, size), 1, _dtype("ones", dtype))
    return leaf("ones", array, place, requires_grad)


@makes
def empty(
    *sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:  # fmt: skip
    """A tensor with arbitrary values; see `zeros`."""
    shape, place = new_shape("empty", sizes, size), place_of("empty", device)
    as_memory_format("empty", memory_format, len(shape))
    return leaf("empty", place.xp.empty(shape, dtype=_dtype("empty", dtype)), place, requires_grad)


@as_made
def empty_strided(
    size: Ints, stride: Ints, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with arbitrary values and the given strides in memory; see `zeros`.

    Args:
        stride: for each axis, the distance of neighbours in memory, in elements.
        dtype: the dtype; the default one if None.
    """
    name = "empty_strided"
    shape, strides = sequence_shape(name, size), sequence_shape(name, stride)
    if len(shape) != len(strides):
        raise unmet(name, f"dimensionality of sizes ({len(shape)}) must match dimensionality of "
                    f"strides ({len(strides)})")  # fmt: skip
    place, wanted = place_of(name, device), _dtype(name, dtype)
    length = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = place.xp.empty(length if all(shape) else 0, dtype=wanted)
    array = place.xp.lib.stride_tricks.as_strided(
        memory, shape, [step * wanted.itemsize for step in strides]
    )
    return leaf(name, array, place, requires_grad)


@makes
def full(
    size: Ints, fill_value: Tensor | Number, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with one value everywhere; see `zeros`.

    Args:
        fill_value: the value: a number, or a tensor without dimensions.
        dtype: the dtype; the number's if None.

    Raises:
        RuntimeError: if the value does not fit the dtype, or a dtype without gradients is to
            require them.
    """
    place = place_of("full", device)
    shape = sequence_shape("full", size)
    number = _number("full", "fill_value", fill_value)
    wanted = number_dtype(number) if dtype is None else as_dtype("full", dtype)
    array = _constant(place, shape, _fitted("full", number, wanted), wanted)
    return leaf("full", array, place, requires_grad)


def _constant(
    place: Device, shape: tuple[int, ...], value: Number | Array, dtype: np.dtype[Any]
) -> Any:
    """An array filled with one value."""
    if place is not CPU:
        return place.xp.full(shape, value, dtype=dtype)
    # `np.full` does this, more slowly.
    array = np.empty(shape, dtype)
    array.fill(value)
    return array


def _fill(array: Array, value: Number | Array, place: Device) -> None:
    if place is CPU:
        array.fill(value)
    else:
        place.launching(operator.setitem)(array, ..., value)


def _fitted(name: str, number: Number, dtype: np.dtype[Any]) -> Any:
    """A number checked to fit a dtype: itself if it obviously does, else as an array."""
    if number.__class__ is float and dtype.kind == "f" and dtype.itemsize > 2:
        # The bound is half the largest float32, so every number below it fits.
        if -_WITHIN < number < _WITHIN:
            return number
    elif number.__class__ is int and dtype is _INT64 and -_WITHIN_INT64 <= number < _WITHIN_INT64:
        return number
    return np.asarray(fitted(name, number, dtype), dtype)


def _number(name: str, what: str, value: object) -> Any:
    """A Python number, also from a tensor without dimensions."""
    if value.__class__ is float or value.__class__ is int:
        return value
    if isinstance(value, Variable) and not value._metadata.shape:
        return on_host(value).item()
    number = as_number(value)
    if number is None:
        raise TypeError(f"{name}(): argument '{what}' must be Number, not {class_of(value)}")
    return number


# -- like others ----------------------------------------------------------------------------------


def like(
    name: str, input: Tensor, dtype: DTypeLike | None, device: DeviceLike | None,
    memory_format: memory_format | None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """A tensor, and the dtype and the device of a new one like it."""
    x = as_tensor_operand(input, name, 1)
    if memory_format is not None:
        as_memory_format(name, memory_format, len(x._metadata.shape))
    dtype = x._metadata.dtype if dtype is None else as_dtype(name, dtype)
    return x, dtype, x._metadata.device if device is None else place_of(name, device)


def _laid_out(x: Tensor, dtype: Any, place: Device) -> Any:
    """An uninitialised array laid out like a tensor."""
    strides = x._array.strides
    # Expanded tensors (stride 0) and sparse rows have no layout that could be copied.
    if place is x._metadata.device and strides and 0 not in strides:
        return place.xp.empty_like(x._array, dtype=dtype)
    return place.xp.empty(x._metadata.shape, dtype=dtype)


def _filled_like(name: str, what: str, value: float | None) -> Callable[..., Tensor]:
    """A function of another tensor; the value None leaves the elements as they are."""

    def function(
        input: Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
        requires_grad: bool = False, memory_format: memory_format | None = None,
    ) -> Tensor:  # fmt: skip
        if getattr(input, "_batched", False):
            return mapped(made, input, dtype=dtype, device=device)
        x, wanted, place = like(name, input, dtype, device, memory_format)
        array = _laid_out(x, wanted, place)
        if value is not None:
            _fill(array, value, place)
        return leaf(name, array, place, requires_grad)

    doc = f"{what}, in the shape, layout, dtype and device of another tensor; see `zeros`."
    made = as_made(named(function, name, doc))
    return made


empty_like = _filled_like("empty_like", "Arbitrary values", None)
zeros_like = _filled_like("zeros_like", "Zeros", 0)
ones_like = _filled_like("ones_like", "Ones", 1)


@as_made
def full_like(
    input: Tensor, fill_value: Tensor | Number, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:  # fmt: skip
    """One value, in the shape, layout, dtype and device of another tensor. See `empty_like`."""
    if getattr(input, "_batched", False):
        return mapped(full_like, input, fill_value=fill_value, dtype=dtype)
    x, wanted, place = like("full_like", input, dtype, device, memory_format)
    number = _number("full_like", "fill_value", fill_value)
    array = _laid_out(x, wanted, place)
    _fill(array, _fitted("full_like", number, wanted), place)
    return leaf("full_like", array, place, requires_grad)


def _beside(
    name: str, input: Tensor, dtype: DTypeLike | None, device: DeviceLike | None
) -> dict[str, Any]:
    """The dtype and device of a new tensor: as given, or those of `input`."""
    x = as_tensor_operand(input, name, 1)
    return {
        "dtype": x._metadata.dtype if dtype is None else dtype,
        "device": place_of(name, device, x),
    }


def _new(make: Callable[..., Tensor], what: str) -> Callable[..., Tensor]:
    name = f"new_{make.__name__}"

    def function(
        input: Tensor, *sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None,
        device: DeviceLike | None = None, requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        beside = _beside(name, input, dtype, device)
        return for_each(make(*sizes, size=size, requires_grad=requires_grad, **beside), input)

    doc = f"{what} of this tensor's dtype and on its device, in another shape."
    return as_made(named(function, name, doc))


new_zeros = _new(zeros, "Zeros")
new_ones = _new(ones, "Ones")
new_empty = _new(empty, "Arbitrary values")


@as_made
def new_full(
    input: Tensor, size: Ints, fill_value: Tensor | Number, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """One value of this tensor's dtype and on its device, in another shape."""
    beside = _beside("new_full", input, dtype, device)
    return for_each(full(size, fill_value, requires_grad=requires_grad, **beside), input)


# -- in a row -------------------------------------------------------------------------------------


@makes
def arange(
    *bounds: Number, start: Number | None = None, end: Number | None = None,
    step: Number | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from `start` up to `end`, which is excluded; see `zeros`.

    Called as `arange(end)`, `arange(start, end)` or `arange(start, end, step)`.

    Args:
        start: the first number; 0 if left out.
        end: the exclusive end.
        step: the difference of neighbours; 1 if left out.
        dtype: a real one, not bool; if None, the default one if a number is floating, else int64.
    """
    if (
        len(bounds) == 1
        and bounds[0].__class__ is int
        and dtype is None
        and start is end is step is None
    ):
        array = _steps(0, bounds[0], 1, _INT64)
        return from_host("arange", array, place_of("arange", device), requires_grad)
    if len(bounds) > 3:
        raise TypeError(f"arange() received an invalid combination of arguments: {bounds}")
    names = ("end",) if len(bounds) == 1 and end is None else ("start", "end", "step")
    given = {"start": start, "end": end, "step": step}
    for key, value in zip(names, bounds, strict=False):
        if given[key] is not None:
            raise TypeError(f"arange() got multiple values for argument {key!r}")
        given[key] = value
    if given["end"] is None:
        raise TypeError('arange() missing 1 required positional arguments: "end"')
    numbers = [
        _real("arange", key, default if given[key] is None else given[key])
        for key, default in (("start", 0), ("end", None), ("step", 1))
    ]
    floating = any(isinstance(number, float) for number in numbers)
    if dtype is None:
        wanted = default_dtype() if floating else _INT64
    else:
        wanted = as_dtype("arange", dtype)
    check_dtype("arange", wanted, REAL)
    array = _steps(numbers[0], numbers[1], numbers[2], wanted)
    return from_host("arange", array, place_of("arange", device), requires_grad)


def _steps(start: Any, end: Any, step: Any, dtype: np.dtype[Any]) -> Any:
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"arange: unsupported range: {start} -> {end}")
    if step == 0 or step != step:
        raise RuntimeError(f"arange: step must be nonzero, got {step}")
    if (end - start) * step < 0:
        raise unmet("arange", "upper bound and lower bound inconsistent with step sign",
                    start=start, end=end, step=step)  # fmt: skip
    whole = dtype == _INT64 or category(dtype) == 1
    if whole and not int(step):
        raise ValueError(f"arange: step must be nonzero in {dtype}")
    if dtype == _INT64:
        # As in PyTorch, only int64 truncates the bounds first; other integer dtypes use the
        # fractions of the bounds for the number of elements.
        return np.arange(int(start), int(end), int(step), dtype=_INT64)
    places = math.ceil((end - start) / step)
    if whole:
        return (int(start) + int(step) * np.arange(places)).astype(dtype, copy=False)
    return (start + step * np.arange(places, dtype=np.float64)).astype(dtype, copy=False)


def _real(name: str, what: str, value: object) -> Any:
    number = _number(name, what, value)
    if isinstance(number, complex):
        raise unmet(
            name, "value cannot be converted to type double without overflow", **{what: number}
        )
    return number


@makes
def linspace(
    start: Tensor | Number, end: Tensor | Number, steps: int, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers at equal distances from `start` to `end`, both of which are included; see `zeros`.

    Args:
        start: the first: a number, or a tensor without dimensions.
        end: the last, likewise.
        steps: how many numbers.
        dtype: the dtype; if None, the default one or its complex counterpart.

    Raises:
        RuntimeError: if it is negative, a bound has dimensions, or the dtype is real and a bound
            is not.
        NotImplementedError: for booleans.
    """
    if level_of((start, end)) is not None:
        return by_parts(linspace, start, end, steps, dtype=dtype, device=device)
    array = _line("linspace", start, end, steps, dtype, None)
    return from_host("linspace", array, place_of("linspace", device), requires_grad)


@makes
def logspace(
    start: Tensor | Number, end: Tensor | Number, steps: int, base: Number = 10.0, *,
    dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Powers of `base` with exponents at equal distances from `start` to `end`; see `linspace`."""
    if level_of((start, end)) is not None:
        return by_parts(logspace, start, end, steps, base, dtype=dtype, device=device)
    array = _line("logspace", start, end, steps, dtype, base)
    return from_host("logspace", array, place_of("logspace", device), requires_grad)


@without_fp_errors
def _line(
    name: str, start: Tensor | Number, end: Tensor | Number, steps: object, dtype: DTypeLike | None,
    base: Any,
) -> Any:  # fmt: skip
    """Evenly spaced numbers, or powers of a base with such exponents."""
    count = one_int(name, "steps", steps)
    for what, bound in (("start", start), ("end", end)):
        if isinstance(bound, Variable) and bound._metadata.shape:
            raise unmet(
                name, f"{name} only supports 0-dimensional start and end tensors", **{what: bound}
            )
    if count < 0:
        raise RuntimeError(f"{name}: number of steps must be non-negative, got {count}")
    first, last = _number(name, "start", start), _number(name, "end", end)
    is_complex = isinstance(first, complex) or isinstance(last, complex)
    if dtype is None:
        wanted = default_complex_dtype() if is_complex else default_dtype()
    else:
        wanted = as_dtype(name, dtype)
    if is_complex and category(wanted) < 3:
        raise unmet(name, f"inferred dtype {default_complex_dtype()} can't be safely cast to "
                    "passed dtype", dtype=wanted)  # fmt: skip
    check_dtype(name, wanted, f"{REAL}c")
    if category(wanted) < 3:
        first, last = fitted(name, first, wanted), fitted(name, last, wanted)
    if base is not None:
        base = complex(base) if is_complex else float(base)
    # Computed from both ends, so that the last number is exactly `end`.
    step = (last - first) / (count - 1) if count > 1 else 0.0
    half = count // 2 + (count == 1)
    kind = np.complex128 if is_complex else np.float64
    out = (np if count <= _BLOCK else CPU.pooled_xp).empty((count,), wanted)
    for start in range(0, count, _BLOCK):
        values = np.arange(start, min(start + _BLOCK, count), dtype=kind)
        middle = max(half - start, 0)
        near, far = values[:middle], values[middle:]
        far -= count - 1
        values *= step
        near += first
        far += last
        out[start : start + _BLOCK] = values if base is None else np.power(base, values)
    return out


@makes
def eye(
    n: int, m: int | None = None, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A matrix with ones on the diagonal and zeros elsewhere; see `zeros`.

    Args:
        n: how many rows there are.
        m: how many columns; `n` if None.
        dtype: the dtype; the default one if None.
    """
    rows = _count("eye", "n", n)
    columns = rows if m is None else _count("eye", "m", m)
    place = place_of("eye", device)
    wanted = _dtype("eye", dtype)
    if place is CPU:
        array = np.zeros((rows, columns), wanted)
        array.reshape(-1)[: min(rows, columns) * columns : columns + 1] = 1
    else:
        array = place.xp.eye(rows, columns, dtype=wanted)
    return leaf("eye", array, place, requires_grad)


def _count(name: str, what: str, value: object) -> int:
    number = one_int(name, what, value)
    if number < 0:
        raise RuntimeError(f"{name}: {what} must be greater or equal to 0, got {number}")
    return number


def _triangle(name: str, doc: str) -> Callable[..., Tensor]:
    def function(
        row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
    ) -> Tensor:  # fmt: skip
        wanted = _INT64 if dtype is None else as_dtype(name, dtype)
        rows, columns = _count(name, "row", row), _count(name, "col", col)
        if wanted not in {_INT64, np.dtype("int32")}:
            refuse(name, wanted)
        array = np.stack(getattr(np, name)(rows, one_int(name, "offset", offset), columns))
        return from_host(name, array.astype(wanted, copy=False), place_of(name, device))

    return as_made(named(function, name, doc))


tril_indices = _triangle(
    "tril_indices",
    """The indices, of shape (2, count), on and below a matrix's diagonal, row by row; see `zeros`.

    Args:
        row: how many rows the matrix has.
        col: how many columns.
        offset: which diagonal; larger is further to the right.
        dtype: int64 if None, or int32.
    """,
)
triu_indices = _triangle(
    "triu_indices",
    "The indices on and above a diagonal of a matrix, row by row; see `tril_indices`.",
)
