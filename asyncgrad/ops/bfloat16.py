"""The dtype bfloat16, which the package ml_dtypes adds to NumPy.

The package is optional. This module imports it at load time, never within a call: an import reads
files, which would block an event loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None  # type: ignore[assignment]

#: The dtype, or None if ml_dtypes is not installed.
BFLOAT16 = None if ml_dtypes is None else np.dtype(ml_dtypes.bfloat16)


def needs_bfloat16(name: str) -> Any:
    """The bfloat16 dtype; raises ImportError if ml_dtypes is not installed."""
    if BFLOAT16 is None:
        raise ImportError(
            f"{name} needs ml_dtypes, which is not installed. Install it with "
            f"`pip install asyncgrad[bfloat16]`."
        )
    return BFLOAT16


def sortable(array: Any) -> Any:
    """An array that is sorted with NaN last: NumPy sorts NaN of bfloat16 anywhere."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def floating_info(dtype: Any) -> Any:
    """The limits of a floating dtype, or of a complex dtype's parts."""
    if dtype.kind == "V":
        return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return np.finfo(dtype)
