"""Parameters and buffers: the tensors of a module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self, SupportsIndex

from asyncgrad.core.metadata import Metadata
from asyncgrad.core.modes import current
from asyncgrad.core.variable import Variable, autograd_meta, counter_of, is_inference, requires_grad
from asyncgrad.creation import zeros
from asyncgrad.errors import AutogradError, class_of
from asyncgrad.ops.api.conversion import arguments_of_to, target_of_to
from asyncgrad.ops.api.shape import clone
from asyncgrad.ops.dtype_device import memory_format
from asyncgrad.ops.promotion import category
from asyncgrad.tensor import Tensor
from asyncgrad.types import DeviceLike, DTypeLike


def _values(kind: str, data: Tensor | None) -> Tensor:
    """The tensor that a parameter or buffer is made of; an empty one if None."""
    if data is None:
        return zeros(0)
    if not isinstance(data, Variable):
        raise TypeError(
            f"cannot create a {kind} from {class_of(data)}: a Tensor is needed. Make one with "
            f"asyncgrad.tensor() or asyncgrad.from_numpy()."
        )
    return data


class Parameter(Tensor):
    """A leaf tensor that a module lists among its parameters when it is assigned as an attribute.

    Unlike other tensors, users can set further attributes on it.

    Args:
        data: a tensor whose memory the parameter shares; an empty one if None.

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

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A parameter with a copy of the values, without a gradient."""
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        copied = type(self)(clone(self.data), requires_grad(self))
        memo[id(self)] = copied
        return copied


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


def is_lazy(param: object) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, _Uninitialized)


class _NoShape(Metadata):
    """The metadata of a tensor without a shape: its dtype and device, but nothing to compute with.

    Attributes:
        known: the metadata of an empty array of this dtype and device.
    """

    __slots__ = ("known",)

    def __init__(self, known: Metadata) -> None:
        """Take dtype and device from the metadata of an empty array."""
        self.known = known
        self.dtype, self.user_dtype, self.device = known.dtype, known.user_dtype, known.device
        self.is_complex, self.cost, self.line_cost = known.is_complex, 0, 0

    @property
    def shape(self) -> Any:  # type: ignore[override]
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. Call the module with "
            "an input first, which tells it the shape."
        )

    @property
    def F(self) -> Any:
        raise ValueError(
            "Attempted to use an uninitialized parameter or buffer. Call the module with an input "
            "first, which tells it the shape."
        )

    user_shape = shape
    kernels = scalar = size = needs_checks = F


class _Uninitialized(Tensor):
    """The base of tensors without a shape."""

    __slots__ = ()

    def _without_shape(self) -> Self:
        self._metadata = _NoShape(self._metadata)
        return self

    @property
    def data(self) -> Any:
        """The tensor itself, which has no values."""
        return self

    @data.setter
    def data(self, value: Tensor) -> None:
        self._array, self._metadata = value._array, value._metadata

    def detach(self) -> Tensor:
        """The tensor itself, which has no graph."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """A tensor without a shape, of another dtype or on another device."""
        device, dtype = target_of_to(**arguments_of_to(args, kwargs))
        return type(self)(self.requires_grad, device or self.device, dtype or self.dtype)

    def cpu(self, memory_format: memory_format | None = None) -> Any:
        """A tensor without a shape on the host."""
        return self.to("cpu")

    def materialize(
        self, shape: Sequence[int], device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> None:
        """Become an ordinary parameter or buffer, of zeros; device and dtype stay if None."""
        dtype = self.dtype if dtype is None else dtype
        self._become(zeros(shape, dtype=dtype, device=self.device if device is None else device))

    def _become(self, data: Tensor) -> None:
        """Take a tensor's values and become an ordinary parameter or buffer."""
        self._metadata = self._metadata.known  # type: ignore[attr-defined]
        self.__class__ = Parameter if isinstance(self, Parameter) else Tensor  # type: ignore[assignment]
        self.data = data

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        kind, made = self.__reduce_ex__(4)
        memo[id(self)] = copied = kind(*made)
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return type(self), (self.requires_grad, str(self.device), self.dtype)


class UninitializedParameter(Parameter, _Uninitialized):
    """A parameter without a shape."""

    __slots__ = ()

    # `Parameter` is the first base: else `__class__` could not be set to it in `_become`.
    __repr__ = _Uninitialized.__repr__
    __deepcopy__ = _Uninitialized.__deepcopy__

    def __new__(
        cls, requires_grad: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> UninitializedParameter:  # fmt: skip
        """Create a placeholder without elements."""
        data = zeros(0, dtype=dtype, device=device)
        made: Any = Parameter.__new__(cls, data, requires_grad)
        return made._without_shape()  # type: ignore[no-any-return]


class UninitializedBuffer(_Uninitialized):
    """A buffer without a shape.

    Args:
        persistent: accepted for PyTorch compatibility, without effect.
    """

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = False, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None, persistent: bool = True,
    ) -> UninitializedBuffer:  # fmt: skip
        """Create a placeholder without elements."""
        made: Any = zeros(0, dtype=dtype, device=device).requires_grad_(requires_grad)
        made.__class__ = cls
        return made._without_shape()  # type: ignore[no-any-return]


def clear_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Set the gradients of leaves to None, or fill them with zeros."""
    for parameter in parameters:
        meta = parameter._autograd
        grad: Any = None if meta is None else meta.grad
        if meta is None or grad is None:
            continue
        if set_to_none:
            meta.grad = None
        else:
            meta.grad = (grad if grad._edge is None else grad.detach()).zero_()
