"""Memory that is used again.

A large array's memory comes from the system page by page, and goes back when the array dies: for
large passes the faults cost more than the arithmetic, and giving back holds the interpreter. The
pool lends blocks instead. A block comes back when the last array that looks at it is gone, so what
a user still holds is never lent again.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from asyncgrad.devices.plain_numpy import plain_numpy

#: Smaller arrays are left to the allocator.
LARGE = 256 * 1024
_ALIGNMENT = 64


class _Block(np.ndarray[Any, Any]):
    """Memory of the pool. A class of its own, so that NumPy keeps leases between it and arrays."""


class _Lease(np.ndarray[Any, Any]):
    """A view of a block; the arrays made on it keep it alive, and it gives the block back."""

    def __del__(self) -> None:
        """No array looks at the block any more."""
        block = self.base
        if block is not None:
            POOL.give_back(block)


class Pool:
    """Blocks by size, at most `limit` bytes of them unused."""

    def __init__(self, limit: int = 256 * 1024 * 1024) -> None:
        """Start empty."""
        self.limit = limit
        #: Bytes of unused blocks. Not exact while several threads return blocks at once.
        self.unused = 0
        self._blocks: dict[int, list[Any]] = {}

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array whose elements are not set."""
        size = _rounded(prod(shape) * dtype.itemsize)
        try:
            block = self._blocks[size].pop()
            self.unused -= size
        except (KeyError, IndexError):
            memory = np.empty(size + _ALIGNMENT, np.uint8)
            start = -memory.__array_interface__["data"][0] % _ALIGNMENT
            block = memory.view(_Block)[start : start + size]
        return np.ndarray(shape, dtype, block.view(_Lease))

    def give_back(self, block: np.ndarray[Any, Any]) -> None:
        """Keep a block for later, if there is room."""
        size = block.nbytes
        if self.unused + size <= self.limit:
            self.unused += size
            self._blocks.setdefault(size, []).append(block)

    def clear(self) -> None:
        """Give all unused memory to the system."""
        self._blocks.clear()
        self.unused = 0


POOL = Pool()


def _rounded(size: int) -> int:
    """The size of the block for so many bytes: four sizes for each power of two."""
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


class _PooledUfunc:
    """An elementwise function whose large results are put into memory of the pool."""

    __slots__ = ("_function",)

    def __init__(self, function: np.ufunc) -> None:
        self._function = function

    def __call__(self, *operands: Any, **options: Any) -> Any:
        """The function's result."""
        function = self._function
        if options or len(operands) != function.nin:
            return function(*operands, **options)
        shape: tuple[int, ...] | None = None
        dtype = None
        for operand in operands:
            if isinstance(operand, np.ndarray):
                if dtype is not None and operand.dtype != dtype:
                    return function(*operands)
                dtype = operand.dtype
                if operand.shape != shape:
                    shape = (
                        operand.shape
                        if shape is None
                        else np.broadcast_shapes(shape, operand.shape)
                    )
        if shape is None or dtype is None or dtype.kind != "f":
            return function(*operands)
        if prod(shape) * dtype.itemsize < LARGE:
            return function(*operands)
        return function(*operands, out=POOL.take(shape, dtype))

    def __getattr__(self, name: str) -> Any:
        """`reduce`, `at` and the rest are the function's own."""
        return getattr(self._function, name)


def _dot(x: Any, y: Any) -> Any:
    """The product of two matrices."""
    if x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.dtype.kind == "f":
        shape = (x.shape[0], y.shape[1])
        if prod(shape) * x.dtype.itemsize >= LARGE:
            # `dot` first sets what it will write to zero, and holds the interpreter meanwhile: for
            # a tenth of a millisecond a megabyte, or ten where memory is new. `matmul` does not,
            # but has no fast way for operands with gaps.
            product = np.matmul if x.flags.forc and y.flags.forc else np.dot
            return product(x, y, POOL.take(shape, x.dtype))
    return np.dot(x, y)


def _empty(shape: tuple[int, ...], dtype: Any = float) -> Any:
    """An array whose elements are not set."""
    dtype = np.dtype(dtype)
    if prod(shape) * dtype.itemsize >= LARGE:
        return POOL.take(shape, dtype)
    return np.empty(shape, dtype)


def _zeros(shape: Any, dtype: Any = float) -> Any:
    """An array of zeros."""
    dtype = np.dtype(dtype)
    shape = tuple(shape) if np.iterable(shape) else (shape,)
    if prod(shape) * dtype.itemsize < LARGE:
        return np.zeros(shape, dtype)
    out = POOL.take(shape, dtype)
    out.fill(0)
    return out


def _empty_like(like: Any, dtype: Any = None, order: Any = "K") -> Any:
    """An array of the shape of another, whose elements are not set."""
    dtype = like.dtype if dtype is None else np.dtype(dtype)
    in_rows = order == "C" or (order == "K" and like.flags.c_contiguous)
    if in_rows and like.size * dtype.itemsize >= LARGE:
        return POOL.take(like.shape, dtype)
    return np.empty_like(like, dtype=dtype, order=order)


def pooled_numpy() -> Any:
    """NumPy, with large results of its elementwise functions in memory of the pool."""
    pooled: dict[str, Any] = {
        "dot": _dot, "empty": _empty, "empty_like": _empty_like, "zeros": _zeros,
    }  # fmt: skip
    for name, function in vars(np).items():
        elementwise = isinstance(function, np.ufunc) and function.signature is None
        # Those that keep a floating dtype.
        if elementwise and function.nout == 1 and "f" * function.nin + "->f" in function.types:
            pooled[name] = _PooledUfunc(function)
    return plain_numpy(**pooled)
