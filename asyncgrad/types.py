"""The types of arguments that many functions take; only annotations name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import EllipsisType

    import numpy as np

    from asyncgrad.devices.base import Device
    from asyncgrad.ops.dtype import DType
    from asyncgrad.ops.namespace import Raw
    from asyncgrad.ops.recorded import Recorded
    from asyncgrad.tensor import Tensor as Tensor
else:
    # `asyncgrad.tensor` imports most modules that name its class, so they can't import it.
    Tensor = "Tensor"

#: An array of a device's library. Those of CuPy and of the simulated device have the same methods
#: as NumPy's, as far as the package uses them.
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
#: A number of Python or NumPy as an operand, or as an option that may be of any kind.
Number: TypeAlias = "int | float | complex | np.number[Any] | np.bool_"
#: What may stand in brackets after a tensor.
Index: TypeAlias = "OneIndex | tuple[OneIndex, ...]"
#: One part of an index. A list may hold lists.
OneIndex: TypeAlias = (
    "SupportsIndex | slice | EllipsisType | Tensor | Array | list[Any] | range | None"
)
#: The length of each axis.
Shape: TypeAlias = "tuple[int, ...]"
#: One integer, or one for each axis: axes, lengths, window sizes, strides.
Ints: TypeAlias = "int | Sequence[int]"
#: How many windows an axis is divided into, for adaptive pooling; None for one at each element.
OutputSize: TypeAlias = "int | Sequence[int | None] | None"
#: Kinds of arguments that `ops/converted.py` knows; users see the types. An axis of the first
#: argument, counted from the front; a boolean of a function that PyTorch has written in Python,
#: where it may be any object; and one that has the result overwrite the first argument.
Axis: TypeAlias = int
Truth: TypeAlias = bool
InPlace: TypeAlias = bool
#: Tensors of floating dtypes, of floating and complex ones, and of real ones but booleans.
Floating: TypeAlias = Tensor
Inexact: TypeAlias = Tensor
Real: TypeAlias = Tensor
#: Tensors with one, two or more axes; masks of booleans; tensors of the first argument's dtype.
Vector: TypeAlias = Tensor
Matrix: TypeAlias = Tensor
AtLeast1D: TypeAlias = Tensor
AtLeast2D: TypeAlias = Tensor
AtLeast3D: TypeAlias = Tensor
Mask: TypeAlias = Tensor
Alike: TypeAlias = Tensor
#: Tensors whose values are read: if one is batched by `vmap`, the function is called by example.
ByExample: TypeAlias = Tensor
#: Floating or complex matrices, batched over leading axes; and those that have to be square.
Matrices: TypeAlias = Tensor
SquareMatrices: TypeAlias = Tensor
#: A dtype argument: one of the package, of NumPy, or a Python type such as float.
DTypeLike: TypeAlias = "DType | np.dtype[Any] | type[Any] | str"
#: A device argument: a device, its name, or the number of an accelerator.
DeviceLike: TypeAlias = "Device | str | int"
#: Nested tuples, lists and dictionaries (a pytree); all other objects are leaves.
Tree: TypeAlias = object
#: The axes that `vmap` maps over: one for all, or a tree of them.
Dims: TypeAlias = "int | tuple[Any, ...] | list[Any] | dict[Any, Any] | None"
#: What a rule computes with, its parameter `F`.
Namespace: TypeAlias = "Raw | Recorded"


class MadeAs(TypedDict, total=False):
    """The keyword arguments of functions that make tensors."""

    dtype: DTypeLike | None
    device: DeviceLike | None
    requires_grad: bool


class Library(Protocol):
    """A device's array library, such as the module `numpy`: the parameter `xp`."""

    def __getattr__(self, name: str, /) -> Any:
        """A function, dtype or constant of the library."""


class Value(Protocol):
    """What a rule gets: an array, or a tensor in a pass that records itself.

    Operators and these attributes work on both; for all else there are the functions of `F`.
    """

    @property
    def shape(self) -> Shape:
        """The length of each axis."""

    @property
    def ndim(self) -> int:
        """The number of axes."""

    @property
    def dtype(self) -> Any:
        """The type of the elements."""

    def __getitem__(self, index: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __invert__(self) -> Any: ...
    def __and__(self, other: Any, /) -> Any: ...
    def __or__(self, other: Any, /) -> Any: ...
    def __eq__(self, other: Any, /) -> Any: ...
    def __ne__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...
