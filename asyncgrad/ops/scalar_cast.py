"""Convert one number to a dtype as PyTorch's fill functions do."""

from __future__ import annotations

import math
from functools import cache
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
            raise overflow(name, number, dtype)
        real = number.real
    if kind in "iu":
        return _whole(name, real, dtype)
    try:
        real = float(real)
    except OverflowError:
        raise overflow(name, number, dtype) from None
    if _WITHIN < abs(real) < math.inf and abs(real) > float(floating_info(dtype).max):
        raise overflow(name, number, dtype)
    return real


def _whole(name: str, number: Any, dtype: Any) -> int:
    smallest, largest = _limits(dtype)
    lowest = smallest
    if not lowest and isinstance(number, int):
        # A negative number down to `-largest` wraps around to an unsigned integer.
        lowest = -largest
    if not lowest <= number <= largest:
        raise overflow(name, number, dtype)
    whole = int(number)
    return whole % (largest + 1) if whole < smallest else whole


@cache
def _limits(dtype: Any) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return info.min, info.max


def overflow(name: str, value: Any, dtype: Any) -> RuntimeError:
    """The error for a number, or numbers, that a dtype can't hold."""
    return RuntimeError(
        f"{name}: value cannot be converted to type {dtype} without overflow: {value}"
    )
