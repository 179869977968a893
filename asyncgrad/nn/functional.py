"""PyTorch's `torch.nn.functional`."""
# ruff: noqa: F822  the names are looked up in their chapters

from asyncgrad.nn import activation_functions
from asyncgrad.ops.api import (
    activation,
    activation_composite,
    convolution,
    ctc,
    distances,
    dropout,
    embedding_bag,
    grid_sample,
    index,
    interpolate,
    linalg,
    loss,
    margin_loss,
    multihead_attention,
    normalisation,
    patches,
    pooling,
    shape,
)
from asyncgrad.ops.api.public import functions

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "fractional_max_pool2d", "fractional_max_pool3d", "gaussian_nll_loss", "gelu", "glu",
    "grid_sample", "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate",
    "kl_div", "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "linear", "local_response_norm",
    "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss",
    "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    "mish", "mse_loss", "multi_head_attention_forward", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot",
    "pad", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss",
    "prelu", "relu", "relu6", "relu_", "rms_norm", "rrelu", "rrelu_",
    "scaled_dot_product_attention", "selu", "selu_", "silu", "smooth_l1_loss", "soft_margin_loss",
    "softmax", "softmin", "softplus", "softshrink", "softsign", "tanhshrink", "threshold",
    "threshold_", "triplet_margin_loss", "triplet_margin_with_distance_loss", "unfold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip
#: Where they are defined: the first chapter that knows a name.
_CHAPTERS = (
    activation_functions, activation, activation_composite, convolution, ctc, distances, dropout,
    embedding_bag, grid_sample, index, interpolate, linalg, loss, margin_loss, multihead_attention,
    normalisation, patches, pooling, shape,
)  # fmt: skip
for _name in __all__:
    globals()[_name] = next(getattr(c, _name) for c in _CHAPTERS if hasattr(c, _name))
_rows = functions("nn.functional")
globals().update(_rows)
__all__ += _rows
