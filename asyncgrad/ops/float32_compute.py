"""Compositions that compute in float32 for half precision and round the result, as PyTorch's do.

`widening` does the same for array functions and rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.promotion import cast
from asyncgrad.types import Tensor

_FLOAT32 = np.dtype("float32")


def computing_dtype(dtype: Any) -> Any:
    """The dtype in which a function of several steps computes, so that it rounds once."""
    return _FLOAT32 if is_half(dtype) else dtype


def in_parameters_dtype(name: str, x: Tensor, *parameters: Tensor | None) -> Any:
    """The input in its parameters' dtype, which may be float32 for an input of half precision.

    Raises:
        RuntimeError: if a parameter has another dtype.
    """
    dtype = x._metadata.dtype
    for p in parameters:
        if p is not None and p._metadata.dtype is not dtype:
            break
    else:
        return x
    dtypes = {p._metadata.dtype for p in parameters if p is not None}
    wide = dtype if dtypes == {dtype} else computing_dtype(dtype)
    if dtypes - {wide}:
        raise RuntimeError(
            f"{name}: expected parameters of dtype {wide} for an input of dtype {dtype}, got "
            f"{', '.join(sorted(map(str, dtypes)))}. Convert them with .to()."
        )
    return cast(x, wide)


def in_float32(function: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call a function with tensors of the first one's dtype cast to float32; round the result."""
    dtype = x._metadata.dtype

    def widened(value: Any) -> Any:
        narrow = isinstance(value, Variable) and value._metadata.dtype == dtype
        return cast(value, _FLOAT32) if narrow else value

    wide = {key: widened(value) for key, value in kwargs.items()}
    return cast(function(widened(x), *map(widened, args), **wide), dtype)
