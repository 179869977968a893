"""Quantiles, `msort`, and cumulative maxima and minima."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.choices import Interpolation, words
from asyncgrad.core.variable import Variable
from asyncgrad.ops import return_types
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.index import gather
from asyncgrad.ops.api.sort import sort
from asyncgrad.ops.arguments import one_dim
from asyncgrad.ops.batching import by_parts, level_of
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import as_tensor_operand
from asyncgrad.ops.signatures import named
from asyncgrad.ops.tensors.new_tensors import from_host
from asyncgrad.ops.tensors.out import writes
from asyncgrad.ops.tensors.transfer import on_host

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.tensor import Tensor
    from asyncgrad.types import Array, Library

__all__ = ["cummax", "cummin", "msort", "nanquantile", "quantile"]
METHODS = tuple(__all__)


def _real(name: str, input: Tensor) -> Any:
    x = as_tensor_operand(input, name, 1)
    if x._metadata.is_complex:
        raise NotImplementedError(f"{name}(): does not support complex input. Take its real part.")
    return x


def _at(kind: Callable[..., Any], x: Tensor, indices: Array, axis: int, keepdim: bool) -> Any:
    """The elements at indices that keep the axis, and the indices."""
    shape = x._metadata.shape
    numbers = from_host(kind.__name__, np.asarray(indices), x._metadata.device)
    if not shape:
        return kind(gather(x, 0, numbers), numbers)
    values = gather(x, axis, numbers)
    if not keepdim:
        values, numbers = R.squeeze(values, (axis,)), R.squeeze(numbers, (axis,))
    return kind(values, numbers)


def _is_nan(xp: Library, array: Array) -> Any:
    return xp.isnan(array) if array.dtype.kind not in "iub" else xp.zeros(array.shape, bool)


@writes
def msort(input: Tensor) -> Tensor:
    """The elements sorted along the first axis."""
    return sort(input, 0).values


def _so_far(name: str, greatest: str) -> Callable[..., Any]:
    kind = getattr(return_types, name)
    ufunc: Any = np.maximum if name == "cummax" else np.minimum

    def scan(input: Tensor, dim: int) -> return_types.cummax | return_types.cummin:
        x = _real(name, input)
        if x._batched:
            return kind(*by_parts(scan, x, dim))
        # Device libraries have no such scans, so this is computed on the host.
        array = on_host(x)
        axis = one_dim(name, dim, array.ndim)
        if not array.ndim:
            return _at(kind, x, np.zeros((), np.int64), 0, True)
        extremes = ufunc.accumulate(array, axis=axis)
        # As in PyTorch, the last of equal elements is chosen, and NaN is passed on.
        hits = (array == extremes) | _is_nan(np, array)
        shape = [1] * array.ndim
        shape[axis] = -1
        places = np.where(hits, np.arange(array.shape[axis]).reshape(shape), 0)
        return _at(kind, x, np.maximum.accumulate(places, axis=axis), axis, True)

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
    x = as_tensor_operand(input, name, 1)
    if level_of((x, q)) is not None:
        return by_parts(_quantiles, name, x, q, dim, keepdim, interpolation, skip)
    dtype = x._metadata.dtype
    if dtype.kind != "f" or is_half(dtype):
        raise RuntimeError(
            f"{name}() input tensor must be either float or double dtype, not {dtype}"
        )
    if interpolation not in words(Interpolation):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    if isinstance(q, Variable):
        levels = on_host(q)
        if q._metadata.dtype != dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    else:
        levels = np.asarray(float(q), dtype)
    if levels.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if not np.all((levels >= 0) & (levels <= 1)):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    shape = x._metadata.shape
    if not x._metadata.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if dim is None:
        axis, lines = 0, R.reshape(x, (x._metadata.size,))
    else:
        axis = one_dim(name, dim, len(shape))
        lines = x if shape else R.reshape(x, (1,))
    ordered = sort(lines, axis).values
    scale, offset = _ends(on_host(ordered), axis, skip)
    spread = tuple(-1 if i == axis else 1 for i in range(len(lines._metadata.shape)))
    ranks = levels.reshape(spread) * scale + offset
    below = np.floor(ranks)
    if interpolation == "lower":
        ranks = below
    elif interpolation == "higher":
        ranks = np.ceil(ranks)
    elif interpolation == "nearest":
        ranks = np.round(ranks)
    out = _picked(name, ordered, np.floor(ranks), axis)
    if interpolation in {"linear", "midpoint"}:
        upper = _picked(name, ordered, np.ceil(ranks), axis)
        place = x._metadata.device
        if interpolation == "midpoint":
            share = from_host(name, np.full_like(ranks, 0.5), place)
        elif isinstance(q, Variable):
            known = R.mul(R.reshape(q, spread), from_host(name, scale, place))
            share = R.add(known, from_host(name, offset - below, place))
        else:
            share = from_host(name, ranks - below, place)
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
    return out if levels.ndim else R.squeeze(out, (0,))


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


def _picked(name: str, ordered: Tensor, ranks: Array, axis: int) -> Any:
    numbers = from_host(name, ranks.astype(np.int64), ordered._metadata.device)
    return gather(ordered, axis, numbers)


@writes
def quantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """The quantiles of all elements, or along an axis; NaN if there is one.

    Args:
        input: a float or double tensor.
        q: a number from 0 to 1, or a vector of them, whose axis is the result's first.
        dim: the axis; all elements if None.
        interpolation: between two elements: "linear", "lower", "higher", "midpoint", "nearest".

    Raises:
        RuntimeError: for other dtypes, `q` or `interpolation`, or if there are no elements.
    """
    return _quantiles("quantile", input, q, dim, keepdim, interpolation, False)


@writes
def nanquantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """The quantiles without NaN; see `quantile`."""
    return _quantiles("nanquantile", input, q, dim, keepdim, interpolation, True)
