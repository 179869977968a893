"""Multi-head attention."""

from __future__ import annotations

from asyncgrad.nn import init
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.nn.linear import Linear
from asyncgrad.ops.api.attention import attention_of_heads
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` under the name that PyTorch shows for the last map of attention."""


class MultiheadAttention(FunctionModule, shown=()):
    """Multi-head attention; each head attends over its part of the features.

    Args:
        embed_dim: the features of queries and outputs.
        num_heads: how many heads share them.
        dropout: the probability that a weight is dropped in training.
        bias: the linear maps have biases.
        add_bias_kv: append a learnt element to keys and values.
        add_zero_attn: append an element of zeros to keys and values.
        kdim: the features of keys, `embed_dim` if None.
        vdim: the features of values, `embed_dim` if None.
        batch_first: inputs are (batch, length, features) instead of (length, batch, features).
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError(
                f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}"
            )
        kdim = embed_dim if kdim is None else kdim
        vdim = embed_dim if vdim is None else vdim
        self._keep(locals())
        same = self._qkv_same_embed_dim = kdim == vdim == embed_dim
        self.head_dim = embed_dim // num_heads
        element = (1, 1, embed_dim) if add_bias_kv else None
        shapes = {
            "q_proj_weight": None if same else (embed_dim, embed_dim),
            "k_proj_weight": None if same else (embed_dim, kdim),
            "v_proj_weight": None if same else (embed_dim, vdim),
            "in_proj_weight": (3 * embed_dim, embed_dim) if same else None,
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": element,
            "bias_v": element,
        }
        self._add_parameters(shapes, device, dtype)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
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

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Attend to the values with queries and keys.

        Args:
            query: of shape (queries, n, embed_dim), (n, queries, embed_dim) with `batch_first`,
                or without n.
            key: of shape (keys, n, kdim), likewise.
            value: of shape (keys, n, vdim), likewise.
            key_padding_mask: of shape (n, keys) or (keys,): booleans, True for keys to ignore, or
                numbers that are added to the scores.
            need_weights: also return the weights; without them the scores are not kept in memory.
            attn_mask: of shape (queries, keys) or (n * num_heads, queries, keys), likewise.
            average_attn_weights: return the mean over the heads.
            is_causal: a hint that `attn_mask` is the causal one.

        Returns:
            The output, of the shape of the queries, and the weights or None.

        Raises:
            RuntimeError: with `is_causal` but without the mask.
        """
        return attention_of_heads(
            self, query, key, value, key_padding_mask, need_weights, attn_mask,  # type: ignore[arg-type]
            average_attn_weights, is_causal,
        )  # fmt: skip
