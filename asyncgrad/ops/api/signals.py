"""Window functions and short-time Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from asyncgrad.choices import PadMode
from asyncgrad.core.frames import warn
from asyncgrad.ops.api import fourier, shape
from asyncgrad.ops.api.conversion import contiguous
from asyncgrad.ops.api.index import index_add
from asyncgrad.ops.api.strided import unfold
from asyncgrad.ops.arguments import one_int
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.promotion import category, check_device, default_dtype
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.ops.tensors.new_tensors import from_host, place_of
from asyncgrad.ops.tensors.out import as_made
from asyncgrad.types import Array, MadeAs, Tensor, Truth

__all__ = [
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "istft", "kaiser_window",
    "stft",
]  # fmt: skip
METHODS = ("istft", "stft")


# -- windows --------------------------------------------------------------------------------------


def _window(
    name: str, length: int, periodic: bool, options: Any, values: Callable[..., Any]
) -> Any:
    """A window of a function's values at points from 0 to 1."""
    count = one_int(name, "window_length", length)
    wanted = options.pop("dtype", None)
    dtype = default_dtype() if wanted is None else as_dtype(name, wanted)
    if category(dtype) != 2:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if count < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got {count}")
    # A periodic window has the points of a window one longer, without the last point.
    points = np.arange(count) / max(count - 1 + bool(periodic), 1)
    array = values(points) if count != 1 else np.ones(1)
    place = place_of(name, options.pop("device", None))
    requires_grad = options.pop("requires_grad", False)
    if options:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(options))}'")
    return from_host(name, array.astype(dtype), place, requires_grad)


@as_made
def hann_window(window_length: int, periodic: bool = True, **options: Unpack[MadeAs]) -> Tensor:
    """The Hann window, a raised cosine from 0 over 1 to 0.

    Args:
        window_length: the number of points.
        periodic: make one more point and drop the last, for Fourier transforms.
        options: `dtype`, `device` and `requires_grad`, as for `zeros`.
    """
    return hamming_window(window_length, periodic, 0.5, 0.5, **options)


@as_made
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46,
    **options: Unpack[MadeAs],
) -> Tensor:  # fmt: skip
    """The Hamming window, `alpha` minus `beta` times a cosine; see `hann_window`."""

    def values(points: Array) -> Any:
        return alpha - beta * np.cos(2 * math.pi * points)

    return _window("hamming_window", window_length, periodic, options, values)


@as_made
def blackman_window(window_length: int, periodic: bool = True, **options: Unpack[MadeAs]) -> Tensor:
    """The Blackman window of two cosines, with lower side lobes; see `hann_window`."""

    def values(points: Array) -> Any:
        angle = 2 * math.pi * points
        return 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)

    return _window("blackman_window", window_length, periodic, options, values)


@as_made
def bartlett_window(window_length: int, periodic: bool = True, **options: Unpack[MadeAs]) -> Tensor:
    """The Bartlett window, a triangle from 0 over 1 to 0; see `hann_window`."""

    def values(points: Array) -> Any:
        return 1 - np.abs(2 * points - 1)

    return _window("bartlett_window", window_length, periodic, options, values)


@as_made
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Unpack[MadeAs]
) -> Tensor:
    """The Kaiser window, narrower for a greater `beta`; see `hann_window`."""

    def values(points: Array) -> Any:
        half = np.sqrt(np.maximum(1 - (2 * points - 1) ** 2, 0))
        return np.i0(beta * half) / np.i0(np.float64(beta))

    return _window("kaiser_window", window_length, periodic, options, values)


# -- transforms -----------------------------------------------------------------------------------


def _frame(
    name: str, x: Tensor, n_fft: int, hop: int | None, length: int | None, window: Tensor | None
) -> tuple[Any, ...]:
    """The checked frame size, the step, and a window of the frame's size."""
    size, step = n_fft, n_fft // 4 if hop is None else hop
    width = size if length is None else length
    if step <= 0:
        raise RuntimeError(f"{name}: expected hop_length > 0, but got hop_length={step}")
    if not 0 < width <= size:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={width}")
    if window is None:
        real = np.empty(0, x._metadata.dtype).real.dtype
        window = from_host(name, np.ones(width, real), x._metadata.device)
    check_device(name, x, window)
    if window._metadata.shape != (width,):
        raise unmet(
            name, f"expected a 1D window tensor of size equal to win_length={width}", window=window
        )
    left = (size - width) // 2
    return size, step, shape.pad(window, (left, size - width - left))


@requires(
    "input.is_floating_point() or input.is_complex()"
    "  # expected a tensor of floating point or complex values",
    "1 <= input.ndim <= 2  # expected a 1D or 2D tensor",
    "not center or align_to_window is None"
    "  # stft align_to_window should only be set when center = false",
)
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: Truth = True, pad_mode: PadMode = "reflect",
    normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """The short-time Fourier transform: transforms of overlapping frames of a signal.

    Args:
        input: signals, of shape (length,) or (batch, length).
        n_fft: the number of points in a frame.
        hop_length: the distance between the starts of frames; `n_fft // 4` if None.
        win_length: the length of the window, centred in a frame; `n_fft` if None.
        window: the factors of a frame, of shape (win_length,); ones if None.
        center: pad the signal, so that the first frame is centred at the first element.
        pad_mode: the mode of this padding, as in `pad`.
        normalized: divide by the root of `n_fft`.
        onesided: drop the conjugate half; True if None and all is real.
        return_complex: True; False returns real numbers with the two parts along a last axis.
        align_to_window: without `center`, align frames with the window's start.

    Returns:
        A complex tensor of shape (..., frequencies, frames).

    Raises:
        RuntimeError: if sizes do not fit, or `return_complex` is not given for real numbers.
    """
    is_complex = input._metadata.is_complex
    is_complex = is_complex or (window is not None and window._metadata.is_complex)
    if return_complex is None and not is_complex:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs. Pass "
            "return_complex=True."
        )
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    size, step, weights = _frame("stft", input, n_fft, hop_length, win_length, window)
    lead, length = input._metadata.shape[:-1], input._metadata.shape[-1]
    if center and size > 0:
        rows = R.reshape(input, (1, *(lead or (1,)), length))
        input = shape.pad(rows, (size // 2, size // 2), pad_mode)
        length = input._metadata.shape[-1]
        input = R.reshape(input, (*lead, length))
    elif align_to_window:
        width = size if win_length is None else win_length
        left = (size - width) // 2
        input = shape.pad(input, (left, size - width - left))
        length = input._metadata.shape[-1]
    if not 0 < size <= length:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {length}, but got n_fft={size}")
    parts = R.mul(unfold(contiguous(input), -1, size, step), weights)
    transform = fourier.fft if is_complex or onesided is False else fourier.rfft
    out = transform(parts, norm="ortho" if normalized else "backward")
    out = no_view(shape.transpose(out, -1, -2))
    return out if return_complex or return_complex is None else R.view_as_real(out)


@requires(
    "input.is_complex()  # istft requires a complex-valued input tensor matching the output from "
    "stft with return_complex=True. Call stft() so",
    "input.numel() > 0 and 2 <= input.ndim <= 3"
    "  # expected a tensor with 2 or 3 dimensions that is not empty",
    "return_complex or not window.is_complex()"
    "  # Complex windows are incompatible with return_complex=False",
)
def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: Truth = True, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal whose `stft` is nearest: its inverse with the same arguments.

    Args:
        input: a complex tensor of shape (frequencies, frames) or (batch, frequencies, frames).
        n_fft, hop_length, win_length, window, center, normalized: as for `stft`.
        onesided: the conjugate half is missing; if None, the number of frequencies tells.
        length: the length of the signal.
        return_complex: the signal is complex.

    Raises:
        RuntimeError: if sizes do not fit, or the windows do not cover the signal.
    """
    size, step, weights = _frame("istft", input, n_fft, hop_length, win_length, window)
    width = size if win_length is None else win_length
    frequencies, count = input._metadata.shape[-2:]
    halved = frequencies != size if onesided is None else onesided
    if frequencies != (size // 2 + 1 if halved else size):
        raise unmet("istft", "expected the frequency dimension (2nd to the last) of the input "
                    f"tensor to match n_fft={size} with onesided={halved}",
                    input=input)  # fmt: skip
    if step > width:
        raise RuntimeError(f"istft: expected 0 < hop_length <= win_length, but got {step}")
    if halved and return_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    parts = shape.transpose(input, -1, -2)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        parts = fourier.ifft(parts, norm=norm)
    else:
        parts = fourier.irfft(shape.narrow(parts, -1, 0, size // 2 + 1), size, norm=norm)
    total = size + step * (count - 1)
    weighted = _overlapped(R.mul(parts, weights), step, total)
    squares = shape.expand(R.reshape(R.mul(weights, weights), (1, size)), (count, size))
    envelope = _overlapped(squares, step, total)
    first = size // 2 if center else 0
    wanted = total - 2 * first if length is None else length
    last = min(first + wanted, total)
    weighted, envelope = (shape.narrow(y, -1, first, last - first) for y in (weighted, envelope))
    lowest = float(R.abs(envelope.detach()).min()) if last > first else 0.0
    if not lowest > 1e-11:
        raise RuntimeError(f"window overlap add min: {lowest}. The windows leave out some of it.")
    out = R.div(weighted, envelope)
    if first + wanted > last:
        warn(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings."
        )
        out = shape.pad(out, (0, first + wanted - last))
    return out


def _overlapped(parts: Tensor, step: int, total: int) -> Any:
    """Add overlapping frames, each of which starts one step after the one before."""
    *lead, count, size = parts._metadata.shape
    places = (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1)
    numbers = from_host("istft", places, parts._metadata.device)
    nothing = parts.new_zeros((*lead, total))
    return index_add(nothing, -1, numbers, R.reshape(parts, (*lead, count * size)))
