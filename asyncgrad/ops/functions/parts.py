"""Complex tensors of real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.out import writes
from asyncgrad.ops.promotion import as_tensor_operand, check_broadcast, check_device

__all__ = ["complex", "polar"]
#: Those that are methods of tensors, and those that have a form in place (`add_`).
METHODS = ()
IN_PLACE = ()

_REAL = frozenset({np.dtype("float32"), np.dtype("float64")})


def _checked(name: str, first: Any, second: Any) -> tuple[Any, Any]:
    """Two real tensors of one dtype that can be broadcast.

    Raises:
        RuntimeError: if they are not.
    """
    x, y = as_tensor_operand(first, name, 1), as_tensor_operand(second, name, 2)
    one, other = x._metadata.dtype, y._metadata.dtype
    if one not in _REAL or other not in _REAL:
        raise RuntimeError(
            f"{name}: Expected both inputs to be Float or Double tensors but got {one} and {other}"
        )
    if one != other:
        raise RuntimeError(
            f"{name}: Expected object of scalar type {one} but got scalar type {other} for second "
            f"argument. Convert one with .to()."
        )
    check_device(name, x, y)
    check_broadcast(name, x, y)
    return x, y


@writes
def complex(real: Any, imag: Any) -> Any:
    """Complex numbers of their parts.

    Args:
        real: the real parts, float32 or float64.
        imag: the imaginary parts, of that dtype, broadcast.

    Raises:
        RuntimeError: if dtypes or shapes do not fit.
    """
    return R.complex(*_checked("complex", real, imag))


@writes
def polar(abs: Any, angle: Any) -> Any:
    """Complex numbers of their absolute values and angles.

    Args:
        abs: the absolute values, float32 or float64.
        angle: the angles in radians, of that dtype, broadcast.

    Raises:
        RuntimeError: if dtypes or shapes do not fit.
    """
    length, turn = _checked("polar", abs, angle)
    return R.complex(R.mul(length, R.cos(turn)), R.mul(length, R.sin(turn)))
