"""Attention, computed in tiles.

The scores of some queries with all keys are computed, used and dropped. The forward pass saves only
the logarithms of the sums of exponentials, in the list `kept`; the gradient computes the scores
again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from asyncgrad.devices.arena import reshaped
from asyncgrad.devices.pieces import here
from asyncgrad.ops import batch_rules
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.fused import FEW, compiled, number, share, silent
from asyncgrad.ops.op import fused_together, operation
from asyncgrad.ops.table.activation import line_maxima, ones, softmax_pull
from asyncgrad.ops.table.linalg import rows_cost
from asyncgrad.ops.widening import widening
from asyncgrad.types import Array, Library, Namespace, Value

#: The most scores of a tile, so that it stays in the cache, and the fewest queries. On a device a
#: tile may be large, because each one costs several launches.
_TILE, _TILE_OF_DEVICE = 1 << 16, 1 << 26
_FEWEST = 32
#: Of causal attention each part of the queries has products with the keys up to it alone. With more
#: parts, or where NumPy masks the scores, their calls cost more than they save.
_CAUSAL_PARTS = 4


def _flat(x: Array) -> Any:
    """The array as a batch of matrices."""
    if x.ndim == 3:
        return x
    shape = (prod(x.shape[:-2]), *x.shape[-2:])
    return x.reshape(shape) if here.arena is None else reshaped(x, shape)


@functools.lru_cache(256)
def _tiles(shape: tuple[int, ...], keys: int, most: int, parts: int, causal: bool) -> list[Any]:
    """Independent slices of the groups, and the tiles of each, with `most` scores or fewer.

    For a tile: the slice of its queries, their index, and the index of the keys that they see.
    """
    groups, _, queries, _ = shape
    size = max(1, queries * keys)
    some = max(1, most // size)
    step = queries if size <= most else max(_FEWEST, most // keys)
    step = min(step, max(_FEWEST, -(-queries // parts)))
    tiles = []
    for part in [slice(i, min(i + some, groups)) for i in range(0, groups, some)]:
        cut: list[tuple[slice, Any, Any]] = []
        for start in range(0, queries, max(1, step)):
            rows = slice(start, min(start + step, queries))
            seen = min(keys, rows.stop) if causal else keys
            at = ... if some >= groups and step >= queries else (part, slice(None), rows)
            of_keys = (part, slice(None), slice(seen))
            cut.append((rows, at, ... if some >= groups and seen == keys else of_keys))
        tiles.append((part, cut))
    return tiles


def _limits(xp: Library, queries: int, keys: int, dtype: Any) -> Any:
    """-inf for keys that come after a query, and inf for others."""
    later = xp.arange(queries)[:, None] < xp.arange(keys)
    return xp.where(later, -xp.inf, xp.inf).astype(dtype)


_known_limits = functools.lru_cache(16)(partial(_limits, np))


@functools.lru_cache(64)
def _added_later(start: int, queries: int, keys: int, dtype: Any) -> Any:
    """-inf for keys that come after the queries from `start` on, and 0 for others."""
    later = np.arange(start, start + queries)[:, None] < np.arange(keys)
    return np.where(later, -np.inf, 0).astype(dtype)


class _Mask:
    def __init__(self, mask: Array | None, causal: bool, batch: tuple[int, ...]) -> None:
        self.causal = causal
        self.batch = batch
        self.array = None
        if mask is not None:
            mask = mask.reshape((1,) * (2 - mask.ndim) + mask.shape)
            self.alike = prod(mask.shape[:-2]) == 1
            if self.alike:
                self.array = mask.reshape(mask.shape[-2:])
            else:
                self.array = np.broadcast_to(mask, (*batch, *mask.shape[-2:]))

    def apply(self, xp: Library, scores: Array, some: slice, rows: slice) -> None:
        """Mask the scores of a tile in place."""
        if self.array is not None:
            part = self._part(some, scores.shape[1], rows, scores.shape[-1])
            if part.dtype == bool:
                xp.copyto(scores, -xp.inf, where=~part)
            else:
                scores += part
        if self.causal:
            seen = rows.stop - rows.start, scores.shape[-1] - rows.start
            known = xp.ndarray is np.ndarray and prod(seen) <= _TILE
            limits = (_known_limits if known else partial(_limits, xp))(*seen, scores.dtype)
            # It takes two thirds of the time of `copyto`; `minimum` would leave NaN unmasked.
            part = scores[..., rows.start :]
            xp.fmin(part, limits, out=part)

    def added(
        self, some: slice, heads: int, rows: slice, keys: int, dtype: Any
    ) -> tuple[Any, tuple[int, int]]:
        """What is added to the scores of a tile, and how far apart it is for matrices and rows."""
        count = rows.stop - rows.start
        later = _added_later(rows.start, count, keys, dtype) if self.causal else None
        if self.array is None:
            return (np.zeros(keys, dtype), (0, 0)) if later is None else (later, (0, keys))
        part = self._part(some, heads, rows, keys)
        if part.dtype == bool:
            part = np.where(part, 0, -np.inf)
        if later is not None:
            part = part + later
        shape = (*part.shape[:-1], keys)
        part = np.ascontiguousarray(np.broadcast_to(part, shape), dtype)
        of_row = keys if shape[-2] > 1 else 0
        return part, (0 if self.alike else shape[-2] * keys, of_row)

    def _part(self, some: slice, heads: int, rows: slice, keys: int) -> Any:
        """The mask of a tile, of some groups of so many matrices."""
        assert self.array is not None
        cut: Any = (rows if self.array.shape[-2] > 1 else slice(None), slice(keys))
        if self.alike:
            return self.array[cut]
        places = np.unravel_index(np.arange(some.start * heads, some.stop * heads), self.batch)
        part = self.array[(*places, *cut)]
        return part.reshape(-1, heads, *part.shape[1:])


def _row_sums(xp: Library, x: Array, y: Array | None = None) -> Any:
    """The sums along the last axis, of products if two arrays are given; BLAS adds them up."""
    if xp.ndarray is np.ndarray:
        return np.vecdot(x, ones(x.shape[-1], x.dtype) if y is None else y)[..., None]
    return (x if y is None else x * y).sum(axis=-1, keepdims=True)


def _sum_up(xp: Library, total: Array, x: Array, y: Array, *, first: bool) -> None:
    """Add a product to the rows of the keys that were seen; the first one is stored there."""
    if first:
        # CuPy takes the output by its name alone.
        xp.matmul(x, y, out=total)
    else:
        total += xp.matmul(x, y)


@functools.lru_cache(8)
def _lowest(dtype: Any) -> float:
    return float(floating_info(dtype).min)


def _greatest(xp: Library, scores: Array) -> Any:
    """The greatest score of each row; where all are masked, the lowest number and not -inf.

    From -inf a masked row could not be subtracted.
    """
    lowest = _lowest(scores.dtype)
    if xp.ndarray is np.ndarray and scores.size < FEW:
        return xp.maximum.reduce(scores, -1, None, None, True, lowest)
    if not scores.shape[-1]:
        return xp.full((*scores.shape[:-1], 1), lowest, scores.dtype)
    top = line_maxima(scores, scores.ndim - 1)
    return xp.maximum(top, lowest, out=top)


def _exponentials(xp: Library, scores: Array) -> tuple[Any, Any]:
    """Replace scores by exponentials; return their sums, and the logarithms of those of the scores.

    A masked row has the sum 1.
    """
    top = _greatest(xp, scores)
    xp.subtract(scores, top, scores)
    xp.exp(scores, scores)
    total = _row_sums(xp, scores)
    # The greatest score of a row contributes 1, so a smaller total belongs to a masked row.
    xp.maximum(total, number(xp, 1, total.dtype), out=total)
    top += xp.log(total)
    return total, top


def _shares(xp: Library, scores: Array) -> tuple[Any, Any, Any]:
    """Exponentials of scores, their sums or None if they are shares of them, and the logarithms."""
    shares = compiled(xp, "attention_shares", scores, _lowest(scores.dtype))
    if shares is not NotImplemented:
        return shares[0], None, shares[1]
    return (scores, *_exponentials(xp, scores))


def _exponentials_of(xp: Library, scores: Array, sums: Array) -> Any:
    """The shares of a row's scores, from the logarithms of their sums; written over the scores."""
    shares = compiled(xp, "attention_exponentials", scores, sums)
    if shares is not NotImplemented:
        return shares
    xp.subtract(scores, sums, scores)
    return xp.exp(scores, scores)


def _slopes(xp: Library, g: Array, out: Array, slopes: Array, weights: Array) -> Any:
    """The gradient of the scores, from that of the shares, which it is written over."""
    total = compiled(xp, "row_products", g, out)
    if total is not NotImplemented:
        made = compiled(xp, "attention_slopes", slopes, total, weights)
        if made is not NotImplemented:
            return made
    slopes -= _row_sums(xp, g, out)
    slopes *= weights
    return slopes


def _over(xp: Library, name: str, q: Array) -> Any:
    """The host's compiled kernel that scales and masks scores, and writes over them, or None."""
    if not xp.compiled:
        return None
    fits = q.dtype.char in "fd" and q.dtype.isnative and q.size
    return xp.compiled.get(name) if fits and xp.ndarray is np.ndarray else None


def _grouped(xp: Library, q: Array, k: Array, v: Array, *others: Array) -> Any:
    """Arrays of (groups, heads, length, features), where the matrices of a group fit into a tile.

    The heads of a projection lie side by side: as an axis of their own they need no copy.
    """
    arrays = q, k, v, *others
    heads = q.shape[1] if q.ndim == 4 and xp.ndarray is np.ndarray else _TILE + 1
    if heads * max(1, q.shape[-2] * k.shape[-2]) > _TILE:
        return [_flat(x)[:, None] for x in arrays]
    return arrays


def _laid_out(make: Callable[..., Any], like: Array, features: int) -> Any:
    """An array for results, with heads within rows if another one has them there."""
    groups, heads, length, _ = like.shape
    if like.strides[1] < like.strides[2]:
        return make((groups, length, heads, features), like.dtype).swapaxes(1, 2)
    return make((groups, heads, length, features), like.dtype)


def _scores(xp: Library, x: Array, y: Array) -> Any:
    """The products of rows; contiguous, which NumPy's own choice for heads side by side is not."""
    out = xp.empty((*x.shape[:3], y.shape[2]), x.dtype)
    return xp.matmul(x, y.swapaxes(2, 3), out=out)


def _share_tiles(
    xp: Library, compute: Callable[[Any], object], q: Array, k: Array, causal: bool, over: Any
) -> None:
    most = _TILE // q.shape[1] if xp.ndarray is np.ndarray else _TILE_OF_DEVICE
    parts = _CAUSAL_PARTS if causal and over is not None else 1
    share(xp, compute, _tiles(q.shape, k.shape[2], most, parts, causal))


@silent
def _attention(
    xp: Library, q: Array, k: Array, v: Array, mask: Array | None, causal: bool, scale: float,
    kept: list[Any],
) -> Any:  # fmt: skip
    over = _over(xp, "attention_shares_over", q)
    batch, lowest = q.shape[:-2], _lowest(q.dtype)
    masks = _Mask(mask, causal, batch)
    q, k, v = _grouped(xp, q, k, v)
    out = _laid_out(xp.empty, q, v.shape[3])
    sums = xp.empty((*q.shape[:3], 1), q.dtype)

    def compute(tiles: Any) -> None:
        some, cut = tiles
        for rows, at, seen in cut:
            part, keys, target, total = q[at], k[seen], out[at], None
            if over is not None:
                shares = _scores(xp, part, keys)
                added = masks.added(some, q.shape[1], rows, keys.shape[2], q.dtype)
                sums[at] = over(shares, *added, scale, lowest)
            else:
                scores = _scores(xp, part * number(xp, scale, q.dtype), keys)
                masks.apply(xp, scores, some, rows)
                shares, total, sums[at] = _shares(xp, scores)
            xp.matmul(shares, v[seen], out=target)
            if total is not None:
                xp.divide(target, total, target)

    _share_tiles(xp, compute, q, k, causal, over)
    if not kept:
        kept.append(sums)
    return out.reshape(*batch, *out.shape[2:])


@silent
@widening
def _gradients(
    xp: Library, g: Array, wanted: tuple[str, ...], q: Array, k: Array, v: Array, out: Array,
    mask: Array | None, causal: bool, scale: float, kept: list[Any],
) -> Any:  # fmt: skip
    """The gradients by the wanted inputs; the scores are computed once for all of them."""
    over = _over(xp, "attention_slopes_over", q) if wanted != ("v",) else None
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape}
    masks = _Mask(mask, causal, q.shape[:-2])
    q, k, v, g, out = _grouped(xp, q, k, v, g, out)
    (sums,) = kept
    # Keys that no query sees have the gradient 0, and later tiles add to those of earlier ones.
    queries, length = q.shape[2], k.shape[2]
    one = over is None and q.shape[1] * queries * length <= _TILE and queries >= length
    make = xp.empty if queries and (one or not causal) else xp.zeros
    made = {}
    for name, x in ("q", q), ("k", k), ("v", v):
        if name in wanted:
            made[name] = _laid_out(make, x, x.shape[3])
    factor = number(xp, scale, q.dtype)

    def compute(tiles: Any) -> None:
        some, cut = tiles
        for rows, at, seen in cut:
            first = not rows.start
            part, keys, upper, values = q[at], k[seen], g[at], v[seen]
            if over is not None:
                shares, slopes = _scores(xp, part, keys), _scores(xp, upper, values)
                added = masks.added(some, q.shape[1], rows, keys.shape[2], q.dtype)
                over(shares, slopes, sums[at], *added, scale)
            else:
                part = part * factor
                scores = _scores(xp, part, keys)
                masks.apply(xp, scores, some, rows)
                shares = _exponentials_of(xp, scores, sums[at])
            if "v" in wanted:
                _sum_up(xp, made["v"][seen], shares.swapaxes(2, 3), upper, first=first)
            if wanted == ("v",):
                continue
            if over is None:
                slopes = _slopes(xp, upper, out[at], _scores(xp, upper, values), shares)
            if "q" in wanted:
                target = xp.matmul(slopes, keys, out=made["q"][at])
                if over is None:
                    target *= factor
            if "k" in wanted:
                _sum_up(xp, made["k"][seen], slopes.swapaxes(2, 3), part, first=first)

    _share_tiles(xp, compute, q, k, causal, over)
    return tuple([made[key].reshape(shapes[key]) for key in wanted])


def _weights(
    F: Namespace, q: Value, k: Value, mask: Value | None, causal: bool, scale: float
) -> Any:
    return F.attention_weights(F.bmm(q, F.adjoint(k)) * scale, mask, causal)


def _by_scores(
    F: Namespace, t: Value, q: Value, k: Value, v: Value, mask: Value | None, causal: bool,
    scale: float,
) -> Any:  # fmt: skip
    """The result's tangent by that of the products of queries and keys."""
    weights = _weights(F, q, k, mask, causal, scale)
    return F.bmm(softmax_pull(F, t * scale, weights, len(weights.shape) - 1), v)


def _rule(
    F: Namespace, g: Value, wanted: tuple[str, ...], q: Value, k: Value, v: Value, out: Value,
    mask: Value | None, causal: bool, scale: float, kept: list[Any],
) -> Any:  # fmt: skip
    weights = _weights(F, q, k, mask, causal, scale)
    slopes = None
    if wanted != ("v",):
        slopes = softmax_pull(F, F.bmm(g, F.adjoint(v)), weights, len(weights.shape) - 1)
    made: dict[str, Callable[[], Any]] = {
        "q": lambda: F.bmm(slopes, k) * scale,
        "k": lambda: F.bmm(F.adjoint(slopes), q) * scale,
        "v": lambda: F.bmm(F.adjoint(weights), g),
    }
    return tuple([made[key]() for key in wanted])


@silent
def _attention_weights(xp: Library, x: Array, mask: Array | None, causal: bool) -> Any:
    """The softmax along the last axis with masked scores; zeros where all are masked."""
    scores = _flat(x)[:, None].copy()
    whole = slice(0, len(scores)), slice(0, scores.shape[2])
    _Mask(mask, causal, x.shape[:-2]).apply(xp, scores, *whole)
    scores /= _exponentials(xp, scores)[0]
    return scores.reshape(x.shape)


OPS = (
    operation(
        "attention",
        _attention,
        "q k v",
        pushes={
            "q": lambda F, t, q, k, v, mask, causal, scale: _by_scores(
                F, F.bmm(t, F.adjoint(k)), q, k, v, mask, causal, scale
            ),
            "k": lambda F, t, q, k, v, mask, causal, scale: _by_scores(
                F, F.bmm(q, F.adjoint(t)), q, k, v, mask, causal, scale
            ),
            "v": lambda F, t, q, k, mask, causal, scale: F.bmm(
                _weights(F, q, k, mask, causal, scale), t
            ),
        },
        together=fused_together(_gradients, _rule),
        wide=True,
        node="ScaledDotProductFlashAttentionForCpuBackward0",
        cost=lambda q, k, *_: 30_000 + 3 * rows_cost(q, k),
        batch=batch_rules.over_axes,
    ),
    operation(
        "attention_weights",
        _attention_weights,
        pulls={"x": lambda F, g, out: softmax_pull(F, g, out, len(out.shape) - 1)},
        linear=True,
        node="SafeSoftmaxBackward0",
        cost=lambda x, *rest: 5_000 + 4 * int(x._metadata.cost),
    ),
)
