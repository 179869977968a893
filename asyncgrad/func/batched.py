"""The tensor type that functions inside of `vmap` see: one example of a batch."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from asyncgrad.core.modes import refuse_in_transform
from asyncgrad.core.variable import Variable
from asyncgrad.errors import AutogradError
from asyncgrad.ops import batching
from asyncgrad.ops.batching import Level
from asyncgrad.ops.dtype_device import memory_format
from asyncgrad.tensor import Tensor, contiguous_format

__all__ = ["BatchedTensor"]


class BatchedTensor(Tensor):
    """One example of a batch; its shape is the example's."""

    __slots__ = ("_level", "_value")

    _batched: ClassVar[bool] = True
    #: The tensor that holds the batch in its first axis.
    _value: Variable
    _level: Level

    @property
    def _array(self) -> Any:
        raise AutogradError(
            "vmap: We do not support batching operators that can output dynamic shape, nor "
            "anything else that reads the values of a Tensor (numpy(), tolist()), nor a Tensor "
            "of a vmap that has ended. Use asyncgrad.where, or do it outside of vmap."
        )

    @_array.setter
    def _array(self, value: object) -> None:
        raise AutogradError("vmap: the memory of a Tensor can't be replaced inside of vmap")

    @property
    def requires_grad(self) -> bool:
        """Whether the tensor is part of a graph, or a leaf that asks for gradients."""
        return self._value.requires_grad  # type: ignore[attr-defined, no-any-return]

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of all examples; `asyncgrad.autograd.functional` needs this."""
        refuse_in_transform("Tensor.requires_grad_()")
        self._value.requires_grad_(requires_grad)  # type: ignore[attr-defined]
        return self

    @property
    def grad_fn(self) -> Any:
        """The `grad_fn` of the tensor that holds the batch."""
        return self._value.grad_fn  # type: ignore[attr-defined]

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor has no `grad_fn`."""
        return self.grad_fn is None

    def detach(self) -> Tensor:
        """A tensor without graph that shares the memory."""
        return batching.lift_batch(self._value.detach(), self._level)  # type: ignore[attr-defined, no-any-return]

    @property
    def data(self) -> Tensor:
        """A tensor that shares the memory, without graph and with its own version counter."""
        return batching.lift_batch(self._value.data, self._level)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, value: Tensor) -> None:
        self._array = value._array

    def stride(self, dim: int | None = None) -> Any:
        """The distance in elements between neighbours along each axis, or along one."""
        strides = self._value.stride()[1:]  # type: ignore[attr-defined]
        return strides if dim is None else strides[dim]

    def is_contiguous(self, memory_format: memory_format = contiguous_format) -> bool:
        """Whether the elements of an example are contiguous in memory."""
        if not self._level.size:
            return True
        first = self._value.detach()[0]  # type: ignore[attr-defined]
        return first.is_contiguous(memory_format)  # type: ignore[no-any-return]

    def item(self) -> NoReturn:
        """Refuse: each example has its own value."""
        raise AutogradError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor, please try to rewrite what you're doing with other "
            "operations."
        )

    def __bool__(self) -> bool:
        """Refuse: the examples could take different branches."""
        raise AutogradError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow. We don't support that yet: use asyncgrad.where."
        )

    def __repr__(self) -> str:
        return f"BatchedTensor(lvl={self._level.depth}, bdim=0, value={self._value!r})"
