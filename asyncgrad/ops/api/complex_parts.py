"""Conversions between complex tensors and their real parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.ops.arguments import of_one_dtype
from asyncgrad.ops.converted import one_node, writes_exactly
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import check_broadcast, check_device
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.types import Tensor

__all__ = ["complex", "imag", "polar", "real", "view_as_complex", "view_as_real"]

_REAL = frozenset({np.dtype("float32"), np.dtype("float64")})


@requires("input.is_complex()  # view_as_real is only supported for complex tensors")
def view_as_real(input: Tensor) -> Tensor:
    """A view of complex numbers as pairs of real and imaginary parts along a new last axis.

    Args:
        input: complex64 or complex128, of shape (...).
    """
    return R.view_as_real(input)


@requires(
    "input.dtype in _REAL  # view_as_complex is only supported for float and double tensors",
    "input.ndim > 0  # Input tensor must have one or more dimensions",
    "input.shape[-1] == 2  # Tensor must have a last dimension of size 2",
    "input.stride(-1) == 1"
    "  # Tensor must have a last dimension with stride 1, not {input.stride(-1)}",
    "not any(step % 2 for step in input.stride()[:-1])  # Tensor must have a stride divisible by 2 "
    "for all but last dimension, not {input.stride()}. Make it contiguous first",
)
def view_as_complex(input: Tensor) -> Tensor:
    """A view of pairs of real numbers along the last axis as complex numbers.

    Args:
        input: float32 or float64, of shape (..., 2), with adjacent pairs in memory.

    Raises:
        RuntimeError: for another dtype or shape, or other strides in memory.

    Example:
        >>> x = ag.tensor([[3.0, 4.0]])
        >>> ag.view_as_complex(x).abs().tolist()
        [5.0]
    """
    return R.view_as_complex(input)


def real(input: Tensor) -> Tensor:
    """A view of the real parts; a real tensor is returned unchanged."""
    return R.getitem(R.view_as_real(input), (Ellipsis, 0)) if input._metadata.is_complex else input


@requires("input.is_complex()  # imag is not implemented for tensors with non-complex dtypes")
def imag(input: Tensor) -> Tensor:
    """A view of the imaginary parts of a complex tensor."""
    return R.getitem(R.view_as_real(input), (Ellipsis, 1))


def _checked(name: str, first: Tensor, second: Tensor) -> tuple[Any, Any]:
    """Check that two tensors are real, of one dtype, and can be broadcast."""
    one, other = first._metadata.dtype, second._metadata.dtype
    if one not in _REAL or other not in _REAL:
        raise unmet(name, "Expected both inputs to be Half, Float or Double tensors, not "
                    f"{one} and {other}. Convert them with .to()")  # fmt: skip
    of_one_dtype(name, first, second)
    check_device(name, first, second)
    check_broadcast(name, first, second)
    return first, second


@writes_exactly
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers from their real and imaginary parts.

    Args:
        real: the real parts, float32 or float64.
        imag: the imaginary parts, of that dtype, broadcast.
    """
    return R.complex(*_checked("complex", real, imag))


@one_node("PolarBackward0", writes_exactly)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from their absolute values and angles.

    Args:
        abs: the absolute values, float32 or float64.
        angle: the angles in radians, of that dtype, broadcast.
    """
    length, turn = _checked("polar", abs, angle)
    return R.complex(R.mul(length, R.cos(turn)), R.mul(length, R.sin(turn)))
