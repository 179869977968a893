"""The dtypes that users see: one object for each NumPy dtype that tensors can have."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.ops.bfloat16 import BFLOAT16

#: The kinds of dtypes that functions take. The kind "V" is bfloat16's.
FLOATING, INEXACT, REAL = "fV", "fVc", "fViu"


class DType:
    """The dtype of a tensor's elements. NumPy accepts it as a dtype, and it equals NumPy's own.

    Args:
        given: a NumPy dtype, or anything that `np.dtype` accepts.
    """

    #: NumPy reads this attribute where it is given a `DType` as a dtype.
    dtype: np.dtype[Any]
    is_complex: bool
    is_floating_point: bool
    is_signed: bool
    itemsize: int

    __slots__ = ("dtype", "is_complex", "is_floating_point", "is_signed", "itemsize")

    def __new__(cls, given: Any) -> DType:
        """Return the one object for a dtype."""
        found = KNOWN.get(np.dtype(given))
        if found is None:
            raise TypeError(f"tensors can't have the dtype {given!r}. Use asyncgrad.float32.")
        return found

    def to_real(self) -> DType:
        """The dtype of a complex number's parts; the dtype itself if it is real."""
        return DType(self.dtype.type().real.dtype) if self.is_complex else self

    def to_complex(self) -> DType:
        """The complex dtype with parts of this dtype; RuntimeError if there is none."""
        if self.is_complex:
            return self
        name = _COMPLEX.get(self.name)
        if name is None:
            raise RuntimeError(f"Unknown Complex ScalarType for {self.name}. Use float32 first.")
        return DType(name)

    def __getattr__(self, name: str) -> Any:
        """Other attributes are those of NumPy's dtype."""
        return getattr(self.dtype, name)

    def __eq__(self, other: object) -> bool:
        return self is other or (other.__class__ is not DType and self.dtype == other)

    def __hash__(self) -> int:
        """The hash of NumPy's dtype, because the two compare equal."""
        return hash(self.dtype)

    def __reduce__(self) -> Any:
        return DType, (self.name,)

    def __repr__(self) -> str:
        return f"asyncgrad.{self.name}"


def _make(known: np.dtype[Any]) -> DType:
    made: DType = object.__new__(DType)
    made.dtype = known
    made.is_complex = known.kind == "c"
    made.is_floating_point = known.kind in FLOATING
    made.is_signed = known.kind not in "bu"
    made.itemsize = known.itemsize
    return made


_NAMES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip
#: By NumPy's dtype. PyTorch has no long doubles, whose size depends on the platform.
KNOWN = {known: _make(known) for known in map(np.dtype, _NAMES)}
if BFLOAT16 is not None:
    KNOWN[BFLOAT16] = _make(BFLOAT16)
#: The types of what may stand for a dtype, besides strings.
DTYPES = (DType, np.dtype, type)
_COMPLEX = {"bfloat16": "complex64", "float32": "complex64", "float64": "complex128"}


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is float16 or bfloat16, sums of which are computed in float32."""
    return dtype.itemsize == 2 and dtype.kind in FLOATING


def check_dtype(name: str, dtype: np.dtype[Any], kinds: str) -> None:
    """Raise NotImplementedError, as PyTorch does, for a dtype that a function does not support."""
    if dtype.kind not in kinds:
        refuse(name, dtype)


def check_inexact(name: str, dtype: np.dtype[Any]) -> None:
    """Raise RuntimeError, in the words of PyTorch's `linalg`, for integers and booleans."""
    if dtype.kind not in INEXACT:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {dtype}. Convert "
            f"it with .to()."
        )


def refuse(name: str, dtype: np.dtype[Any]) -> None:
    """Raise the error for a dtype that a function does not support."""
    raise NotImplementedError(f'"{name}" not implemented for {dtype}. Convert it with .to().')
