"""Parameters and buffers: the tensors of a module."""

from __future__ import annotations

from typing import Any, Self, SupportsIndex

from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable, autograd_meta, counter_of, is_inference, requires_grad
from asyncgrad.creation import zeros
from asyncgrad.errors import AutogradError
from asyncgrad.ops.api.shape import clone
from asyncgrad.ops.promotion import category
from asyncgrad.ops.tensors.copies import _rebuilt, pickled
from asyncgrad.tensor import Tensor


def _values(kind: str, data: Tensor | None) -> Tensor:
    """The tensor that a parameter or buffer is made of; an empty one if None."""
    if data is None:
        return zeros(0)
    if not isinstance(data, Variable):
        raise TypeError(
            f"cannot create a {kind} from {type(data).__name__}: a Tensor is needed. Make one with "
            f"asyncgrad.tensor() or asyncgrad.from_numpy()."
        )
    return data


class Parameter(Tensor):
    """A leaf tensor that a module lists among its parameters when it is assigned as an attribute.

    Unlike other tensors, users can set further attributes on it.

    Args:
        data: a tensor whose memory the parameter shares; an empty one if None.
        requires_grad: gradients are accumulated for it.

    Raises:
        RuntimeError: if gradients are required for a dtype that has none, or, outside inference
            mode, for a tensor made within it.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        """Share the data's memory and version counter, but not its history."""
        data = _values("Parameter", data)
        if requires_grad and category(data._metadata.dtype) < 2:
            raise RuntimeError(
                f"Only Tensors of floating point and complex dtype can require gradients, got "
                f"{data._metadata.dtype}. Pass requires_grad=False."
            )
        if requires_grad and is_inference(data) and not current().inference:
            raise AutogradError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not "
                "allowed. Make a clone to get a normal tensor."
            )
        self: Parameter = object.__new__(cls)
        self._array = data._array
        self._metadata = data._metadata
        self._edge = None
        self._counter = None
        self._autograd = None
        meta = autograd_meta(self)
        meta.requires_grad = bool(requires_grad)
        meta.inference = is_inference(data)
        if not meta.inference:
            self._counter = counter = counter_of(data)
            counter.register_alias(data)
            counter.register_alias(self)
        return self

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __copy__(self) -> Parameter:
        """A parameter with the same memory and user attributes, without a gradient."""
        copied = type(self)(self.data, requires_grad(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A parameter with a copy of the values, without a gradient."""
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        copied = type(self)(clone(self.data), requires_grad(self))
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle the values and user attributes, but neither gradient nor hooks."""
        return _rebuild, (type(self), *pickled(self)), vars(self) or None


class Buffer(Tensor):
    """A tensor that a module lists among its buffers when it is assigned as an attribute.

    Args:
        data: a tensor whose memory the buffer shares; an empty one if None.
        persistent: include it in the module's state dict.
    """

    __slots__ = ("persistent",)

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        """Share the data's memory and version counter, but not its history."""
        data = _values("Buffer", data)
        self = super().__new__(cls)
        source = data.detach()
        for name in ("_array", "_metadata", "_edge", "_counter", "_autograd"):
            setattr(self, name, getattr(source, name))
        if self._counter is not None:
            self._counter.register_alias(self)
        self.persistent = persistent
        self.requires_grad_(requires_grad(data))
        return self


def _rebuild(kind: type[Parameter], *given: Any) -> Parameter:
    """Restore a pickled parameter on its former device."""
    data = _rebuilt(*given)
    return kind(data.detach(), requires_grad(data))


def clear_gradient(parameter: Tensor, set_to_none: bool) -> None:
    """Set a leaf's gradient to None, or fill it with zeros."""
    meta = parameter._autograd
    grad: Any = None if meta is None else meta.grad
    if meta is None or grad is None:
        return
    if set_to_none:
        meta.grad = None
    else:
        meta.grad = (grad if grad._edge is None else grad.detach()).zero_()
