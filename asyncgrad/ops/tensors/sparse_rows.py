"""Gradients of large tables of which few rows were used: those rows, and nothing for the others.

`Rows` stands in the place of an array: in a pass, in `.grad` and in a tensor. It is PyTorch's COO
tensor with one sparse axis, and does what a gradient needs: sums with its like and with arrays,
factors, changes of dtype. Anything else raises and says how to get an array.
"""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

#: What is asked of arrays before they are written into.
_FLAGS = SimpleNamespace(writeable=True, c_contiguous=False)
#: Functions that are linear or odd: what is not there stays so.
_OF_EACH = frozenset({"negative", "positive", "conjugate", "absolute", "sign"})
_FACTORS = frozenset({"multiply", "divide", "true_divide"})


class Rows(NDArrayOperatorsMixin):
    """An array by its rows that may be other than zero; a row may be there several times.

    Args:
        indices: which rows, int64 of shape (n,).
        values: their values, of shape (n, ...).
        shape: the shape of the array.
        coalesced: each row is there once, and they are in order.
    """

    __slots__ = ("coalesced", "indices", "shape", "values")

    #: There is no memory to be walked through.
    strides = None
    flags = _FLAGS

    def __init__(
        self, indices: Any, values: Any, shape: tuple[int, ...], *, coalesced: bool = False
    ) -> None:
        """Keep them; nothing is copied."""
        self.indices = indices
        self.values = values
        self.shape = shape
        self.coalesced = coalesced

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements the array has, zeros included."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that are held."""
        return int(self.values.nbytes + self.indices.nbytes)

    @property
    def real(self) -> Rows:
        """The real parts."""
        return self._with(self.values.real)

    def _with(self, values: Any) -> Rows:
        return Rows(self.indices, values, self.shape, coalesced=self.coalesced)

    def dense(self) -> Any:
        """The array, zeros included."""
        out = np.zeros(self.shape, self.dtype)
        np.add.at(out, self.indices, self.values)
        return out

    def coalesce(self) -> Rows:
        """Each row once, in order; what was there several times is summed."""
        if self.coalesced:
            return self
        indices, places = np.unique(self.indices, return_inverse=True)
        values = np.zeros((len(indices), *self.shape[1:]), self.dtype)
        np.add.at(values, places, self.values)
        return Rows(indices, values, self.shape, coalesced=True)

    def copy(self, order: str = "K") -> Rows:
        """The same with memory of its own."""
        return Rows(self.indices.copy(), self.values.copy(), self.shape, coalesced=self.coalesced)

    def astype(self, dtype: Any, copy: bool = True) -> Rows:
        """The same in another dtype."""
        return self._with(self.values.astype(dtype, copy=copy))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """The sum of all elements."""
        if axis is not None and (isinstance(axis, int) or len(axis) != self.ndim):
            self._refuse("a sum over some axes")
        total = self.values.sum()
        return total.reshape((1,) * self.ndim) if keepdims else total

    def __getitem__(self, place: Any) -> NoReturn:
        """Refuse: what is not there would have to be made."""
        self._refuse("indexing")

    def __setitem__(self, place: Any, value: Any) -> None:
        """Take over all of another value: rows, or zeros."""
        if place is not Ellipsis:
            self._refuse("assignment to elements")
        if isinstance(value, Rows):
            taken = value.copy() if value.shape == self.shape else self._refuse("another shape")
            self.become(taken.astype(self.dtype, copy=False))
        elif np.any(value):
            self._refuse("assignment of an array")
        else:
            self.indices, self.values, self.coalesced = self.indices[:0], self.values[:0], True

    def become(self, other: Rows) -> None:
        """Take over the rows of another of this shape and dtype, which are not copied."""
        self.indices, self.values, self.coalesced = other.indices, other.values, other.coalesced

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Refuse: that all zeros are made has to be asked for."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __getattr__(self, name: str) -> Any:
        """Whatever else arrays can do."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse(name)

    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"Could not run '{what}' with row-sparse arguments, here of shape {self.shape}. Use "
            f"Tensor.to_dense() first."
        )

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Make zeros like this one, and refuse all else."""
        if func is np.zeros_like:
            return Rows(self.indices[:0], self.values[:0], self.shape, coalesced=True)
        return self._refuse(func.__name__)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        """Sums, differences, factors and what acts on each element."""
        name = ufunc.__name__
        target = None if out is None else out[0]
        if method == "__call__":
            if name in {"add", "subtract"}:
                first, second = inputs
                return _sum(first, -second if name == "subtract" else second, target)
            if name in _OF_EACH and target is None:
                return self._with(ufunc(self.values))
            if name in _FACTORS and target is None:
                return self._scaled(ufunc, *inputs)
        elif method == "reduce" and name == "add":
            return self.sum(options.get("axis"), options.get("keepdims", False))
        return self._refuse(name)

    def _scaled(self, ufunc: Any, first: Any, second: Any) -> Any:
        """Times or divided by a number, or times an array."""
        other = second if first is self else first
        if isinstance(other, Rows) or (second is self and ufunc is not np.multiply):
            self._refuse(ufunc.__name__)
        shape = np.shape(other)
        if prod(shape) == 1 and len(shape) <= self.ndim:
            return self._with(ufunc(self.values, np.reshape(other, ()) if shape else other))
        if shape != self.shape:
            self._refuse(ufunc.__name__)
        return self._with(ufunc(self.values, other[self.indices]))


def _sum(first: Any, second: Any, target: Any) -> Any:
    """The sum of two, of which one is made of rows; written into `target` if there is one."""
    rows, other = (first, second) if isinstance(first, Rows) else (second, first)
    if rows.shape != getattr(other, "shape", ()):
        rows._refuse("a sum that is broadcast")
    if isinstance(other, Rows):
        total = _both(first, second)
        if target is None:
            return total
        target[...] = total
        return target
    if target is None or target is rows:
        target = other.astype(np.result_type(other, rows.values))
    elif target is not other:
        target[...] = other
    np.add.at(target, rows.indices, rows.values)
    return target


def _both(first: Rows, second: Rows) -> Rows:
    """The rows of both."""
    if first.indices is second.indices or np.array_equal(first.indices, second.indices):
        return first._with(first.values + second.values)
    total = Rows(
        np.concatenate([first.indices, second.indices]),
        np.concatenate([first.values, second.values]),
        first.shape,
    )
    # Repetitions may not take more room than the array would.
    return total.coalesce() if len(total.indices) > total.shape[0] else total
