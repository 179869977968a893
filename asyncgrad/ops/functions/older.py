"""Functions that PyTorch has at its top level, too, some of them with other arguments there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.ops.functions import curves, index, normalisation
from asyncgrad.ops.functions import dropout as dropping
from asyncgrad.ops.functions.arranged import split_with_sizes
from asyncgrad.ops.functions.curves import (
    celu,
    hardshrink,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    prelu,
    selu,
    threshold,
)
from asyncgrad.ops.functions.dropout import rrelu
from asyncgrad.ops.functions.elementwise import trunc as fix
from asyncgrad.ops.functions.norms import multi_dot
from asyncgrad.ops.functions.patches import bilinear, channel_shuffle
from asyncgrad.ops.functions.transfer import get_device
from asyncgrad.ops.promotion import as_tensor_operand

if TYPE_CHECKING:
    from asyncgrad.tensor import Tensor

__all__ = [
    "alpha_dropout",
    "bilinear",
    "celu",
    "chain_matmul",
    "channel_shuffle",
    "dropout",
    "embedding",
    "fix",
    "get_device",
    "group_norm",
    "hardshrink",
    "is_signed",
    "layer_norm",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "rrelu",
    "selu",
    "split_with_sizes",
    "threshold",
]
#: Those that are methods of tensors, and those that have a form in place (`add_`).
METHODS = ("fix", "hardshrink", "prelu")
IN_PLACE = ("fix",)


def chain_matmul(*matrices: Any) -> Tensor:
    """The product of matrices, in the order that costs least."""
    if len(matrices) == 1:
        return as_tensor_operand(matrices[0], "chain_matmul", 1)
    return multi_dot(matrices)


def is_signed(input: Any) -> bool:
    """Whether the dtype has negative numbers."""
    return bool(as_tensor_operand(input, "is_signed", 1)._metadata.dtype.kind not in "bu")


def dropout(input: Any, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout`; `train` has to be given."""
    return dropping.dropout(input, p, train)


def alpha_dropout(input: Any, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout`; `train` has to be given."""
    return dropping.alpha_dropout(input, p, train)


def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """`nn.functional.embedding` with the table first; no row is padding if `padding_idx` is -1."""
    padding = None if padding_idx == -1 else padding_idx
    return index.embedding(indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.layer_norm`; `cudnn_enable` changes nothing."""
    return normalisation.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.group_norm`; `cudnn_enabled` changes nothing."""
    return curves.group_norm(input, num_groups, weight, bias, eps)
