"""Sums at places of an array, where CuPy does not take all dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.ops.dtype import is_half
from asyncgrad.types import Array, Library

#: The dtypes of which all versions of CuPy change elements at places, without uint64.
CHANGED_AT = "fdiI"


def add_at(xp: Library, out: Array, index: Any, g: Array) -> None:
    """`xp.add.at`, also for dtypes that CuPy's does not take."""
    dtype = out.dtype
    if dtype.char in CHANGED_AT or out.__class__ is np.ndarray:
        xp.add.at(out, index, g)
    elif dtype.kind == "c":
        xp.add.at(out.real, index, g.real)
        xp.add.at(out.imag, index, g.imag)
    elif dtype.itemsize == 8:
        # The sums have the same bits.
        xp.add.at(out.view("u8"), index, g.view("u8"))
    else:
        wider = np.float32 if is_half(dtype) else np.int32
        wide = out.astype(wider)
        xp.add.at(wide, index, g.astype(wider))
        out[...] = wide.astype(dtype)
