"""PyTorch's `torch.nn.functional`."""

# Written by tools/make_stubs.py from the running package.

from asyncgrad import adaptive_avg_pool1d as adaptive_avg_pool1d, celu_ as celu_, conv1d as conv1d, conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d, conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d, hardshrink as hardshrink, max_pool1d as max_pool1d, max_pool2d as max_pool2d, max_pool3d as max_pool3d, rrelu_ as rrelu_, selu_ as selu_, sigmoid as sigmoid, tanh as tanh, threshold_ as threshold_
from asyncgrad.choices import GeluFormula
from asyncgrad.nn.activation_functions import log_softmax as log_softmax, relu as relu, softmax as softmax, softmin as softmin
from asyncgrad.ops.api.activation import celu as celu, elu as elu, glu as glu, group_norm as group_norm, hardsigmoid as hardsigmoid, hardswish as hardswish, hardtanh as hardtanh, leaky_relu as leaky_relu, mish as mish, normalize as normalize, pairwise_distance as pairwise_distance, pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle, prelu as prelu, relu6 as relu6, selu as selu, silu as silu, softsign as softsign, tanhshrink as tanhshrink, threshold as threshold
from asyncgrad.ops.api.attention import multi_head_attention_forward as multi_head_attention_forward, scaled_dot_product_attention as scaled_dot_product_attention
from asyncgrad.ops.api.ctc import ctc_loss as ctc_loss
from asyncgrad.ops.api.distances import pdist as pdist
from asyncgrad.ops.api.dropout import gumbel_softmax as gumbel_softmax, rrelu as rrelu
from asyncgrad.ops.api.embedding_bag import embedding_bag as embedding_bag
from asyncgrad.ops.api.grid_sample import affine_grid as affine_grid, grid_sample as grid_sample
from asyncgrad.ops.api.index import embedding as embedding, one_hot as one_hot
from asyncgrad.ops.api.interpolate import interpolate as interpolate, upsample as upsample, upsample_bilinear as upsample_bilinear, upsample_nearest as upsample_nearest
from asyncgrad.ops.api.loss import binary_cross_entropy as binary_cross_entropy, binary_cross_entropy_with_logits as binary_cross_entropy_with_logits, cosine_similarity as cosine_similarity, cross_entropy as cross_entropy, huber_loss as huber_loss, kl_div as kl_div, l1_loss as l1_loss, mse_loss as mse_loss, nll_loss as nll_loss, smooth_l1_loss as smooth_l1_loss
from asyncgrad.ops.api.margin_loss import cosine_embedding_loss as cosine_embedding_loss, gaussian_nll_loss as gaussian_nll_loss, hinge_embedding_loss as hinge_embedding_loss, margin_ranking_loss as margin_ranking_loss, multi_margin_loss as multi_margin_loss, multilabel_margin_loss as multilabel_margin_loss, multilabel_soft_margin_loss as multilabel_soft_margin_loss, poisson_nll_loss as poisson_nll_loss, soft_margin_loss as soft_margin_loss, triplet_margin_loss as triplet_margin_loss, triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from asyncgrad.ops.api.normalisation import batch_norm as batch_norm, instance_norm as instance_norm, layer_norm as layer_norm, rms_norm as rms_norm
from asyncgrad.ops.api.patches import bilinear as bilinear, channel_shuffle as channel_shuffle, fold as fold, local_response_norm as local_response_norm, unfold as unfold
from asyncgrad.ops.api.pooling import avg_pool1d as avg_pool1d
from asyncgrad.ops.api.shape import pad as pad
from asyncgrad.ops.tensors.rng import Generator
from asyncgrad.tensor import Tensor
from asyncgrad.types import Ints, OutputSize
from collections.abc import Sequence
from typing import Literal, overload

__all__ = ['adaptive_avg_pool1d', 'adaptive_avg_pool2d', 'adaptive_avg_pool3d', 'adaptive_max_pool1d', 'adaptive_max_pool2d', 'adaptive_max_pool3d', 'affine_grid', 'alpha_dropout', 'avg_pool1d', 'avg_pool2d', 'avg_pool3d', 'batch_norm', 'bilinear', 'binary_cross_entropy', 'binary_cross_entropy_with_logits', 'celu', 'celu_', 'channel_shuffle', 'conv1d', 'conv2d', 'conv3d', 'conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d', 'cosine_embedding_loss', 'cosine_similarity', 'cross_entropy', 'ctc_loss', 'dropout', 'dropout1d', 'dropout2d', 'dropout3d', 'elu', 'elu_', 'embedding', 'embedding_bag', 'feature_alpha_dropout', 'fold', 'fractional_max_pool2d', 'fractional_max_pool3d', 'gaussian_nll_loss', 'gelu', 'glu', 'grid_sample', 'group_norm', 'gumbel_softmax', 'hardshrink', 'hardsigmoid', 'hardswish', 'hardtanh', 'hardtanh_', 'hinge_embedding_loss', 'huber_loss', 'instance_norm', 'interpolate', 'kl_div', 'l1_loss', 'layer_norm', 'leaky_relu', 'leaky_relu_', 'linear', 'local_response_norm', 'log_softmax', 'logsigmoid', 'lp_pool1d', 'lp_pool2d', 'lp_pool3d', 'margin_ranking_loss', 'max_pool1d', 'max_pool2d', 'max_pool3d', 'max_unpool1d', 'max_unpool2d', 'max_unpool3d', 'mish', 'mse_loss', 'multi_head_attention_forward', 'multi_margin_loss', 'multilabel_margin_loss', 'multilabel_soft_margin_loss', 'nll_loss', 'normalize', 'one_hot', 'pad', 'pairwise_distance', 'pdist', 'pixel_shuffle', 'pixel_unshuffle', 'poisson_nll_loss', 'prelu', 'relu', 'relu6', 'relu_', 'rms_norm', 'rrelu', 'rrelu_', 'scaled_dot_product_attention', 'selu', 'selu_', 'sigmoid', 'silu', 'smooth_l1_loss', 'soft_margin_loss', 'softmax', 'softmin', 'softplus', 'softshrink', 'softsign', 'tanh', 'tanhshrink', 'threshold', 'threshold_', 'triplet_margin_loss', 'triplet_margin_with_distance_loss', 'unfold', 'upsample', 'upsample_bilinear', 'upsample_nearest']

def adaptive_avg_pool2d(input: Tensor, output_size: OutputSize) -> Tensor:
    """The means of windows that divide the plane evenly, or nearly.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        output_size: the number of windows, or one for each axis; None for as many as there
            are elements.
    """
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """The means of windows that divide the volume evenly, or nearly.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        output_size: the number of windows, or one for each axis; None for as many as there
            are elements.
    """
@overload
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: Literal[False] = False) -> Tensor:
    """The greatest elements of windows that divide the line evenly, or nearly.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        output_size: the number of windows, or one for each axis; None for as many as there
            are elements.
        return_indices: also return the elements' indices in their lines.
    """
@overload
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: Literal[False] = False) -> Tensor:
    """The greatest elements of windows that divide the plane evenly, or nearly.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        output_size: the number of windows, or one for each axis; None for as many as there
            are elements.
        return_indices: also return the elements' indices in their planes.
    """
@overload
def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: Literal[False] = False) -> Tensor:
    """The greatest elements of windows that divide the volume evenly, or nearly.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        output_size: the number of windows, or one for each axis; None for as many as there
            are elements.
        return_indices: also return the elements' indices in their volumes.
    """
@overload
def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Dropout that keeps mean 0 and variance 1, for networks of `selu`.

    Args:
        input: a floating or complex tensor.
        p: the probability.
        training: False leaves everything as it is.
        inplace: overwrite the input.
        generator: the source of random numbers; the default generator if None.

    Raises:
        ValueError: if `p` is not in [0, 1].
        RuntimeError: for a dtype that is not floating.
    """
def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The mean of each window.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: zeros on both sides.
        ceil_mode: let the last windows reach beyond the end.
        count_include_pad: include those zeros in the mean.
        divisor_override: divide the sums by this number.
    """
def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The mean of each window.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: zeros on both sides.
        ceil_mode: let the last windows reach beyond the end.
        count_include_pad: include those zeros in the mean.
        divisor_override: divide the sums by this number.
    """
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Zero elements at random with probability `p`, and divide the others by `1 - p`.

    Args:
        input: a floating or complex tensor.
        p: the probability.
        training: False leaves everything as it is.
        inplace: overwrite the input.
        generator: the source of random numbers; the default generator if None.

    Raises:
        ValueError: if `p` is not in [0, 1].
        RuntimeError: for a dtype that is not floating.
    """
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Zero whole channels at random with probability `p`, and divide the others by `1 - p`.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        p: the probability.
        training: False leaves everything as it is.
        inplace: overwrite the input.
        generator: the source of random numbers; the default generator if None.

    Raises:
        ValueError: if `p` is not in [0, 1].
        RuntimeError: for a dtype that is not floating, or too few axes.
    """
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Zero whole channels at random with probability `p`, and divide the others by `1 - p`.

    Args:
        input: of shape (n, channels, rows, columns); the first two axes are those of channels.
        p: the probability.
        training: False leaves everything as it is.
        inplace: overwrite the input.
        generator: the source of random numbers; the default generator if None.

    Raises:
        ValueError: if `p` is not in [0, 1].
        RuntimeError: for a dtype that is not floating, or too few axes.
    """
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Zero whole channels at random with probability `p`, and divide the others by `1 - p`.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        p: the probability.
        training: False leaves everything as it is.
        inplace: overwrite the input.
        generator: the source of random numbers; the default generator if None.

    Raises:
        ValueError: if `p` is not in [0, 1].
        RuntimeError: for a dtype that is not floating, or too few axes.
    """
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu`, in place."""
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, *, generator: Generator | None = None) -> Tensor:
    """`alpha_dropout` of whole channels, the first two axes.

    Args:
        input: a floating or complex tensor of at least two axes.
        p: the probability.
        training: False leaves everything as it is.
        inplace: overwrite the input.
        generator: the source of random numbers; the default generator if None.

    Raises:
        ValueError: if `p` is not in [0, 1].
        RuntimeError: for a dtype that is not floating, or too few axes.
    """
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, return_indices: Literal[False] = False, _random_samples: Tensor | None = None) -> Tensor:
    """The greatest elements of windows that are moved by random steps.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the window: a number, or one for each axis.
        output_size: the number of windows, or one for each axis; if None, `output_ratio` is used.
        output_ratio: the output's size divided by the input's.
        return_indices: also return the elements' indices in their planes.
        _random_samples: numbers in [0, 1) to draw the steps from, of shape (n, channels, 2).

    Source: Graham, "Fractional max-pooling", 2014.
    """
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, *, return_indices: Literal[True], _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, return_indices: Literal[False] = False, _random_samples: Tensor | None = None) -> Tensor:
    """The greatest elements of windows that are moved by random steps.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        kernel_size: the size of the window: a number, or one for each axis.
        output_size: the number of windows, or one for each axis; if None, `output_ratio` is used.
        output_ratio: the output's size divided by the input's.
        return_indices: also return the elements' indices in their volumes.
        _random_samples: numbers in [0, 1) to draw the steps from, of shape (n, channels, 3).

    Source: Graham, "Fractional max-pooling", 2014.
    """
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, *, return_indices: Literal[True], _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]: ...
def gelu(input: Tensor, *, approximate: GeluFormula = 'none', out: Tensor | None = None) -> Tensor:
    """The elements times the standard normal distribution function of them.

    Args:
        input: a tensor of a floating dtype.
        approximate: "none", or "tanh" for a formula without the error function.
    """
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh`, in place."""
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu`, in place."""
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`.

    Args:
        input: of shape (..., k).
        weight: of shape (n, k), or (k,).
        bias: of shape (n,), or ().
    """
def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the logistic function."""
def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window of a line, `norm_type` being p.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        norm_type: the power.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        ceil_mode: let the last windows reach beyond the end.
    """
def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window of a plane, `norm_type` being p.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        norm_type: the power.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        ceil_mode: let the last windows reach beyond the end.
    """
def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window of a volume, `norm_type` being p.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        norm_type: the power.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        ceil_mode: let the last windows reach beyond the end.
    """
def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, output_size: Sequence[int] | None = None) -> Tensor:
    """Undo `max_pool1d`: zeros, with each maximum at its former index.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        indices: int64, as `max_pool1d` returns them.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows reached beyond the sides.
        output_size: the size of the result, or its shape; if None, the smallest that fits.
    """
def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, output_size: Sequence[int] | None = None) -> Tensor:
    """Undo `max_pool2d`: zeros, with each maximum at its former index.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        indices: int64, as `max_pool2d` returns them.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows reached beyond the sides.
        output_size: the size of the result, or its shape; if None, the smallest that fits.
    """
def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, output_size: Sequence[int] | None = None) -> Tensor:
    """Undo `max_pool3d`: zeros, with each maximum at its former index.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        indices: int64, as `max_pool3d` returns them.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows reached beyond the sides.
        output_size: the size of the result, or its shape; if None, the smallest that fits.
    """
def relu_(input: Tensor) -> Tensor:
    """`relu`, in place."""
def softplus(input: Tensor, beta: float = 1, threshold: float = 20, *, out: Tensor | None = None) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, and x itself where `beta * x` is above the threshold."""
def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """The elements moved towards 0 by `lambd`, and 0 where they are nearer than that."""
