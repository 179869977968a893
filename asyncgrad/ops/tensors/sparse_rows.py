"""Row-sparse gradients of large tables: only the rows that were used are stored.

`Rows` takes the place of an array in a pass, in `.grad` and in a tensor. It is PyTorch's COO tensor
with one sparse axis. It supports what gradients need: sums with `Rows` and arrays, scaling, changes
of dtype. Everything else raises an error that says how to get an array.
"""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from asyncgrad.ops.dtype import is_half

#: The array flags that are read before an array is written to, or pickled.
_FLAGS = SimpleNamespace(writeable=True, c_contiguous=False, forc=True)
#: Functions that map 0 to 0, so that the missing rows stay zero.
_OF_EACH = frozenset({"negative", "positive", "conjugate", "absolute", "sign"})
_FACTORS = frozenset({"multiply", "divide", "true_divide"})


class Rows(NDArrayOperatorsMixin):
    """An array stored by its rows that may be nonzero; a row may be stored several times.

    Args:
        indices: the row numbers, int64 of shape (n,).
        values: the rows, of shape (n, ...).
        coalesced: whether each row is stored once, in ascending order.
    """

    __slots__ = ("coalesced", "indices", "shape", "values")

    #: There are no strides, and no owner, because the array has no memory as a whole.
    strides = base = None
    flags = _FLAGS

    def __init__(
        self, indices: Any, values: Any, shape: tuple[int, ...], *, coalesced: bool = False
    ) -> None:
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
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, zeros included."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the stored data in bytes."""
        return int(self.values.nbytes + self.indices.nbytes)

    @property
    def real(self) -> Rows:
        """The same rows with the real parts of the values."""
        return self._with(self.values.real)

    def _with(self, values: Any) -> Rows:
        return Rows(self.indices, values, self.shape, coalesced=self.coalesced)

    def dense(self) -> Any:
        """The array with all its zeros."""
        return self._added(self.indices, self.shape[0])

    def coalesce(self) -> Rows:
        """Sum rows that are stored several times, and sort the rows."""
        if self.coalesced:
            return self
        indices, places = np.unique(self.indices, return_inverse=True)
        values = self._added(places, len(indices))
        return Rows(indices, values, self.shape, coalesced=True)

    def _added(self, places: Any, count: int) -> Any:
        """The rows added up at their places; half precision in float32."""
        dtype = np.float32 if is_half(self.dtype) else self.dtype
        out = np.zeros((count, *self.shape[1:]), dtype)
        np.add.at(out, places, self.values)
        return out.astype(self.dtype, copy=False)

    def copy(self, order: str = "K") -> Rows:
        """A copy with memory of its own."""
        return Rows(self.indices.copy(), self.values.copy(), self.shape, coalesced=self.coalesced)

    def astype(self, dtype: Any, copy: bool = True) -> Rows:
        """The same rows in another dtype."""
        return self._with(self.values.astype(dtype, copy=copy))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """The sum of all elements."""
        if axis is not None and (isinstance(axis, int) or len(axis) != self.ndim):
            self._refuse("a sum over some axes")
        total = self.values.sum()
        return total.reshape((1,) * self.ndim) if keepdims else total

    def __getitem__(self, place: Any) -> NoReturn:
        """Refuse indexing, which would need the array with all its zeros."""
        self._refuse("indexing")

    def __setitem__(self, place: Any, value: Any) -> None:
        """Replace all rows by those of other `Rows`, or by zeros; other assignments are refused."""
        if place is not Ellipsis:
            self._refuse("assignment to elements")
        if isinstance(value, Rows):
            taken = value.copy() if value.shape == self.shape else self._refuse("another shape")
            self.become(taken.astype(self.dtype, copy=False), [0])
        elif np.any(value):
            self._refuse("assignment of an array")
        else:
            self.indices, self.values, self.coalesced = self.indices[:0], self.values[:0], True

    def become(self, other: Rows, done: list[int]) -> None:
        """Take over the rows of other `Rows` of this shape and dtype, without copies.

        Args:
            done: [0], and [1] after that: then a call does nothing.
        """
        # The old arrays are dropped at the end: what `weakref` calls then is to find the new ones.
        before = self.indices, self.values
        if done[0]:
            # A commit in a signal handler or `__del__` has done it since this call began.
            return
        done[0] = 1
        self.indices, self.values, self.coalesced = other.indices, other.values, other.coalesced
        del before

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Refuse conversion: all zeros are made only by `to_dense()`."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __getattr__(self, name: str) -> Any:
        """Refuse every other method of arrays."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse(name)

    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"Could not run '{what}' with row-sparse arguments, here of shape {self.shape}. Use "
            f"Tensor.to_dense() first."
        )

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Support `np.zeros_like`, and refuse every other function."""
        if func is np.zeros_like:
            return Rows(self.indices[:0], self.values[:0], self.shape, coalesced=True)
        return self._refuse(func.__name__)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        """Support sums, differences, scaling, and elementwise functions that map 0 to 0."""
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
        """Multiply or divide by a number, or multiply by an array."""
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
    """Add two arrays, at least one of them `Rows`; write into `target` if there is one."""
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
    """Concatenate the rows of both."""
    if first.indices is second.indices or np.array_equal(first.indices, second.indices):
        return first._with(first.values + second.values)
    total = Rows(
        np.concatenate([first.indices, second.indices]),
        np.concatenate([first.values, second.values]),
        first.shape,
    )
    # Repeated rows must not take more room than the whole array would.
    return total.coalesce() if len(total.indices) > total.shape[0] else total
