"""PyTorch's `torch.nn.functional`."""
# ruff: noqa: F822  the names are looked up in their chapters

from asyncgrad.nn import activation_functions
from asyncgrad.ops import api
from asyncgrad.ops.api.public import functions

#: Of the chapters that have other functions, too.
__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu_", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity",
    "cross_entropy", "elu_", "embedding", "hardtanh_", "huber_loss", "kl_div", "l1_loss",
    "leaky_relu_", "linear", "mse_loss", "multi_head_attention_forward", "nll_loss", "one_hot",
    "pad", "pdist", "rrelu_", "scaled_dot_product_attention", "selu_", "smooth_l1_loss",
    "threshold_",
]  # fmt: skip
#: Chapters of which all functions are here.
_WHOLE = (
    activation_functions, api.activation, api.ctc, api.dropout, api.embedding_bag, api.grid_sample,
    api.interpolate, api.margin_loss, api.normalisation, api.patches, api.pooling,
)  # fmt: skip
#: Where they are defined: the first chapter that knows a name.
_CHAPTERS = (
    *_WHOLE, api.attention, api.convolution, api.distances, api.index, api.linalg, api.loss,
    api.shape,
)  # fmt: skip
for _chapter in _WHOLE:
    __all__ += [
        name for name, one in vars(_chapter).items()
        if getattr(one, "__module__", "") == _chapter.__name__ and name[0] != "_"
        and name not in __all__
    ]  # fmt: skip
for _name in __all__:
    globals()[_name] = next(getattr(c, _name) for c in _CHAPTERS if hasattr(c, _name))
_rows = functions("nn.functional")
globals().update(_rows)
__all__ += _rows
