"""Arguments that many functions share: axes, shapes, indices, flags, and kinds of tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

from asyncgrad.aliases import Array
from asyncgrad.choices import Reduction, words
from asyncgrad.core.frames import warn
from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable, requires_grad
from asyncgrad.errors import class_of
from asyncgrad.ops.dtype import check_inexact, is_half
from asyncgrad.ops.promotion import as_number, as_tensor_operand, refusal

_index = operator.index
_all_ints = frozenset({int}).issuperset
_WHATEVER = (-1,)
_SEQUENCES = (tuple, list)


def number_argument(name: str, argument: str, value: Any) -> Any:
    """A number argument that is not an operand; a tensor without dimensions is accepted."""
    number = as_number(value)
    if isinstance(value, Variable) and not value._metadata.shape and not requires_grad(value):
        number = value.item()  # type: ignore[attr-defined]
    if number is None:
        raise TypeError(f"{name}(): argument '{argument}' must be Number, not {class_of(value)}")
    return number


def one_dim(name: str, dim: Any, ndim: int) -> int:
    """Count an axis from the front; raise IndexError for an axis that the tensor lacks."""
    if dim.__class__ is int and -ndim <= dim < ndim:
        return dim + ndim if dim < 0 else dim
    axis = one_int(name, "dim", dim)
    bound = max(ndim, 1)
    if not -bound <= axis < bound:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {axis})"
        )
    return axis % bound


def many_dims(name: str, dims: Any, ndim: int) -> tuple[int, ...]:
    """Count axes from the front, each allowed once; None or an empty sequence means all axes."""
    if dims.__class__ is int and -ndim <= dims < ndim:
        return (dims + ndim if dims < 0 else dims,)
    if dims is None:
        return tuple(range(ndim))
    if isinstance(dims, (tuple, list)):
        if not dims:
            return tuple(range(ndim))
        axes = tuple([one_dim(name, dim, ndim) for dim in dims])
        if len(set(axes)) < len(axes):
            raise RuntimeError(f"{name}: dim appears multiple times in the list of dims {dims}")
        return axes if ndim else ()
    axis = one_dim(name, dims, ndim)
    return (axis,) if ndim else ()


def one_shape(name: str, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as one sequence or as several numbers."""
    if len(sizes) == 1 and isinstance(sizes[0], _SEQUENCES):
        (sizes,) = sizes
    elif not sizes:
        raise TypeError(f"{name}() missing 1 required positional arguments: a shape, or numbers")
    if _all_ints(map(type, sizes)):
        return tuple(sizes)
    try:
        return whole_numbers(sizes)
    except TypeError:
        raise TypeError(f"{name}(): a shape must be made of ints, got {sizes!r}") from None


def whole_numbers(values: Sequence[Any]) -> tuple[int, ...]:
    """Convert values to ints. Like PyTorch, refuse a bool only as the first value."""
    if values and isinstance(values[0], bool):
        raise TypeError("a bool is none of them")
    return tuple(map(_index, values))


def one_int(name: str, what: str, value: Any) -> int:
    """Convert an argument to an int.

    Raises:
        TypeError: for a bool or a non-integer.
        ValueError: for an int of more than 64 bits.
    """
    number: int = value
    if value.__class__ is not int:
        try:
            if isinstance(value, Variable) and value._metadata.dtype == bool:
                raise TypeError("a bool is no int")
            (number,) = whole_numbers((value,))
        except TypeError:
            raise TypeError(
                f"{name}(): argument '{what}' must be int, not {type(value).__name__}"
            ) from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(
            f"{name}(): argument '{what}': Overflow when unpacking long long: {number} has more "
            "than 64 bits"
        )
    return number


def chosen_reduction(
    reduction: Reduction, size_average: bool | None = None, reduce: bool | None = None
) -> Reduction:
    """The reduction, or the one that the deprecated arguments ask for."""
    if size_average is not None or reduce is not None:
        each, total = (given is not None and not given for given in (reduce, size_average))
        reduction = "none" if each else "sum" if total else "mean"
        warn(
            f"size_average and reduce args will be deprecated, please use "
            f"reduction='{reduction}' instead."
        )
    if reduction not in words(Reduction):
        raise ValueError(
            f"{reduction} is not a valid value for reduction. It is one of {words(Reduction)}."
        )
    return reduction


def filled_shape(name: str, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Replace the one -1 in a shape by the size that is left, or raise RuntimeError."""
    if shape == _WHATEVER:
        return (size,)
    total = prod(shape)
    if total == size and (not shape or min(shape) >= 0):
        return shape
    if total < 0 and min(shape) == -1 and shape.count(-1) == 1 and not size % total:
        place = shape.index(-1)
        return (*shape[:place], -(size // total), *shape[place + 1 :])
    unknown = shape.count(-1)
    known = prod(n for n in shape if n != -1)
    if unknown > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred, got shape {list(shape)}")
    if any(n < -1 for n in shape):
        raise RuntimeError(f"{name}: invalid shape dimension in {list(shape)}")
    if unknown and known == size == 0:
        raise RuntimeError(
            f"{name}: cannot reshape tensor of 0 elements into shape {list(shape)} because the "
            f"unspecified dimension size -1 can be any value and is ambiguous"
        )
    raise RuntimeError(f"{name}: shape '{list(shape)}' is invalid for input of size {size}")


def greatest(array: Array) -> Any:
    """The greatest number of a host array. NumPy finds its place in less time than the number."""
    return array.item(array.argmax())


def is_expandable(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a shape can be expanded to another, by axes of length 1 and new leading axes."""
    lead = len(to) - len(shape)
    return lead >= 0 and all(m in {1, n} for m, n in zip(shape, to[lead:], strict=True))


def check_constant(name: str, what: str, tensor: Variable) -> None:
    """Raise for a tensor that requires grad where a function has no derivative by it."""
    if requires_grad(tensor) and current().grad:
        raise RuntimeError(
            f"The function '{name}' is not differentiable with respect to argument '{what}'. This "
            f"input cannot have requires_grad True: pass {what}.detach()."
        )


def check_bool(function: str, argument: str, value: Any) -> None:
    """Raise TypeError unless a value is True or False: PyTorch converts nothing to a bool."""
    if value is not True and value is not False:
        raise TypeError(
            f"{function}(): argument '{argument}' must be bool, not {type(value).__name__}"
        )


def matrices(name: str, value: Any, square: bool = False, place: int = 1) -> Any:
    """Check that a value is a tensor of floating or complex matrices.

    Raises:
        RuntimeError: if it has less than two axes or another dtype, or if the matrices are not
            square but should be.
        NotImplementedError: in half precision.
    """
    if not isinstance(value, Variable):
        raise refusal(value, name, place)
    shape, dtype = value._metadata.shape, value._metadata.dtype
    if len(shape) < 2:
        raise RuntimeError(
            f"{name}: The input tensor A must have at least 2 dimensions, got shape {shape}."
        )
    check_inexact(name, dtype)
    if is_half(dtype):
        raise NotImplementedError(
            f"{name}: Low precision dtypes not supported. Got {dtype}. Convert it with .to()."
        )
    if square and shape[-1] != shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {shape[-2]} by "
            f"{shape[-1]} matrices"
        )
    return value


def of_one_dtype(name: str, *values: Any, place: int = 1) -> Any:
    """Check that the operands, the first of which is argument `place`, are tensors of one dtype.

    Raises:
        RuntimeError: if the dtypes differ.
    """
    dtype = as_tensor_operand(values[0], name, place)._metadata.dtype
    for at, value in enumerate(values[1:], place + 1):
        found = as_tensor_operand(value, name, at)._metadata.dtype
        if found != dtype:
            raise RuntimeError(
                f"{name}: expected tensors of the same dtype, but got {dtype} and {found}, which "
                f"is argument {at}. Convert one with .to()."
            )
    return values
