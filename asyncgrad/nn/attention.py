"""Attention of several heads."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from asyncgrad.creation import zeros
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.linear import Linear
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import new_parameter
from asyncgrad.ops.functions.elementwise import masked_fill
from asyncgrad.ops.functions.linalg import matmul
from asyncgrad.ops.functions.reduction import mean
from asyncgrad.ops.functions.shape import cat, reshape, transpose
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.promotion import category

if TYPE_CHECKING:
    from asyncgrad.nn.parameter import Parameter
    from asyncgrad.tensor import Tensor


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` under the name that PyTorch shows for the last map of attention."""


class MultiheadAttention(Module):
    """Attention of several heads, each over its part of the features.

    Args:
        embed_dim: the features of queries and outputs.
        num_heads: how many heads share them.
        dropout: the probability that a weight is dropped in training.
        bias: the linear maps have biases.
        add_bias_kv: keys and values get one more element, which is learnt.
        add_zero_attn: keys and values get one more element of zeros.
        kdim: the features of keys, `embed_dim` if None.
        vdim: the features of values, `embed_dim` if None.
        batch_first: inputs are (batch, length, features) and not (length, batch, features).
        device: where the parameters are made.
        dtype: their dtype.

    Raises:
        ValueError: if a number is not positive.
        AssertionError: if the features can't be shared evenly.
    """

    in_proj_weight: Any
    in_proj_bias: Any
    q_proj_weight: Any
    k_proj_weight: Any
    v_proj_weight: Any
    bias_k: Any
    bias_v: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError(
                f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn

        def new(wanted: bool, *shape: int) -> Parameter | None:
            return new_parameter(*shape, device=device, dtype=dtype) if wanted else None

        same = self._qkv_same_embed_dim
        if not same:
            self.q_proj_weight = new(True, embed_dim, embed_dim)
            self.k_proj_weight = new(True, embed_dim, self.kdim)
            self.v_proj_weight = new(True, embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        else:
            self.in_proj_weight = new(True, 3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        self.register_parameter("in_proj_bias", new(bias, 3 * embed_dim))
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        self.register_parameter("bias_k", new(add_bias_kv, 1, 1, embed_dim))
        self.register_parameter("bias_v", new(add_bias_kv, 1, 1, embed_dim))
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (
            self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
        ):  # fmt: skip
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """What the queries find.

        Args:
            query: of shape (queries, n, embed_dim), (n, queries, embed_dim) with `batch_first`,
                or without n.
            key: of shape (keys, n, kdim), likewise.
            value: of shape (keys, n, vdim), likewise.
            key_padding_mask: of shape (n, keys) or (keys,): booleans that say which keys do not
                count, or numbers that are added to the scores.
            need_weights: return the weights, too; without them the scores are never held.
            attn_mask: of shape (queries, keys) or (n * num_heads, queries, keys), likewise.
            average_attn_weights: return the mean over the heads.
            is_causal: a hint that `attn_mask` is the causal one.

        Returns:
            The output, of the shape of the queries, and the weights or None.

        Raises:
            AssertionError: if shapes do not fit.
            RuntimeError: with `is_causal` but without the mask.
        """
        batched = _check_batched(query, key, value, key_padding_mask)
        self._check_features(query, key, value)
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        same = (query is key, key is value)
        query, key, value = (self._batch_first(x, batched) for x in (query, key, value))
        batch, queries, _ = query.shape
        length = key.shape[1]
        padding = _canonical("key_padding_mask", key_padding_mask, query)
        mask = _canonical("attn_mask", attn_mask, query)
        if padding is not None:
            padding = reshape(padding, (1, *padding.shape)) if not batched else padding
            if padding.shape != (batch, length):
                raise AssertionError(
                    f"expecting key_padding_mask shape of {(batch, length)}, but got "
                    f"{padding.shape}"
                )
            if mask is not None and key_padding_mask.dtype != attn_mask.dtype:
                warnings.warn(
                    "Support for mismatched key_padding_mask and attn_mask is deprecated. Use "
                    "same type for both instead.",
                    stacklevel=2,
                )
        if mask is not None:
            mask = self._shaped(mask, batch, queries, length)
        if is_causal and padding is None and not need_weights:
            mask = None
        else:
            is_causal = False
        q, k, v = self._projected(query, key, value, same)
        if self.bias_k is not None:
            k, v = self._longer(k, self.bias_k), self._longer(v, self.bias_v)
            mask, padding = _wider(mask), _wider(padding)
        q, k, v = map(self._heads, (q, k, v))
        if self.add_zero_attn:
            nothing = zeros(batch, self.num_heads, 1, self.head_dim, dtype=k.dtype, device=k.device)
            k, v = cat([k, nothing], 2), cat([v, nothing], 2)
            mask, padding = _wider(mask), _wider(padding)
        if padding is not None:
            padding = reshape(padding, (batch, 1, 1, padding.shape[1]))
            mask = padding if mask is None else mask + padding
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = matmul(q * math.sqrt(1 / self.head_dim), transpose(k, 2, 3))
            weights = F.softmax(scores if mask is None else scores + mask, -1)
            weights = F.dropout(weights, dropout, self.training)
            found = matmul(weights, v)
        else:
            found = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        out = self.out_proj(reshape(transpose(found, 1, 2), (batch, queries, self.embed_dim)))
        if weights is not None:
            weights = mean(weights, 1) if average_attn_weights else weights
        if batched:
            return (out if self.batch_first else transpose(out, 0, 1)), weights
        return out[0], None if weights is None else weights[0]

    def _check_features(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Raise unless queries, keys and values have the features that the module was made for."""
        for name, tensor, features in (
            ("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim),
        ):  # fmt: skip
            if tensor.shape[-1] != features:
                raise AssertionError(
                    f"MultiheadAttention: was expecting embedding dimension of {features} for "
                    f"{name}, but got {tensor.shape[-1]}"
                )
        if key.shape[:-1] != value.shape[:-1]:
            raise AssertionError(
                f"MultiheadAttention: key's sequence and batch dims {key.shape[:-1]} do not match "
                f"value's {value.shape[:-1]}"
            )

    def _batch_first(self, x: Any, batched: bool) -> Any:
        """An input as (n, length, features)."""
        if not batched:
            return reshape(x, (1, *x.shape))
        return x if self.batch_first else transpose(x, 0, 1)

    def _shaped(self, mask: Any, batch: int, queries: int, keys: int) -> Any:
        """A mask as (n, heads, queries, keys), with ones for the axes that it lacks."""
        wanted = (queries, keys) if mask.ndim == 2 else (batch * self.num_heads, queries, keys)
        if mask.ndim not in {2, 3}:
            raise AssertionError(
                f"expected attn_mask to be None, 2-D or 3-D but found {mask.ndim}-D tensor instead"
            )
        if mask.shape != wanted:
            raise RuntimeError(
                f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {wanted}."
            )
        lead = (1, 1) if mask.ndim == 2 else (batch, self.num_heads)
        return reshape(mask, (*lead, queries, keys))

    def _projected(self, query: Any, key: Any, value: Any, same: tuple[bool, bool]) -> Any:
        """Queries, keys and values through their linear maps, as few products as possible."""
        size, bias = self.embed_dim, self.in_proj_bias
        if not self._qkv_same_embed_dim:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            biases = (None,) * 3 if bias is None else (bias[:size], bias[size:-size], bias[-size:])
            return [
                F.linear(*each) for each in zip((query, key, value), weights, biases, strict=True)
            ]
        weight = self.in_proj_weight
        if all(same):
            return F.linear(query, weight, bias).split(size, -1)
        q = F.linear(query, weight[:size], None if bias is None else bias[:size])
        if same[1]:
            both = F.linear(key, weight[size:], None if bias is None else bias[size:])
            return [q, *both.split(size, -1)]
        k = F.linear(key, weight[size:-size], None if bias is None else bias[size:-size])
        v = F.linear(value, weight[-size:], None if bias is None else bias[-size:])
        return [q, k, v]

    @staticmethod
    def _longer(x: Any, bias: Any) -> Any:
        """Keys or values with one more element."""
        return cat([x, R.expand(bias, (x.shape[0], 1, x.shape[2]))], 1)

    def _heads(self, x: Any) -> Any:
        """(n, length, features) as (n, heads, length, features of a head)."""
        batch, length, _ = x.shape
        return transpose(reshape(x, (batch, length, self.num_heads, self.head_dim)), 1, 2)


def _check_batched(query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None) -> bool:
    """Whether there is a batch axis.

    Raises:
        AssertionError: if the inputs disagree, or have other numbers of axes.
    """
    if query.ndim not in {2, 3}:
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query "
            f"tensor"
        )
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {'batched (3-D)' if query.ndim == 3 else 'unbatched (2-D)'} query, expected key "
            f"and value to be {query.ndim}-D but found {key.ndim}-D and {value.ndim}-D tensors "
            f"respectively"
        )
    if padding is not None and padding.ndim != query.ndim - 1:
        raise AssertionError(
            f"expected key_padding_mask to be None or {query.ndim - 1}-D but found "
            f"{padding.ndim}-D tensor instead"
        )
    return query.ndim == 3


def _canonical(name: str, mask: Any, like: Any) -> Any:
    """A mask as numbers to add to the scores."""
    if mask is None:
        return None
    if mask.dtype.kind == "b":
        blank = zeros(mask.shape, dtype=like.dtype, device=mask.device)
        return masked_fill(blank, mask, -math.inf)
    if category(mask.dtype) != 2:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _wider(mask: Any) -> Any:
    """A mask for one more key, which counts."""
    if mask is None:
        return None
    return cat([mask, zeros(*mask.shape[:-1], 1, dtype=mask.dtype, device=mask.device)], -1)
