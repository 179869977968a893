"""Finite differences, and the directions they are taken along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.ops.promotion import promote_dtypes
from asyncgrad.scheduler import call

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tensor, list or tuple as a tuple."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


async def slopes(
    func: Any,
    inputs: tuple[Any, ...],
    x: Any,
    directions: Sequence[Sequence[Any]],
    eps: float,
) -> list[list[Any]]:
    """The outputs' central differences along some directions of one input.

    A direction of a complex input has two sides: what changes along the second counts as
    imaginary.
    """
    array, start = x._array, np.array(x._array)

    async def difference(step: Any) -> list[Any]:
        sides = []
        try:
            for sign in (-eps, eps):
                array[...] = start + sign * step
                outputs = as_tuple(await call(func, *inputs))
                sides.append([np.array(out.detach()._array) for out in outputs])
        finally:
            array[...] = start
        for low, high in zip(*sides, strict=True):
            for what in ("shape", "dtype"):
                if getattr(low, what) != getattr(high, what):
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same {what} when inputs are "
                        f"perturbed by {eps}, but got: {getattr(low, what)} and "
                        f"{getattr(high, what)}."
                    )
        return [
            np.subtract(high, low, dtype=None if high.dtype.kind in "fc" else float) / (2 * eps)
            for low, high in zip(*sides, strict=True)
        ]

    found = []
    for direction in directions:
        slope = await difference(direction[0])
        if len(direction) > 1:
            across = await difference(1j * direction[1])
            slope = [a + 1j * b for a, b in zip(slope, across, strict=True)]
        found.append(slope)
    return found


def units(x: Any) -> list[list[Any]]:
    """The unit vectors of a tensor's elements, as directions."""
    size = x.numel()
    return [[vector] * (1 + x.is_complex()) for vector in np.eye(size).reshape(size, *x.shape)]


def directions(x: Any, random: Any) -> list[list[Any]]:
    """One random direction of a tensor."""
    return [[vector(x, random) for _ in range(1 + x.is_complex())]]


def vector(x: Any, random: Any) -> Any:
    """A random vector of a tensor's shape and of length one."""
    values = random.random(x.shape)
    return values / max(np.linalg.norm(values), 1e-300)


def close(found: Any, expected: Any, rtol: float, atol: float) -> bool:
    """Whether two arrays are alike within the tolerances."""
    dtype = promote_dtypes(found.dtype, expected.dtype)
    return np.allclose(found.astype(dtype), expected.astype(dtype), rtol, atol)
