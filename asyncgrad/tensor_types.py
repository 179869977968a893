"""PyTorch's tensor types: a constructor for each dtype that also works with `isinstance`."""

from __future__ import annotations

from typing import Any

from asyncgrad.devices import CPU
from asyncgrad.ops.api.conversion import type_named
from asyncgrad.ops.api.data import by_size_or_data
from asyncgrad.ops.bfloat16 import BFLOAT16, needs_bfloat16
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.promotion import set_default_dtype
from asyncgrad.ops.tensors.new_tensors import place_of
from asyncgrad.tensor import Tensor

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "set_default_tensor_type",
]  # fmt: skip


class _TypeOfTensors(type):
    """Makes all tensors of the dtype in host memory instances of the class."""

    dtype: DType

    def __call__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        """Make a tensor of the dtype; the arguments are those of `Tensor`."""
        name, place = cls.__name__, place_of(cls.__name__, device)
        dtype = needs_bfloat16(name) if cls is BFloat16Tensor else cls.dtype.dtype
        return by_size_or_data(name, dtype, place, args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        """Whether a value is a tensor of the dtype in host memory."""
        return (
            isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.device is CPU
        )


class BoolTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype bool."""

    dtype = DType("bool")


class ByteTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype uint8."""

    dtype = DType("uint8")


class CharTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype int8."""

    dtype = DType("int8")


class ShortTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype int16."""

    dtype = DType("int16")


class IntTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype int32."""

    dtype = DType("int32")


class LongTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype int64."""

    dtype = DType("int64")


class HalfTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype float16."""

    dtype = DType("float16")


class FloatTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype float32."""

    dtype = DType("float32")


class DoubleTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype float64."""

    dtype = DType("float64")


class BFloat16Tensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of dtype bfloat16, which needs ml_dtypes."""

    if BFLOAT16 is not None:
        dtype = DType(BFLOAT16)


def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype to that of a tensor type; see `set_default_dtype`.

    Args:
        t: a type such as `FloatTensor`, or its name.

    Raises:
        TypeError: if the type is not floating-point.
    """
    set_default_dtype(type_named(t))
