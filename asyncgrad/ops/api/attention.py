"""Scaled dot-product attention, and multi-head attention from its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.core.frames import warn
from asyncgrad.core.variable import requires_grad
from asyncgrad.ops.api.activation import softmax
from asyncgrad.ops.api.creation import zeros
from asyncgrad.ops.api.dropout import dropout as dropped
from asyncgrad.ops.api.elementwise import masked_fill, where
from asyncgrad.ops.api.linalg import linear, matmul
from asyncgrad.ops.api.reduction import mean
from asyncgrad.ops.api.shape import cat, permute, reshape, transpose
from asyncgrad.ops.arguments import is_expandable, of_one_dtype
from asyncgrad.ops.dtype import FLOATING, check_dtype
from asyncgrad.ops.float32_compute import in_float32
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import cast, category
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.records import NamedTuple
from asyncgrad.types import Shape, Tensor, Truth

_NAME = "multi_head_attention_forward"


@requires("0 <= dropout_p <= 1  # dropout probability has to be between 0 and 1")
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """`softmax(query @ key.mT * scale) @ value`; the scores are never all in memory.

    Args:
        query: of shape (..., queries, features).
        key: of shape (..., keys, features).
        value: of shape (..., keys, values).
        attn_mask: broadcast to (..., queries, keys): booleans, True for keys to attend to, or
            numbers that are added to the scores.
        dropout_p: the probability that a weight is dropped. If not 0, all weights are in memory.
        is_causal: a query attends only to keys up to its own position.
        scale: `1 / sqrt(features)` if None.
        enable_gqa: keys and values may have fewer heads (the third axis from the end), which are
            shared.
    """
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
        return in_float32(scaled_dot_product_attention, q, k, v, mask, dropout_p, is_causal, scale)
    if scale is None:
        scale = 1 / math.sqrt(shapes[0][-1]) if shapes[0][-1] else 1.0
    alike = shapes[0][:-2] == shapes[1][:-2] == shapes[2][:-2]
    batched = len(shapes[0]) > 2
    constant = mask is None or not (requires_grad(mask) or mask._batched)
    if alike and batched and not dropout_p and constant:
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
    return matmul(dropped(weights, dropout_p) if dropout_p else weights, v)


class Heads(NamedTuple):
    """The parameters of multi-head attention: those attributes of the module that are needed."""

    embed_dim: int
    kdim: int
    vdim: int
    num_heads: int
    #: The stacked linear maps of queries, keys and values, or None if the next ones are used.
    in_proj_weight: Any
    q_proj_weight: Any
    k_proj_weight: Any
    v_proj_weight: Any
    in_proj_bias: Any
    #: A learnt key and a learnt value that are appended.
    bias_k: Any
    bias_v: Any
    add_zero_attn: Truth
    #: The probability that a weight is dropped in training.
    dropout: float
    training: bool
    #: The last linear map.
    out_proj: Callable[[Any], Any]
    batch_first: bool

    @property
    def head_dim(self) -> int:
        """The features of a head."""
        return self.embed_dim // self.num_heads


@requires(
    "embed_dim_to_check % num_heads == 0  # embed_dim not divisible by num_heads",
    error=AssertionError,
)
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: Truth, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True, key_padding_mask: Tensor | None = None, need_weights: Truth = True,
    attn_mask: Tensor | None = None, use_separate_proj_weight: Truth = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None,
    static_v: Tensor | None = None, average_attn_weights: Truth = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Multi-head attention; each head attends over its part of the features.

    Args:
        query: of shape (queries, n, features) or (queries, features).
        key: of shape (keys, n, key features), likewise.
        value: of shape (keys, n, value features), likewise.
        embed_dim_to_check: the features of queries and outputs.
        num_heads: how many heads share them.
        in_proj_weight: the linear maps of queries, keys and values, of shape
            (3 * features, features).
        in_proj_bias: their biases, of shape (3 * features,), or None.
        bias_k: a key to append, of shape (1, 1, features), or None.
        bias_v: a value to append, likewise.
        add_zero_attn: append a key and value of zeros.
        dropout_p: the probability that a weight is dropped in training.
        out_proj_weight: the last linear map, of shape (features, features).
        out_proj_bias: its bias, or None.
        training: drop weights.
        key_padding_mask: of shape (n, keys) or (keys,): booleans, True for keys to ignore, or
            numbers that are added to the scores.
        need_weights: also return the weights.
        attn_mask: of shape (queries, keys) or (n * num_heads, queries, keys), likewise.
        use_separate_proj_weight: use the next three maps instead of `in_proj_weight`.
        q_proj_weight: that of queries.
        k_proj_weight: that of keys, of shape (features, key features).
        v_proj_weight: that of values, of shape (features, value features).
        static_k: keys after their map, of shape (n * num_heads, keys, features of a head).
        static_v: values, likewise.
        average_attn_weights: return the mean over the heads.
        is_causal: a hint that `attn_mask` is the causal one.

    Returns:
        The output, of the shape of the queries, and the weights or None.

    Raises:
        RuntimeError: with `is_causal` but without the mask.
    """
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    if use_separate_proj_weight and any(weight is None for weight in separate):
        raise AssertionError(
            "multi_head_attention_forward: use_separate_proj_weight is True but one of "
            "q_proj_weight, k_proj_weight and v_proj_weight is None"
        )
    heads = Heads(
        embed_dim_to_check,
        key.shape[-1] if use_separate_proj_weight else embed_dim_to_check,
        value.shape[-1] if use_separate_proj_weight else embed_dim_to_check,
        num_heads,
        None if use_separate_proj_weight else in_proj_weight,
        *separate,
        in_proj_bias,
        bias_k,
        bias_v,
        add_zero_attn,
        dropout_p,
        training,
        lambda x: linear(x, out_proj_weight, out_proj_bias),
        False,
    )
    return attention_of_heads(
        heads, query, key, value, key_padding_mask, need_weights, attn_mask,
        average_attn_weights, is_causal, static_k, static_v,
    )  # fmt: skip


def attention_of_heads(
    heads: Heads, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None,
    need_weights: Truth, attn_mask: Tensor | None, average_attn_weights: Truth, is_causal: bool,
    static_k: Tensor | None = None, static_v: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Compute multi-head attention: see `multi_head_attention_forward`."""
    batched = _check_batched(query, key, value, key_padding_mask)
    _check_features(heads, query, key, value)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    same = (query is key, key is value)
    query, key, value = (_batch_first(heads, x, batched) for x in (query, key, value))
    batch, queries, _ = query.shape
    length = (key if static_k is None else static_k).shape[1]
    padding = _canonical("key_padding_mask", key_padding_mask, query)
    mask = _canonical("attn_mask", attn_mask, query)
    if padding is not None and key_padding_mask is not None:
        padding = padding if batched else reshape(padding, (1, *padding.shape))
        if padding.shape != (batch, length):
            raise unmet(_NAME, f"expecting key_padding_mask shape of {(batch, length)}",
                        AssertionError, key_padding_mask=padding)  # fmt: skip
        if attn_mask is not None and key_padding_mask.dtype != attn_mask.dtype:
            warn(
                "Support for mismatched key_padding_mask and attn_mask is deprecated. Use "
                "same type for both instead."
            )
    if mask is not None:
        mask = _shaped(heads, mask, batch, queries, length)
    is_causal = is_causal and padding is None and not need_weights
    if is_causal:
        mask = None
    q, k, v = _projected(heads, query, key, value, same)
    bias_k, bias_v = heads.bias_k, heads.bias_v
    if bias_k is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        k, v = _longer(k, bias_k), _longer(v, bias_v)
        mask, padding = _wider(mask), _wider(padding)
    q, k, v = (_heads(heads, x) for x in (q, k, v))
    k = k if static_k is None else _given(heads, "static_k", static_k, batch)
    v = v if static_v is None else _given(heads, "static_v", static_v, batch)
    if heads.add_zero_attn:
        nothing = zeros(batch, heads.num_heads, 1, heads.head_dim, dtype=k.dtype, device=k.device)
        k, v = cat([k, nothing], 2), cat([v, nothing], 2)
        mask, padding = _wider(mask), _wider(padding)
    if padding is not None:
        padding = reshape(padding, (batch, 1, 1, padding.shape[1]))
        mask = padding if mask is None else mask + padding
    dropout = heads.dropout if heads.training else 0.0
    weights = None
    if need_weights:
        scores = matmul(q * math.sqrt(1 / heads.head_dim), transpose(k, 2, 3))
        weights = softmax(scores if mask is None else scores + mask, -1)
        weights = dropped(weights, dropout) if dropout else weights
        found = matmul(weights, v)
    else:
        found = scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
    if batched and not heads.batch_first:
        found = reshape(permute(found, (2, 0, 1, 3)), (queries, batch, heads.embed_dim))
    else:
        found = reshape(transpose(found, 1, 2), (batch, queries, heads.embed_dim))
    out = heads.out_proj(found)
    if weights is not None:
        weights = mean(weights, 1) if average_attn_weights else weights
    if batched:
        return out, weights
    return out[0], None if weights is None else weights[0]


def _check_features(heads: Heads, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise unless queries, keys and values have the module's numbers of features."""
    for name, tensor, features in (
        ("query", query, heads.embed_dim), ("key", key, heads.kdim), ("value", value, heads.vdim),
    ):  # fmt: skip
        if tensor.shape[-1] != features:
            raise unmet(_NAME, f"was expecting embedding dimension of {features}",
                        AssertionError, **{name: tensor})  # fmt: skip
    if key.shape[:-1] != value.shape[:-1]:
        raise unmet(
            _NAME, "key shape does not match value shape", AssertionError, key=key, value=value
        )


def _batch_first(heads: Heads, x: Tensor, batched: bool) -> Any:
    """An input as (n, length, features)."""
    if not batched:
        return reshape(x, (1, *x.shape))
    return x if heads.batch_first else transpose(x, 0, 1)


def _shaped(heads: Heads, mask: Tensor, batch: int, queries: int, keys: int) -> Any:
    """A mask as (n, heads, queries, keys), with length 1 for missing axes."""
    wanted = (queries, keys) if mask.ndim == 2 else (batch * heads.num_heads, queries, keys)
    if mask.ndim not in {2, 3}:
        raise AssertionError(
            f"expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor instead"
        )
    if mask.shape != wanted:
        raise unmet(
            _NAME, f"The shape of the {mask.ndim}D attn_mask should be {wanted}", attn_mask=mask
        )
    lead = (1, 1) if mask.ndim == 2 else (batch, heads.num_heads)
    return reshape(mask, (*lead, queries, keys))


def _projected(
    heads: Heads, query: Tensor, key: Tensor, value: Tensor, same: tuple[bool, bool]
) -> Any:
    """Apply the linear maps of queries, keys and values, in as few products as possible."""
    size, weight, bias = heads.embed_dim, heads.in_proj_weight, heads.in_proj_bias
    if weight is None:
        weights = heads.q_proj_weight, heads.k_proj_weight, heads.v_proj_weight
        biases = (None,) * 3 if bias is None else (bias[:size], bias[size:-size], bias[-size:])
        return [linear(*each) for each in zip((query, key, value), weights, biases, strict=True)]
    if all(same):
        return linear(query, weight, bias).split(size, -1)
    q = linear(query, weight[:size], None if bias is None else bias[:size])
    if same[1]:
        both = linear(key, weight[size:], None if bias is None else bias[size:])
        return [q, *both.split(size, -1)]
    k = linear(key, weight[size:-size], None if bias is None else bias[size:-size])
    v = linear(value, weight[-size:], None if bias is None else bias[-size:])
    return [q, k, v]


def _longer(x: Tensor, bias: Tensor) -> Any:
    """Append one element to keys or values."""
    return cat([x, R.expand(bias, (x.shape[0], 1, x.shape[2]))], 1)


def _heads(heads: Heads, x: Tensor) -> Any:
    """(n, length, features) as (n, heads, length, features of a head)."""
    batch, length, _ = x.shape
    return transpose(reshape(x, (batch, length, heads.num_heads, heads.head_dim)), 1, 2)


def _given(heads: Heads, name: str, x: Tensor, batch: int) -> Any:
    """`static_k` or `static_v`, as (n, heads, length, features of a head)."""
    wanted = (batch * heads.num_heads, x.shape[1], heads.head_dim)
    if x.shape != wanted:
        raise AssertionError(f"expecting {name}.shape of {wanted}, but got {x.shape}")
    return reshape(x, (batch, heads.num_heads, x.shape[1], heads.head_dim))


def _check_batched(query: Tensor, key: Tensor, value: Tensor, padding: Any | None) -> bool:
    """Whether there is a batch axis."""
    if query.ndim not in {2, 3}:
        raise unmet(
            _NAME, "query should be unbatched 2D or batched 3D tensor", AssertionError, query=query
        )
    given = f"For {'batched (3-D)' if query.ndim == 3 else 'unbatched (2-D)'} `query`"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"{given}, expected `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and "
            f"{value.ndim}-D tensors respectively"
        )
    if padding is not None and padding.ndim != query.ndim - 1:
        raise AssertionError(
            f"{given}, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D but found "
            f"{padding.ndim}-D tensor instead"
        )
    return bool(query.ndim == 3)


def _canonical(name: str, mask: Tensor | None, like: Tensor) -> Any:
    """Convert a mask to numbers that are added to the scores."""
    if mask is None:
        return None
    if mask.dtype.kind == "b":
        blank = zeros(mask.shape, dtype=like.dtype, device=mask.device)
        return masked_fill(blank, mask, -math.inf)
    if category(mask.dtype) != 2:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _wider(mask: Tensor | None) -> Any:
    """Extend a mask by one key that is not masked."""
    if mask is None:
        return None
    return cat([mask, zeros(*mask.shape[:-1], 1, dtype=mask.dtype, device=mask.device)], -1)


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
        raise unmet(name, "Expected query, key, and value to all be at least 2 dimensional",
                    query=q, key=k, value=v)  # fmt: skip
    if shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise unmet(name, "expected query (..., l, e), key (..., s, e), value (..., s, v)",
                    query=q, key=k, value=v)  # fmt: skip
    if mask is None:
        return shapes
    if is_causal:
        raise unmet(name, "Explicit attn_mask should not be set when is_causal=True. Combine the "
                    "two masks, or leave one out", attn_mask=mask)  # fmt: skip
    if mask._metadata.dtype not in {np.dtype("bool"), np.dtype("float32"), dtype}:
        raise unmet(name, "Expected attn_mask dtype to be bool or float or to match query dtype, "
                    f"{dtype}", attn_mask=mask.dtype)  # fmt: skip
    return shapes


def _check_shape(name: str, mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise unless a mask can be broadcast to the shape of the scores."""
    if not is_expandable(mask._metadata.shape, scores):
        raise unmet(
            name, f"attn_mask must broadcast to {scores}, the shape of scores", attn_mask=mask
        )


def _repeated(name: str, q: Tensor, x: Tensor) -> Any:
    """Repeat each head of keys or values for the queries' heads that share it."""
    shape, heads = x._metadata.shape, q._metadata.shape[-3]
    own = shape[-3]
    if heads % own:
        raise unmet(name, "Number of heads in key and value must divide the number of heads in "
                    "query", query=heads, key=own)  # fmt: skip
    if own == heads:
        return x
    lead, matrix = shape[:-2], shape[-2:]
    spread = R.expand(R.reshape(x, (*lead, 1, *matrix)), (*lead, heads // own, *matrix))
    return R.reshape(spread, (*shape[:-3], heads, *matrix))
