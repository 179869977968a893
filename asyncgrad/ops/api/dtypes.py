"""Properties of dtypes and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops.api.conversion import name_of_type
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.promotion import as_number, category, default_dtype, promote_dtypes, result_dtype
from asyncgrad.ops.storage import Storage
from asyncgrad.types import DTypeLike, Number, Tensor

__all__ = [
    "can_cast", "finfo", "get_default_dtype", "iinfo", "is_complex", "is_floating_point",
    "is_nonzero", "is_signed", "is_storage", "is_tensor", "numel", "promote_types", "result_type",
    "typename",
]  # fmt: skip
METHODS = ("is_nonzero", "is_signed")


class finfo:
    """The limits of a floating dtype, or of the parts of a complex one.

    Args:
        type: the dtype; the default one if None.
    """

    __slots__ = (
        "bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny",
    )  # fmt: skip

    def __init__(self, type: DTypeLike | None = None) -> None:
        dtype = default_dtype() if type is None else as_dtype("finfo", type)
        if category(dtype) < 2:
            raise TypeError(
                f"finfo() requires a floating point input type, got {dtype}. Use iinfo()."
            )
        found = floating_info(dtype)
        self.bits = int(found.bits)
        self.dtype = found.dtype.name
        self.eps = float(found.eps)
        self.max = float(found.max)
        self.min = float(found.min)
        self.resolution = 10.0**-found.precision
        self.smallest_normal = self.tiny = float(found.smallest_normal)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer dtype."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type: DTypeLike) -> None:
        dtype = as_dtype("iinfo", type)
        if category(dtype) != 1:
            raise TypeError(f"iinfo() requires an integer input type, got {dtype}. Use finfo().")
        found = np.iinfo(dtype)
        self.bits = int(found.bits)
        self.dtype = dtype.name
        self.max = int(found.max)
        self.min = int(found.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def can_cast(from_: DTypeLike, to: DTypeLike) -> bool:
    """Whether promotion allows casting one dtype to another: never to a lower category."""
    return category(from_) <= category(to)


def get_default_dtype() -> DType:
    """The dtype that Python floats become; `set_default_dtype` sets it."""
    return DType(default_dtype())


def promote_types(type1: DTypeLike, type2: DTypeLike) -> DType:
    """The smallest dtype to which both dtypes can be promoted."""
    return DType(promote_dtypes(type1, type2))


def result_type(tensor1: Tensor | Number, tensor2: Tensor | Number) -> DType:
    """The dtype of an operation on two operands: tensors or numbers."""
    operands = []
    for given in (tensor1, tensor2):
        operands.append(given if isinstance(given, Variable) else as_number(given))
        if operands[-1] is None:
            raise TypeError(
                f"result_type() received an invalid combination of arguments: "
                f"{type(given).__name__} is neither a Tensor nor a number"
            )
    return DType(result_dtype(*operands))


def is_tensor(obj: object) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, Variable)


def is_storage(obj: object) -> bool:
    """Whether an object is the storage of tensors."""
    return isinstance(obj, Storage)


def is_signed(input: Tensor) -> bool:
    """Whether a tensor's dtype has negative numbers."""
    return input._metadata.user_dtype.is_signed


def typename(obj: Any) -> str:
    """The name of an object's type; for tensors, such as "asyncgrad.FloatTensor"."""
    if isinstance(obj, Variable):
        return name_of_type(obj)
    kind = obj if isinstance(obj, type) else type(obj)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def is_floating_point(input: Tensor) -> bool:
    """Whether a tensor's dtype is a real floating one."""
    return category(input._metadata.dtype) == 2


def is_complex(input: Tensor) -> bool:
    """Whether a tensor's dtype is complex."""
    return bool(input._metadata.is_complex)


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element of a tensor is not zero."""
    return bool(input)


def numel(input: Tensor) -> int:
    """The number of elements of a tensor."""
    return int(input._metadata.size)
