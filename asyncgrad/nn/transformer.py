"""Transformers, and their layers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.choices import Activation, words
from asyncgrad.core.recording import again
from asyncgrad.creation import full
from asyncgrad.devices import CPU
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.activation import GELU, ReLU
from asyncgrad.nn.attention import MultiheadAttention
from asyncgrad.nn.containers import ModuleList
from asyncgrad.nn.dropout import Dropout
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.nn.linear import Linear
from asyncgrad.nn.module import Module
from asyncgrad.nn.norm import LayerNorm
from asyncgrad.ops.api.shape import triu
from asyncgrad.types import Array, DeviceLike, DTypeLike, Tensor


class _Layer(FunctionModule):
    """The base of the layers: attention, once or twice, then a feedforward network."""

    #: The attributes that are attention modules.
    _attentions: tuple[str, ...]
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

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
        if isinstance(activation, str):
            if activation not in words(Activation):
                raise RuntimeError(f"activation should be relu/gelu, not {activation}")
            activation = getattr(F, activation)
        self.activation: Callable[[Tensor], Tensor] = activation  # type: ignore[assignment]
        #: 1 for relu, 2 for gelu, and 0 for others. PyTorch's programs read it; here nothing does.
        self.activation_relu_or_gelu = 0
        for number, function, kind in ((1, F.relu, ReLU), (2, F.gelu, GELU)):
            if activation is function or isinstance(activation, kind):
                self.activation_relu_or_gelu = number

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
        masks = src_key_padding_mask, False, src_mask
        return self._run(src, lambda x: self.self_attn(x, x, x, *masks, is_causal=is_causal)[0])


class TransformerDecoderLayer(_Layer, attentions=("self_attn", "multihead_attn")):
    """Self-attention, attention to another sequence, then a feedforward network.

    The arguments are those of `TransformerEncoderLayer`.
    """

    def forward(  # type: ignore[override]
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The sequence after this layer.

        Args:
            tgt: of shape (length, n, d_model), or as `batch_first` says.
            memory: the other sequence, likewise.

        The masks and hints of `tgt` and of `memory` are like those of `TransformerEncoderLayer`:
        those of `memory` hide parts of it from `tgt`.
        """
        own = tgt_key_padding_mask, False, tgt_mask
        other = memory_key_padding_mask, False, memory_mask
        return self._run(
            tgt,
            lambda x: self.self_attn(x, x, x, *own, is_causal=tgt_is_causal)[0],
            lambda x: self.multihead_attn(x, memory, memory, *other, is_causal=memory_is_causal)[0],
        )


def _is_causal(mask: Tensor | None, hint: bool | None, x: Tensor, batch_first: bool) -> bool:
    """Whether a mask is the causal one, which attention then applies without adding it."""
    if hint is not None or mask is None:
        return bool(hint)
    length = x.shape[1 if batch_first and x.ndim == 3 else 0]
    if mask.shape != (length, length):
        return False
    if mask._metadata.device is not CPU:
        # Reading a mask on a device would wait for it; adding the mask is correct in any case.
        return False
    return bool(again(_hides_later, mask._array))


def _hides_later(mask: Array) -> bool:
    later = np.triu(np.ones(mask.shape, bool), 1)
    hidden = later if mask.dtype.kind == "b" else np.where(later, -np.inf, 0)
    return bool((mask == hidden).all())


class _Stack(Module):
    """The base of stacks of layers."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers: ModuleList[Any] = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_Stack):
    """A stack of encoder layers.

    Args:
        encoder_layer: the layer that is copied.
        num_layers: how many copies there are.
        norm: a norm of the result, or None.
        enable_nested_tensor: accepted for PyTorch compatibility, without effect.
        mask_check: likewise.
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        self.use_nested_tensor = False

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """The sequence after all layers; the arguments are those of a layer.

        Without a hint, `mask` on the CPU is compared with the causal mask.
        """
        causal = _is_causal(mask, is_causal, src, self.layers[0].self_attn.batch_first)
        for layer in self.layers:
            src = layer(
                src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal
            )
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """A stack of copies of a decoder layer, and a norm of the result, or None."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The sequence after all layers; the arguments are those of a layer.

        Without a hint, `tgt_mask` on the CPU is compared with the causal mask.
        """
        causal = _is_causal(tgt_mask, tgt_is_causal, tgt, self.layers[0].self_attn.batch_first)
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder of one sequence, and a decoder of another that attends to the encoder's output.

    Args:
        num_encoder_layers: the layers of the encoder.
        num_decoder_layers: the layers of the decoder.
        custom_encoder: replaces the encoder.
        custom_decoder: replaces the decoder.

    The other arguments are those of `TransformerEncoderLayer`.
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Module | None = None, custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, device, dtype,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Decode `tgt` with the encoder's output of `src`.

        Args:
            src: of shape (length, n, d_model), or as `batch_first` says.
            tgt: likewise.

        The masks and hints of `src` are for the encoder's layers. Those of `tgt`, and those of
        `memory`, the encoder's output, are for the decoder's.
        """
        batch_axis = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch_axis] != tgt.shape[batch_axis]:
            raise RuntimeError(
                f"the batch number of src and tgt must be equal, but they are of shapes "
                f"{src.shape} and {tgt.shape}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt must be equal to d_model={self.d_model}, but "
                f"they are of shapes {src.shape} and {tgt.shape}"
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        out: Tensor = self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip
        return out

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """The causal mask of a sequence: minus infinity above the diagonal, zeros elsewhere."""
        mask: Tensor = triu(full((sz, sz), -math.inf, dtype=dtype), 1)
        return mask if device is None else mask.to(device)
