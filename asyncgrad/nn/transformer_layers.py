"""The layers of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.choices import Activation, words
from asyncgrad.nn import functional as F
from asyncgrad.nn.attention import MultiheadAttention
from asyncgrad.nn.dropout import Dropout
from asyncgrad.nn.function_module import Declared
from asyncgrad.nn.linear import Linear
from asyncgrad.nn.norm import LayerNorm
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


def _activation(activation: Activation | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The activation of a name; functions are returned unchanged."""
    if not isinstance(activation, str):
        return activation
    if activation not in words(Activation):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    found: Callable[[Tensor], Tensor] = getattr(F, activation)
    return found


def _attended(
    heads: Any, x: Tensor, other: Tensor, padding: Tensor | None, mask: Tensor | None,
    is_causal: bool,
) -> Tensor:  # fmt: skip
    """The result of attention from one sequence to another."""
    found: Tensor
    found, _ = heads(x, other, other, padding, False, mask, is_causal=is_causal)
    return found


class _Layer(Declared):
    """The base of the layers: attention, once or twice, then a feedforward network."""

    #: The attributes that are attention modules.
    _attentions: tuple[str, ...]

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation | Callable[[Tensor], Tensor] = F.relu, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        for name in self._attentions:
            heads = MultiheadAttention(
                d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where
            )
            self.register_module(name, heads)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        # A norm and a dropout for each attention, and for the feedforward network.
        numbers = range(1, len(self._attentions) + 2)
        for number in numbers:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            self.register_module(f"norm{number}", norm)
        for number in numbers:
            self.register_module(f"dropout{number}", Dropout(dropout))
        self.activation = _activation(activation)

    def _run(self, x: Tensor, *parts: Callable[[Tensor], Tensor]) -> Tensor:
        """Add what each part makes of the sequence, with its norm before it or after the sum."""
        for number, part in enumerate((*parts, self._feed), 1):
            norm, drop = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
            x = x + drop(part(norm(x))) if self.norm_first else norm(x + drop(part(x)))
        return x

    def _feed(self, x: Tensor) -> Tensor:
        """The feedforward network."""
        fed: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return fed


class TransformerEncoderLayer(_Layer, attentions=("self_attn",)):
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
        device, dtype: those of the parameters.
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The sequence after this layer.

        Args:
            src: of shape (length, n, d_model), or as `batch_first` says.
            src_mask: hides parts of the sequence, as in `MultiheadAttention`.
            src_key_padding_mask: the elements to ignore, likewise.
            is_causal: a hint that `src_mask` is the causal one.
        """
        masks = src_key_padding_mask, src_mask, is_causal
        return self._run(src, lambda x: _attended(self.self_attn, x, x, *masks))


class TransformerDecoderLayer(_Layer, attentions=("self_attn", "multihead_attn")):
    """Self-attention, attention to another sequence, then a feedforward network.

    The arguments are those of `TransformerEncoderLayer`.
    """

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
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
        own = tgt_key_padding_mask, tgt_mask, tgt_is_causal
        other = memory_key_padding_mask, memory_mask, memory_is_causal
        return self._run(
            tgt,
            lambda x: _attended(self.self_attn, x, x, *own),
            lambda x: _attended(self.multihead_attn, x, memory, *other),
        )
