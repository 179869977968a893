"""PyTorch's `torch.nn.functional`."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import TYPE_CHECKING, Any

from asyncgrad.ops.api import activation
from asyncgrad.ops.api import dropout as dropping
from asyncgrad.ops.api.activation import gelu, logsigmoid, softplus
from asyncgrad.ops.api.activation_composite import (
    celu,
    glu,
    group_norm,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    mish,
    normalize,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    prelu,
    relu6,
    selu,
    softmin,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from asyncgrad.ops.api.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from asyncgrad.ops.api.ctc import ctc_loss
from asyncgrad.ops.api.distances import pdist
from asyncgrad.ops.api.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    gumbel_softmax,
)
from asyncgrad.ops.api.embedding_bag import embedding_bag
from asyncgrad.ops.api.grid_sample import affine_grid, grid_sample
from asyncgrad.ops.api.index import embedding, one_hot
from asyncgrad.ops.api.interpolate import (
    interpolate,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from asyncgrad.ops.api.linalg import linear
from asyncgrad.ops.api.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from asyncgrad.ops.api.margin_loss import (
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from asyncgrad.ops.api.multihead_attention import (
    multi_head_attention_forward,
    scaled_dot_product_attention,
)
from asyncgrad.ops.api.normalisation import batch_norm, instance_norm, layer_norm, rms_norm
from asyncgrad.ops.api.patches import (
    bilinear,
    channel_shuffle,
    fold,
    local_response_norm,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    unfold,
)
from asyncgrad.ops.api.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from asyncgrad.ops.api.public import functions
from asyncgrad.ops.api.shape import pad
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.tensors.in_place import assign, change

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
globals().update(functions("nn.functional"))
__all__ += functions("nn.functional")
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The functions that are made from rows."""


def relu(input: Any, inplace: bool = False) -> Tensor:
    """The positive part, elementwise; the derivative at 0 is 0."""
    if not inplace:
        return R.relu(input)
    return change(input, "relu_", R.relu)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The elements, the negative ones times a slope; the derivative at 0 is the slope."""
    if not inplace:
        return activation.leaky_relu(input, negative_slope)
    return assign(input, activation.leaky_relu(_kept(input), negative_slope), "leaky_relu_")


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The positive elements, and `alpha * (exp(x) - 1)` of the others."""
    if not inplace:
        return activation.elu(input, alpha)
    return assign(input, activation.elu(_kept(input), alpha), "elu_")


def silu(input: Any, inplace: bool = False) -> Tensor:
    """The elements times their logistic function."""
    if not inplace:
        return activation.silu(input)
    return assign(input, activation.silu(_kept(input)), "silu_")


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Positive numbers that sum to 1 along `dim`."""
    return activation.softmax(input, _chosen_dim("softmax", input, dim), dtype)


def log_softmax(
    input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """The logarithm of the softmax along `dim`."""
    return activation.log_softmax(input, _chosen_dim("log_softmax", input, dim), dtype)


def rrelu(
    input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    inplace: bool = False,
) -> Tensor:  # fmt: skip
    """The elements, with negative ones times slopes that are random in training.

    Args:
        input: a tensor of a floating dtype.
        lower: the least slope.
        upper: the greatest; without `training` all slopes are the mean of both.
        training: draw the slopes.
        inplace: overwrite the input.

    Raises:
        RuntimeError: if the least slope is greater than the greatest.
        NotImplementedError: for another dtype.
    """
    if not inplace:
        return dropping.rrelu(input, lower, upper, training)
    return assign(input, dropping.rrelu(_kept(input), lower, upper, training), "rrelu_")


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of a function."""
    signature = inspect.signature(function)
    known = [p for name, p in signature.parameters.items() if name != "inplace"]

    @functools.wraps(function)
    def changing(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, inplace=True)

    changing.__name__ = changing.__qualname__ = f"{function.__name__}_"
    changing.__doc__ = f"`{function.__name__}`, in place."
    changing.__signature__ = signature.replace(parameters=known)  # type: ignore[attr-defined]
    return changing


celu_ = _in_place(celu)
elu_ = _in_place(elu)
hardtanh_ = _in_place(hardtanh)
leaky_relu_ = _in_place(leaky_relu)
relu_ = _in_place(relu)
rrelu_ = _in_place(rrelu)
selu_ = _in_place(selu)
threshold_ = _in_place(threshold)


def _kept(input: Any) -> Any:
    """A copy that the derivative can use after the input is overwritten."""
    return R.clone(input)


def _chosen_dim(name: str, input: Any, dim: int | None) -> int:
    """The axis, or PyTorch's deprecated choice if it is None."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        f"dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if input.ndim in {0, 1, 3} else 1
