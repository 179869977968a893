"""What the function inside of `vmap` sees: one example of a batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from asyncgrad.core.modes import refuse_in_transform
from asyncgrad.core.variable import Variable, requires_grad
from asyncgrad.errors import AutogradError
from asyncgrad.ops import batching
from asyncgrad.tensor import Tensor, contiguous_format

if TYPE_CHECKING:
    from asyncgrad.ops.batching import Level

__all__ = ["BatchedTensor"]


class BatchedTensor(Tensor):
    """One example of a batch, with the shape of the example."""

    __slots__ = ("_level", "_value")

    _batched: ClassVar[bool] = True
    #: The tensor whose first axis is the batch.
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
    def _array(self, value: Any) -> None:
        raise AutogradError("vmap: the memory of a Tensor can't be replaced inside of vmap")

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into or through the tensor."""
        return requires_grad(self._value)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of all examples: `asyncgrad.autograd.functional` does."""
        refuse_in_transform("Tensor.requires_grad_()")
        self._value.requires_grad_(requires_grad)  # type: ignore[attr-defined]
        return self

    @property
    def grad_fn(self) -> Any:
        """The function that made the tensor that holds the batch."""
        return self._value.grad_fn  # type: ignore[attr-defined]

    @property
    def is_leaf(self) -> bool:
        """Made by the user, or by nothing that needs a gradient."""
        return self.grad_fn is None

    def detach(self) -> Tensor:
        """The same values, cut off from the graph; the memory is shared."""
        return batching.lift_batch(self._value.detach(), self._level)  # type: ignore[attr-defined, no-any-return]

    @property
    def data(self) -> Tensor:
        """The same memory, without graph and without shared version counter."""
        return batching.lift_batch(self._value.data, self._level)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, value: Tensor) -> None:
        self._array = value._array

    def stride(self, dim: int | None = None) -> Any:
        """How many elements lie between neighbours along each axis, or along one."""
        strides = self._value.stride()[1:]  # type: ignore[attr-defined]
        return strides if dim is None else strides[dim]

    def is_contiguous(self, memory_format: Any = contiguous_format) -> bool:
        """Whether the elements of an example lie in memory one after the other."""
        if not self._level.size:
            return True
        first = self._value.detach()[0]  # type: ignore[attr-defined]
        return first.is_contiguous(memory_format)  # type: ignore[no-any-return]

    def item(self) -> NoReturn:
        """Refuse: there is one number for each example.

        Raises:
            RuntimeError: always.
        """
        raise AutogradError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor, please try to rewrite what you're doing with other "
            "operations."
        )

    def __bool__(self) -> bool:
        """Refuse: some examples would take one way and some the other."""
        raise AutogradError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow. We don't support that yet: use asyncgrad.where."
        )

    def __repr__(self) -> str:
        """The batch that it is an example of."""
        return f"BatchedTensor(lvl={self._level.depth}, bdim=0, value={self._value!r})"


batching.bind_face(partial(object.__new__, BatchedTensor))
