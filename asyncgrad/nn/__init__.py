"""Modules, parameters and their functions, PyTorch's `torch.nn`."""

from asyncgrad.nn import functional, init, modules, utils
from asyncgrad.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)
from asyncgrad.nn.recurrent import RNNBase  # noqa: F401  for isinstance
from asyncgrad.nn.summary import summary
from asyncgrad.remedies import remedies
from asyncgrad.submodules import offer

__all__ = [
    "Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "functional", "init",
    "modules", "summary", "utils",
]  # fmt: skip
#: Classes of those files that are not public here.
_INNER = {
    "FunctionModule", "Keyed", "NonDynamicallyQuantizableLinear", "RNNBase", "RNNCellBase",
}  # fmt: skip
_MODULES = {
    name: one
    for name, one in sorted(vars(modules).items())
    if isinstance(one, type) and issubclass(one, modules.Module) and name not in _INNER
}
globals().update(_MODULES)
__all__ += _MODULES

_of_parallel = remedies("asyncgrad.nn.parallel", {
    "what several workers share is in asyncgrad.distributed.nn.parallel": "DistributedDataParallel",
    "`nn.DataParallel(module)` calls a module on one device": (
        "data_parallel parallel_apply replicate scatter gather"
    ),
})  # fmt: skip
offer(__name__, "parallel", {"DataParallel": modules.DataParallel, "__getattr__": _of_parallel})
