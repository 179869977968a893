"""The dtype bfloat16, which the package ml_dtypes adds to NumPy.

It is optional. It is imported with this module, never by a call: an import reads files, and a call
may come from an event loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None  # type: ignore[assignment]

#: The dtype, or None without the package.
BFLOAT16 = None if ml_dtypes is None else np.dtype(ml_dtypes.bfloat16)


def needs_bfloat16(name: str) -> Any:
    """The dtype.

    Raises:
        ImportError: if ml_dtypes is not installed.
    """
    if BFLOAT16 is None:
        raise ImportError(
            f"{name} needs ml_dtypes, which is not installed. Install it with "
            f"`pip install asyncgrad[bfloat16]`."
        )
    return BFLOAT16


def floating_info(dtype: Any) -> Any:
    """The limits of a floating dtype, or of the parts of a complex one."""
    if dtype.kind == "V":
        return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return np.finfo(dtype)
