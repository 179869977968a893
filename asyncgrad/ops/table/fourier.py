"""Fourier transforms, scaled only by the given factor.

The adjoint of a transform is the transform with the opposite sign of the exponent.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.core.variable import Variable
from asyncgrad.ops.fused import silent
from asyncgrad.ops.op import linear
from asyncgrad.ops.table.shape import in_order
from asyncgrad.types import Array, Library, Namespace, Value


def _scaled(out: Array, scale: float, dtype: Any) -> Any:
    if scale != 1:
        out *= scale
    return out.astype(dtype, copy=False)


@silent
def _complex(xp: Library, x: Array, dims: tuple[int, ...], forward: bool, scale: float) -> Any:
    function, norm = (xp.fft.fftn, "backward") if forward else (xp.fft.ifftn, "forward")
    return _scaled(function(x, axes=dims, norm=norm), scale, x.dtype)


@silent
def _halved(xp: Library, x: Array, dim: int, scale: float) -> Any:
    """The transform of real numbers, without the half that is the conjugate of the other."""
    dtype = xp.result_type(x.dtype, xp.complex64)
    return in_order(_scaled(xp.fft.rfft(x, axis=dim), scale, dtype))


def _halved_back(F: Namespace, g: Value, x_shape: tuple[int, ...], dim: int, scale: float) -> Any:
    return F.real(F.fft_complex(F.pad_zeros(g, x_shape, dim, 0), (dim,), False, scale))


@silent
def _joined(xp: Library, x: Array, dim: int, length: int, scale: float) -> Any:
    """The inverse of `_halved`; the length decides whether there is a middle element."""
    out = xp.fft.irfft(x, length, axis=dim, norm="forward")
    return in_order(_scaled(out, scale, x.real.dtype))


def _joined_back(
    F: Namespace, g: Value, x_shape: tuple[int, ...], dim: int, length: int, scale: float
) -> Any:
    half = F.fft_halved(g, dim, scale)
    # All elements but the first, and the middle one if there is one, represent two.
    twice = length - x_shape[dim]
    if twice <= 0:
        return half
    return F.add(half, F.pad_zeros(F.narrow(half, dim, 1, twice), x_shape, dim, 1))


def _cost(x: Variable, *attributes: object) -> int:
    """About 5 n log n operations for each line; a line has at most a million elements."""
    return 10_000 + 100 * int(x._metadata.size)


OPS = (
    linear(
        "fft_complex",
        _complex,
        lambda F, g, dims, forward, scale: F.fft_complex(g, dims, not forward, scale),
        node="FftC2CBackward0",
        cost=_cost,
    ),
    linear("fft_halved", _halved, _halved_back, node="FftR2CBackward0", cost=_cost),
    linear("fft_joined", _joined, _joined_back, node="FftC2RBackward0", cost=_cost),
)
