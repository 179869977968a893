"""One number as an element of a dtype, as PyTorch's functions that fill convert it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asyncgrad.ops.bfloat16 import floating_info

#: No number below this is too large for any floating dtype.
_WITHIN = 6e4


def fitted(name: str, number: Any, dtype: Any) -> Any:
    """A number that the dtype has, or one near it.

    Args:
        name: the function that was given the number, for errors.
        number: one of Python's.
        dtype: the dtype.

    Raises:
        RuntimeError: if the number is too large, or complex or not finite where that can't be.
    """
    kind = dtype.kind
    if number.__class__ is float and kind == "f" and -_WITHIN < number < _WITHIN:
        return number
    if kind == "b":
        return bool(number)
    if kind == "c":
        return number
    real = number
    if isinstance(number, complex):
        if number.imag:
            raise _overflow(name, number, dtype)
        real = number.real
    if kind in "iu":
        return _whole(name, real, dtype)
    try:
        real = float(real)
    except OverflowError:
        raise _overflow(name, number, dtype) from None
    if math.isfinite(real) and abs(real) > float(floating_info(dtype).max):
        raise _overflow(name, number, dtype)
    return real


def _whole(name: str, number: Any, dtype: Any) -> int:
    limits = np.iinfo(dtype)
    lowest = limits.min
    if not lowest and isinstance(number, int):
        # Below zero, integers wrap around once.
        lowest = -limits.max
    if not lowest <= number <= limits.max:
        raise _overflow(name, number, dtype)
    whole = int(number)
    return whole % (limits.max + 1) if whole < limits.min else whole


def _overflow(name: str, number: Any, dtype: Any) -> RuntimeError:
    return RuntimeError(
        f"{name}: value cannot be converted to type {dtype} without overflow: {number!r}"
    )
