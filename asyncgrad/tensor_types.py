"""PyTorch's types of tensors: for each dtype a constructor that answers `isinstance`, too."""

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
    """Tensors of the dtype in the host's memory are instances of its classes."""

    dtype: DType

    def __call__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        """A tensor of the dtype; the arguments are those of `Tensor`."""
        name, place = cls.__name__, place_of(cls.__name__, device)
        dtype = needs_bfloat16(name) if cls is BFloat16Tensor else cls.dtype.dtype
        return by_size_or_data(name, dtype, place, args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        """Whether it is a tensor of the dtype."""
        return (
            isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.device is CPU
        )


class BoolTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of bool."""

    dtype = DType("bool")


class ByteTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of uint8."""

    dtype = DType("uint8")


class CharTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of int8."""

    dtype = DType("int8")


class ShortTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of int16."""

    dtype = DType("int16")


class IntTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of int32."""

    dtype = DType("int32")


class LongTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of int64."""

    dtype = DType("int64")


class HalfTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of float16."""

    dtype = DType("float16")


class FloatTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of float32."""

    dtype = DType("float32")


class DoubleTensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of float64."""

    dtype = DType("float64")


class BFloat16Tensor(Tensor, metaclass=_TypeOfTensors):
    """Tensors of bfloat16, which there are where ml_dtypes is installed."""

    if BFLOAT16 is not None:
        dtype = DType(BFLOAT16)


def set_default_tensor_type(t: Any) -> None:
    """Set the dtype that Python floats become by the type of its tensors; see `set_default_dtype`.

    Args:
        t: such as `FloatTensor`, or its name.

    Raises:
        TypeError: if it is no floating one.
    """
    set_default_dtype(type_named(t))
