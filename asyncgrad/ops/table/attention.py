"""Attention, computed in tiles.

The scores of some queries with all keys are computed, used and dropped. The forward pass saves only
the logarithms of the sums of exponentials, in the list `kept`; the gradient computes the scores
again.
"""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices.arena import reshaped
from asyncgrad.devices.pieces import here
from asyncgrad.ops import batch_products
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.fused import compiled, share, silent, widened, widening
from asyncgrad.ops.op import operation
from asyncgrad.ops.table.linalg import product_cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.types import Array, Library, Namespace, Value

#: The most scores of a tile, so that it stays in the cache, and the fewest queries. On a device a
#: tile may be large, because each one costs several launches.
_TILE, _TILE_OF_DEVICE = 1 << 16, 1 << 26
_FEWEST = 32


def _flat(x: Array) -> Any:
    """The array as a batch of matrices."""
    if x.ndim == 3:
        return x
    shape = (prod(x.shape[:-2]), *x.shape[-2:])
    return x.reshape(shape) if here.arena is None else reshaped(x, shape)


@functools.lru_cache(256)
def _tiles(
    batch: int, queries: int, keys: int, most: int
) -> tuple[tuple[slice, tuple[slice, ...]], ...]:
    """Independent slices of the batch, and of the queries of each, with `most` scores or fewer."""
    size = max(1, queries * keys)
    some = max(1, most // size)
    step = queries if size <= most else max(_FEWEST, most // keys)
    starts = range(0, queries, max(1, step))
    rows = tuple([slice(i, min(i + step, queries)) for i in starts])
    return tuple([(slice(i, min(i + some, batch)), rows) for i in range(0, batch, some)])


def _share(xp: Library, compute: Callable[[Any], object], q: Array, k: Array) -> None:
    """Compute the tiles of all queries and keys."""
    most = _TILE if xp.ndarray is np.ndarray else _TILE_OF_DEVICE
    share(xp, compute, _tiles(len(q), q.shape[1], k.shape[1], most))


def _later(xp: Library, queries: int, keys: int) -> Any:
    """Which keys come after which queries."""
    if xp.ndarray is np.ndarray and queries * keys <= _TILE:
        return _known_later(queries, keys)
    return xp.arange(queries)[:, None] < xp.arange(keys)


@functools.lru_cache(16)
def _known_later(queries: int, keys: int) -> Any:
    return np.arange(queries)[:, None] < np.arange(keys)


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
            if self.alike:
                part = self._cut(self.array, rows, scores.shape[-1])
            else:
                places = [np.unravel_index(i, self.batch) for i in range(some.start, some.stop)]
                cut = [self._cut(self.array[p], rows, scores.shape[-1]) for p in places]
                part = xp.stack(cut)
            if part.dtype == bool:
                xp.copyto(scores, -xp.inf, where=~part)
            else:
                scores += part
        if self.causal:
            later = _later(xp, rows.stop - rows.start, scores.shape[-1] - rows.start)
            xp.copyto(scores[..., rows.start :], -xp.inf, where=later)

    @staticmethod
    def _cut(mask: Array, rows: slice, keys: int) -> Any:
        """The part of a mask for some queries and the first keys."""
        return mask[rows if mask.shape[0] > 1 else slice(None), :keys]

    def seen(self, keys: int, rows: slice) -> int:
        """How many keys the queries of a tile can attend to."""
        return min(keys, rows.stop) if self.causal else keys


def _row_sums(xp: Library, scores: Array) -> Any:
    """The sums along the last axis; in host memory BLAS adds them up."""
    if xp.ndarray is np.ndarray:
        return np.matmul(scores, _ones((scores.shape[-1], 1), scores.dtype))
    return scores.sum(axis=-1, keepdims=True)


@functools.lru_cache(64)
def _ones(shape: tuple[int, int], dtype: Any) -> Any:
    """Ones, made once for each shape."""
    return np.ones(shape, dtype)


def _sum_up(xp: Library, total: Array, seen: int, x: Array, y: Array, *, first: bool) -> None:
    """Add a product to the rows of the keys that were seen; the first one is stored in all rows."""
    target = total[:, :seen]
    if first:
        # CuPy takes the output by its name alone.
        xp.matmul(x, y, out=target)
        total[:, seen:] = 0
    else:
        target += xp.matmul(x, y)


@functools.lru_cache(8)
def _lowest(dtype: Any) -> float:
    return float(floating_info(dtype).min)


def _greatest(xp: Library, scores: Array) -> Any:
    """The greatest score of each row; where all are masked, the lowest number and not -inf.

    From -inf a masked row could not be subtracted.
    """
    lowest = _lowest(scores.dtype)
    if xp.ndarray is np.ndarray:
        return scores.max(axis=-1, keepdims=True, initial=lowest)
    # CuPy has no `initial`.
    if not scores.shape[-1]:
        return xp.full((*scores.shape[:-1], 1), lowest, scores.dtype)
    return xp.maximum(scores.max(axis=-1, keepdims=True), lowest)


def _exponentials(xp: Library, scores: Array) -> tuple[Any, Any]:
    """Replace scores by exponentials; return their sums, and the logarithms of those of the scores.

    A masked row has the sum 1.
    """
    top = _greatest(xp, scores)
    xp.subtract(scores, top, scores)
    xp.exp(scores, scores)
    total = _row_sums(xp, scores)
    # The greatest score of a row counts 1.
    xp.maximum(total, 1, out=total)
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
    slopes -= _row_sums(xp, g * out)
    slopes *= weights
    return slopes


@silent
@widening
def _attention(
    xp: Library, q: Array, k: Array, v: Array, mask: Array | None, causal: bool, scale: float,
    kept: list[Any],
) -> Any:  # fmt: skip
    batch, queries = q.shape[:-2], q.shape[-2]
    q, k, v = map(_flat, (q, k, v))
    out = xp.empty((len(q), queries, v.shape[2]), q.dtype)
    sums = xp.empty((len(q), queries, 1), q.dtype)
    masks = _Mask(mask, causal, batch)

    def compute(tiles: tuple[slice, tuple[slice, ...]]) -> None:
        some, cut = tiles
        for rows in cut:
            seen = masks.seen(k.shape[1], rows)
            scores = xp.matmul(q[some, rows] * scale, k[some, :seen].swapaxes(1, 2))
            masks.apply(xp, scores, some, rows)
            shares, total, sums[some, rows] = _shares(xp, scores)
            if total is None:
                out[some, rows] = xp.matmul(shares, v[some, :seen])
            else:
                xp.divide(xp.matmul(shares, v[some, :seen]), total, out[some, rows])

    _share(xp, compute, q, k)
    if not kept:
        kept.append(sums)
    return out.reshape(*batch, queries, v.shape[2])


@silent
def _gradients(
    xp: Library, g: Array, wanted: tuple[str, ...], q: Array, k: Array, v: Array, out: Array,
    mask: Array | None, causal: bool, scale: float, kept: list[Any],
) -> Any:  # fmt: skip
    """The gradients by the wanted inputs; the scores are computed once for all of them."""
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape}
    masks = _Mask(mask, causal, q.shape[:-2])
    dtype = q.dtype
    g, q, k, v, out = (widened(_flat(x)) for x in (g, q, k, v, out))
    (sums,) = kept
    make = xp.empty if q.shape[1] else xp.zeros
    made = {key: make(x.shape, x.dtype) for key, x in (("q", q), ("k", k), ("v", v))}

    def compute(tiles: tuple[slice, tuple[slice, ...]]) -> None:
        some, cut = tiles
        for rows in cut:
            seen = masks.seen(k.shape[1], rows)
            part, keys = q[some, rows] * scale, k[some, :seen]
            weights = xp.matmul(part, keys.swapaxes(1, 2))
            masks.apply(xp, weights, some, rows)
            weights = _exponentials_of(xp, weights, sums[some, rows])
            upper = g[some, rows]
            if "v" in wanted:
                _sum_up(
                    xp, made["v"][some], seen, weights.swapaxes(1, 2), upper, first=rows is cut[0]
                )
            if wanted == ("v",):
                continue
            slopes = xp.matmul(upper, v[some, :seen].swapaxes(1, 2))
            slopes = _slopes(xp, upper, out[some, rows], slopes, weights)
            if "q" in wanted:
                xp.multiply(xp.matmul(slopes, keys), scale, made["q"][some, rows])
            if "k" in wanted:
                _sum_up(
                    xp, made["k"][some], seen, slopes.swapaxes(1, 2), part, first=rows is cut[0]
                )

    _share(xp, compute, q, k)
    return tuple([made[key].reshape(shapes[key]).astype(dtype, copy=False) for key in wanted])


def _weights(
    F: Namespace, q: Value, k: Value, mask: Value | None, causal: bool, scale: float
) -> Any:
    return F.attention_weights(F.bmm(q, F.adjoint(k)) * scale, mask, causal)


def _through_weights(F: Namespace, g: Value, weights: Value) -> Any:
    """The gradient of the scores, and also their tangent: the derivative is symmetric."""
    part = g * weights
    return part - weights * F.sum(part, (len(weights.shape) - 1,), True)


def _together(
    F: Namespace, g: Value, wanted: tuple[str, ...], q: Value, k: Value, v: Value, out: Value,
    mask: Value | None, causal: bool, scale: float, kept: list[Any],
) -> Any:  # fmt: skip
    if F.fused:
        return _gradients(F.xp, g, wanted, q, k, v, out, mask, causal, scale, kept)
    weights = _weights(F, q, k, mask, causal, scale)
    slopes = None
    if wanted != ("v",):
        slopes = _through_weights(F, F.bmm(g, F.adjoint(v)), weights)
    made: dict[str, Callable[[], Any]] = {
        "q": lambda: F.bmm(slopes, k) * scale,
        "k": lambda: F.bmm(F.adjoint(slopes), q) * scale,
        "v": lambda: F.bmm(F.adjoint(weights), g),
    }
    return tuple([made[key]() for key in wanted])


@silent
def _attention_weights(xp: Library, x: Array, mask: Array | None, causal: bool) -> Any:
    """The softmax along the last axis with masked scores; zeros where all are masked."""
    scores = _flat(x).copy()
    whole = slice(0, len(scores)), slice(0, scores.shape[1])
    _Mask(mask, causal, x.shape[:-2]).apply(xp, scores, *whole)
    scores /= _exponentials(xp, scores)[0]
    return scores.reshape(x.shape)


OPS = (
    operation(
        "attention",
        _attention,
        "q k v",
        pushes={
            "q": lambda F, t, q, k, v, mask, causal, scale: F.bmm(
                _through_weights(
                    F, F.bmm(t, F.adjoint(k)) * scale, _weights(F, q, k, mask, causal, scale)
                ),
                v,
            ),
            "k": lambda F, t, q, k, v, mask, causal, scale: F.bmm(
                _through_weights(
                    F, F.bmm(q, F.adjoint(t)) * scale, _weights(F, q, k, mask, causal, scale)
                ),
                v,
            ),
            "v": lambda F, t, q, k, mask, causal, scale: F.bmm(
                _weights(F, q, k, mask, causal, scale), t
            ),
        },
        together=_together,
        node="ScaledDotProductFlashAttentionForCpuBackward0",
        cost=lambda q, k, *_: 30_000 + 3 * product_cost(q._metadata.size * k._metadata.shape[-2]),
        batch=batch_products.attention,
    ),
    operation(
        "attention_weights",
        _attention_weights,
        pulls={"x": lambda F, g, out: _through_weights(F, g, out)},
        linear=True,
        node="SafeSoftmaxBackward0",
        cost=lambda x, *rest: 5_000 + 4 * int(x._metadata.cost),
    ),
)
