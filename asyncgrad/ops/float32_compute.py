"""bfloat16 functions that compute in float32 and round the result, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops.bfloat16 import BFLOAT16
from asyncgrad.ops.promotion import cast

_FLOAT32 = np.dtype("float32")


def in_float32(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with bfloat16 tensors cast to float32, and round the result to bfloat16."""
    wide = [_widened(value) for value in args]
    out = function(*wide, **{key: _widened(value) for key, value in kwargs.items()})
    return cast(out, BFLOAT16)


def _widened(value: Any) -> Any:
    narrow = isinstance(value, Variable) and value._metadata.dtype.kind == "V"
    return cast(value, _FLOAT32) if narrow else value
