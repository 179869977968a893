"""PyTorch's `torch.utils`: checkpoints and data loading."""

from importlib import import_module
from types import ModuleType

from asyncgrad.core.hooks import RemovableHandle
from asyncgrad.ops.api.dlpack import from_dlpack
from asyncgrad.submodules import offer
from asyncgrad.utils import checkpoint


def __getattr__(name: str) -> ModuleType:
    """Data loading, imported on use."""
    if name == "data":
        return import_module("asyncgrad.utils.data")
    raise AttributeError(f"module 'asyncgrad.utils' has no attribute {name!r}")


__all__ = ["checkpoint", "data"]

offer(__name__, "dlpack", {"from_dlpack": from_dlpack})
offer(__name__, "hooks", {"RemovableHandle": RemovableHandle})
