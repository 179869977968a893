"""Remainders and rounded quotients of large float32 arrays, to the bit as NumPy computes them.

NumPy calls the C library's `fmod` for each element, which takes 25 ns. Here the quotient is
computed in float64. Its integer part is exact below 2**28, because a quotient of two float32
numbers that is no integer differs from the next one by 2**-24 at least. Then the integer times the
divisor, and what it leaves of the dividend, are exact, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.ops.fused import share
from asyncgrad.types import Array, Library, Number

#: Elements of a block, of which there are three arrays of float64.
_BLOCK = 1 << 15
#: The largest quotients: of remainders, and of quotients, which NumPy rounds in float32.
_EXACT, _EXACT_IN_FLOAT32 = 1 << 28, 1 << 22


def _divisor(x: Array, y: Array | Number) -> Any:
    """The divisor in float64, one or one for each element; None unless NumPy's own is slower."""
    if x.__class__ is not np.ndarray or x.dtype.char != "f" or x.size < _BLOCK:
        return None
    if not isinstance(y, np.ndarray):
        y = np.asarray(y, np.float32)
    if y.dtype != x.dtype or not x.flags.c_contiguous or not y.flags.c_contiguous:
        return None
    return y if y.shape in {(), x.shape} else None


def exact(
    name: str, rounding: Callable[..., Any], *, signed_as: int | None = None
) -> Callable[..., Any]:
    """NumPy's remainder or rounded quotient, faster for large float32 arrays.

    Args:
        name: NumPy's name of the function.
        rounding: rounds the quotient to an integer.
        signed_as: the operand, 0 or 1, whose sign the remainder has; None for the quotient.
    """
    limit = _EXACT_IN_FLOAT32 if signed_as is None else _EXACT

    def compute(xp: Library, x: Array, y: Array | Number) -> Any:
        divisor = _divisor(x, y)
        if divisor is None:
            return getattr(xp, name)(x, y)
        out = np.empty_like(x)
        dividends, results = x.reshape(-1), out.reshape(-1)
        several = divisor.ndim > 0
        if several:
            divisor = divisor.reshape(-1)

        def of_block(block: slice) -> None:
            a, b, result = dividends[block], divisor[block] if several else divisor, results[block]
            wide, wide_b = a.astype(np.float64), b.astype(np.float64)
            quotient = rounding(wide / wide_b)
            # False for NaN, too.
            if not (quotient.max() < limit and quotient.min() > -limit and np.isfinite(b).all()):
                getattr(np, name)(a, b, out=result)
            elif signed_as is None:
                result[...] = quotient
            else:
                quotient *= wide_b
                wide -= quotient
                result[...] = wide
                np.copysign(result, (a, b)[signed_as], out=result)

        share(np, of_block, [slice(i, i + _BLOCK) for i in range(0, x.size, _BLOCK)])
        return out

    return compute
