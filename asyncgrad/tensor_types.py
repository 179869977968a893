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


class _Typed(Tensor, metaclass=_TypeOfTensors):
    """The base of tensor types."""

    def __init_subclass__(cls, dtype: Any = None) -> None:
        super().__init_subclass__()
        if dtype is not None:
            cls.dtype = DType(dtype)  # type: ignore[assignment, method-assign]


class BoolTensor(_Typed, dtype="bool"):
    """Tensors of dtype bool."""


class ByteTensor(_Typed, dtype="uint8"):
    """Tensors of dtype uint8."""


class CharTensor(_Typed, dtype="int8"):
    """Tensors of dtype int8."""


class ShortTensor(_Typed, dtype="int16"):
    """Tensors of dtype int16."""


class IntTensor(_Typed, dtype="int32"):
    """Tensors of dtype int32."""


class LongTensor(_Typed, dtype="int64"):
    """Tensors of dtype int64."""


class HalfTensor(_Typed, dtype="float16"):
    """Tensors of dtype float16."""


class FloatTensor(_Typed, dtype="float32"):
    """Tensors of dtype float32."""


class DoubleTensor(_Typed, dtype="float64"):
    """Tensors of dtype float64."""


class BFloat16Tensor(_Typed, dtype=BFLOAT16):
    """Tensors of dtype bfloat16, which needs ml_dtypes."""


def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype to that of a tensor type; see `set_default_dtype`.

    Args:
        t: a type such as `FloatTensor`, or its name.

    Raises:
        TypeError: if the type is not floating-point.
    """
    set_default_dtype(type_named(t))
