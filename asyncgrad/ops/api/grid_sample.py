"""Sampling of images at arbitrary positions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from asyncgrad.choices import SampleMode, SamplePadding
from asyncgrad.core.frames import warn
from asyncgrad.core.recording import note_constant
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.linalg import matmul
from asyncgrad.ops.arguments import of_one_dtype
from asyncgrad.ops.dtype import FLOATING, check_dtype
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import check_device
from asyncgrad.ops.requirements import requires
from asyncgrad.ops.tensors.new_tensors import from_host
from asyncgrad.types import ByExample, Tensor

#: Functions of `nn.functional`.
__all__ = ["affine_grid", "grid_sample"]

#: The constant of the cubic kernel, as in other libraries.
_CUBIC = -0.75


@requires(
    "input.shape[:1] == grid.shape[:1]  # expected grid and input to have same batch size",
    "grid.shape[-1:] == (input.ndim - 2,)"
    "  # expected grid to have size {input.ndim - 2} in last dimension",
    "input.ndim in {4, 5} and grid.ndim == input.ndim"
    "  # expected 4D or 5D input and grid with same number of dimensions",
    "0 not in input.shape[2:]  # expected input to have non-empty spatial dimensions",
    "mode != 'bicubic' or input.ndim == 4  # bicubic interpolation only supports 4D input",
)
def grid_sample(
    input: Tensor, grid: ByExample, mode: SampleMode = "bilinear",
    padding_mode: SamplePadding = "zeros", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Sample images at given positions: a tensor of shape (n, channels, *out).

    Args:
        input: floating, of shape (n, channels, rows, columns), or with layers before the rows.
        grid: of its dtype and of shape (n, *out, 2) or (n, *out, 3): the position of each result
            along columns, rows (and layers), from -1 at the first to 1 at the last.
        mode: "bilinear", "nearest" or, for images, "bicubic".
        padding_mode: outside of the image are "zeros", the nearest element of its "border" or
            its "reflection".
        align_corners: -1 and 1 are the centres of the outermost elements, not their outer sides.
    """
    name = "grid_sample"
    aligned = _aligned(name, align_corners)
    of_one_dtype(name, input, grid)
    check_dtype(name, input._metadata.dtype, FLOATING)
    check_device(name, input, grid)
    n, channels, *image = input._metadata.shape
    out = grid._metadata.shape[1:-1]
    grid = R.reshape(grid, (n, prod(out), len(image)))
    lines = []
    for axis, length in enumerate(image):
        at = R.getitem(grid, (Ellipsis, len(image) - 1 - axis))
        if aligned:
            at = R.mul_scalar(R.add_scalar(at, 1), (length - 1) / 2)
        else:
            at = R.mul_scalar(R.sub_scalar(R.mul_scalar(R.add_scalar(at, 1), length), 1), 0.5)
        lines.append(list(_taps(at, length, mode, padding_mode, aligned)))
    pixels = R.permute(R.reshape(input, (n, channels, prod(image))), (0, 2, 1))
    each = np.arange(n)[:, None]
    note_constant(each)
    total = None
    for taps in itertools.product(*lines):
        number: Any = 0
        weight: Any = None
        for (index, share), length in zip(taps, image, strict=True):
            number = R.add(R.mul(number, length), index) if weight is not None else index
            weight = share if weight is None else R.mul(weight, share)
        picked = R.index(pixels, (each, number._array))
        part = R.mul(picked, R.unsqueeze(weight, 2))
        total = part if total is None else R.add(total, part)
    total = R.reshape(R.clone(R.permute(total, (0, 2, 1)), "C"), (n, channels, *out))
    return renamed(total, f"GridSampler{len(image)}DBackward0", saves=True)


def _aligned(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warn(
            f"Default {name} behavior has align_corners=False. Say align_corners=True for that of "
            f"old versions of PyTorch."
        )
    return bool(align_corners)


def _taps(
    at: Tensor, length: int, mode: SampleMode, padding: SamplePadding, aligned: bool
) -> Iterator[tuple[Any, Any]]:
    """Yield the elements along an axis that contribute at positions, with their weights."""
    if mode != "bicubic":
        at = _within(at, length, padding, aligned)
    if mode == "nearest":
        # whole - whole + 1 is 1 with a recorded gradient of 0, since PyTorch's is 0, not None.
        whole = R.round(at)
        share = R.add_scalar(R.sub(whole, whole), 1)
        yield _held(whole.detach(), length, share)
        return
    first = R.floor(at.detach())
    rest = R.sub(at, first)
    if mode == "bilinear":
        for step, share in ((0, R.rsub_scalar(rest, 1)), (1, rest)):
            yield _held(R.add_scalar(first, step), length, share)
        return
    for step, share in zip((-1, 2, 0, 1), _cubic_shares(rest), strict=True):
        place = _within(R.add_scalar(first, step), length, padding, aligned)
        yield _held(place, length, share)


def _cubic_shares(t: Tensor) -> Iterator[Any]:
    """The cubic weights of neighbours -1, 2, 0 and 1 at `t` behind neighbour 0."""
    for distance in (R.add_scalar(t, 1), R.rsub_scalar(t, 2)):
        yield _polynomial(distance, _CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)
    for distance in (t, R.rsub_scalar(t, 1)):
        yield _polynomial(distance, _CUBIC + 2, -_CUBIC - 3, 0, 1)


def _polynomial(x: Tensor, first: float, *rest: float) -> Any:
    out = R.mul_scalar(x, first)
    for factor in rest[:-1]:
        out = R.mul(R.add_scalar(out, factor), x)
    return R.add_scalar(out, rest[-1])


def _held(place: Tensor, length: int, share: Tensor) -> tuple[Any, Any]:
    """The indices of elements, and their weights: 0 outside of the image."""
    inside = R.logical_and(R.ge(place, 0), R.le(place, length - 1))
    index = R.to(where(inside, place, 0.0), np.dtype("int64"))
    return index, R.mul(share, R.to(inside, share._metadata.dtype))


def _within(at: Tensor, length: int, padding: SamplePadding, aligned: bool) -> Any:
    """Move positions into the image; at its outermost elements they have no gradient."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0.0, length - 1.0) if aligned else (-0.5, float(length))
        if not span:
            return R.mul_scalar(at, 0.0)
        off = R.abs(R.sub_scalar(at, low))
        extra = R.fmod_scalar(off, span)
        known = off.detach()
        turns = R.floor(R.div_scalar(known, span))
        odd = R.ne(R.remainder_scalar(turns, 2.0), 0)
        at = R.add_scalar(where(odd, R.rsub_scalar(extra, span), extra), low)
    last = length - 1.0
    return where(R.le(at, 0), 0.0, where(R.ge(at, last), last, at))


@requires(
    "theta.is_floating_point()  # Expected theta to have floating point type", error=ValueError
)
@requires(
    "len(size) in {4, 5}  # affine_grid only supports 4D and 5D sizes, for 2D and 3D affine "
    "transforms, respectively",
    error=NotImplementedError,
)
@requires(
    "theta.ndim == 3 and theta.shape[1:] == (len(size) - 2, len(size) - 1)  # Expected a batch of "
    "{len(size) - 2}D affine matrices of shape Nx{len(size) - 2}x{len(size) - 1}",
    "min(size) > 0  # Expected non-zero, positive output size", error=ValueError,
)  # fmt: skip
@requires("theta.shape[0] == size[0]  # expected as many matrices as size has images")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The positions for `grid_sample` that affine maps give: (n, *image, 2) or (n, *image, 3).

    Args:
        theta: floating, of shape (n, 2, 3), or (n, 3, 4) for images of three axes.
        size: the shape of the result of sampling, (n, channels, *image).
        align_corners: see `grid_sample`.
    """
    name = "affine_grid"
    n, _, *image = size
    axes = len(image)
    lines = _centres(image, _aligned(name, align_corners))
    points = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(image)], -1)
    known = points.reshape(-1, axes + 1).astype(theta._metadata.dtype)
    base = from_host(name, known, theta._metadata.device)
    # As in PyTorch, the node saves no tensor, so it can run twice.
    product = renamed(matmul(base, R.permute(theta, (0, 2, 1))), "BmmBackward0", saves=False)
    return renamed(
        R.reshape(product, (n, *image, axes)), "AffineGridGeneratorBackward0", saves=False
    )


def _centres(image: list[int], aligned: bool) -> list[Any]:
    """The positions of an image's elements along each axis."""
    lines = []
    for length in image:
        line = np.linspace(-1, 1, length) if length > 1 else np.zeros(1)
        lines.append(line if aligned else line * ((length - 1) / length))
    return lines
