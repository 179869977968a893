"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.variable import requires_grad
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.linalg import matmul
from asyncgrad.ops.arguments import is_expandable
from asyncgrad.ops.converted import of_one_dtype
from asyncgrad.ops.dtype import FLOATING, check_dtype
from asyncgrad.ops.float32_compute import in_float32
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import cast
from asyncgrad.types import Shape, Tensor

#: A function of `nn.functional`.
__all__: list[str] = []


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None,
    dropout: Callable[[Any], Any] | None, is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """`scaled_dot_product_attention` with a function that drops weights."""
    name = "scaled_dot_product_attention"
    q, k, v = query, key, value
    mask = attn_mask
    shapes = _checked_shapes(name, q, k, v, mask, is_causal)
    if mask is not None and mask._metadata.dtype.kind != "b":
        mask = cast(mask, q._metadata.dtype)
    if enable_gqa:
        k, v = _repeated(name, q, k), _repeated(name, q, v)
        shapes = [x._metadata.shape for x in (q, k, v)]
    if q._metadata.dtype.kind == "V":
        return in_float32(attention, q, k, v, mask, dropout, is_causal, scale, False)
    if scale is None:
        scale = 1 / math.sqrt(shapes[0][-1]) if shapes[0][-1] else 1.0
    alike = shapes[0][:-2] == shapes[1][:-2] == shapes[2][:-2]
    batched = len(shapes[0]) > 2
    constant = mask is None or not (requires_grad(mask) or mask._batched)
    if alike and batched and dropout is None and constant:
        array = None
        if mask is not None:
            _check_shape(name, mask, (*shapes[0][:-1], shapes[1][-2]))
            array = mask._array
        return R.attention(q, k, v, array, is_causal, scale, [])
    scores = R.mul_scalar(matmul(q, R.adjoint(k)), scale)
    array = None
    if mask is not None:
        _check_shape(name, mask, scores._metadata.shape)
        if mask._metadata.dtype.kind != "b":
            scores = R.add(scores, mask)
        elif mask._batched:
            scores = where(mask, scores, -math.inf)
        else:
            array = mask._array
    weights = R.attention_weights(scores, array, is_causal)
    return matmul(weights if dropout is None else dropout(weights), v)


def _checked_shapes(
    name: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool
) -> list[Shape]:
    """The three shapes; raises unless they, the dtypes and the mask fit."""
    dtype = q._metadata.dtype
    shapes = [q._metadata.shape, k._metadata.shape, v._metadata.shape]
    if not k._metadata.dtype is dtype is v._metadata.dtype:
        of_one_dtype(name, q, k, v)
    check_dtype(name, dtype, FLOATING)
    if len(shapes[0]) < 2 or len(shapes[1]) < 2 or len(shapes[2]) < 2:
        raise RuntimeError(
            f"{name}: Expected query, key, and value to all be at least 2 dimensional, but got "
            f"shapes {shapes}"
        )
    if shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise RuntimeError(
            f"{name}: query and key must have the same last axis, key and value the same number of "
            f"keys, but got shapes {shapes}"
        )
    if mask is None:
        return shapes
    if is_causal:
        raise RuntimeError(
            f"{name}: Explicit attn_mask should not be set when is_causal=True. Combine the two "
            f"masks, or leave one out."
        )
    if mask._metadata.dtype not in {np.dtype("bool"), np.dtype("float32"), dtype}:
        raise RuntimeError(
            f"{name}: Expected attn_mask dtype to be bool or to match query dtype, but got "
            f"{mask._metadata.dtype} and {dtype}."
        )
    return shapes


def _check_shape(name: str, mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise unless a mask can be broadcast to the shape of the scores."""
    shape = mask._metadata.shape
    if not is_expandable(shape, scores):
        raise RuntimeError(
            f"{name}: attn_mask of shape {shape} can't be broadcast to {scores}, the shape of the "
            f"scores of queries and keys."
        )


def _repeated(name: str, q: Tensor, x: Tensor) -> Any:
    """Repeat each head of keys or values for the queries' heads that share it."""
    shape, heads = x._metadata.shape, q._metadata.shape[-3]
    own = shape[-3]
    if heads % own:
        raise RuntimeError(
            f"{name}: Number of heads in key and value must divide the number of heads in query, "
            f"but got {own} and {heads}."
        )
    if own == heads:
        return x
    lead, matrix = shape[:-2], shape[-2:]
    spread = R.expand(R.reshape(x, (*lead, 1, *matrix)), (*lead, heads // own, *matrix))
    return R.reshape(spread, (*shape[:-3], heads, *matrix))
