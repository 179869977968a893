"""`make_tensor`: random tensors for tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asyncgrad.ops.api.complex_parts import view_as_real
from asyncgrad.ops.api.creation import empty
from asyncgrad.ops.api.random import randint
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.dtype import DType
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.tensors.new_tensors import new_shape
from asyncgrad.types import Ints, Tensor


def make_tensor(
    *shape: Ints, dtype: np.dtype[Any], device: str | None = None, low: float | None = None,
    high: float | None = None, requires_grad: bool = False, noncontiguous: bool = False,
    exclude_zero: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of random numbers, uniformly distributed in an interval.

    Args:
        shape: the shape, as one sequence or as several numbers.
        device: the device of the tensor; the default device if None.
        low: the lower bound; if None, -9, and 0 for bool and uint8.
        high: the upper bound, exclusive; if None, 9 for floating, 10 for integers, 2 for bool.
        requires_grad: make the tensor a leaf that requires grad.
        noncontiguous: make a tensor that is not contiguous in memory.
        exclude_zero: avoid zeros.

    Example:
        >>> ag.testing.make_tensor(2, 3, dtype=ag.int64).shape
        asyncgrad.Size([2, 3])
    """
    kind = DType(as_dtype("make_tensor", dtype))
    floating = kind.is_floating_point or kind.is_complex
    if requires_grad and not floating:
        raise ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"dtype={kind}"
        )
    least, most = _limits(kind)
    low = max(-9, least) if low is None else low
    high = min(9 if floating else 10, most) if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low!r} and high={high!r}")
    if low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if low >= most or high <= least:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {kind} only "
            f"supports [{least}, {most})"
        )
    low, high = max(low, least), min(high, most)
    sizes = new_shape("make_tensor", shape) if shape else ()
    apart = noncontiguous and math.prod(sizes) > 1
    drawn = (*sizes[:-1], sizes[-1] * 2) if apart else sizes
    if floating:
        out = empty(drawn, dtype=kind, device=device)
        # Draw half the values and double them: `high - low` may exceed the greatest finite number.
        (view_as_real(out) if kind.is_complex else out).uniform_(low / 2, high / 2).mul_(2)
    else:
        # A bound has 64 bits at most.
        beyond = min(math.ceil(high), 2**63 - 1)
        out = randint(math.ceil(low), beyond, drawn, device=device).to(kind)
    if exclude_zero:
        out[out == 0] = floating_info(kind.dtype).tiny if floating else 1
    if apart:
        out = out[..., ::2]
    return out.requires_grad_(requires_grad)


def _limits(kind: DType) -> tuple[float, float]:
    """The smallest number of a dtype, and the exclusive upper bound."""
    if kind.is_floating_point or kind.is_complex:
        most = float(floating_info(kind.dtype).max)
        return -most, most
    if kind == np.bool_:
        return 0, 2
    return int(np.iinfo(kind.dtype).min), int(np.iinfo(kind.dtype).max) + 1
