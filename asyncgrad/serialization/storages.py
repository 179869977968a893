"""PyTorch's names of storages for each dtype, as used in its files."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.ops.bfloat16 import needs_bfloat16
from asyncgrad.ops.dtype import DType

#: A storage of bytes, which PyTorch uses for dtypes without a storage type.
UNTYPED = "UntypedStorage"
_NAMES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
    "uint16": UNTYPED,
    "uint32": UNTYPED,
    "uint64": UNTYPED,
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()} | {UNTYPED: "uint8"}


def is_storage(module: str, name: str) -> bool:
    """Whether PyTorch has a storage type of that name which asyncgrad can read."""
    return name in _DTYPES and module == ("torch.storage" if name == UNTYPED else "torch")


def dtype_of(name: str) -> Any:
    """The dtype of a storage type."""
    return _dtype(_DTYPES[name])


def name_of(dtype: Any) -> str:
    """The name of the storage type for a dtype."""
    return _NAMES.get(dtype.name, UNTYPED)


def dtype_named(name: str) -> Any:
    """The dtype that PyTorch calls `torch.<name>`, None if asyncgrad has no such dtype."""
    return DType(_dtype(name)) if name in _NAMES else None


def _dtype(name: str) -> Any:
    return needs_bfloat16("load") if name == "bfloat16" else np.dtype(name)
