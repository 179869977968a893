"""The layers of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.nn import functional as F
from asyncgrad.nn.attention import MultiheadAttention
from asyncgrad.nn.dropout import Dropout
from asyncgrad.nn.linear import Linear
from asyncgrad.nn.module import Module
from asyncgrad.nn.norm import LayerNorm

if TYPE_CHECKING:
    from collections.abc import Callable


def _activation(activation: Any) -> Any:
    """The activation of a name; functions are returned unchanged."""
    if not isinstance(activation, str):
        return activation
    if activation not in {"relu", "gelu"}:
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return getattr(F, activation)


class TransformerEncoderLayer(Module):
    """Self-attention, then a feedforward network for each element.

    Args:
        d_model: the features of an element.
        nhead: the number of attention heads.
        dim_feedforward: the features between the feedforward network's two linear maps.
        dropout: the probability of being dropped in training.
        activation: applied between these maps: "relu", "gelu", a function or a module.
        layer_norm_eps: added to the variance in norms.
        batch_first: inputs are (batch, length, features) instead of (length, batch, features).
        norm_first: apply norms before attention and feedforward, not after.
        bias: linear maps and norms have biases.
        device: the device of the parameters.
        dtype: their dtype.

    Raises:
        RuntimeError: for an activation that is unknown.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        """The sequence after this layer.

        Args:
            src: of shape (length, n, d_model), or as `batch_first` says.
            src_mask: hides parts of the sequence, as in `MultiheadAttention`.
            src_key_padding_mask: the elements to ignore, likewise.
            is_causal: a hint that `src_mask` is the causal one.
        """

        def attend(x: Any) -> Any:
            found, _ = self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )
            return self.dropout1(found)

        def change(x: Any) -> Any:
            inner = self.dropout(self.activation(self.linear1(x)))
            return self.dropout2(self.linear2(inner))

        if self.norm_first:
            src = src + attend(self.norm1(src))
            return src + change(self.norm2(src))
        src = self.norm1(src + attend(src))
        return self.norm2(src + change(src))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to another sequence, then a feedforward network.

    The arguments are those of `TransformerEncoderLayer`.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        heads = {"dropout": dropout, "bias": bias, "batch_first": batch_first, **where}
        self.self_attn = MultiheadAttention(d_model, nhead, **heads)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **heads)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        """The sequence after this layer.

        Args:
            tgt: of shape (length, n, d_model), or as `batch_first` says.
            memory: the other sequence, likewise.
            tgt_mask: hides parts of `tgt`, as in `MultiheadAttention`.
            memory_mask: hides parts of `memory`, likewise.
            tgt_key_padding_mask: the elements of `tgt` to ignore, likewise.
            memory_key_padding_mask: the elements of `memory` to ignore, likewise.
            tgt_is_causal: a hint that `tgt_mask` is the causal one.
            memory_is_causal: a hint that `memory_mask` is the causal one.
        """

        def attend(x: Any) -> Any:
            found, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )
            return self.dropout1(found)

        def look(x: Any) -> Any:
            found, _ = self.multihead_attn(
                x,
                memory,
                memory,
                memory_key_padding_mask,
                False,
                memory_mask,
                is_causal=memory_is_causal,
            )
            return self.dropout2(found)

        def change(x: Any) -> Any:
            inner = self.dropout(self.activation(self.linear1(x)))
            return self.dropout3(self.linear2(inner))

        if self.norm_first:
            tgt = tgt + attend(self.norm1(tgt))
            tgt = tgt + look(self.norm2(tgt))
            return tgt + change(self.norm3(tgt))
        tgt = self.norm1(tgt + attend(tgt))
        tgt = self.norm2(tgt + look(tgt))
        return self.norm3(tgt + change(tgt))
