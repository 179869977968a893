"""PyTorch's `torch.nn.functional`."""
# ruff: noqa: F822  the names are looked up in their chapters

from asyncgrad.nn import activation_functions
from asyncgrad.ops.api import (
    activation,
    attention,
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
    normalisation,
    patches,
    pooling,
    shape,
)
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
    activation_functions, activation, ctc, dropout, embedding_bag,
    grid_sample, interpolate, margin_loss, normalisation, patches, pooling,
)  # fmt: skip
#: Where they are defined: the first chapter that knows a name.
_CHAPTERS = (*_WHOLE, attention, convolution, distances, index, linalg, loss, shape)
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
