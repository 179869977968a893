"""Finite differences, and the directions along which they are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.core.variable import wrap
from asyncgrad.devices import CPU
from asyncgrad.ops.promotion import promote_dtypes
from asyncgrad.ops.tensors.transfer import moved, on_host
from asyncgrad.scheduler import call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.aliases import Value


def as_tuple(value: Value) -> tuple[Any, ...]:
    """Wrap a single tensor in a tuple; make lists tuples."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def values_of(x: Value) -> Any:
    """A copy of a tensor's values in host memory."""
    return np.array(on_host(x.detach()))


def placed(values: Value, like: Value) -> Any:
    """A tensor of the given values, with the dtype and device of another tensor."""
    metadata = like._metadata
    array = moved(np.asarray(values, metadata.dtype), CPU, metadata.device)
    return wrap(array, metadata.F.metadata_of(array))


async def slopes(
    func: Callable[..., Any], inputs: tuple[Any, ...], x: Value,
    directions: Sequence[Sequence[Any]], eps: float,
) -> list[list[Any]]:  # fmt: skip
    """The central differences of the outputs along some directions of one input.

    A direction of a complex input has two sides; changes along the second count as imaginary.
    """
    start = values_of(x)

    def put(values: Value) -> None:
        x._metadata.F.assign(x._array, placed(values, x)._array)

    async def difference(step: Any) -> list[Any]:
        sides = []
        try:
            for sign in (-eps, eps):
                put(start + sign * step)
                outputs = as_tuple(await call(func, *inputs))
                sides.append([values_of(out) for out in outputs])
        finally:
            put(start)
        for low, high in zip(*sides, strict=True):
            for what in ("shape", "dtype"):
                if getattr(low, what) != getattr(high, what):
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same {what} when inputs are "
                        f"perturbed by {eps}, but got: {what}s {getattr(low, what)} and "
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


def units(x: Value) -> list[list[Any]]:
    """The unit vectors of a tensor, as directions."""
    size = x.numel()
    return [[vector] * (1 + x.is_complex()) for vector in np.eye(size).reshape(size, *x.shape)]


def directions(x: Value, random: Value) -> list[list[Any]]:
    """One random direction in the space of a tensor."""
    return [[vector(x, random) for _ in range(1 + x.is_complex())]]


def vector(x: Value, random: Value) -> Any:
    """A random vector of a tensor's shape and length one."""
    values = random.random(x.shape)
    return values / max(np.linalg.norm(values), 1e-300)


def close(found: Value, expected: Value, rtol: float, atol: float) -> bool:
    """Whether two arrays are equal within the tolerances."""
    dtype = promote_dtypes(found.dtype, expected.dtype)
    return np.allclose(found.astype(dtype), expected.astype(dtype), rtol, atol)
