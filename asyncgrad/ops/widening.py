"""Compute with half precision in float32, and round the result once.

A row whose field `wide` is true has its raw function wrapped so. Kernels of gradients wrap
themselves, and the rules beside them follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.ops.dtype import is_half

_FLOAT32 = np.dtype("float32")


def widening(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compute `kernel(xp, x, ...)` of half-precision arrays in single precision.

    It returns an array, or a tuple of them.
    """

    @functools.wraps(kernel)
    def run(xp: Any, x: Any, *arguments: Any) -> Any:
        dtype = x.dtype
        if not is_half(dtype):
            return kernel(xp, x, *arguments)
        made = kernel(xp, x.astype(_FLOAT32), *map(widened, arguments))
        if isinstance(made, tuple):
            return tuple([part.astype(dtype) for part in made])
        return made.astype(dtype)

    return run


def widened(value: Any) -> Any:
    """A half-precision array in single precision, anything else as it is."""
    dtype = getattr(value, "dtype", None)
    return value if dtype is None or not is_half(dtype) else value.astype(_FLOAT32)


def rounding_once(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Have a rule compute with half precision in float32, as kernels do, and round the results."""

    @functools.wraps(rule)
    def run(F: Any, g: Any, *values: Any) -> Any:
        dtype = g.dtype
        if not is_half(dtype):
            return rule(F, g, *values)
        # Attributes are arrays in recorded passes, too.
        wide = [
            F.to(value, _FLOAT32)
            if isinstance(value, Variable) and is_half(value._metadata.dtype)
            else widened(value)
            for value in (g, *values)
        ]
        if not isinstance(g, Variable):
            # The functions for bfloat16 would round each step.
            F = F.metadata_of(wide[0]).F
        made = rule(F, *wide)
        several = made if isinstance(made, tuple) else (made,)
        rounded = tuple([None if part is None else F.to(part, dtype) for part in several])
        return rounded if several is made else rounded[0]

    return run
