"""asyncgrad: reverse-mode autograd for asyncio, over NumPy and CuPy."""

import numpy as _np

from asyncgrad import autograd, errors, linalg, nn, optim, sync
from asyncgrad.autograd import grad, request
from asyncgrad.autograd.anomaly_mode import (
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_anomaly_enabled,
)
from asyncgrad.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from asyncgrad.creation import (
    Generator,
    arange,
    as_tensor,
    default_generator,
    from_numpy,
    full,
    manual_seed,
    ones,
    ones_like,
    rand,
    randint,
    randn,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from asyncgrad.ops import return_types
from asyncgrad.ops.functions import activation, elementwise, index, reduction, shape
from asyncgrad.ops.functions import convolution as _convolutions
from asyncgrad.ops.functions import linalg as _products
from asyncgrad.ops.functions import loss as _losses
from asyncgrad.ops.functions import normalisation as _norms
from asyncgrad.ops.functions import pooling as _pooling
from asyncgrad.ops.functions import sort as _sorting
from asyncgrad.ops.functions.activation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.convolution import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.elementwise import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.index import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.linalg import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.loss import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.normalisation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.pooling import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.reduction import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.shape import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.sort import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.promotion import default_dtype as get_default_dtype
from asyncgrad.ops.promotion import set_default_dtype
from asyncgrad.scheduler import BackwardFuture, cooperate, engine, offload
from asyncgrad.sync import blocking
from asyncgrad.tensor import Tensor
from asyncgrad.trace import trace

float16, float32, float64 = map(_np.dtype, ("float16", "float32", "float64"))
complex64, complex128 = map(_np.dtype, ("complex64", "complex128"))
int8, int16, int32, int64 = map(_np.dtype, ("int8", "int16", "int32", "int64"))
uint8, bool = map(_np.dtype, ("uint8", "bool"))


__version__ = "0.1.0"
__all__ = [
    "BackwardFuture", "Generator", "Tensor", "arange", "as_tensor", "autograd", "blocking",
    "bool", "complex64", "complex128", "cooperate", "default_generator", "enable_grad", "engine",
    "errors", "float16", "float32", "float64", "from_numpy", "full", "get_default_dtype", "grad",
    "inference_mode", "int8", "int16", "int32", "int64", "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled", "is_grad_enabled", "is_inference_mode_enabled", "linalg", "manual_seed",
    "nn", "no_grad", "offload", "ones", "ones_like", "optim", "rand", "randint", "randn",
    "randperm", "request", "return_types", "set_anomaly_enabled", "set_default_dtype",
    "set_grad_enabled", "sync", "tensor", "trace", "uint8", "zeros", "zeros_like",
]  # fmt: skip
__all__ += activation.__all__
__all__ += elementwise.__all__
__all__ += index.__all__
__all__ += _convolutions.__all__
__all__ += _products.__all__
__all__ += _losses.__all__
__all__ += _norms.__all__
__all__ += _pooling.__all__
__all__ += reduction.__all__
__all__ += shape.__all__
__all__ += _sorting.__all__
