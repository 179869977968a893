"""asyncgrad: reverse-mode autograd for asyncio, over NumPy and CuPy."""

from importlib import import_module as _import_module

from asyncgrad.collector import paused as _paused

with _paused():
    import numpy as _np

    from asyncgrad import (
        accelerator,
        autograd,
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
        utils,
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
from asyncgrad.devices import Device as device
from asyncgrad.devices import Event, Stream, set_default_device
from asyncgrad.devices.discovery import find as _find_device
from asyncgrad.errors import AcceleratorError, OutOfMemoryError
from asyncgrad.func import vmap
from asyncgrad.ops import return_types
from asyncgrad.ops.bfloat16 import needs_bfloat16 as _needs_bfloat16
from asyncgrad.ops.functions import activation, elementwise, index, reduction, shape
from asyncgrad.ops.functions import arranged as _arranged
from asyncgrad.ops.functions import chosen as _chosen
from asyncgrad.ops.functions import combined as _combined
from asyncgrad.ops.functions import compared as _compared
from asyncgrad.ops.functions import convolution as _convolutions
from asyncgrad.ops.functions import creation as _creation
from asyncgrad.ops.functions import data as _data
from asyncgrad.ops.functions import distances as _distances
from asyncgrad.ops.functions import dlpack as _dlpack
from asyncgrad.ops.functions import dtypes as _dtypes
from asyncgrad.ops.functions import factored as _factored
from asyncgrad.ops.functions import grids as _grids
from asyncgrad.ops.functions import linalg as _products
from asyncgrad.ops.functions import loss as _losses
from asyncgrad.ops.functions import normalisation as _norms
from asyncgrad.ops.functions import older as _older
from asyncgrad.ops.functions import ordered as _ordered
from asyncgrad.ops.functions import parts as _parts
from asyncgrad.ops.functions import placed as _placed
from asyncgrad.ops.functions import pooling as _pooling
from asyncgrad.ops.functions import random as _draws
from asyncgrad.ops.functions import signals as _signals
from asyncgrad.ops.functions import sort as _sorting
from asyncgrad.ops.functions import windows as _windows
from asyncgrad.ops.functions.activation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.arranged import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.chosen import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.combined import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.compared import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.convolution import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.creation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.data import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.distances import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.dlpack import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.dtypes import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.elementwise import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.factored import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.grids import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.index import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.linalg import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.loss import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.normalisation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.older import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.ordered import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.parts import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.placed import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.pooling import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.random import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.reduction import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.shape import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.signals import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.sort import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.strided import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.transcendental import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.windows import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.leaves import place_of as _place_of
from asyncgrad.ops.places import layout, memory_format
from asyncgrad.ops.printing import set_printoptions
from asyncgrad.ops.promotion import default_dtype as get_default_dtype
from asyncgrad.ops.promotion import set_default_dtype
from asyncgrad.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from asyncgrad.scheduler import BackwardFuture, cooperate, engine, offload
from asyncgrad.serialization import load, save
from asyncgrad.sync import blocking
from asyncgrad.tensor import Tensor
from asyncgrad.trace import trace

float16, float32, float64 = map(_np.dtype, ("float16", "float32", "float64"))
complex64, complex128 = map(_np.dtype, ("complex64", "complex128"))
int8, int16, int32, int64 = map(_np.dtype, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(_np.dtype, ("uint8", "uint16", "uint32", "uint64"))
bool = _np.dtype("bool")
half, float, double, cfloat, cdouble = float16, float32, float64, complex64, complex128
short, int, long = int16, int32, int64
strided = layout.strided
contiguous_format, preserve_format = memory_format.contiguous_format, memory_format.preserve_format
channels_last, channels_last_3d = memory_format.channels_last, memory_format.channels_last_3d
e, inf, nan, pi, newaxis = _np.e, _np.inf, _np.nan, _np.pi, None


def get_default_device() -> device:
    """Where new tensors are made here: see `set_default_device` and `with device:`."""
    return _place_of("get_default_device")


def get_device_module(device: object = None) -> object:
    """The functions of a kind of device: `cpu`, `cuda`, or `accelerator` for any other.

    Args:
        device: a device or its name; the accelerator's if None, the CPU's if there is none.

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
        _find_device(kind)  # Says which there are.
    return {"cpu": cpu, "cuda": cuda}.get(kind, accelerator)


def __getattr__(name: str) -> object:
    """The dtype that only an extra has, and what few programs need."""
    if name == "distributions":
        return _import_module("asyncgrad.distributions")
    if name == "bfloat16":
        return _needs_bfloat16("asyncgrad.bfloat16")
    raise AttributeError(f"module 'asyncgrad' has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = [
    "AcceleratorError",
    "BackwardFuture",
    "Event",
    "Generator",
    "OutOfMemoryError",
    "Stream",
    "Tensor",
    "accelerator",
    "autograd",
    "blocking",
    "bool",
    "cdouble",
    "cfloat",
    "channels_last",
    "channels_last_3d",
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
    "enable_grad",
    "engine",
    "errors",
    "fft",
    "float16",
    "float32",
    "float64",
    "func",
    "get_default_device",
    "get_default_dtype",
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
    "trace",
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
__all__ += _older.__all__
__all__ += _pooling.__all__
__all__ += reduction.__all__
__all__ += shape.__all__
__all__ += _ordered.__all__
__all__ += _sorting.__all__
__all__ += _signals.__all__
