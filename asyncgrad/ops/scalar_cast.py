"""Convert one number to a dtype as PyTorch's fill functions do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asyncgrad.ops.bfloat16 import floating_info

#: Numbers of smaller magnitude fit into every floating dtype.
_WITHIN = 6e4


def fitted(name: str, number: Any, dtype: Any) -> Any:
    """Convert a number to a dtype, rounding it if necessary.

    Raises:
        RuntimeError: if the dtype can't hold the number: too large, complex or not finite.
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
        # A negative number down to `-max` wraps around to an unsigned integer.
        lowest = -limits.max
    if not lowest <= number <= limits.max:
        raise _overflow(name, number, dtype)
    whole = int(number)
    return whole % (limits.max + 1) if whole < limits.min else whole


def _overflow(name: str, number: Any, dtype: Any) -> RuntimeError:
    return RuntimeError(
        f"{name}: value cannot be converted to type {dtype} without overflow: {number!r}"
    )
