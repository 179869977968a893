"""asyncgrad: reverse-mode autograd for asyncio, over NumPy and CuPy."""

# Written by tools/make_stubs.py from the running package.

from asyncgrad import accelerator as accelerator, amp as amp, autograd as autograd, backends as backends, cpu as cpu, cuda as cuda, devices as devices, distributed as distributed, distributions as distributions, errors as errors, extend as extend, fft as fft, func as func, linalg as linalg, nn as nn, optim as optim, random as random, serialization as serialization, serving as serving, special as special, sync as sync, testing as testing, utils as utils
from asyncgrad._top_level import get_default_device as get_default_device, get_device_module as get_device_module
from asyncgrad.amp import GradScaler as GradScaler, autocast as autocast, get_autocast_dtype as get_autocast_dtype, is_autocast_available as is_autocast_available, is_autocast_enabled as is_autocast_enabled
from asyncgrad.autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled, is_anomaly_enabled as is_anomaly_enabled, set_anomaly_enabled as set_anomaly_enabled
from asyncgrad.autograd.modes import enable_grad as enable_grad, inference_mode as inference_mode, is_grad_enabled as is_grad_enabled, is_inference as is_inference, is_inference_mode_enabled as is_inference_mode_enabled, no_grad as no_grad, request as request, set_grad_enabled as set_grad_enabled
from asyncgrad.autograd.passes import grad as grad
from asyncgrad.choices import ConvPadding, IndexReduceKind, Interpolation, MatrixNorm, Rounding, ScatterKind, ScatterReduceKind, Side
from asyncgrad.core.size import Size as Size
from asyncgrad.devices.base import Device as device, set_default_device as set_default_device
from asyncgrad.devices.streams import Event as Event, Stream as Stream
from asyncgrad.errors import AcceleratorError as AcceleratorError, OutOfMemoryError as OutOfMemoryError
from asyncgrad.func.mapping import vmap as vmap
from asyncgrad.native import batch_norm as batch_norm, embedding as embedding, group_norm as group_norm, instance_norm as instance_norm, layer_norm as layer_norm
from asyncgrad.ops import return_types as return_types
from asyncgrad.ops.api.activation import celu as celu, pairwise_distance as pairwise_distance, pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle, prelu as prelu, selu as selu, threshold as threshold
from asyncgrad.ops.api.comparison import allclose as allclose, argwhere as argwhere, bincount as bincount, count_nonzero as count_nonzero, equal as equal, is_same_size as is_same_size, isclose as isclose, isreal as isreal
from asyncgrad.ops.api.complex_parts import imag as imag, real as real, view_as_complex as view_as_complex, view_as_real as view_as_real
from asyncgrad.ops.api.composite import conj as conj, dist as dist, is_conj as is_conj, resolve_conj as resolve_conj
from asyncgrad.ops.api.data import as_tensor as as_tensor, asarray as asarray, detach as detach, from_numpy as from_numpy, frombuffer as frombuffer, scalar_tensor as scalar_tensor, tensor as tensor
from asyncgrad.ops.api.distances import cdist as cdist, pdist as pdist
from asyncgrad.ops.api.dlpack import from_dlpack as from_dlpack
from asyncgrad.ops.api.dropout import rrelu as rrelu
from asyncgrad.ops.api.dtypes import can_cast as can_cast, finfo as finfo, get_default_dtype as get_default_dtype, iinfo as iinfo, is_complex as is_complex, is_floating_point as is_floating_point, is_nonzero as is_nonzero, is_signed as is_signed, is_storage as is_storage, is_tensor as is_tensor, numel as numel, promote_types as promote_types, result_type as result_type, typename as typename
from asyncgrad.ops.api.elementwise import add as add, clamp as clamp, clamp_max as clamp_max, clamp_min as clamp_min, div as div, fill as fill, masked_fill as masked_fill, positive as positive, pow as pow, rsub as rsub, sub as sub, where as where
from asyncgrad.ops.api.grids import cartesian_prod as cartesian_prod, combinations as combinations, corrcoef as corrcoef, cov as cov, cumulative_trapezoid as cumulative_trapezoid, gradient as gradient, trapezoid as trapezoid, unravel_index as unravel_index, vander as vander
from asyncgrad.ops.api.index import index_put as index_put
from asyncgrad.ops.api.linalg import einsum as einsum, matmul as matmul
from asyncgrad.ops.api.linalg_legacy import chain_matmul as chain_matmul, det as det, logdet as logdet, lu as lu, matrix_exp as matrix_exp, pca_lowrank as pca_lowrank, pinverse as pinverse, svd_lowrank as svd_lowrank
from asyncgrad.ops.api.loss import cosine_similarity as cosine_similarity
from asyncgrad.ops.api.normalisation import rms_norm as rms_norm
from asyncgrad.ops.api.patches import bilinear as bilinear, channel_shuffle as channel_shuffle
from asyncgrad.ops.api.pooling import avg_pool1d as avg_pool1d
from asyncgrad.ops.api.rearrange import adjoint as adjoint, block_diag as block_diag, broadcast_shapes as broadcast_shapes, constant_pad_nd as constant_pad_nd, fliplr as fliplr, flipud as flipud, repeat_interleave as repeat_interleave, rot90 as rot90, swapaxes as swapaxes, unsafe_chunk as unsafe_chunk, unsafe_split as unsafe_split, unsafe_split_with_sizes as unsafe_split_with_sizes
from asyncgrad.ops.api.scatter import masked_scatter as masked_scatter, put as put, select_scatter as select_scatter
from asyncgrad.ops.api.shape import broadcast_tensors as broadcast_tensors, broadcast_to as broadcast_to, chunk as chunk, clone as clone, diagonal as diagonal, flatten as flatten, flip as flip, meshgrid as meshgrid, movedim as movedim, narrow as narrow, permute as permute, ravel as ravel, reshape as reshape, roll as roll, select as select, squeeze as squeeze, t as t, tile as tile, transpose as transpose, unbind as unbind, unflatten as unflatten, unsqueeze as unsqueeze
from asyncgrad.ops.api.signals import istft as istft, stft as stft
from asyncgrad.ops.api.strided import as_strided as as_strided, as_strided_scatter as as_strided_scatter, diagflat as diagflat
from asyncgrad.ops.api.transfer import get_device as get_device
from asyncgrad.ops.dtype import DType as _DType, DType as dtype
from asyncgrad.ops.dtype_device import layout as _layout, layout as layout, memory_format as _memory_format, memory_format as memory_format
from asyncgrad.ops.promotion import set_default_dtype as set_default_dtype
from asyncgrad.ops.tensors.printing import set_printoptions as set_printoptions
from asyncgrad.ops.tensors.rng import Generator as Generator, Generator as _Generator
from asyncgrad.random import get_rng_state as get_rng_state, initial_seed as initial_seed, manual_seed as manual_seed, seed as seed, set_rng_state as set_rng_state
from asyncgrad.replay.public import compile as compile
from asyncgrad.scheduler.future import BackwardFuture as BackwardFuture
from asyncgrad.scheduler.offload import cooperate as cooperate, offload as offload
from asyncgrad.scheduler.statistics import EngineStatistics
from asyncgrad.serialization.archive import load as load, save as save
from asyncgrad.settings import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled, get_deterministic_debug_mode as get_deterministic_debug_mode, get_float32_matmul_precision as get_float32_matmul_precision, get_num_interop_threads as get_num_interop_threads, get_num_threads as get_num_threads, is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled, set_deterministic_debug_mode as set_deterministic_debug_mode, set_float32_matmul_precision as set_float32_matmul_precision, set_flush_denormal as set_flush_denormal, set_num_threads as set_num_threads, use_deterministic_algorithms as use_deterministic_algorithms
from asyncgrad.sync import blocking as blocking
from asyncgrad.tensor import Tensor as Tensor
from asyncgrad.tensor_types import BFloat16Tensor as BFloat16Tensor, BoolTensor as BoolTensor, ByteTensor as ByteTensor, CharTensor as CharTensor, DoubleTensor as DoubleTensor, FloatTensor as FloatTensor, HalfTensor as HalfTensor, IntTensor as IntTensor, LongTensor as LongTensor, ShortTensor as ShortTensor, set_default_tensor_type as set_default_tensor_type
from asyncgrad.tracing import Recorder
from asyncgrad.types import DTypeLike, DeviceLike, Ints, MadeAs, Number, OutputSize
from asyncio import AbstractEventLoop
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import Any, Literal, Unpack, overload
import builtins

__all__ = ['AcceleratorError', 'BFloat16Tensor', 'BackwardFuture', 'BoolTensor', 'ByteTensor', 'CharTensor', 'DoubleTensor', 'Event', 'FloatTensor', 'Generator', 'GradScaler', 'HalfTensor', 'IntTensor', 'LongTensor', 'OutOfMemoryError', 'ShortTensor', 'Size', 'Stream', 'Tensor', 'abs', 'abs_', 'absolute', 'absolute_', 'accelerator', 'acos', 'acos_', 'acosh', 'acosh_', 'adaptive_avg_pool1d', 'adaptive_max_pool1d', 'add', 'add_', 'addbmm', 'addbmm_', 'addcdiv', 'addcdiv_', 'addcmul', 'addcmul_', 'addmm', 'addmm_', 'addmv', 'addmv_', 'addr', 'addr_', 'adjoint', 'all', 'allclose', 'alpha_dropout', 'alpha_dropout_', 'amax', 'amin', 'aminmax', 'amp', 'angle', 'any', 'arange', 'arccos', 'arccos_', 'arccosh', 'arccosh_', 'arcsin', 'arcsin_', 'arcsinh', 'arcsinh_', 'arctan', 'arctan2', 'arctan2_', 'arctan_', 'arctanh', 'arctanh_', 'are_deterministic_algorithms_enabled', 'argmax', 'argmin', 'argsort', 'argwhere', 'as_strided', 'as_strided_', 'as_strided_scatter', 'as_tensor', 'asarray', 'asin', 'asin_', 'asinh', 'asinh_', 'atan', 'atan2', 'atan2_', 'atan_', 'atanh', 'atanh_', 'atleast_1d', 'atleast_2d', 'atleast_3d', 'autocast', 'autograd', 'avg_pool1d', 'backends', 'baddbmm', 'baddbmm_', 'bartlett_window', 'batch_norm', 'bernoulli', 'bernoulli_', 'bilinear', 'binary_cross_entropy_with_logits', 'bincount', 'binomial', 'bitwise_and', 'bitwise_and_', 'bitwise_left_shift', 'bitwise_left_shift_', 'bitwise_not', 'bitwise_not_', 'bitwise_or', 'bitwise_or_', 'bitwise_right_shift', 'bitwise_right_shift_', 'bitwise_xor', 'bitwise_xor_', 'blackman_window', 'block_diag', 'blocking', 'bmm', 'bool', 'broadcast_shapes', 'broadcast_tensors', 'broadcast_to', 'bucketize', 'can_cast', 'cartesian_prod', 'cat', 'cauchy_', 'cdist', 'cdouble', 'ceil', 'ceil_', 'celu', 'celu_', 'cfloat', 'chain_matmul', 'channel_shuffle', 'channels_last', 'channels_last_3d', 'cholesky', 'cholesky_inverse', 'cholesky_solve', 'chunk', 'clamp', 'clamp_', 'clamp_max', 'clamp_max_', 'clamp_min', 'clamp_min_', 'clip', 'clip_', 'clone', 'column_stack', 'combinations', 'compile', 'complex', 'complex128', 'complex64', 'concat', 'concatenate', 'conj', 'conj_physical', 'conj_physical_', 'constant_pad_nd', 'contiguous_format', 'conv1d', 'conv2d', 'conv3d', 'conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d', 'cooperate', 'copy_', 'copysign', 'copysign_', 'corrcoef', 'cos', 'cos_', 'cosh', 'cosh_', 'cosine_embedding_loss', 'cosine_similarity', 'count_nonzero', 'cov', 'cpu', 'cross', 'ctc_loss', 'cuda', 'cummax', 'cummin', 'cumprod', 'cumprod_', 'cumsum', 'cumsum_', 'cumulative_trapezoid', 'default_generator', 'deg2rad', 'deg2rad_', 'det', 'detach', 'detach_', 'device', 'devices', 'diag', 'diag_embed', 'diagflat', 'diagonal', 'diagonal_scatter', 'diff', 'digamma', 'digamma_', 'dist', 'div', 'div_', 'divide', 'divide_', 'dot', 'double', 'dropout', 'dropout_', 'dsplit', 'dstack', 'dtype', 'einsum', 'embedding', 'empty', 'empty_like', 'empty_strided', 'enable_grad', 'engine', 'eq', 'eq_', 'equal', 'erf', 'erf_', 'erfc', 'erfc_', 'erfinv', 'erfinv_', 'errors', 'exp', 'exp2', 'exp2_', 'exp_', 'expm1', 'expm1_', 'exponential_', 'eye', 'feature_alpha_dropout', 'feature_alpha_dropout_', 'feature_dropout', 'feature_dropout_', 'fft', 'fill', 'fill_', 'fill_diagonal_', 'finfo', 'fix', 'fix_', 'flatten', 'flip', 'fliplr', 'flipud', 'float16', 'float32', 'float64', 'float_power', 'float_power_', 'floor', 'floor_', 'floor_divide', 'floor_divide_', 'fmax', 'fmin', 'fmod', 'fmod_', 'frac', 'frac_', 'frexp', 'from_dlpack', 'from_numpy', 'frombuffer', 'full', 'full_like', 'func', 'gather', 'gcd', 'gcd_', 'ge', 'ge_', 'geometric_', 'ger', 'get_autocast_dtype', 'get_default_device', 'get_default_dtype', 'get_deterministic_debug_mode', 'get_device', 'get_device_module', 'get_float32_matmul_precision', 'get_num_interop_threads', 'get_num_threads', 'get_rng_state', 'grad', 'gradient', 'greater', 'greater_', 'greater_equal', 'greater_equal_', 'group_norm', 'gt', 'gt_', 'half', 'hamming_window', 'hann_window', 'hardshrink', 'heaviside', 'heaviside_', 'hinge_embedding_loss', 'histc', 'histogram', 'hsplit', 'hstack', 'hypot', 'hypot_', 'i0', 'i0_', 'igamma', 'igamma_', 'igammac', 'igammac_', 'iinfo', 'imag', 'index_add', 'index_add_', 'index_copy', 'index_copy_', 'index_fill', 'index_fill_', 'index_put', 'index_put_', 'index_reduce', 'index_reduce_', 'index_select', 'inf', 'inference_mode', 'initial_seed', 'inner', 'instance_norm', 'int16', 'int32', 'int64', 'int8', 'inverse', 'is_anomaly_check_nan_enabled', 'is_anomaly_enabled', 'is_autocast_available', 'is_autocast_enabled', 'is_complex', 'is_conj', 'is_deterministic_algorithms_warn_only_enabled', 'is_floating_point', 'is_grad_enabled', 'is_inference', 'is_inference_mode_enabled', 'is_neg', 'is_nonzero', 'is_same_size', 'is_signed', 'is_storage', 'is_tensor', 'isclose', 'isfinite', 'isin', 'isinf', 'isnan', 'isneginf', 'isposinf', 'isreal', 'istft', 'kaiser_window', 'kl_div', 'kron', 'kthvalue', 'layer_norm', 'layout', 'lcm', 'lcm_', 'ldexp', 'ldexp_', 'le', 'le_', 'lerp', 'lerp_', 'less', 'less_', 'less_equal', 'less_equal_', 'lgamma', 'lgamma_', 'linalg', 'linspace', 'load', 'log', 'log10', 'log10_', 'log1p', 'log1p_', 'log2', 'log2_', 'log_', 'log_normal_', 'log_softmax', 'logaddexp', 'logaddexp2', 'logcumsumexp', 'logdet', 'logical_and', 'logical_and_', 'logical_not', 'logical_not_', 'logical_or', 'logical_or_', 'logical_xor', 'logical_xor_', 'logit', 'logit_', 'logspace', 'logsumexp', 'long', 'lt', 'lt_', 'lu', 'lu_solve', 'lu_unpack', 'manual_seed', 'margin_ranking_loss', 'masked_fill', 'masked_fill_', 'masked_scatter', 'masked_scatter_', 'masked_select', 'matmul', 'matrix_exp', 'matrix_power', 'max', 'max_pool1d', 'max_pool2d', 'max_pool3d', 'maximum', 'mean', 'median', 'memory_format', 'meshgrid', 'min', 'minimum', 'mm', 'mode', 'moveaxis', 'movedim', 'msort', 'mul', 'mul_', 'multinomial', 'multiply', 'multiply_', 'mv', 'mvlgamma', 'mvlgamma_', 'nan', 'nan_to_num', 'nan_to_num_', 'nanmean', 'nanmedian', 'nanquantile', 'nansum', 'narrow', 'narrow_copy', 'ne', 'ne_', 'neg', 'neg_', 'negative', 'negative_', 'newaxis', 'nextafter', 'nextafter_', 'nn', 'no_grad', 'nonzero', 'nonzero_static', 'norm', 'normal', 'normal_', 'not_equal', 'not_equal_', 'numel', 'offload', 'ones', 'ones_like', 'optim', 'outer', 'pairwise_distance', 'pca_lowrank', 'pdist', 'permute', 'pi', 'pinverse', 'pixel_shuffle', 'pixel_unshuffle', 'poisson', 'poisson_nll_loss', 'polar', 'polygamma', 'polygamma_', 'positive', 'pow', 'pow_', 'prelu', 'preserve_format', 'prod', 'promote_types', 'put', 'put_', 'qr', 'quantile', 'rad2deg', 'rad2deg_', 'rand', 'rand_like', 'randint', 'randint_like', 'randn', 'randn_like', 'random', 'random_', 'randperm', 'ravel', 'real', 'reciprocal', 'reciprocal_', 'relu', 'relu_', 'remainder', 'remainder_', 'renorm', 'renorm_', 'repeat_interleave', 'request', 'requires_grad_', 'reshape', 'resize_', 'resize_as_', 'resolve_conj', 'resolve_neg', 'result_type', 'return_types', 'rms_norm', 'roll', 'rot90', 'round', 'round_', 'row_stack', 'rrelu', 'rrelu_', 'rsqrt', 'rsqrt_', 'rsub', 'save', 'scalar_tensor', 'scatter', 'scatter_', 'scatter_add', 'scatter_add_', 'scatter_reduce', 'scatter_reduce_', 'searchsorted', 'seed', 'select', 'select_scatter', 'selu', 'selu_', 'set_', 'set_anomaly_enabled', 'set_default_device', 'set_default_dtype', 'set_default_tensor_type', 'set_deterministic_debug_mode', 'set_float32_matmul_precision', 'set_flush_denormal', 'set_grad_enabled', 'set_num_threads', 'set_printoptions', 'set_rng_state', 'sgn', 'sgn_', 'short', 'sigmoid', 'sigmoid_', 'sign', 'sign_', 'signbit', 'sin', 'sin_', 'sinc', 'sinc_', 'sinh', 'sinh_', 'slice_scatter', 'slogdet', 'softmax', 'sort', 'special', 'split', 'split_with_sizes', 'sqrt', 'sqrt_', 'square', 'square_', 'squeeze', 'squeeze_', 'stack', 'std', 'std_mean', 'stft', 'strided', 'sub', 'sub_', 'subtract', 'subtract_', 'sum', 'svd', 'svd_lowrank', 'swapaxes', 'swapaxes_', 'swapdims', 'swapdims_', 'sync', 't', 't_', 'take', 'take_along_dim', 'tan', 'tan_', 'tanh', 'tanh_', 'tensor', 'tensor_split', 'tensordot', 'testing', 'threshold', 'threshold_', 'tile', 'topk', 'trace', 'trace_passes', 'transpose', 'transpose_', 'trapezoid', 'trapz', 'tril', 'tril_', 'tril_indices', 'triplet_margin_loss', 'triu', 'triu_', 'triu_indices', 'true_divide', 'true_divide_', 'trunc', 'trunc_', 'typename', 'uint16', 'uint32', 'uint64', 'uint8', 'unbind', 'unflatten', 'uniform_', 'unique', 'unique_consecutive', 'unravel_index', 'unsafe_chunk', 'unsafe_split', 'unsafe_split_with_sizes', 'unsqueeze', 'unsqueeze_', 'use_deterministic_algorithms', 'utils', 'vander', 'var', 'var_mean', 'vdot', 'view_as_complex', 'view_as_real', 'vmap', 'vsplit', 'vstack', 'where', 'xlogy', 'xlogy_', 'zero_', 'zeros', 'zeros_like']

__version__: str
def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The absolute values, real for complex numbers; the gradient at 0 is 0."""
def abs_(self: Tensor) -> Tensor:
    """Replace elements by their absolute values.

    Raises:
        RuntimeError: for complex numbers, whose absolute values are real.
    """
def absolute(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The absolute values, real for complex numbers; the gradient at 0 is 0."""
def absolute_(self: Tensor) -> Tensor:
    """Replace elements by their absolute values.

    Raises:
        RuntimeError: for complex numbers, whose absolute values are real.
    """
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse cosine of each element."""
def acos_(self: Tensor) -> Tensor:
    """`acos`, in place."""
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic cosine, NaN below 1."""
def acosh_(self: Tensor) -> Tensor:
    """`acosh`, in place."""
def adaptive_avg_pool1d(input: Tensor, output_size: OutputSize) -> Tensor:
    """The means of windows that divide the line evenly, or nearly.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        output_size: the number of windows, or one for each axis; None for as many as there
            are elements.
    """
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize) -> tuple[Tensor, Tensor]:
    """`nn.functional.adaptive_max_pool1d` that returns the indices, too."""
def add_(self: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """`add`, in place."""
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """`beta * input + alpha *` the sum of all `batch1 @ batch2`."""
def addbmm_(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """`addbmm`, in place."""
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
    """`input + value * tensor1 / tensor2`, broadcast."""
def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """`addcdiv`, in place."""
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
    """`input + value * tensor1 * tensor2`, broadcast."""
def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """`addcmul`, in place."""
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`; with a `beta` of 0 the input is ignored.

    Args:
        input: a tensor that can be broadcast to (m, n).
        mat1: of shape (m, k).
        mat2: of shape (k, n).
    """
def addmm_(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """`addmm`, in place."""
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """`beta * input + alpha * mat @ vec`."""
def addmv_(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """`addmv`, in place."""
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)`."""
def addr_(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """`addr`, in place."""
def all(input: Tensor, dim: Ints | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether all elements are nonzero; no gradient.

    Args:
        input: any tensor; the result is bool, or uint8 for uint8.
        dim: an axis, or a sequence of them; all if None.
    """
def alpha_dropout(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`nn.functional.alpha_dropout`, which is told whether it trains."""
def alpha_dropout_(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`alpha_dropout`, in place."""
def amax(input: Tensor, dim: Ints | None = (), keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The greatest elements over some axes; the gradient is shared among ties.

    Args:
        input: any real tensor.
        dim: an axis, or a sequence of them; all if it is empty.

    Raises:
        RuntimeError: for a tensor without elements and no `dim`, or if an axis is named twice.
    """
def amin(input: Tensor, dim: Ints | None = (), keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The smallest elements over some axes; the gradient is shared among ties.

    Args:
        input: any real tensor.
        dim: an axis, or a sequence of them; all if it is empty.

    Raises:
        RuntimeError: for a tensor without elements and no `dim`, or if an axis is named twice.
    """
def aminmax(input: Tensor, *, dim: builtins.int | None = None, keepdim: builtins.bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.aminmax:
    """The least and the greatest element, of all or along an axis, as a named tuple."""
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angles of complex numbers in radians; of real ones, 0 or pi."""
def any(input: Tensor, dim: Ints | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether any elements are nonzero; no gradient.

    Args:
        input: any tensor; the result is bool, or uint8 for uint8.
        dim: an axis, or a sequence of them; all if None.
    """
def arange(*bounds: Number, start: Number | None = None, end: Number | None = None, step: Number | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Numbers from `start` up to `end`, which is excluded; see `zeros`.

    Called as `arange(end)`, `arange(start, end)` or `arange(start, end, step)`.

    Args:
        start: the first number; 0 if left out.
        end: the exclusive end.
        step: the difference of neighbours; 1 if left out.
        dtype: a real one, not bool; if None, the default one if a number is floating, else int64.
    """
def arccos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse cosine of each element."""
def arccos_(self: Tensor) -> Tensor:
    """`arccos`, in place."""
def arccosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic cosine, NaN below 1."""
def arccosh_(self: Tensor) -> Tensor:
    """`arccosh`, in place."""
def arcsin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse sine of each element."""
def arcsin_(self: Tensor) -> Tensor:
    """`arcsin`, in place."""
def arcsinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic sine."""
def arcsinh_(self: Tensor) -> Tensor:
    """`arcsinh`, in place."""
def arctan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse tangent of each element."""
def arctan2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle of the point (`other`, `input`), broadcast."""
def arctan2_(self: Tensor, other: Tensor) -> Tensor:
    """`arctan2`, in place."""
def arctan_(self: Tensor) -> Tensor:
    """`arctan`, in place."""
def arctanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic tangent, NaN beyond -1 and 1."""
def arctanh_(self: Tensor) -> Tensor:
    """`arctanh`, in place."""
def argmax(input: Tensor, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index of the greatest element, the first of several; no gradient.

    Args:
        input: a real tensor.
        dim: an axis; None for the index into the flattened tensor.

    Raises:
        RuntimeError: for booleans and complex numbers.
    """
def argmin(input: Tensor, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index of the smallest element, the first of several; no gradient.

    Args:
        input: a real tensor.
        dim: an axis; None for the index into the flattened tensor.

    Raises:
        RuntimeError: for booleans and complex numbers.
    """
def argsort(input: Tensor, dim: builtins.int = -1, descending: builtins.bool = False, *, stable: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """The indices that sort the elements along an axis; see `sort`."""
def as_strided_(self: Tensor, size: Ints, stride: Ints, storage_offset: builtins.int | None = None) -> Tensor:
    """`as_strided`, in place: the same tensor with other axes."""
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse sine of each element."""
def asin_(self: Tensor) -> Tensor:
    """`asin`, in place."""
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic sine."""
def asinh_(self: Tensor) -> Tensor:
    """`asinh`, in place."""
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse tangent of each element."""
def atan2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle of the point (`other`, `input`), broadcast."""
def atan2_(self: Tensor, other: Tensor) -> Tensor:
    """`atan2`, in place."""
def atan_(self: Tensor) -> Tensor:
    """`atan`, in place."""
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic tangent, NaN beyond -1 and 1."""
def atanh_(self: Tensor) -> Tensor:
    """`atanh`, in place."""
@overload
def atleast_1d(tensors: Tensor, /) -> Tensor:
    """Each tensor with at least 1 axes, of which new ones have length 1."""
@overload
def atleast_1d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
@overload
def atleast_1d(*tensors: Any) -> tuple[Tensor, ...]: ...
@overload
def atleast_2d(tensors: Tensor, /) -> Tensor:
    """Each tensor with at least 2 axes, of which new ones have length 1."""
@overload
def atleast_2d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
@overload
def atleast_2d(*tensors: Any) -> tuple[Tensor, ...]: ...
@overload
def atleast_3d(tensors: Tensor, /) -> Tensor:
    """Each tensor with at least 3 axes, of which new ones have length 1."""
@overload
def atleast_3d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
@overload
def atleast_3d(*tensors: Any) -> tuple[Tensor, ...]: ...
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """`beta * input + alpha * batch1 @ batch2`, matrix by matrix."""
def baddbmm_(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """`baddbmm`, in place."""
def bartlett_window(window_length: builtins.int, periodic: builtins.bool = True, *, layout: layout | None = None, pin_memory: builtins.bool = False, **options: Unpack[MadeAs]) -> Tensor:
    """The Bartlett window, a triangle from 0 over 1 to 0; see `hann_window`."""
def bernoulli(input: Tensor, p: builtins.float | None = None, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
    """Draw 1 with the probabilities in a tensor, and 0 otherwise.

    Args:
        input: the probabilities, floating; only its shape and dtype matter if `p` is given.
        p: one probability for all elements.
        generator: the source of the numbers; the default generator if None.
    """
def bernoulli_(input: Tensor, p: Tensor | builtins.float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1, with one probability or those in a floating tensor, and 0 otherwise."""
bfloat16: _DType
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: builtins.int = 0) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits` with 0, 1 or 2 for none, mean or sum."""
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers from the binomial distributions of counts and probabilities.

    Args:
        count: how many trials; floating.
        prob: the probabilities, floating, broadcast against the counts.
        generator: the source of the numbers; the default generator if None.
    """
def bitwise_and(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Bitwise and of booleans or integers, broadcast."""
def bitwise_and_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`bitwise_and`, in place."""
def bitwise_left_shift(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Integers shifted left by `other` bits, broadcast."""
def bitwise_left_shift_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`bitwise_left_shift`, in place."""
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Booleans or the bits of integers inverted."""
def bitwise_not_(self: Tensor) -> Tensor:
    """`bitwise_not`, in place."""
def bitwise_or(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Bitwise or of booleans or integers, broadcast."""
def bitwise_or_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`bitwise_or`, in place."""
def bitwise_right_shift(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Integers shifted right by `other` bits, broadcast."""
def bitwise_right_shift_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`bitwise_right_shift`, in place."""
def bitwise_xor(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Bitwise exclusive or of booleans or integers, broadcast."""
def bitwise_xor_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`bitwise_xor`, in place."""
def blackman_window(window_length: builtins.int, periodic: builtins.bool = True, *, layout: layout | None = None, pin_memory: builtins.bool = False, **options: Unpack[MadeAs]) -> Tensor:
    """The Blackman window of two cosines, with lower side lobes; see `hann_window`."""
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The products of two batches of matrices, (b, m, k) and (b, k, n)."""
bool: _DType
def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: builtins.bool = False, right: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """The indices of the intervals between sorted boundaries; see `searchsorted`."""
def cat(tensors: Sequence[Tensor], dim: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along an existing axis."""
def cauchy_(input: Tensor, median: builtins.float = 0.0, sigma: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers from the Cauchy distribution."""
cdouble: _DType
def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element rounded up; the gradient is 0."""
def ceil_(self: Tensor) -> Tensor:
    """`ceil`, in place."""
def celu_(input: Tensor, alpha: builtins.float = 1.0) -> Tensor:
    """`celu`, in place."""
cfloat: _DType
channels_last: _memory_format
channels_last_3d: _memory_format
def cholesky(input: Tensor, upper: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The Cholesky factors L with `L @ L.mH = input`; see `linalg.cholesky`."""
def cholesky_inverse(input: Tensor, upper: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The inverses of matrices from their Cholesky factors L.

    Args:
        input, upper: the factors, as `cholesky_solve` takes them.

    Raises:
        LinAlgError: if there is a 0 on a diagonal. It is a RuntimeError.
    """
def cholesky_solve(input: Tensor, input2: Tensor, upper: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The solutions of linear systems from the Cholesky factors of their matrices.

    Args:
        input: the right sides, of shape (..., n, k).
        input2: the Cholesky factors L, of shape (..., n, n).
        upper: they are `L.mH`.
    """
def clamp_(self: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """`clamp`, in place."""
def clamp_max_(self: Tensor, max: Tensor | Number) -> Tensor:
    """`clamp_max`, in place."""
def clamp_min_(self: Tensor, min: Tensor | Number) -> Tensor:
    """`clamp_min`, in place."""
def clip(input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None, *, out: Tensor | None = None) -> Tensor:
    """Clamp each element to [min, max]; at the bounds the gradient passes.

    Args:
        input: any real tensor.
        min: the lower bound: a number, a tensor (broadcast) or None.
        max: the upper bound; it takes precedence where it is below `min`.

    Raises:
        RuntimeError: without a bound, if an integer dtype can't hold a bound, or if the shapes
            can't be broadcast.
        TypeError: if one bound is a number and the other a tensor with axes.
    """
def clip_(self: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """`clip`, in place."""
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors along the second axis; those of fewer than two axes become columns."""
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers from their real and imaginary parts.

    Args:
        real: the real parts, float32 or float64.
        imag: the imaginary parts, of that dtype, broadcast.
    """
complex128: _DType
complex64: _DType
def concat(tensors: Sequence[Tensor], dim: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along an existing axis."""
def concatenate(tensors: Sequence[Tensor], dim: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors joined along an existing axis."""
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugates; a real tensor is returned unchanged."""
def conj_physical_(self: Tensor) -> Tensor:
    """`conj_physical`, in place."""
contiguous_format: _memory_format
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | ConvPadding = 0, dilation: Ints = 1, groups: builtins.int = 1) -> Tensor:
    """The convolution over the last axes (1); the kernel is not flipped.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        weight: of shape (outputs, channels / groups, *kernel).
        bias: of shape (outputs,).
        stride: the step of the kernel: a number, or one for each axis.
        padding: zeros added on both sides: a number, or one for each axis; "same" for an output of
            the input's size, "valid" for none.
        dilation: the distance between the kernel's elements.
        groups: into how many groups channels and outputs are divided; each output is computed from
            the channels of its own group.
    """
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | ConvPadding = 0, dilation: Ints = 1, groups: builtins.int = 1) -> Tensor:
    """The convolution over the last axes (2); the kernel is not flipped.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        weight: of shape (outputs, channels / groups, *kernel).
        bias: of shape (outputs,).
        stride: the step of the kernel: a number, or one for each axis.
        padding: zeros added on both sides: a number, or one for each axis; "same" for an output of
            the input's size, "valid" for none.
        dilation: the distance between the kernel's elements.
        groups: into how many groups channels and outputs are divided; each output is computed from
            the channels of its own group.
    """
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | ConvPadding = 0, dilation: Ints = 1, groups: builtins.int = 1) -> Tensor:
    """The convolution over the last axes (3); the kernel is not flipped.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        weight: of shape (outputs, channels / groups, *kernel).
        bias: of shape (outputs,).
        stride: the step of the kernel: a number, or one for each axis.
        padding: zeros added on both sides: a number, or one for each axis; "same" for an output of
            the input's size, "valid" for none.
        dilation: the distance between the kernel's elements.
        groups: into how many groups channels and outputs are divided; each output is computed from
            the channels of its own group.
    """
def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0, output_padding: Ints = 0, groups: builtins.int = 1, dilation: Ints = 1) -> Tensor:
    """The adjoint of `conv1d`: the sum of kernels, each times an element of the input.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        weight: of shape (channels, outputs / groups, *kernel).
        bias: of shape (outputs,).
        stride: the distance in the output between the kernels of neighbours: a number, or one for
            each axis.
        padding: what is cut off the output on both sides.
        output_padding: what is added to the output's length at the end.
        groups: see `conv1d`.
        dilation: the distance between the kernel's elements.
    """
def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0, output_padding: Ints = 0, groups: builtins.int = 1, dilation: Ints = 1) -> Tensor:
    """The adjoint of `conv2d`: the sum of kernels, each times an element of the input.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        weight: of shape (channels, outputs / groups, *kernel).
        bias: of shape (outputs,).
        stride: the distance in the output between the kernels of neighbours: a number, or one for
            each axis.
        padding: what is cut off the output on both sides.
        output_padding: what is added to the output's length at the end.
        groups: see `conv2d`.
        dilation: the distance between the kernel's elements.
    """
def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0, output_padding: Ints = 0, groups: builtins.int = 1, dilation: Ints = 1) -> Tensor:
    """The adjoint of `conv3d`: the sum of kernels, each times an element of the input.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        weight: of shape (channels, outputs / groups, *kernel).
        bias: of shape (outputs,).
        stride: the distance in the output between the kernels of neighbours: a number, or one for
            each axis.
        padding: what is cut off the output on both sides.
        output_padding: what is added to the output's length at the end.
        groups: see `conv3d`.
        dilation: the distance between the kernel's elements.
    """
def copy_(self: Tensor, other: Tensor, non_blocking: builtins.bool = False) -> Tensor:
    """Copy the values of another tensor, broadcast, from any device.

    Args:
        non_blocking: do not wait for a copy from pinned memory.
    """
def copysign(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """The absolute values of `input` with the signs of `other`."""
def copysign_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`copysign`, in place."""
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The cosine of each element."""
def cos_(self: Tensor) -> Tensor:
    """`cos`, in place."""
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic cosine of each element."""
def cosh_(self: Tensor) -> Tensor:
    """`cosh`, in place."""
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: builtins.float = 0, reduction: builtins.int = 0) -> Tensor:
    """`nn.functional.cosine_embedding_loss` with 0, 1 or 2 for none, mean or sum."""
def cross(input: Tensor, other: Tensor, dim: builtins.int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The cross products of vectors of length 3 along an axis; see `linalg.cross`.

    Args:
        dim: the axis of the vectors; the first of length 3 if None.
    """
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[builtins.int], target_lengths: Tensor | Sequence[builtins.int], blank: builtins.int = 0, reduction: builtins.int = 0, zero_infinity: builtins.bool = False) -> Tensor:
    """`nn.functional.ctc_loss` with 0, 1 or 2 for none, mean or sum."""
def cummax(input: Tensor, dim: builtins.int, *, out: Sequence[Tensor] | None = None) -> return_types.cummax:
    """The greatest elements up to each along an axis, and where they are."""
def cummin(input: Tensor, dim: builtins.int, *, out: Sequence[Tensor] | None = None) -> return_types.cummin:
    """The smallest elements up to each along an axis, and where they are."""
def cumprod(input: Tensor, dim: builtins.int, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The cumulative products along an axis; gradients are exact even at zeros; see `cumsum`."""
def cumprod_(self: Tensor, dim: builtins.int, *, dtype: DTypeLike | None = None) -> Tensor:
    """`cumprod`, in place."""
def cumsum(input: Tensor, dim: builtins.int, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The cumulative sums along an axis.

    Args:
        dtype: converted to first, not bool; if None, int64 for integers and booleans.
    """
def cumsum_(self: Tensor, dim: builtins.int, *, dtype: DTypeLike | None = None) -> Tensor:
    """`cumsum`, in place."""
default_generator: _Generator
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Convert degrees to radians."""
def deg2rad_(self: Tensor) -> Tensor:
    """`deg2rad`, in place."""
def detach_(self: Tensor) -> Tensor:
    """Remove this tensor from the graph.

    Raises:
        RuntimeError: for a view, which would get its graph back from its base.
    """
def diag(input: Tensor, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """A copy of a matrix's diagonal, or a matrix with a vector on its diagonal."""
def diag_embed(input: Tensor, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1, *, out: Tensor | None = None) -> Tensor:
    """Matrices with the last axis of a tensor on their diagonals.

    Args:
        input: of shape (..., n).
        offset, dim1, dim2: as in `diagonal`, of the result.
    """
def diagonal_scatter(input: Tensor, src: Tensor, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1, *, out: Tensor | None = None) -> Tensor:
    """A copy of `input` with `src` on a diagonal.

    Args:
        src: of the shape of `diagonal(input, offset, dim1, dim2)`.
        offset, dim1, dim2: as in `diagonal`.
    """
def diff(input: Tensor, n: builtins.int = 1, dim: builtins.int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """The n-th differences of neighbours along an axis.

    Args:
        prepend: a tensor that is prepended before taking differences.
        append: a tensor that is appended.
    """
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of the logarithm of the gamma function."""
def digamma_(self: Tensor) -> Tensor:
    """`digamma`, in place."""
def div_(self: Tensor, other: Tensor | Number, *, rounding_mode: Rounding | None = None) -> Tensor:
    """`div`, in place."""
def divide(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: Rounding | None = None, out: Tensor | None = None) -> Tensor:
    """`input / other`, broadcast.

    Args:
        rounding_mode: None for the true quotient, "trunc" to round it towards 0, "floor" to
            round it down; rounded quotients keep integers and have a gradient of 0.

    Raises:
        RuntimeError: if the shapes can't be broadcast, for another rounding mode, or where
            integers are divided by zero and rounded.
    """
def divide_(self: Tensor, other: Tensor | Number, *, rounding_mode: Rounding | None = None) -> Tensor:
    """`divide`, in place."""
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of the products of two vectors, neither conjugated."""
double: _DType
def dropout(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`nn.functional.dropout`, which is told whether it trains."""
def dropout_(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`dropout`, in place."""
def dsplit(input: Tensor, indices_or_sections: Ints, *more: builtins.int) -> tuple[Tensor, ...]:
    """`tensor_split` along axis 2, in parts that have to be equal."""
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors, extended to at least three axes, along the third."""
e: builtins.float
def empty(*sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """A tensor with arbitrary values; see `zeros`."""
def empty_like(input: Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """Arbitrary values, in the shape, layout, dtype and device of another tensor; see `zeros`."""
def empty_strided(size: Ints, stride: Ints, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """A tensor with arbitrary values and the given strides in memory; see `zeros`.

    Args:
        stride: for each axis, the distance of neighbours in memory, in elements.
        dtype: the dtype; the default one if None.
    """
class _Engine:
    """Runs the passes of one event loop."""
    def limit(self, *, passes: builtins.int | None = None, coroutine_nodes: builtins.int = 128, grace: builtins.float = 5.0) -> None:
        """Set how much happens at the same time on this loop.

        Args:
            passes: how many passes run at once; the others wait in order of priority. None for any
                number. Nested passes are not counted: their parents wait for them.
            coroutine_nodes: how many coroutine nodes and hooks of one pass wait at once.
            grace: the seconds that such a coroutine has to end when its pass is cancelled or has
                failed, before the pass ends without it.

        Raises:
            ValueError: if nothing could run.
        """
    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop."""
    def statistics(self) -> EngineStatistics:
        """What the engine has done so far."""
def engine() -> _Engine:
    """The engine of the running event loop.

    Raises:
        RuntimeError: if no loop is running.
    """
def eq(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` equals `other`, broadcast: bool, without a gradient."""
def eq_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`eq`, in place."""
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function of each element."""
def erf_(self: Tensor) -> Tensor:
    """`erf`, in place."""
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """One minus the error function."""
def erfc_(self: Tensor) -> Tensor:
    """`erfc`, in place."""
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of the error function, NaN beyond -1 and 1."""
def erfinv_(self: Tensor) -> Tensor:
    """`erfinv`, in place."""
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """e to the power of each element."""
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """2 to the power of each element."""
def exp2_(self: Tensor) -> Tensor:
    """`exp2`, in place."""
def exp_(self: Tensor) -> Tensor:
    """`exp`, in place."""
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x) - 1 of each element, exact near 0."""
def expm1_(self: Tensor) -> Tensor:
    """`expm1`, in place."""
def exponential_(input: Tensor, lambd: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers from the exponential distribution of rate `lambd`."""
def eye(n: builtins.int, m: builtins.int | None = None, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """A matrix with ones on the diagonal and zeros elsewhere; see `zeros`.

    Args:
        n: how many rows there are.
        m: how many columns; `n` if None.
        dtype: the dtype; the default one if None.
    """
def feature_alpha_dropout(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout`, which is told whether it trains."""
def feature_alpha_dropout_(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`feature_alpha_dropout`, in place."""
def feature_dropout(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`nn.functional.dropout2d`, which is told whether it trains."""
def feature_dropout_(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor:
    """`feature_dropout`, in place."""
def fill_(self: Tensor, value: Tensor | builtins.complex) -> Tensor:
    """Set all elements to a number."""
def fill_diagonal_(input: Tensor, fill_value: Number, wrap: builtins.bool = False) -> Tensor:
    """Fill the main diagonal with one number, in place.

    Args:
        input: a tensor of two axes, or of more axes of equal length.
        wrap: in a tall matrix, start the diagonal again after its end.
    """
def fix(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element rounded towards 0; the gradient is 0."""
def fix_(self: Tensor) -> Tensor:
    """`fix`, in place."""
float: _DType
float16: _DType
float32: _DType
float64: _DType
def float_power(input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input` to the power of `exponent`, computed in double precision."""
def float_power_(self: Tensor, exponent: Tensor | Number) -> Tensor:
    """`float_power`, in place."""
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element rounded down; the gradient is 0."""
def floor_(self: Tensor) -> Tensor:
    """`floor`, in place."""
def floor_divide(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input / other` rounded down, broadcast; as in PyTorch it has no gradient, see `div`."""
def floor_divide_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`floor_divide`, in place."""
def fmax(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greater of two elements, broadcast; a number is greater than NaN."""
def fmin(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The less of two elements, broadcast; a number is less than NaN."""
def fmod(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """The remainder of a division rounded towards 0, broadcast: it has `input`'s sign."""
def fmod_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`fmod`, in place."""
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The fractional parts, with the numbers' signs."""
def frac_(self: Tensor) -> Tensor:
    """`frac`, in place."""
def frexp(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.frexp:
    """Split numbers into a mantissa in [0.5, 1), with their sign, and an exponent of 2.

    Args:
        input: a real floating tensor.

    Returns:
        A named tuple of the mantissas and, int32 and without a gradient, of the exponents.
    """
def full(size: Ints, fill_value: Tensor | Number, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """A tensor with one value everywhere; see `zeros`.

    Args:
        fill_value: the value: a number, or a tensor without dimensions.
        dtype: the dtype; the number's if None.

    Raises:
        RuntimeError: if the value does not fit the dtype, or a dtype without gradients is to
            require them.
    """
def full_like(input: Tensor, fill_value: Tensor | Number, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """One value, in the shape, layout, dtype and device of another tensor. See `empty_like`."""
def gather(input: Tensor, dim: builtins.int, index: Tensor, *, sparse_grad: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """The elements at `index` along `dim`; the result has the shape of `index`."""
def gcd(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greatest common divisor of integers, broadcast."""
def gcd_(self: Tensor, other: Tensor) -> Tensor:
    """`gcd`, in place."""
def ge(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is at least `other`, broadcast: bool, without a gradient."""
def ge_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`ge`, in place."""
def geometric_(input: Tensor, p: builtins.float, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of trials up to the first success, whose probability is `p`.

    Raises:
        NotImplementedError: for booleans and complex numbers.
    """
def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The outer product of two vectors.

    Args:
        input: of shape (m,).
        vec2: of shape (n,).
    """
def greater(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is greater than `other`, broadcast: bool, without a gradient."""
def greater_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`greater`, in place."""
def greater_equal(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is at least `other`, broadcast: bool, without a gradient."""
def greater_equal_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`greater_equal`, in place."""
def gt(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is greater than `other`, broadcast: bool, without a gradient."""
def gt_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`gt`, in place."""
half: _DType
def hamming_window(window_length: builtins.int, periodic: builtins.bool = True, alpha: builtins.float = 0.54, beta: builtins.float = 0.46, *, layout: layout | None = None, pin_memory: builtins.bool = False, **options: Unpack[MadeAs]) -> Tensor:
    """The Hamming window, `alpha` minus `beta` times a cosine; see `hann_window`."""
def hann_window(window_length: builtins.int, periodic: builtins.bool = True, *, layout: layout | None = None, pin_memory: builtins.bool = False, **options: Unpack[MadeAs]) -> Tensor:
    """The Hann window, a raised cosine from 0 over 1 to 0.

    Args:
        window_length: the number of points.
        periodic: make one more point and drop the last, for Fourier transforms.
        options: `dtype`, `device` and `requires_grad`, as for `zeros`.
    """
def hardshrink(input: Tensor, lambd: builtins.float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """The elements, and 0 where they are between `-lambd` and `lambd`."""
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 for positive elements, 0 for negative ones, and `values` at 0, broadcast.

    Raises:
        RuntimeError: for complex numbers, or if the dtypes differ.
        NotImplementedError: in the backward pass: there is no derivative.
    """
def heaviside_(self: Tensor, values: Tensor) -> Tensor:
    """`heaviside`, in place."""
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: builtins.float = 1.0, reduction: builtins.int = 0) -> Tensor:
    """`nn.functional.hinge_embedding_loss` with 0, 1 or 2 for none, mean or sum."""
def histc(input: Tensor, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0, *, out: Tensor | None = None) -> Tensor:
    """The number of elements in each of `bins` bins of equal width; without a gradient.

    Args:
        input: a floating tensor.
        min: the start of the first bin.
        max: the end of the last bin; if both are equal, the elements' extremes are used.
    """
def histogram(input: Tensor, bins: Ints | Tensor | Sequence[Tensor], *, range: tuple[builtins.float, builtins.float] | None = None, weight: Tensor | None = None, density: builtins.bool = False, out: Tensor | Sequence[Tensor] | None = None) -> return_types.histogram:
    """The number of elements in each bin, and the bins' edges; without a gradient.

    Args:
        input: a float or double tensor.
        bins: the number of bins of equal width, or the edges, in order.
        range: the start of the first and the end of the last bin; the elements' if None.
        weight: the weight of each element.
        density: divide by the sum, and by the width of each bin.
    """
def hsplit(input: Tensor, indices_or_sections: Ints, *more: builtins.int) -> tuple[Tensor, ...]:
    """`tensor_split` along axis 1, in parts that have to be equal."""
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors along the second axis, or along the first if they have only one."""
def hypot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The length of the hypotenuse, `sqrt(input**2 + other**2)`, broadcast."""
def hypot_(self: Tensor, other: Tensor) -> Tensor:
    """`hypot`, in place."""
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""
def i0_(self: Tensor) -> Tensor:
    """`i0`, in place."""
def igamma(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The lower incomplete gamma function, over the whole; no derivative by `input`. Needs SciPy."""
def igamma_(self: Tensor, other: Tensor) -> Tensor:
    """`igamma`, in place."""
def igammac(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The upper incomplete gamma function, over the whole; no derivative by `input`. Needs SciPy."""
def igammac_(self: Tensor, other: Tensor) -> Tensor:
    """`igammac`, in place."""
def index_add(input: Tensor, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """A copy of `input` with `alpha` times the slices of `source` added at `index` along `dim`.

    Args:
        index: the position of each slice, of one axis; repeated positions add up.
        source: of the dtype of `input`, and of its shape apart from `dim`.
    """
def index_add_(input: Tensor, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """`index_add`, in place."""
def index_copy(input: Tensor, dim: builtins.int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy of `input` with the slices of `source` written at `index` along `dim`."""
def index_copy_(self: Tensor, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
    """`index_copy`, in place."""
def index_fill(input: Tensor, dim: builtins.int, index: Tensor, value: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """A copy of `input` with one value in all slices at `index` along `dim`."""
def index_fill_(self: Tensor, dim: builtins.int, index: Tensor, value: Tensor | Number) -> Tensor:
    """`index_fill`, in place."""
def index_put_(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """`index_put`, in place."""
def index_reduce(input: Tensor, dim: builtins.int, index: Tensor, source: Tensor, reduce: IndexReduceKind, *, include_self: builtins.bool = True, out: Tensor | None = None) -> Tensor:
    """A copy of `input` in which slices along `dim` are reduced with those of `source`.

    Args:
        index, source: as in `index_add`.
        reduce, include_self: as in `scatter_reduce`, but not "sum".

    Raises:
        NotImplementedError: for extremes of complex numbers, or means of booleans; without
            `include_self`, for all complex numbers and booleans.
    """
def index_reduce_(self: Tensor, dim: builtins.int, index: Tensor, source: Tensor, reduce: IndexReduceKind, *, include_self: builtins.bool = True) -> Tensor:
    """`index_reduce`, in place."""
def index_select(input: Tensor, dim: builtins.int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The slices of `input` along `dim` at `index`, a tensor with at most one axis."""
inf: builtins.float
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sums of products along the last axes of two tensors.

    Args:
        input: of shape (..., k).
        other: of shape (..., k).
    """
int: _DType
int16: _DType
int32: _DType
int64: _DType
int8: _DType
def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverses of square matrices; see `linalg.inv`."""
def is_neg(input: Tensor) -> builtins.bool:
    """Return False: there are no lazy conjugates here."""
def isfinite(input: Tensor) -> Tensor:
    """Where elements are neither infinite nor NaN: bool, without a gradient."""
def isin(elements: Tensor | Number, test_elements: Tensor | Number, *, assume_unique: builtins.bool = False, invert: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Where elements occur in `test_elements`.

    Args:
        elements: a tensor or a number.
        test_elements: the others, likewise.
        assume_unique: both have no duplicates.
        invert: where elements do not occur.
    """
def isinf(input: Tensor) -> Tensor:
    """Where elements are infinite: bool, without a gradient."""
def isnan(input: Tensor) -> Tensor:
    """Where elements are NaN: bool, without a gradient."""
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Where elements are negative infinity."""
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Where elements are positive infinity."""
def kaiser_window(window_length: builtins.int, periodic: builtins.bool = True, beta: builtins.float = 12.0, *, layout: layout | None = None, pin_memory: builtins.bool = False, **options: Unpack[MadeAs]) -> Tensor:
    """The Kaiser window, narrower for a greater `beta`; see `hann_window`."""
def kl_div(input: Tensor, target: Tensor, reduction: builtins.int = 0, log_target: builtins.bool = False) -> Tensor:
    """`nn.functional.kl_div` with 0, 1 or 2 for none, mean or sum."""
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Kronecker product: a block of the second tensor for each element of the first."""
def kthvalue(input: Tensor, k: builtins.int, dim: builtins.int = -1, keepdim: builtins.bool = False, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.kthvalue:
    """The `k`-th smallest element along an axis, counted from 1, and its index, an int64.

    Args:
        input: a real tensor, not of booleans. NaN is greater than all numbers.
    """
def lcm(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The least common multiple of integers, broadcast."""
def lcm_(self: Tensor, other: Tensor) -> Tensor:
    """`lcm`, in place."""
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`input * 2**other`, broadcast; integers in `other` leave the dtype of floating `input`."""
def ldexp_(self: Tensor, other: Tensor) -> Tensor:
    """`ldexp`, in place."""
def le(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is at most `other`, broadcast: bool, without a gradient."""
def le_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`le`, in place."""
def lerp(input: Tensor, end: Tensor, weight: Tensor | builtins.float, *, out: Tensor | None = None) -> Tensor:
    """`input + weight * (end - input)`, broadcast, computed from the nearer end."""
def lerp_(self: Tensor, end: Tensor, weight: Tensor | builtins.float) -> Tensor:
    """`lerp`, in place."""
def less(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is less than `other`, broadcast: bool, without a gradient."""
def less_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`less`, in place."""
def less_equal(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is at most `other`, broadcast: bool, without a gradient."""
def less_equal_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`less_equal`, in place."""
def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the absolute value of the gamma function."""
def lgamma_(self: Tensor) -> Tensor:
    """`lgamma`, in place."""
def linspace(start: Tensor | Number, end: Tensor | Number, steps: builtins.int, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Numbers at equal distances from `start` to `end`, both of which are included; see `zeros`.

    Args:
        start: the first: a number, or a tensor without dimensions.
        end: the last, likewise.
        steps: how many numbers.
        dtype: the dtype; if None, the default one or its complex counterpart.

    Raises:
        RuntimeError: if it is negative, a bound has dimensions, or the dtype is real and a bound
            is not.
        NotImplementedError: for booleans.
    """
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The natural logarithm of each element."""
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 10 of each element."""
def log10_(self: Tensor) -> Tensor:
    """`log10`, in place."""
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(1 + x) of each element, exact near 0."""
def log1p_(self: Tensor) -> Tensor:
    """`log1p`, in place."""
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 2 of each element."""
def log2_(self: Tensor) -> Tensor:
    """`log2`, in place."""
def log_(self: Tensor) -> Tensor:
    """`log`, in place."""
def log_normal_(input: Tensor, mean: builtins.float = 1.0, std: builtins.float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """Fill a floating tensor with numbers whose logarithms are normal."""
def log_softmax(input: Tensor, dim: builtins.int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the softmax along `dim`.

    Args:
        input: a tensor of a floating dtype, or of any if `dtype` is given.
        dtype: the floating dtype to compute in.

    Raises:
        NotImplementedError: for a dtype that is not floating.
    """
def logaddexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`log(exp(input) + exp(other))`, broadcast, without overflow.

    Raises:
        NotImplementedError: if both are integers.
    """
def logaddexp2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 2 of the sum of powers of 2, broadcast."""
def logcumsumexp(input: Tensor, dim: builtins.int, *, out: Tensor | None = None) -> Tensor:
    """The cumulative `logsumexp` along an axis, without overflow.

    Args:
        input: a floating or complex tensor.
    """
def logical_and(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Where both are not 0, broadcast: bool, without a gradient."""
def logical_and_(self: Tensor, other: Tensor) -> Tensor:
    """`logical_and`, in place."""
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Where elements are 0: bool, without a gradient."""
def logical_not_(self: Tensor) -> Tensor:
    """`logical_not`, in place."""
def logical_or(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Where one of the two is not 0, broadcast: bool, without a gradient."""
def logical_or_(self: Tensor, other: Tensor) -> Tensor:
    """`logical_or`, in place."""
def logical_xor(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Where exactly one of the two is not 0, broadcast: bool, without a gradient."""
def logical_xor_(self: Tensor, other: Tensor) -> Tensor:
    """`logical_xor`, in place."""
def logit(input: Tensor, eps: builtins.float | None = None, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the odds, `log(x / (1 - x))`.

    Args:
        input: probabilities.
        eps: probabilities are clamped to [eps, 1 - eps]; outside there is no gradient.
    """
def logit_(self: Tensor, eps: builtins.float | None = None) -> Tensor:
    """`logit`, in place."""
def logspace(start: Tensor | Number, end: Tensor | Number, steps: builtins.int, base: Number = 10.0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Powers of `base` with exponents at equal distances from `start` to `end`; see `linspace`."""
def logsumexp(input: Tensor, dim: Ints | None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the sum of the exponentials over some axes, without overflow.

    Args:
        input: any tensor; integers become floating.
        dim: an axis, or a sequence of them.
    """
long: _DType
def lt(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` is less than `other`, broadcast: bool, without a gradient."""
def lt_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`lt`, in place."""
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The solutions of linear systems from LU decompositions; see `linalg.lu_solve`."""
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: builtins.bool = True, unpack_pivots: builtins.bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.lu_unpack:
    """Unpack the result of `lu` into permutations P, lower triangular L and upper triangular U.

    Args:
        LU_data: of shape (..., m, n).
        LU_pivots: int32, of shape (..., min(m, n)).
        unpack_data: compute L and U, which are otherwise empty.
        unpack_pivots: compute P, which is otherwise empty.
    """
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: builtins.float = 0, reduction: builtins.int = 0) -> Tensor:
    """`nn.functional.margin_ranking_loss` with 0, 1 or 2 for none, mean or sum."""
def masked_fill_(self: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """`masked_fill`, in place."""
def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter`, in place."""
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where `mask` is True, as a vector; both are broadcast."""
def matrix_power(input: Tensor, n: builtins.int, *, out: Tensor | None = None) -> Tensor:
    """Integer powers of square matrices; see `linalg.matrix_power`."""
@overload
def max(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greatest element of all, along an axis, or of each pair.

    Args:
        input: any real tensor.
        dim: None for the greatest of all, whose gradient is shared among ties; an axis for a
            named tuple of `values` and `indices`, where all of the gradient goes to the index that
            is returned; another tensor for `maximum`.
        other: the other tensor, by name.

    Raises:
        RuntimeError: for complex numbers, or a tensor without elements and no `dim`.
        TypeError: for `keepdim` and no `dim`.
    """
@overload
def max(input: Tensor, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.max: ...
@overload
def max(input: Tensor, dim: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(input: Tensor, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
@overload
def max_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, return_indices: Literal[False] = False) -> Tensor:
    """The greatest element of each window.

    Args:
        input: of shape (n, channels, length) or (channels, length).
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows may reach beyond the sides.
        dilation: the distance between the window's elements.
        ceil_mode: let the last windows reach beyond the end.
        return_indices: also return the elements' indices in their lines.
    """
@overload
def max_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, return_indices: builtins.bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def max_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, return_indices: Literal[False] = False) -> Tensor:
    """The greatest element of each window.

    Args:
        input: of shape (n, channels, rows, columns) or (channels, rows, columns).
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows may reach beyond the sides.
        dilation: the distance between the window's elements.
        ceil_mode: let the last windows reach beyond the end.
        return_indices: also return the elements' indices in their planes.
    """
@overload
def max_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, return_indices: builtins.bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def max_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, return_indices: Literal[False] = False) -> Tensor:
    """The greatest element of each window.

    Args:
        input: of shape (n, channels, layers, rows, columns), or without n.
        kernel_size: the size of the window: a number, or one for each axis.
        stride: the step of the window; its size if None.
        padding: how far windows may reach beyond the sides.
        dilation: the distance between the window's elements.
        ceil_mode: let the last windows reach beyond the end.
        return_indices: also return the elements' indices in their volumes.
    """
@overload
def max_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, ceil_mode: builtins.bool = False, return_indices: builtins.bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def maximum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greater of two elements, broadcast; the gradient of a tie is split in halves."""
def mean(input: Tensor, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The mean over some axes, of a floating or complex tensor; see `sum`.

    Raises:
        RuntimeError: for integers and booleans, or if an axis is named twice.
    """
@overload
def median(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The middle element, the lower of two; NaN where there is any.

    Args:
        input: a real tensor.
        dim: None for the middle of all elements, whose gradient is shared among ties; an axis for a
            named tuple of `values` and `indices`, where all of the gradient goes to the index.

    Raises:
        NotImplementedError: for booleans and complex numbers.
    """
@overload
def median(input: Tensor, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.median: ...
@overload
def min(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smallest element of all, along an axis, or of each pair.

    Args:
        input: any real tensor.
        dim: None for the smallest of all, whose gradient is shared among ties; an axis for a
            named tuple of `values` and `indices`, where all of the gradient goes to the index that
            is returned; another tensor for `minimum`.
        other: the other tensor, by name.

    Raises:
        RuntimeError: for complex numbers, or a tensor without elements and no `dim`.
        TypeError: for `keepdim` and no `dim`.
    """
@overload
def min(input: Tensor, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.min: ...
@overload
def min(input: Tensor, dim: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def min(input: Tensor, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
def minimum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smaller of two elements, broadcast; the gradient of a tie is split in halves."""
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two matrices, (m, k) and (k, n)."""
def mode(input: Tensor, dim: builtins.int = -1, keepdim: builtins.bool = False, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.mode:
    """The most frequent element along an axis, the least of several, and its index, an int64.

    Args:
        input: a real tensor.
    """
def moveaxis(input: Tensor, source: Ints, destination: Ints) -> Tensor:
    """Move axes to other positions; the rest keep their order."""
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements sorted along the first axis."""
def mul(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input * other`, broadcast."""
def mul_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`mul`, in place."""
def multinomial(input: Tensor, num_samples: builtins.int, replacement: builtins.bool = False, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
    """Indices, (num_samples,) or (m, num_samples), drawn with the weights in each row of a tensor.

    Args:
        input: the weights, not negative: of shape (n,) or (m, n).
        num_samples: how many to draw from each row.
        replacement: an index may be drawn again.
        generator: the source of the numbers; the default generator if None.

    Raises:
        RuntimeError: if the weights are none, or too few to draw from.
    """
def multiply(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input * other`, broadcast."""
def multiply_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`multiply`, in place."""
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of a matrix and a vector, (m, k) and (k,)."""
def mvlgamma(input: Tensor, p: builtins.int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`.

    Args:
        input: any real tensor, above `(p - 1) / 2`.
    """
def mvlgamma_(self: Tensor, p: builtins.int) -> Tensor:
    """`mvlgamma`, in place."""
nan: builtins.float
def nan_to_num(input: Tensor, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None, *, out: Tensor | None = None) -> Tensor:
    """Replace NaN by 0 and infinities by the dtype's limits, unless other numbers are given."""
def nan_to_num_(self: Tensor, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None) -> Tensor:
    """`nan_to_num`, in place."""
def nanmean(input: Tensor, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The mean over some axes, without NaN."""
@overload
def nanmedian(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The middle element of those that are not NaN, the lower of two.

    Args:
        input: a real tensor.
        dim: None for the middle of all elements, whose gradient is shared among ties; an axis for a
            named tuple of `values` and `indices`, where all of the gradient goes to the index.

    Raises:
        NotImplementedError: for booleans and complex numbers.
    """
@overload
def nanmedian(input: Tensor, dim: builtins.int, keepdim: builtins.bool = False, *, out: Sequence[Tensor] | None = None) -> return_types.nanmedian: ...
def nanquantile(input: Tensor, q: Tensor | builtins.float, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: Interpolation = 'linear', out: Tensor | None = None) -> Tensor:
    """The quantiles without NaN; see `quantile`."""
def nansum(input: Tensor, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The sum over some axes, without NaN."""
def narrow_copy(input: Tensor, dim: builtins.int, start: Tensor | builtins.int, length: builtins.int, *, out: Tensor | None = None) -> Tensor:
    """A copy of `length` elements of an axis, from `start`."""
def ne(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` differs from `other`, broadcast: bool, without a gradient."""
def ne_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`ne`, in place."""
def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element with its sign changed."""
def neg_(self: Tensor) -> Tensor:
    """`neg`, in place."""
def negative(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element with its sign changed."""
def negative_(self: Tensor) -> Tensor:
    """`negative`, in place."""
newaxis: None
def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The next number after `input` in the direction of `other`."""
def nextafter_(self: Tensor, other: Tensor) -> Tensor:
    """`nextafter`, in place."""
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False, out: Tensor | None = None) -> Tensor:
    """The indices of nonzero elements: a row for each, or with `as_tuple` a tensor by axis."""
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True], out: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]: ...
@overload
def nonzero(input: Tensor, *, as_tuple: builtins.bool = False, out: Tensor | None = None) -> Tensor | tuple[Tensor, ...]: ...
def nonzero_static(input: Tensor, *, size: builtins.int, fill_value: builtins.int = -1, out: Tensor | None = None) -> Tensor:
    """The indices of the first `size` nonzero elements, a row for each; absent rows are filled."""
def norm(input: Tensor, p: builtins.float | MatrixNorm | None = 'fro', dim: Ints | None = None, keepdim: builtins.bool = False, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
    """The norm of a tensor as a vector, over some axes; PyTorch's older name.

    Args:
        input: a floating or complex tensor.
        p: the order: a number, "fro" or None for the Euclidean norm, "nuc" for the sum of the
            singular values of matrices.
        dim: an axis, or a sequence of them; all if None.
        dtype: the dtype that the elements are converted to first.
    """
def normal(mean: Tensor | builtins.float, std: Tensor | builtins.float = 1.0, size: Ints | None = None, *, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Normal numbers with the means and deviations given; see `rand`.

    Args:
        mean: a tensor, or a number.
        std: a tensor, or a number; tensors are broadcast against one another.
        size: the shape, where both are numbers.
        dtype: the dtype, where both are numbers; the default one if None.
        device: the device, where both are numbers.

    Raises:
        RuntimeError: if a deviation is negative or complex.
        NotImplementedError: for a dtype that is neither floating nor complex.
    """
def normal_(input: Tensor, mean: builtins.float = 0.0, std: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers, floating or complex."""
def not_equal(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Where `input` differs from `other`, broadcast: bool, without a gradient."""
def not_equal_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`not_equal`, in place."""
def ones(*sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """A tensor of ones; see `zeros`."""
def ones_like(input: Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """Ones, in the shape, layout, dtype and device of another tensor; see `zeros`."""
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The outer product of two vectors.

    Args:
        input: of shape (m,).
        vec2: of shape (n,).
    """
pi: builtins.float
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers from the Poisson distributions with the rates in a floating tensor."""
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: builtins.bool = True, full: builtins.bool = False, eps: builtins.float = 1e-08, reduction: builtins.int = 0) -> Tensor:
    """`nn.functional.poisson_nll_loss` with 0, 1 or 2 for none, mean or sum."""
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers from their absolute values and angles.

    Args:
        abs: the absolute values, float32 or float64.
        angle: the angles in radians, of that dtype, broadcast.
    """
def polygamma(n: builtins.int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of `digamma` of order `n`."""
def polygamma_(self: Tensor, n: builtins.int) -> Tensor:
    """`polygamma`, in place."""
def pow_(self: Tensor, exponent: Tensor | Number) -> Tensor:
    """`pow`, in place."""
preserve_format: _memory_format
def prod(input: Tensor, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The product of all elements, or along an axis; gradients are exact even at zeros.

    Args:
        dim: an axis; all if None.
        dtype: converted to before the reduction; if None, int64 for integers and booleans.
    """
def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """`put`, in place."""
def qr(input: Tensor, some: builtins.bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.qr:
    """The QR decomposition; see `linalg.qr`.

    Args:
        some: the reduced form.
    """
def quantile(input: Tensor, q: Tensor | builtins.float, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: Interpolation = 'linear', out: Tensor | None = None) -> Tensor:
    """The quantiles of all elements, or along an axis; NaN if there is one.

    Args:
        input: a float or double tensor, not empty.
        q: a number from 0 to 1, or a vector of them, whose axis is the result's first.
        interpolation: between two elements: "linear", "lower", "higher", "midpoint", "nearest".
    """
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Convert radians to degrees."""
def rad2deg_(self: Tensor) -> Tensor:
    """`rad2deg`, in place."""
def rand(*sizes: Ints, size: Ints | None = None, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Numbers uniform in [0, 1); for complex dtypes, both parts are; see `zeros`.

    Args:
        sizes: the shape, as one sequence or as several numbers.
        generator: the source of the numbers; the default generator if None.
        dtype: a floating or complex dtype; the default one if None.

    Raises:
        NotImplementedError: for a dtype that is neither floating nor complex.
    """
def rand_like(input: Tensor, *, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """Numbers uniform in [0, 1), in the shape, dtype and place of another tensor; see `rand`."""
def randint(*bounds: builtins.int | Sequence[builtins.int], low: builtins.int | None = None, high: builtins.int | None = None, size: Ints | None = None, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Integers uniform in [low, high); see `rand`.

    Called as `randint(high, size)` or `randint(low, high, size)`.

    Args:
        low: the least integer; 0 if left out.
        high: the exclusive upper bound.
        dtype: any dtype but complex ones; int64 if None.

    Raises:
        RuntimeError: if there are no integers in [low, high) or the dtype can't hold them.
    """
def randint_like(input: Tensor, *bounds: builtins.int, low: builtins.int | None = None, high: builtins.int | None = None, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """Integers uniform in [low, high), in the shape, dtype and place of another tensor.

    Called as `randint_like(input, high)` or `randint_like(input, low, high)`; see `randint`.
    """
def randn(*sizes: Ints, size: Ints | None = None, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """Standard normal numbers; complex ones have variance 1 in both parts together. See `rand`."""
def randn_like(input: Tensor, *, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """Standard normal numbers, in the shape, dtype and place of another tensor; see `randn`."""
def random_(input: Tensor, *args: builtins.int, generator: Generator | None = None, **kwargs: builtins.int) -> Tensor:
    """Fill with integers uniform in [from, to): `random_()`, `random_(to)` or `random_(from, to)`.

    Without `to`, the bound is the largest integer up to which the dtype holds every integer.

    Raises:
        RuntimeError: if there are no such integers or the dtype can't hold them.
        NotImplementedError: for complex numbers.
    """
def randperm(n: builtins.int, *, generator: Generator | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """The numbers below `n` in random order; see `rand`.

    Args:
        dtype: the dtype; int64 if None.
    """
def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / x of each element."""
def reciprocal_(self: Tensor) -> Tensor:
    """`reciprocal`, in place."""
def relu(input: Tensor) -> Tensor:
    """Each element, or 0 where it is negative; the gradient at 0 is 0."""
def relu_(self: Tensor) -> Tensor:
    """`relu`, in place."""
def remainder(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """The remainder of a division rounded down, broadcast: it has `other`'s sign."""
def remainder_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`remainder`, in place."""
def renorm(input: Tensor, p: builtins.float, dim: builtins.int, maxnorm: builtins.float, *, out: Tensor | None = None) -> Tensor:
    """Scale slices along an axis down to a norm of at most `maxnorm`.

    Args:
        input: a floating tensor of two axes at least.
        p: the order of the norm, above 0.
    """
def renorm_(self: Tensor, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
    """`renorm`, in place."""
def requires_grad_(self: Tensor, requires_grad: builtins.bool = True) -> Tensor:
    """Start or stop to require a gradient of this leaf.

    Raises:
        RuntimeError: for a computed tensor, or a dtype without gradients; or inside of a
            function that `asyncgrad.func` differentiates.
    """
def resize_(input: Tensor, *sizes: Ints, memory_format: memory_format | None = None) -> Tensor:
    """Change a tensor's shape in place; elements keep their order in memory.

    If there are more elements than before, new memory is allocated and the added ones are zero. A
    resize to the present shape does nothing.

    Args:
        input: the tensor, which must not require grad, except in inference mode.
        sizes: the shape, as integers or one sequence of them.
        memory_format: for PyTorch compatibility: the rows are always the last axis.

    Raises:
        RuntimeError: outside of inference mode if the tensor requires grad; for a negative length.
    """
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """Give a tensor the shape of another, in place: see `resize_`."""
def resolve_neg(input: Tensor) -> Tensor:
    """Return the tensor itself: there are no lazy conjugates here."""
def round(input: Tensor, *, decimals: builtins.int = 0, out: Tensor | None = None) -> Tensor:
    """Each element rounded to the nearest, halves to even; the gradient is 0.

    Args:
        input: any real tensor.
        decimals: how many decimal places are kept; if negative, places before the point.

    Raises:
        NotImplementedError: for dtypes that are not rounded, or integers with `decimals`.
    """
def round_(self: Tensor, *, decimals: builtins.int = 0) -> Tensor:
    """`round`, in place."""
def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors, extended to at least two axes, along the first."""
def rrelu_(input: Tensor, lower: builtins.float = 0.125, upper: builtins.float = 0.3333333333333333, training: builtins.bool = False) -> Tensor:
    """`rrelu`, in place."""
def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / sqrt(x) of each element."""
def rsqrt_(self: Tensor) -> Tensor:
    """`rsqrt`, in place."""
def scatter(input: Tensor, dim: builtins.int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: ScatterKind | None = None, out: Tensor | None = None) -> Tensor:
    """A copy of `input` with the elements of `src` written at `index` along `dim`.

    Args:
        index: the positions, no larger than `src`, nor than `input` apart from `dim`.
        src: a tensor of the dtype of `input`, or a number.
        value: the number, as a keyword, instead of `src`.
        reduce: None to replace elements, or "add" or "multiply"; as in PyTorch these have no
            gradient, which `scatter_add` and `scatter_reduce` have.
    """
def scatter_(input: Tensor, dim: builtins.int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: ScatterKind | None = None) -> Tensor:
    """`scatter`, in place."""
def scatter_add(input: Tensor, dim: builtins.int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy of `input` with the elements of `src` added at `index` along `dim`."""
def scatter_add_(input: Tensor, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
    """`scatter_add`, in place."""
def scatter_reduce(input: Tensor, dim: builtins.int, index: Tensor, src: Tensor, reduce: ScatterReduceKind, *, include_self: builtins.bool = True, out: Tensor | None = None) -> Tensor:
    """A copy of `input` in which elements are reduced with those of `src` along `dim`.

    Args:
        index, src: as in `scatter`.
        reduce: "sum", "prod", "mean", "amax" or "amin", whose gradient is shared among ties.
        include_self: include the elements of `input`; else they stay only where none is scattered.

    Raises:
        NotImplementedError: for extremes of complex numbers, or means of booleans.
    """
def scatter_reduce_(self: Tensor, dim: builtins.int, index: Tensor, src: Tensor, reduce: ScatterReduceKind, *, include_self: builtins.bool = True) -> Tensor:
    """`scatter_reduce`, in place."""
def searchsorted(sorted_sequence: Tensor, input: Tensor | Number, *, out_int32: builtins.bool = False, right: builtins.bool = False, side: Side | None = None, sorter: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """The indices at which values would be inserted into sorted numbers to keep their order.

    Args:
        sorted_sequence: of shape (..., length): the sorted numbers.
        input: of shape (..., values), or of any if there is one row of numbers; or a number.
        out_int32: return int32 instead of int64.
        right: insert after equal numbers instead of before them.
        side: "left" or "right", instead of `right`.
        sorter: the indices that sort the numbers.
    """
def selu_(input: Tensor) -> Tensor:
    """`selu`, in place."""
def set_(self: Tensor, source: Any = None, storage_offset: builtins.int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Make this tensor use other memory, with that memory's shape or a given one.

    A leaf is then no input of graphs that were made before: `grad()` doesn't find it there.

    Args:
        source: a tensor of the same dtype, or a storage on the host; None is an empty tensor.
        storage_offset: the number of elements in a storage before the first one.
        size: the shape; if None, the whole storage as one axis.
        stride: the strides; if None, those of a contiguous tensor.

    Raises:
        RuntimeError: for another dtype or device, a tensor that requires grad or is a view, or
            a storage that is too small.
    """
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element divided by its absolute value, and 0 at 0."""
def sgn_(self: Tensor) -> Tensor:
    """`sgn`, in place."""
short: _DType
def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / (1 + exp(-x)) of each element."""
def sigmoid_(self: Tensor) -> Tensor:
    """`sigmoid`, in place."""
def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-1, 0 or 1 for each element; the gradient is 0."""
def sign_(self: Tensor) -> Tensor:
    """`sign`, in place."""
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Where elements are negative or -0."""
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sine of each element."""
def sin_(self: Tensor) -> Tensor:
    """`sin`, in place."""
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`sin(pi x) / (pi x)`, and 1 at 0."""
def sinc_(self: Tensor) -> Tensor:
    """`sinc`, in place."""
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic sine of each element."""
def sinh_(self: Tensor) -> Tensor:
    """`sinh`, in place."""
def slice_scatter(input: Tensor, src: Tensor, dim: builtins.int = 0, start: builtins.int | None = None, end: builtins.int | None = None, step: builtins.int = 1, *, out: Tensor | None = None) -> Tensor:
    """A copy of `input` with `src` as the slice along `dim`."""
def slogdet(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.slogdet:
    """The signs and logarithms of absolute values of determinants; see `linalg.slogdet`."""
def softmax(input: Tensor, dim: builtins.int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
    """The exponentials, divided by their sum along `dim`.

    Args:
        input: a tensor of a floating dtype, or of any if `dtype` is given.
        dtype: the floating dtype to compute in.

    Raises:
        NotImplementedError: for a dtype that is not floating.
    """
def sort(input: Tensor, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool | None = False, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.sort:
    """The sorted `values` along an axis, and their int64 `indices`.

    NaN is greater than all numbers. Equal elements always keep their order.

    Args:
        input: a real tensor.
        descending: sort the greatest first.
        stable: without effect, as the sort is always stable.
    """
def split(tensor: Tensor, split_size_or_sections: Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
    """Split an axis into consecutive views.

    Args:
        split_size_or_sections: the length of each view (the last may be shorter), or a sequence
            of all lengths.
    """
def split_with_sizes(tensor: Tensor, split_size_or_sections: Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
    """Split an axis into consecutive views.

    Args:
        split_size_or_sections: the length of each view (the last may be shorter), or a sequence
            of all lengths.
    """
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The square root of each element."""
def sqrt_(self: Tensor) -> Tensor:
    """`sqrt`, in place."""
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element times itself."""
def square_(self: Tensor) -> Tensor:
    """`square`, in place."""
def squeeze_(self: Tensor, *dims: Ints, dim: Ints | None = None) -> Tensor:
    """`squeeze`, in place: the same tensor with other axes."""
def stack(tensors: Sequence[Tensor], dim: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape joined along a new axis."""
def std(input: Tensor, dim: Ints | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Number | None = None, out: Tensor | None = None) -> Tensor:
    """The standard deviation over some axes; the gradient of 0 is 0; see `var`."""
def std_mean(input: Tensor, dim: Ints | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: builtins.float | None = None, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """What `std` and `mean` return; the arguments are those of `var`."""
strided: _layout
def sub_(self: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """`sub`, in place."""
def subtract(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """`input - alpha * other`, broadcast.

    Raises:
        RuntimeError: if the shapes can't be broadcast, for booleans, or if `alpha` has a dtype
            above theirs.
    """
def subtract_(self: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """`subtract`, in place."""
def sum(input: Tensor, dim: Ints | None = None, keepdim: builtins.bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """The sum over some axes.

    Args:
        dim: an axis, or a sequence of them; all if None.
        keepdim: keep the reduced axes with length 1.
        dtype: converted to before the reduction; if None, int64 for integers and booleans.
    """
def svd(input: Tensor, some: builtins.bool = True, compute_uv: builtins.bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.svd:
    """The singular values and vectors, with `U @ diag(S) @ V.mH = input`; see `linalg.svd`.

    Args:
        some: the reduced form.
        compute_uv: compute the vectors, which are otherwise zeros.
    """
def swapaxes_(self: Tensor, axis0: builtins.int, axis1: builtins.int) -> Tensor:
    """`swapaxes`, in place: the same tensor with other axes."""
def swapdims(input: Tensor, dim0: builtins.int, dim1: builtins.int) -> Tensor:
    """Exchange two axes; the result is a view."""
def swapdims_(self: Tensor, dim0: builtins.int, dim1: builtins.int) -> Tensor:
    """`swapdims`, in place: the same tensor with other axes."""
def t_(self: Tensor) -> Tensor:
    """`t`, in place: the same tensor with other axes."""
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements at flat indices, in the shape of `index`."""
def take_along_dim(input: Tensor, indices: Tensor, dim: builtins.int | None = None, *, out: Tensor | None = None) -> Tensor:
    """`gather` with broadcasting apart from `dim`; if `dim` is None, of the flattened input."""
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The tangent of each element."""
def tan_(self: Tensor) -> Tensor:
    """`tan`, in place."""
def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent of each element."""
def tanh_(self: Tensor) -> Tensor:
    """`tanh`, in place."""
def tensor_split(input: Tensor, indices_or_sections: Tensor | Ints, dim: builtins.int = 0) -> tuple[Tensor, ...]:
    """Split an axis into nearly equal views, or at given indices.

    Args:
        indices_or_sections: the number of views, or the indices to split at; tensors are read.
    """
def tensordot(a: Tensor, b: Tensor, dims: Ints | Sequence[Sequence[builtins.int]] | Tensor = 2, *, out: Tensor | None = None) -> Tensor:
    """The sums of products over axes of two tensors.

    Args:
        dims: the number of last axes of `a` and first axes of `b`, or two sequences of axes.
    """
def threshold_(input: Tensor, threshold: builtins.float, value: builtins.float) -> Tensor:
    """`threshold`, in place."""
def topk(input: Tensor, k: builtins.int, dim: builtins.int = -1, largest: builtins.bool = True, sorted: builtins.bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> return_types.topk:
    """The `k` greatest or smallest `values` along an axis, and their int64 `indices`.

    Args:
        input: a real tensor. NaN is greater than all numbers.
        largest: return the greatest, otherwise the smallest.
        sorted: without effect, as the result is always sorted.
    """
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix, not of booleans."""
def trace_passes(path: str | PathLike[str]) -> AbstractContextManager[Recorder]:
    """Trace the passes started in this context and write them to a file at its end.

    Writing the file blocks the thread: on a running loop, leave the context where that is harmless.

    Args:
        path: the file to write; open it in https://ui.perfetto.dev.

    Yields:
        The recorder, with its `events`.
    """
def transpose_(self: Tensor, dim0: builtins.int, dim1: builtins.int) -> Tensor:
    """`transpose`, in place: the same tensor with other axes."""
def trapz(y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: builtins.int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule.

    Args:
        y: the values at the points.
        x: the coordinates: one vector, or a tensor broadcast against `y`.
        dx: the distance of neighbours, if `x` is not given.
    """
def tril(input: Tensor, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """The elements of matrices on and below a diagonal, zeros above."""
def tril_(self: Tensor, diagonal: builtins.int = 0) -> Tensor:
    """`tril`, in place."""
def tril_indices(row: builtins.int, col: builtins.int, offset: builtins.int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """The indices, of shape (2, count), on and below a matrix's diagonal, row by row; see `zeros`.

    Args:
        row: how many rows the matrix has.
        col: how many columns.
        offset: which diagonal; larger is further to the right.
        dtype: int64 if None, or int32.
    """
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: builtins.float = 1.0, p: builtins.float = 2, eps: builtins.float = 1e-06, swap: builtins.bool = False, reduction: builtins.int = 0) -> Tensor:
    """`nn.functional.triplet_margin_loss` with 0, 1 or 2 for none, mean or sum."""
def triu(input: Tensor, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """The elements of matrices on and above a diagonal, zeros below."""
def triu_(self: Tensor, diagonal: builtins.int = 0) -> Tensor:
    """`triu`, in place."""
def triu_indices(row: builtins.int, col: builtins.int, offset: builtins.int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """The indices on and above a diagonal of a matrix, row by row; see `tril_indices`."""
def true_divide(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: Rounding | None = None, out: Tensor | None = None) -> Tensor:
    """`input / other`, broadcast.

    Args:
        rounding_mode: None for the true quotient, "trunc" to round it towards 0, "floor" to
            round it down; rounded quotients keep integers and have a gradient of 0.

    Raises:
        RuntimeError: if the shapes can't be broadcast, for another rounding mode, or where
            integers are divided by zero and rounded.
    """
def true_divide_(self: Tensor, other: Tensor | Number, *, rounding_mode: Rounding | None = None) -> Tensor:
    """`true_divide`, in place."""
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element rounded towards 0; the gradient is 0."""
def trunc_(self: Tensor) -> Tensor:
    """`trunc`, in place."""
uint16: _DType
uint32: _DType
uint64: _DType
uint8: _DType
def uniform_(input: Tensor, *args: builtins.float, generator: Generator | None = None, **kwargs: builtins.float) -> Tensor:
    """Fill with floating or complex numbers uniform in [from, to): `uniform_(from=0, to=1)`."""
@overload
def unique(input: Tensor, sorted: builtins.bool = True, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: builtins.int | None = None) -> Tensor:
    """The distinct elements, or distinct slices along an axis, in order.

    Args:
        sorted: for PyTorch compatibility: they are always sorted.
        return_inverse: also return the index in the result of each element.
        return_counts: also return the number of occurrences of each.

    Raises:
        RuntimeError: if parts along an axis have no elements.
        NotImplementedError: in the backward pass: there is no derivative.
    """
@overload
def unique(input: Tensor, sorted: builtins.bool = True, *, return_inverse: Literal[True], return_counts: Literal[False] = False, dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def unique(input: Tensor, sorted: builtins.bool = True, return_inverse: Literal[False] = False, *, return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def unique(input: Tensor, sorted: builtins.bool = True, *, return_inverse: Literal[True], return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def unique(input: Tensor, sorted: builtins.bool = True, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Tensor | tuple[Tensor, ...]: ...
@overload
def unique_consecutive(input: Tensor, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: builtins.int | None = None) -> Tensor:
    """The elements, or slices along an axis, without those equal to the one before.

    Args:
        return_inverse: also return the index in the result of each element.
        return_counts: also return the length of each run.

    Raises:
        RuntimeError, NotImplementedError: as `unique`.
    """
@overload
def unique_consecutive(input: Tensor, return_inverse: Literal[True], return_counts: Literal[False] = False, dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def unique_consecutive(input: Tensor, return_inverse: Literal[False] = False, *, return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def unique_consecutive(input: Tensor, return_inverse: Literal[True], return_counts: Literal[True], dim: builtins.int | None = None) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def unique_consecutive(input: Tensor, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Tensor | tuple[Tensor, ...]: ...
def unsqueeze_(self: Tensor, dim: builtins.int) -> Tensor:
    """`unsqueeze`, in place: the same tensor with other axes."""
def var(input: Tensor, dim: Ints | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Number | None = None, out: Tensor | None = None) -> Tensor:
    """The variance over some axes.

    Args:
        input: a floating or complex tensor; the result is real.
        dim: an axis, or a sequence of them; all if None. A bool here is `unbiased`.
        unbiased: the old form of `correction`: 1 if True, 0 if False.
        correction: subtracted from the number of elements; 1 if left out.

    Raises:
        RuntimeError: for integers and booleans, or if an axis is named twice.
    """
def var_mean(input: Tensor, dim: Ints | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: builtins.float | None = None, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """What `var` and `mean` return; the arguments are those of `var`."""
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of the products of two vectors, the first conjugated."""
def vsplit(input: Tensor, indices_or_sections: Ints, *more: builtins.int) -> tuple[Tensor, ...]:
    """`tensor_split` along axis 0, in parts that have to be equal."""
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors, extended to at least two axes, along the first."""
def xlogy(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input * log(other)`, and 0 where `input` is, broadcast."""
def xlogy_(self: Tensor, other: Tensor | Number) -> Tensor:
    """`xlogy`, in place."""
def zero_(self: Tensor) -> Tensor:
    """Set all elements to zero."""
def zeros(*sizes: Ints, size: Ints | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, layout: layout | None = None, pin_memory: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """A tensor of zeros.

    Args:
        sizes: the shape, as one sequence or as several numbers.
        size: the shape, by name.
        dtype: the dtype; the default one if None.
        device: the device; the default device if None.
        requires_grad: whether gradients are accumulated for the tensor.
    """
def zeros_like(input: Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: builtins.bool = False, memory_format: memory_format | None = None, layout: layout | None = None, pin_memory: builtins.bool = False) -> Tensor:
    """Zeros, in the shape, layout, dtype and device of another tensor; see `zeros`."""
