"""asyncgrad: reverse-mode autograd for asyncio, over NumPy and CuPy."""

import typing as _typing
from functools import wraps as _wraps
from importlib import import_module as _import_module
from os import PathLike as _PathLike

from asyncgrad.collector import paused as _paused

with _paused():
    import numpy as _np

    from asyncgrad import (
        _wiring,  # noqa: F401  binds late functions
        accelerator,
        amp,
        autograd,
        backends,
        cpu,
        cuda,
        devices,
        errors,
        fft,
        func,
        linalg,
        nn,
        optim,
        random,
        special,
        sync,
        testing,
        utils,
    )
from asyncgrad import native as _native
from asyncgrad import settings as _settings
from asyncgrad import tensor_types as _tensor_types
from asyncgrad.amp import (
    GradScaler,
    autocast,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)
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
    is_inference,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from asyncgrad.core.size import Size
from asyncgrad.devices import Device as device
from asyncgrad.devices import Event, Stream, set_default_device
from asyncgrad.devices.discovery import find as _find_device
from asyncgrad.errors import AcceleratorError, OutOfMemoryError
from asyncgrad.func import vmap
from asyncgrad.native import *  # noqa: F403  the module says what is public
from asyncgrad.ops import return_types
from asyncgrad.ops.api import activation, elementwise, index, reduction, shape
from asyncgrad.ops.api import comparison as _compared
from asyncgrad.ops.api import complex_parts as _parts
from asyncgrad.ops.api import composite as _combined
from asyncgrad.ops.api import convolution as _convolutions
from asyncgrad.ops.api import creation as _creation
from asyncgrad.ops.api import data as _data
from asyncgrad.ops.api import distances as _distances
from asyncgrad.ops.api import dlpack as _dlpack
from asyncgrad.ops.api import dtypes as _dtypes
from asyncgrad.ops.api import grids as _grids
from asyncgrad.ops.api import linalg as _products
from asyncgrad.ops.api import linalg_legacy as _factored
from asyncgrad.ops.api import loss as _losses
from asyncgrad.ops.api import median_mode as _ordered
from asyncgrad.ops.api import normalisation as _norms
from asyncgrad.ops.api import pooling as _pooling
from asyncgrad.ops.api import quantile as _chosen
from asyncgrad.ops.api import random as _draws
from asyncgrad.ops.api import rearrange as _arranged
from asyncgrad.ops.api import scatter as _placed
from asyncgrad.ops.api import signals as _signals
from asyncgrad.ops.api import sort as _sorting
from asyncgrad.ops.api import windows as _windows
from asyncgrad.ops.api.activation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.activation_composite import hardshrink, prelu
from asyncgrad.ops.api.comparison import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.complex_parts import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.composite import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.convolution import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.creation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.data import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.distances import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.dlpack import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.dtypes import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.elementwise import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.grids import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.index import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.linalg import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.linalg_legacy import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.loss import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.median_mode import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.normalisation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.pooling import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.quantile import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.random import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.rearrange import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.reduction import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.scatter import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.shape import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.signals import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.sort import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.strided import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.transcendental import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.transfer import get_device
from asyncgrad.ops.api.windows import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.bfloat16 import needs_bfloat16 as _needs_bfloat16
from asyncgrad.ops.dtype import DType as dtype
from asyncgrad.ops.dtype_device import layout, memory_format
from asyncgrad.ops.promotion import set_default_dtype
from asyncgrad.ops.tensors.new_tensors import place_of as _place_of
from asyncgrad.ops.tensors.printing import set_printoptions
from asyncgrad.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from asyncgrad.replay import compile
from asyncgrad.scheduler import BackwardFuture, cooperate, engine, offload
from asyncgrad.serialization import load, save
from asyncgrad.settings import *  # noqa: F403  the module says what is public
from asyncgrad.sync import blocking
from asyncgrad.tensor import Tensor
from asyncgrad.tensor_types import *  # noqa: F403  the chapters say what is public
from asyncgrad.tracing import trace_passes

float16, float32, float64 = map(dtype, ("float16", "float32", "float64"))
complex64, complex128 = map(dtype, ("complex64", "complex128"))
int8, int16, int32, int64 = map(dtype, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(dtype, ("uint8", "uint16", "uint32", "uint64"))
bool = dtype("bool")
half, float, double, cfloat, cdouble = float16, float32, float64, complex64, complex128
short, int, long = int16, int32, int64
strided = layout.strided
contiguous_format, preserve_format = memory_format.contiguous_format, memory_format.preserve_format
channels_last, channels_last_3d = memory_format.channels_last, memory_format.channels_last_3d
e, inf, nan, pi, newaxis = _np.e, _np.inf, _np.nan, _np.pi, None


def get_default_device() -> device:
    """The device of new tensors in this context: see `set_default_device` and `with device:`."""
    return _place_of("get_default_device")


def get_device_module(device: object = None) -> object:
    """The module for a kind of device: `cpu`, `cuda`, or `accelerator` for any other.

    Args:
        device: a device or its name; None means the accelerator, or the CPU without one.

    Raises:
        RuntimeError: if there is no such device.
    """
    if device is None:
        found = accelerator.current_accelerator()
        kind = "cpu" if found is None else found.type
    elif isinstance(device, (str, devices.Device)):
        kind = getattr(device, "type", None) or str(device).partition(":")[0]
    else:
        raise RuntimeError(f"Invalid value of device '{device}', expect a device, str, or None")
    if kind not in devices.kinds():
        _find_device(kind)  # Raises an error that lists the kinds there are.
    return {"cpu": cpu, "cuda": cuda}.get(kind, accelerator)


@_wraps(_arranged.trace)  # type: ignore[no-redef]
def trace(input: _typing.Any) -> object:
    """The sum of a matrix's diagonal; given a path, the deprecated name of `trace_passes`."""
    if isinstance(input, str | _PathLike):
        return trace_passes(input)
    return _arranged.trace(input)


if _typing.TYPE_CHECKING:
    from collections.abc import Callable as _Callable

    from asyncgrad import distributions as distributions

    bfloat16: dtype

    def __getattr__(name: str) -> _Callable[..., Tensor]:
        """The functions that are made from rows of the table."""
        raise AttributeError(name)

else:

    def __getattr__(name):  # noqa: ANN001, ANN202  declared above
        """`bfloat16`, which needs an optional package, and `distributions`, imported on use."""
        if name == "distributions":
            return _import_module("asyncgrad.distributions")
        if name == "bfloat16":
            return dtype(_needs_bfloat16("asyncgrad.bfloat16"))
        raise AttributeError(f"module 'asyncgrad' has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = [
    "AcceleratorError",
    "BackwardFuture",
    "Event",
    "Generator",
    "GradScaler",
    "OutOfMemoryError",
    "Size",
    "Stream",
    "Tensor",
    "accelerator",
    "amp",
    "autocast",
    "autograd",
    "backends",
    "blocking",
    "bool",
    "cdouble",
    "cfloat",
    "channels_last",
    "channels_last_3d",
    "compile",
    "complex64",
    "complex128",
    "contiguous_format",
    "cooperate",
    "cpu",
    "cuda",
    "default_generator",
    "device",
    "devices",
    "double",
    "dtype",
    "enable_grad",
    "engine",
    "errors",
    "fft",
    "float16",
    "float32",
    "float64",
    "func",
    "get_autocast_dtype",
    "get_default_device",
    "get_device_module",
    "get_rng_state",
    "grad",
    "half",
    "inf",
    "inference_mode",
    "initial_seed",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_autocast_available",
    "is_autocast_enabled",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "layout",
    "linalg",
    "load",
    "long",
    "manual_seed",
    "memory_format",
    "nan",
    "newaxis",
    "nn",
    "no_grad",
    "offload",
    "optim",
    "pi",
    "preserve_format",
    "random",
    "request",
    "return_types",
    "save",
    "seed",
    "set_anomaly_enabled",
    "set_default_device",
    "set_default_dtype",
    "set_grad_enabled",
    "set_printoptions",
    "set_rng_state",
    "short",
    "special",
    "strided",
    "sync",
    "testing",
    "trace_passes",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "utils",
    "vmap",
]  # fmt: skip
__all__ += activation.__all__
__all__ += _arranged.__all__
__all__ += _combined.__all__
__all__ += _compared.__all__
__all__ += _placed.__all__
__all__ += _creation.__all__
__all__ += _data.__all__
__all__ += _draws.__all__
__all__ += _distances.__all__
__all__ += _dtypes.__all__
__all__ += _parts.__all__
__all__ += _dlpack.__all__
__all__ += elementwise.__all__
__all__ += index.__all__
__all__ += _convolutions.__all__
__all__ += _chosen.__all__
__all__ += _windows.__all__
__all__ += _factored.__all__
__all__ += _grids.__all__
__all__ += _products.__all__
__all__ += _losses.__all__
__all__ += _norms.__all__
__all__ += ["get_device", "hardshrink", "prelu"]
__all__ += _pooling.__all__
__all__ += reduction.__all__
__all__ += shape.__all__
__all__ += _ordered.__all__
__all__ += _sorting.__all__
__all__ += _signals.__all__
__all__ += _tensor_types.__all__
__all__ += _native.__all__
__all__ += _settings.__all__
