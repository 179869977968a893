"""NumPy whose products of half-precision matrices are computed in float32 and rounded.

NumPy adds up such products in float32 one by one: that takes some hundred times as long as BLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.aliases import Array
from asyncgrad.devices.fp_errors import without_fp_errors
from asyncgrad.devices.plain_numpy import plain_numpy
from asyncgrad.devices.pool import dot


def _in_float32(product: Callable[..., Any]) -> Callable[..., Any]:
    """A product of two arrays; those of one half-precision dtype are multiplied in float32."""

    # A number that is too large for the dtype becomes infinite without a warning.
    @without_fp_errors
    def rounded(x: Array, y: Array, out: Array | None) -> Any:
        made = product(x.astype(np.float32), y.astype(np.float32))
        if out is None:
            return made.astype(x.dtype)
        out[...] = made
        return out

    def call(x: Array, y: Array, out: Array | None = None) -> Any:
        dtype = x.dtype
        if dtype == y.dtype and dtype.itemsize == 2 and dtype.kind in "fV":
            return rounded(x, y, out)
        return product(x, y) if out is None else product(x, y, out)

    return call


def half_numpy() -> Any:
    """NumPy for arrays of half precision."""
    return plain_numpy(dot=_in_float32(dot), matmul=_in_float32(np.matmul))
