"""Fourier transforms: `asyncgrad.fft`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncgrad.choices import FourierNorm
from asyncgrad.ops.api.shape import roll
from asyncgrad.ops.arguments import one_dim, one_int
from asyncgrad.ops.converted import writes
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import cast, category, complex_dtype, default_dtype
from asyncgrad.ops.requirements import unmet
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.new_tensors import leaf, place_of
from asyncgrad.ops.tensors.out import makes
from asyncgrad.types import Array, DeviceLike, DTypeLike, Ints, Shape, Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftfreq", "rfftn",
]  # fmt: skip


#: What errors say before the names of these functions.
SPACE = "fft_"


# -- arguments ------------------------------------------------------------------------------------


def _floating(name: str, input: Tensor) -> Any:
    """The operand of a transform, not of half precision; integers are converted to floating."""
    if category(input._metadata.dtype) < 2:
        return cast(input, default_dtype())
    if is_half(input._metadata.dtype):
        raise unmet(
            f"fft.{name}", f"Unsupported dtype {input._metadata.dtype}. Convert it with .to()"
        )
    return input


def _as_complex(x: Tensor) -> Any:
    return x if x._metadata.is_complex else cast(x, complex_dtype(x._metadata.dtype))


def _real(name: str, input: Tensor) -> Any:
    x = _floating(name, input)
    if x._metadata.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {x._metadata.dtype}")
    return x


def _scale(norm: FourierNorm | None, size: int, forward: bool) -> float:
    """The factor of a transform of `size` points."""
    if norm == "ortho":
        return 1 / math.sqrt(size)
    return 1 / size if (norm == "forward") == forward else 1


def _axes(name: str, x: Tensor, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int]]:
    """The axes to transform, and the number of points along each."""
    shape = x._metadata.shape
    sizes = (
        None if s is None else [one_int(f"fft.{name}", "s", n) for n in ([s] if _is_int(s) else s)]
    )
    if dim is None:
        count = len(shape) if sizes is None else len(sizes)
        if count > len(shape):
            raise unmet(f"fft.{name}", f"Got shape with {count} values but input tensor only has "
                        f"{len(shape)} dimensions")  # fmt: skip
        dims = tuple(range(len(shape) - count, len(shape)))
    else:
        dims = tuple([one_dim(name, d, len(shape)) for d in ([dim] if _is_int(dim) else dim)])
        if dims and not shape:
            raise unmet(f"fft.{name}", f"Dimension specified as {dims[0]} but tensor has no "
                        "dimensions. Give it one with unsqueeze()", IndexError)  # fmt: skip
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"fft.{name}: FFT dims must be unique, got {dim}")
        if sizes is not None and len(sizes) != len(dims):
            raise unmet(f"fft.{name}", "When given, dim and shape arguments must have the same "
                        "length", dim=dim, s=s)  # fmt: skip
    points = [
        shape[axis] if sizes is None or sizes[place] == -1 else sizes[place]
        for place, axis in enumerate(dims)
    ]
    return dims, points


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__")


def _check_points(name: str, points: Sequence[int]) -> None:
    if any(n < 1 for n in points):
        raise RuntimeError(f"fft.{name}: Invalid number of data points ({min(points)}) specified")


def _resized(x: Tensor, dims: Shape, points: Sequence[int]) -> Any:
    """Cut axes, or pad them with zeros, to the numbers of points."""
    for axis, n in zip(dims, points, strict=True):
        shape = x._metadata.shape
        if n < shape[axis]:
            x = R.narrow(x, axis, 0, n)
        elif n > shape[axis]:
            x = R.pad_zeros(x, (*shape[:axis], n, *shape[axis + 1 :]), axis, 0)
    return x


def _prepared(
    name: str, x: Tensor, s: Ints | None, dim: Ints | None, norm: FourierNorm | None, forward: bool
) -> tuple[Any, tuple[int, ...], float]:
    """A tensor cut or padded to the numbers of points, the axes, and the factor."""
    dims, points = _axes(name, x, s, dim)
    _check_points(name, points)
    return _resized(x, dims, points), dims, _scale(norm, math.prod(points), forward)


# -- transforms over any axes ---------------------------------------------------------------------


def _complex(
    name: str, input: Tensor, s: Ints | None, dim: Ints | None, norm: FourierNorm | None,
    forward: bool,
) -> Any:  # fmt: skip
    x = _as_complex(_floating(name, input))
    x, dims, scale = _prepared(name, x, s, dim, norm, forward)
    return R.fft_complex(x, dims, forward, scale) if dims else x


def _halved(
    name: str, input: Tensor, s: Ints | None, dim: Ints | None, norm: FourierNorm | None,
    forward: bool,
) -> Any:  # fmt: skip
    """A transform of real numbers; `forward` selects the sign and the factor."""
    x, dims, scale = _prepared(name, _real(name, input), s, dim, norm, forward)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    out = R.fft_halved(x, dims[-1], scale)
    if not forward:
        out = R.conj(out)
    return R.fft_complex(out, dims[:-1], forward, 1) if dims[1:] else out


def _joined(
    name: str, input: Tensor, s: Ints | None, dim: Ints | None, norm: FourierNorm | None,
    forward: bool,
) -> Any:  # fmt: skip
    """A transform to real numbers; `forward` selects the sign and the factor."""
    x = _as_complex(_floating(name, input))
    dims, points = _axes(name, x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    last: Any = [s] if _is_int(s) else s
    if last is None or last[-1] == -1:
        points[-1] = 2 * (points[-1] - 1)
    _check_points(name, points)
    scale = _scale(norm, math.prod(points), forward)
    length = points[-1]
    x = _resized(x, dims, [*points[:-1], length // 2 + 1])
    if dims[1:]:
        x = R.fft_complex(x, dims[:-1], forward, 1)
    if forward:
        x = R.conj(x)
    return R.fft_joined(x, dims[-1], length, scale)


_KINDS: dict[str, tuple[Any, bool, str]] = {
    "fft": (_complex, True, "The Fourier transform"),
    "ifft": (_complex, False, "The inverse Fourier transform"),
    "rfft": (_halved, True, "The Fourier transform of real numbers, without redundant conjugates,"),
    "irfft": (_joined, False, "The inverse of `rfft`"),
    "hfft": (_joined, True, "The real Fourier transform of Hermitian values given by a half,"),
    "ihfft": (_halved, False, "The inverse of `hfft`"),
}


def _along_one(name: str) -> Any:
    kind, forward, what = _KINDS[name]

    def transform(
        input: Tensor, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None
    ) -> Tensor:
        if not input._metadata.shape:
            raise unmet(f"fft.{name}", f"Dimension specified as {dim} but tensor has no "
                        "dimensions. Give it one with unsqueeze()", IndexError)  # fmt: skip
        if n is not None:
            _check_points(name, (n,))
        return kind(name, input, None if n is None else (n,), (dim,), norm, forward)

    return _documented(
        transform,
        name,
        f"{what} along an axis.",
        "n: the number of points, to which the input is cut or padded with zeros; all if None.\n"
        "        dim: the axis.",
    )


def _along_several(name: str, count: int | None) -> Any:
    kind, forward, what = _KINDS[name]
    name = f"{name}{count or 'n'}"
    axes: Any = None if count is None else (-2, -1)

    def transform(
        input: Tensor, s: Ints | None = None, dim: Ints | None = axes,
        norm: FourierNorm | None = None,
    ) -> Tensor:  # fmt: skip
        return kind(name, input, s, dim, norm, forward)

    where = "some axes" if count is None else "two axes"
    return _documented(
        transform,
        name,
        f"{what} over {where}.",
        "s: the number of points along each axis, to which the input is cut or padded with zeros;\n"
        "            all if None.\n"
        "        dim: the axes; if None, as many of the last as `s` has numbers, or all.",
    )


def _documented(function: Callable[..., Any], name: str, what: str, arguments: str) -> Any:
    doc = f"""{what}

    Args:
        {arguments}
        norm: which transform is divided by the number of points: "forward", "backward" (the
            inverse one; None, too), or "ortho" for both, by its square root.
    """
    return writes(named(function, name, doc))


fft, ifft, rfft, irfft, hfft, ihfft = map(_along_one, _KINDS)
fftn, ifftn, rfftn, irfftn, hfftn, ihfftn = (_along_several(name, None) for name in _KINDS)
fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = (_along_several(name, 2) for name in _KINDS)


# -- the order of frequencies ---------------------------------------------------------------------


def _moved(name: str, input: Tensor, dim: Any, back: bool) -> Any:
    shape = input._metadata.shape
    if dim is None:
        dims = tuple(range(len(shape)))
    else:
        dims = tuple([one_dim(name, d, len(shape)) for d in ([dim] if _is_int(dim) else dim)])
    shifts = tuple((shape[d] + 1) // 2 if back else shape[d] // 2 for d in dims)
    return roll(input, shifts, dims)


def fftshift(input: Tensor, dim: Ints | None = None) -> Tensor:
    """Shift the spectrum so that the frequency 0 is in the middle.

    Args:
        dim: an axis, or a sequence of them; all if None.
    """
    return _moved("fftshift", input, dim, False)


def ifftshift(input: Tensor, dim: Ints | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _moved("ifftshift", input, dim, True)


def _frequencies(name: str, numbers: Callable[[int], Array], doc: str) -> Callable[..., Tensor]:
    def function(
        n: int, d: float = 1.0, *, dtype: DTypeLike | None = None,
        device: DeviceLike | None = None, requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        n = one_int(name, "n", n)
        found, place = numbers(n), place_of(name, device)
        wanted = default_dtype() if dtype is None else as_dtype(name, dtype)
        array = place.xp.asarray(found / (n * d), dtype=wanted)
        return leaf(name, array, place, requires_grad)

    return makes(named(function, name, doc))


fftfreq = _frequencies(
    "fftfreq",
    lambda n: np.roll(np.arange(-(n // 2), (n + 1) // 2, dtype=np.float64), (n + 1) // 2),
    """The frequencies of `fft`, in its order; see `zeros`.

    Args:
        n: the number of points.
        d: the distance between two of them.
        dtype: the dtype; the default one if None.
    """,
)
rfftfreq = _frequencies(
    "rfftfreq",
    lambda n: np.arange(n // 2 + 1, dtype=np.float64),
    "The frequencies of `rfft`; see `fftfreq`.",
)
