"""PyTorch's old names for tensors and the engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from asyncgrad.aliases import Value
from asyncgrad.autograd.graph import queue_callback
from asyncgrad.core import variable as core
from asyncgrad.errors import class_of

__all__ = ["Variable"]


class _VariableMeta(type):
    """Makes every tensor an instance of `Variable`."""

    def __instancecheck__(cls, instance: Value) -> bool:
        return isinstance(instance, core.Variable)


class Variable(metaclass=_VariableMeta):
    """Tensors' old name in PyTorch: `Variable(x)` makes a leaf of `x`."""

    #: The only attribute of it that PyTorch's programs use.
    _execution_engine = SimpleNamespace(queue_callback=queue_callback)

    def __new__(cls, data: Value, requires_grad: bool = False) -> Any:
        """A leaf that shares the memory of a tensor."""
        if not isinstance(data, core.Variable):
            raise TypeError(f"Variable data has to be a tensor, but got {class_of(data)}")
        leaf = cast("Any", data).detach()
        return leaf.requires_grad_() if requires_grad else leaf
