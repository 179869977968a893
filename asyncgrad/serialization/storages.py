"""PyTorch's names of storages for each dtype, as used in its files."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.ops.dtype import DType

_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_BFLOAT16 = "BFloat16Storage"
#: A storage of bytes, which PyTorch uses for dtypes without a storage type.
UNTYPED = "UntypedStorage"
#: Dtypes that have tensors but no storage type in PyTorch.
_OTHERS = ("uint16", "uint32", "uint64")


def is_storage(module: str, name: str) -> bool:
    """Whether PyTorch has a storage type of that name which asyncgrad can read."""
    if name == UNTYPED:
        return module == "torch.storage"
    return module == "torch" and (name in _DTYPES or name == _BFLOAT16)


def dtype_of(name: str) -> Any:
    """The dtype of a storage type.

    Raises:
        ImportError: for bfloat16, which NumPy lacks, without ml_dtypes.
    """
    if name == UNTYPED:
        return np.dtype(np.uint8)
    if name != _BFLOAT16:
        return np.dtype(_DTYPES[name])
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            "the file holds bfloat16 tensors, which NumPy knows through ml_dtypes: "
            "pip install ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


def name_of(dtype: Any) -> str:
    """The name of the storage type for a dtype."""
    return _BFLOAT16 if dtype.name == "bfloat16" else _NAMES.get(dtype, UNTYPED)


def dtype_named(name: str) -> Any:
    """The dtype that PyTorch calls `torch.<name>`, None if asyncgrad has no such dtype."""
    if name == "bfloat16":
        return DType(dtype_of(_BFLOAT16))
    known = {np.dtype(dtype).name: dtype for dtype in (*_DTYPES.values(), *_OTHERS)}
    return DType(known[name]) if name in known else None
