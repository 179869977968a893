"""Conversion of tensors to another dtype or device."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from numbers import Integral as _Integer
from typing import Any, overload

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices import Device
from asyncgrad.ops.bfloat16 import needs_bfloat16
from asyncgrad.ops.dtype_device import as_device, as_dtype, as_memory_format, memory_format
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand, cast, default_dtype
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.transfer import to_device
from asyncgrad.types import DeviceLike, DTypeLike, Tensor

__all__: list[str] = []
METHODS = (
    "bfloat16", "bool", "byte", "cdouble", "cfloat", "char", "contiguous", "cpu", "double", "float",
    "half", "int", "long", "short", "to", "type", "type_as",
)  # fmt: skip
#: PyTorch's names of tensor types, by dtype.
_TYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble", "int8": "Char", "int16": "Short",
    "int32": "Int", "int64": "Long", "uint8": "Byte", "uint16": "UInt16", "uint32": "UInt32",
    "uint64": "UInt64", "bool": "Bool",
}  # fmt: skip


@overload
def to(
    input: Tensor, dtype: DTypeLike, non_blocking: builtins.bool = False,
    copy: builtins.bool = False, *, memory_format: memory_format | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def to(
    input: Tensor, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    non_blocking: builtins.bool = False, copy: builtins.bool = False, *,
    memory_format: memory_format | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def to(
    input: Tensor, other: Tensor, non_blocking: builtins.bool = False,
    copy: builtins.bool = False, *, memory_format: memory_format | None = None,
) -> Tensor: ...  # fmt: skip
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Convert the tensor to another dtype or device, recorded; itself if nothing changes.

    Called as `to(dtype)`, `to(device, dtype)` or `to(other)`, each followed by `non_blocking` and
    `copy`; all can be keywords.

    Args:
        args: see above.
        kwargs: the same by name, and `memory_format`, which is only checked.
    """
    return _converted(as_tensor_operand(input, "to", 1), **arguments_of_to(args, kwargs))


def arguments_of_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """By their names, the arguments of `to`, which the class of the first one tells apart."""
    names: tuple[str, ...] = ("dtype", "non_blocking", "copy")
    if args and isinstance(args[0], Variable):
        names = ("other", *names[1:])
    elif args and (args[0] is None or _is_device(args[0])):
        names = ("device", *names)
    if len(args) > len(names):
        raise TypeError(f"to() received an invalid combination of arguments: {args}")
    given = dict(zip(names, args, strict=False))
    if given.keys() & kwargs.keys():
        raise TypeError(f"to() got multiple values for {sorted(given.keys() & kwargs.keys())}")
    given |= kwargs
    for name in ("non_blocking", "copy"):
        if not isinstance(given.get(name, False), builtins.bool):
            raise TypeError(f"to(): argument '{name}' must be bool, not {given[name]!r}")
    return given


def _is_device(value: object) -> Any:
    if isinstance(value, (Device, _Integer)):
        return True
    if not isinstance(value, str):
        return False
    try:
        np.dtype(value)
    except TypeError:
        return True
    return False


def target_of_to(
    *, dtype: object = None, device: DeviceLike | None = None, other: Tensor | None = None,
    non_blocking: object = False, copy: object = False,
    memory_format: memory_format | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The device and dtype that the arguments of `to` name; None where they name none."""
    if other is not None:
        return other._metadata.device, other._metadata.dtype
    as_memory_format("to", memory_format)
    target = None if device is None else as_device("to", device)
    return target, None if dtype is None else as_dtype("to", dtype)


def _converted(
    x: Tensor, *, copy: object = False, non_blocking: Any = False,
    memory_format: memory_format | None = None, **given: Any,
) -> Any:  # fmt: skip
    as_memory_format("to", memory_format, len(x._metadata.shape))
    target, kind = target_of_to(**given)
    if target is not None and target is not x._metadata.device:
        return to_device(x, target, kind, non_blocking=non_blocking)
    out = x if kind is None else cast(x, kind)
    return R.clone(x) if copy and out is x else out


def contiguous(input: Tensor, memory_format: memory_format | None = None) -> Tensor:
    """The tensor if it is contiguous in memory, else a contiguous copy.

    With `channels_last`, a tensor in that layout is also returned; a copy has the usual layout.
    """
    ndim = len(input._metadata.shape)
    last = as_memory_format("contiguous", memory_format, ndim)
    if input._batched:
        return input
    if last and input._array.transpose(0, *range(2, ndim), 1).flags.c_contiguous:
        return input
    return input if input._array.flags.c_contiguous else R.clone(input, "C")


def cpu(input: Tensor, memory_format: memory_format | None = None) -> Tensor:
    """The tensor in host memory; itself if it is there."""
    return _converted(input, device="cpu", memory_format=memory_format)


# Here and in `type_named`, `| str` keeps the annotation from asking for a conversion to a dtype:
# names of tensor types are none.
def type(input: Tensor, dtype: DTypeLike | str | None = None, non_blocking: Any = False) -> Any:
    """Convert to another dtype, or return the type's name, such as "asyncgrad.FloatTensor".

    Args:
        dtype: a dtype, a name or a type of tensors; None for the name.
        non_blocking: for PyTorch compatibility.
    """
    if dtype is None:
        return name_of_type(input)
    return to(input, type_named(dtype))


def name_of_type(x: Variable) -> str:
    """PyTorch's name of a tensor's type."""
    return f"asyncgrad.{_TYPES[x._metadata.dtype.name]}Tensor"


def type_named(dtype: DTypeLike | str) -> Any:
    """The dtype of a tensor type or its name; other values are returned unchanged.

    `Tensor` is the type of the default dtype.
    """
    if isinstance(dtype, builtins.type) and issubclass(dtype, Variable):
        dtype = f"asyncgrad.{dtype.__name__}"
    if isinstance(dtype, str):
        library, _, word = dtype.rpartition(".")
        if library and word == "Tensor":
            return default_dtype()
        dtypes = [name for name, kind in _TYPES.items() if word == f"{kind}Tensor"]
        if not dtypes:
            raise ValueError(f"invalid type: {dtype!r}. Give a dtype, or 'asyncgrad.FloatTensor'.")
        return dtypes[0]
    return dtype


def type_as(input: Tensor, other: Tensor) -> Tensor:
    """Convert the tensor to the dtype of another."""
    return cast(input, other._metadata.dtype)


def _conversion(name: str, dtype: str) -> Callable[..., Tensor]:
    def convert(input: Tensor, memory_format: memory_format | None = None) -> Tensor:
        if memory_format is not None:
            as_memory_format(name, memory_format, len(input._metadata.shape))
        return cast(input, np.dtype(dtype))

    return named(convert, name, f"The tensor as {dtype}; itself if it is that.")


def bfloat16(input: Tensor, memory_format: memory_format | None = None) -> Tensor:
    """Convert the tensor to bfloat16, which the package ml_dtypes provides.

    Raises:
        ImportError: if ml_dtypes is not installed.
    """
    dtype = needs_bfloat16("bfloat16()")
    as_memory_format("bfloat16", memory_format, len(input._metadata.shape))
    return cast(input, dtype)


half = _conversion("half", "float16")
cfloat = _conversion("cfloat", "complex64")
cdouble = _conversion("cdouble", "complex128")
byte = _conversion("byte", "uint8")
char = _conversion("char", "int8")
short = _conversion("short", "int16")
long = _conversion("long", "int64")
double = _conversion("double", "float64")
# These names shadow Python's types, so no code below may use those types.
int = _conversion("int", "int32")
float = _conversion("float", "float32")
bool = _conversion("bool", "bool")
