"""asyncgrad: reverse-mode autograd for asyncio, over NumPy and CuPy."""

import sys as _sys
from functools import partial as _partial
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from asyncgrad.collector import paused as _paused

with _paused():
    import numpy as _np

    from asyncgrad import (
        _wiring,  # noqa: F401  binds late functions
        accelerator,
        amp,
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
from asyncgrad import _top_level, native, settings, tensor_types
from asyncgrad.autograd import anomaly_mode as _anomaly_mode
from asyncgrad.autograd import grad, request
from asyncgrad.autograd import modes as _modes
from asyncgrad.core.size import Size
from asyncgrad.devices import Device as device
from asyncgrad.devices import Event, Stream, set_default_device
from asyncgrad.errors import AcceleratorError, OutOfMemoryError
from asyncgrad.func import vmap
from asyncgrad.ops import return_types
from asyncgrad.ops.api import TOP as _CHAPTERS
from asyncgrad.ops.api.transfer import get_device
from asyncgrad.ops.bfloat16 import needs_bfloat16 as _needs_bfloat16
from asyncgrad.ops.dtype import DType as dtype
from asyncgrad.ops.dtype_device import layout, memory_format
from asyncgrad.ops.promotion import set_default_dtype
from asyncgrad.ops.tensors.printing import set_printoptions
from asyncgrad.scheduler import BackwardFuture, cooperate, engine, offload
from asyncgrad.submodules import name_functions as _name_functions
from asyncgrad.sync import blocking
from asyncgrad.tensor import Tensor
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


#: What few programs name, and most of these when they start: the module to import on use.
_ON_USE = {
    "backends": "asyncgrad.backends",
    "compile": "asyncgrad.replay",
    "distributed": "asyncgrad.distributed",
    "distributions": "asyncgrad.distributions",
    "extend": "asyncgrad.extend",
    "load": "asyncgrad.serialization",
    "save": "asyncgrad.serialization",
    "serialization": "asyncgrad.serialization",
    "serving": "asyncgrad.serving",
    "testing": "asyncgrad.testing",
}


def __getattr__(name):  # noqa: ANN001, ANN202  types are in __init__.pyi
    """What is imported or read on use."""
    if name in _ON_USE:
        found = _import_module(_ON_USE[name])
        return globals().setdefault(name, getattr(found, name, found))
    if name == "__version__":  # The installation's metadata have it from the newest tag.
        metadata = _import_module("importlib.metadata")
        try:
            found = metadata.version("asyncgrad")
        except metadata.PackageNotFoundError:
            found = "0+unknown"
        return globals().setdefault(name, found)
    if name == "bfloat16":
        return dtype(_needs_bfloat16("asyncgrad.bfloat16"))
    return _import_module("asyncgrad.remedies").of_top(name)


__all__ = [
    "AcceleratorError", "BackwardFuture", "Event", "OutOfMemoryError", "Size", "Stream", "Tensor",
    "accelerator", "amp", "autograd", "backends", "blocking", "bool", "cdouble", "cfloat",
    "channels_last", "channels_last_3d", "compile", "complex64", "complex128", "contiguous_format",
    "cooperate", "cpu", "cuda", "device", "devices", "double", "dtype", "engine", "errors", "fft",
    "float16", "float32", "float64", "func", "get_device", "grad", "half", "inf", "int8", "int16",
    "int32", "int64", "layout", "linalg", "load", "long", "memory_format", "nan", "newaxis", "nn",
    "offload", "optim", "pi", "preserve_format", "random", "request", "return_types", "save",
    "set_default_device", "set_default_dtype", "set_printoptions", "short", "special", "strided",
    "sync", "testing", "trace_passes", "uint8", "uint16", "uint32", "uint64", "utils", "vmap",
]  # fmt: skip
#: Public names that `import *` leaves out: some would replace Python's own, others are made on use.
_MORE = (
    "__version__", "bfloat16", "distributed", "distributions", "e", "extend", "float", "int",
    "serialization", "serving",
)  # fmt: skip
#: Names of other modules that are also here.
_SAME = (
    (amp, [
        "GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available",
        "is_autocast_enabled",
    ]),
    (_anomaly_mode, ["is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled"]),
    (_modes, [
        "enable_grad", "inference_mode", "is_grad_enabled", "is_inference",
        "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
    ]),
    (random, [
        "Generator", "default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed",
        "set_rng_state",
    ]),
)  # fmt: skip
_WHOLE = (native, *_CHAPTERS, settings, tensor_types, _top_level)
# Where two define one name, the later one wins.
for _module, _names in (*_SAME, *((_module, _module.__all__) for _module in _WHOLE)):
    globals().update({_name: getattr(_module, _name) for _name in _names})
    __all__ += _names
__all__ = sorted({*__all__})


def __dir__():  # noqa: ANN202
    """The public names."""
    return sorted({*__all__, *_MORE})


def _list_public_names(modules):  # noqa: ANN001, ANN202
    """Let `dir`, and with it completion, list what is public in modules and those in them."""
    for module in modules:
        own = vars(module) if isinstance(module, _ModuleType) else ()
        if "__all__" in own and "__dir__" not in own:
            module.__dir__ = _partial(sorted, module.__all__)
            _list_public_names([vars(module).get(name) for name in module.__all__])


_list_public_names([globals().get(name) for name in __all__])


for _space in (_sys.modules[__name__], nn.functional, fft, linalg, special, Tensor):
    _name_functions(_space)
