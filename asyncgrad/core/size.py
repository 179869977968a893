"""The shape of a tensor as users see it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from operator import index
from typing import Any, Self, SupportsIndex, overload

from asyncgrad.aliases import Value


class Size(tuple[int, ...]):
    """The length of each axis: a tuple with `numel()`.

    Args:
        sizes: integers, or tensors of one element.
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Self:
        """Convert the lengths to integers."""
        lengths: list[int] = []
        for place, length in enumerate(sizes):
            try:
                lengths.append(index(length))
            except TypeError:
                raise TypeError(
                    f"asyncgrad.Size() takes an iterable of 'int' (item {place} is "
                    f"'{type(length).__name__}'). Convert it with int()."
                ) from None
        return super().__new__(cls, lengths)

    def numel(self) -> int:
        """How many elements a tensor of this shape has."""
        return prod(self)

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> Size: ...
    def __getitem__(self, key: Value) -> Any:
        # A single length is the usual case, so it takes no second call.
        return _item(self, key) if key.__class__ is not slice else _new(Size, _item(self, key))

    def __add__(self, other: Value) -> Size:
        joined = _joined(self, other)
        return joined if joined is NotImplemented else _new(Size, joined)

    def __radd__(self, other: Value) -> Size:
        return _new(Size, other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> Size:
        return _new(Size, _repeated(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"asyncgrad.Size({list(self)})"


_new, _item, _joined, _repeated = tuple.__new__, tuple.__getitem__, tuple.__add__, tuple.__mul__
