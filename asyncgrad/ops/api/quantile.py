"""Quantiles, `msort`, and cumulative maxima and minima."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asyncgrad.choices import Interpolation
from asyncgrad.core.variable import Variable
from asyncgrad.ops import return_types
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.index import gather
from asyncgrad.ops.api.sort import sort
from asyncgrad.ops.converted import writes
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import no_view
from asyncgrad.ops.promotion import constant
from asyncgrad.ops.signatures import named
from asyncgrad.ops.table.shape import in_order
from asyncgrad.ops.tensors.new_tensors import from_host
from asyncgrad.ops.tensors.transfer import computed_on_host
from asyncgrad.types import Array, Axis, ByExample, Library, Tensor

__all__ = ["cummax", "cummin", "msort", "nanquantile", "quantile"]
METHODS = tuple(__all__)


def _real(name: str, input: Tensor) -> Any:
    if input._metadata.is_complex:
        raise NotImplementedError(f"{name}(): does not support complex input. Take its real part.")
    return input


def _is_nan(xp: Library, array: Array) -> Any:
    return xp.isnan(array) if array.dtype.kind not in "iub" else xp.zeros(array.shape, bool)


@writes
def msort(input: Tensor) -> Tensor:
    """The elements sorted along the first axis."""
    return sort(input, 0).values


def _scanned(ufunc: Any, axis: int, array: Array) -> Any:
    """Where the extreme elements up to each are."""
    if not array.ndim:
        return np.zeros((), np.int64)
    # As in PyTorch, the last of equal elements is chosen, and NaN is passed on.
    hits = (array == ufunc.accumulate(array, axis=axis)) | _is_nan(np, array)
    shape = [1] * array.ndim
    shape[axis] = -1
    places = np.where(hits, np.arange(array.shape[axis]).reshape(shape), 0)
    return in_order(np.maximum.accumulate(places, axis=axis))


def _so_far(name: str, greatest: str) -> Callable[..., Any]:
    kind = getattr(return_types, name)
    ufunc: Any = np.maximum if name == "cummax" else np.minimum

    def scan(input: ByExample, dim: Axis) -> return_types.cummax | return_types.cummin:
        x = _real(name, input)
        # Device libraries have no such scans, so this is computed on the host.
        places = computed_on_host(partial(_scanned, ufunc, dim), x)
        numbers = from_host(name, places, x._metadata.device)
        return kind(gather(x, dim, numbers), numbers)

    doc = f"""The {greatest} elements up to each along an axis, and where they are.

    Args:
        input: any real tensor.
    """
    return writes(named(scan, name, doc))


cummax = _so_far("cummax", "greatest")
cummin = _so_far("cummin", "smallest")


def _quantiles(
    name: str, input: Tensor, q: Tensor | float, dim: int | None, keepdim: bool,
    interpolation: Interpolation, skip: bool,
) -> Any:  # fmt: skip
    dtype = input._metadata.dtype
    if dtype.kind != "f" or is_half(dtype):
        raise RuntimeError(
            f"{name}() input tensor must be either float or double dtype, not {dtype}"
        )
    if not isinstance(q, Variable):
        levels = constant(float(q), input, dtype)
    elif q._metadata.dtype == dtype:
        levels = q
    else:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    count = len(levels._metadata.shape)
    if count > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    computed_on_host(partial(_check_levels, name), levels)
    shape = input._metadata.shape
    if not input._metadata.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if dim is None:
        axis, lines = 0, R.reshape(input, (input._metadata.size,))
    else:
        axis, lines = dim, input if shape else R.reshape(input, (1,))
    ordered = sort(lines, axis).values
    spread = tuple(-1 if i == axis else 1 for i in range(len(lines._metadata.shape)))
    found = computed_on_host(partial(_ranks, axis, spread, skip, interpolation), ordered, levels)
    lower, higher, share, scale, rest = [
        from_host(name, array, input._metadata.device) for array in found
    ]
    out = gather(ordered, axis, lower)
    if interpolation in {"linear", "midpoint"}:
        upper = gather(ordered, axis, higher)
        if isinstance(q, Variable) and interpolation == "linear":
            share = R.add(R.mul(R.reshape(q, spread), scale), rest)
        # As in PyTorch's `lerp`, interpolated from the nearer end.
        step = R.sub(upper, out)
        out = where(
            R.lt(share, 0.5),
            R.add(out, R.mul(step, share)),
            R.sub(upper, R.mul(step, R.sub(1.0, share))),
        )
    order = tuple(range(len(out._metadata.shape)))
    if dim is None and keepdim:
        out = R.reshape(out, (out._metadata.shape[0], *(1,) * len(shape)))
    else:
        out = R.permute(out, (axis, *order[:axis], *order[axis + 1 :]))
        if keepdim and shape:
            out = R.unsqueeze(out, axis + 1)
    return no_view(out if count else R.squeeze(out, (0,)))


def _check_levels(name: str, levels: Array) -> None:
    if not np.all((levels >= 0) & (levels <= 1)):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")


def _ranks(
    axis: int, spread: tuple[int, ...], skip: bool, interpolation: Interpolation, ordered: Array,
    levels: Array,
) -> tuple[Array, ...]:  # fmt: skip
    """The ranks below and above quantiles, and the share of the upper one.

    Args:
        spread: the shape of the quantiles beside the elements.

    Returns:
        Also the factor and the offset that give the share of quantiles with a gradient.
    """
    scale, offset = _ends(ordered, axis, skip)
    ranks = levels.reshape(spread) * scale + offset
    below = np.floor(ranks)
    share = np.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - below
    if interpolation == "lower":
        ranks = below
    elif interpolation == "higher":
        ranks = np.ceil(ranks)
    elif interpolation == "nearest":
        ranks = np.round(ranks)
    lower, upper = [edge(ranks).astype(np.int64) for edge in (np.floor, np.ceil)]
    return lower, upper, share, scale, offset - below


def _ends(ordered: Array, axis: int, skip: bool) -> tuple[Any, Any]:
    """The factor and offset that map a quantile in [0, 1] to a rank among ordered elements."""
    length = ordered.shape[axis]
    counts = (~np.isnan(ordered)).sum(axis=axis, keepdims=True)
    if skip:
        scale, offset = np.maximum(counts - 1, 0), np.zeros(counts.shape)
    else:
        # NaN is sorted to the end; every rank of a line with NaN is set to its last element.
        scale = np.where(counts < length, 0, length - 1)
        offset = np.where(counts < length, length - 1, 0)
    return scale.astype(ordered.dtype), offset.astype(ordered.dtype)


@writes
def quantile(
    input: ByExample, q: ByExample | float, dim: Axis | None = None, keepdim: bool = False, *,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """The quantiles of all elements, or along an axis; NaN if there is one.

    Args:
        input: a float or double tensor, not empty.
        q: a number from 0 to 1, or a vector of them, whose axis is the result's first.
        dim: the axis; all elements if None.
        interpolation: between two elements: "linear", "lower", "higher", "midpoint", "nearest".
    """
    return _quantiles("quantile", input, q, dim, keepdim, interpolation, False)


@writes
def nanquantile(
    input: ByExample, q: ByExample | float, dim: Axis | None = None, keepdim: bool = False, *,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """The quantiles without NaN; see `quantile`."""
    return _quantiles("nanquantile", input, q, dim, keepdim, interpolation, True)
