"""A pool of memory for large arrays.

A large array's memory comes from the system page by page and is returned when the array dies. In
large passes the page faults cost more than the arithmetic, and returning memory holds the GIL. The
pool reuses blocks instead.

An array in a block has a *lease* as its base, which returns the block to the pool when it dies. A
lease is not an array, so every chain of bases ends there: views, buffers and capsules hold the
array or the lease, and nothing refers to the memory behind it.

Blocks that have not been needed for long are returned to the system. A full pool returns blocks of
the size that was lent least recently. And at intervals it returns blocks that have been unused
since the last check.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, DType, Value
from asyncgrad.devices import pieces
from asyncgrad.devices.cores import account
from asyncgrad.devices.plain_numpy import plain_numpy

#: The most unused bytes that are kept, unless the user sets another limit.
LIMIT = 256 * 1024 * 1024
#: The bytes lent between two checks for unused blocks. With so many, it costs little to get blocks
#: again that were needed after all.
_PATIENCE = 8 * 1024**3
ALIGNMENT = 64
#: The fewest bytes of a block of pinned memory.
_SMALLEST = 512
#: A byte that, repeated, is a NaN in every floating dtype.
POISON = 0xFF


class _Block:
    """A block of the pool's memory."""

    __slots__ = ("address", "lease", "memory", "size")

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory
        self.size = memory.nbytes
        self.address: int = memory.__array_interface__["data"][0]
        #: The class of leases for this size.
        self.lease: Any = lease_of(self.size)


class _Shelf:
    """The unused blocks of one size."""

    __slots__ = ("blocks", "fewest", "used")

    def __init__(self) -> None:
        #: Used as a stack: the block returned last is lent first, while parts of it are still in a
        #: cache.
        self.blocks: list[_Block] = []
        #: The fewest blocks there were since the last check, which is how many were not needed.
        self.fewest = 0
        #: The pool's clock when a block was last lent.
        self.used = 0


class Lease:
    """Holds a block while an array uses it, and returns it to the pool when it dies."""

    #: None before it is set, and after it was returned.
    block: Any = None
    #: What takes the block back.
    pool: Any

    def __del__(self) -> None:
        """Return the block, which no array uses any more."""
        block, self.block = self.block, None
        if block is not None:
            self.pool.give_back(block)


@lru_cache(1024)
def lease_of(size: int) -> Any:
    """The class of leases for a size in bytes."""
    facts = {"_type_": ctypes.c_ubyte, "_length_": size}
    return type("Lease", (Lease, ctypes.Array), facts)


def aligned(shape: tuple[int], dtype: DType) -> np.ndarray[Any, Any]:
    """Allocate bytes at an address that is aligned for vector units."""
    memory = np.empty(shape[0] + ALIGNMENT, dtype)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + shape[0]]


def _to_power(size: int) -> int:
    """The size of the block of pinned memory, which is slow to allocate, for a number of bytes."""
    return max(_SMALLEST, 1 << (size - 1).bit_length())


@lru_cache(1024)
def rounded(size: int) -> int:
    """The size of the block for a number of bytes: four sizes for each power of two."""
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


class Pool:
    """Blocks by size, of which at most `limit` bytes are unused.

    Threads take and return blocks concurrently without a lock, because arrays may die anywhere,
    even within a method. The only shared step, removing a block from a list, is atomic. Counts may
    be inexact meanwhile.

    Args:
        allocate: makes memory of a shape and dtype.
        limit: the most unused bytes that are kept.
        pinned: whether the memory is pinned: a device reads and writes it directly.
    """

    #: The bytes from which arrays are large; smaller ones are left to the allocator.
    large = 256 * 1024
    #: Whether new and returned blocks are filled with NaN; see `testing.poisoned_memory`.
    poison = False

    def __init__(
        self, allocate: Callable[[tuple[int], Any], Any] = aligned, limit: int = LIMIT,
        pinned: bool = False,
    ) -> None:  # fmt: skip
        self._allocate = allocate
        self._rounded = _to_power if pinned else rounded
        self.limit = limit
        self.pinned = pinned
        #: The total size of unused blocks in bytes.
        self.unused = 0
        #: The bytes lent so far, used as a clock, and its value at which `_tidy` runs next.
        self.lent = 0
        self._tidy_at = _PATIENCE
        self._shelves: dict[int, _Shelf] = {}

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Lend an array with undefined elements, of the thread's arena if a program runs in it."""
        size = prod(shape) * dtype.itemsize
        here = pieces.here
        if here.is_engine_thread:
            # Whatever is computed, large work comes here several times a millisecond.
            account()
        arena = here.arena
        if arena is None or self.pinned:
            lease = self.lease(self._rounded(size))
        else:
            lease = arena.lease(size)
        return np.ndarray(shape, dtype, lease)

    def lease(self, size: int) -> Any:
        """Lend a block of a size."""
        self.lent = now = self.lent + size
        if now > self._tidy_at:
            self._tidy()
        try:
            shelf = self._shelves[size]
            block = shelf.blocks.pop()
            self.unused -= size
        except (KeyError, IndexError):
            shelf = self._shelves.setdefault(size, _Shelf())
            block = _Block(self._allocate((size,), np.uint8))
            if self.poison:
                block.memory.fill(POISON)
        shelf.used = now
        if shelf.fewest > len(shelf.blocks):
            shelf.fewest = len(shelf.blocks)
        lease = block.lease.from_address(block.address)
        lease.pool = self
        lease.block = block
        return lease

    def give_back(self, block: _Block) -> None:
        """Take back a block; if the limit is exceeded, free others."""
        if self.poison:
            block.memory.fill(POISON)
        self._shelves[block.size].blocks.append(block)
        self.unused += block.size
        if self.unused > self.limit:
            self.shrink(self.limit)

    def drop(self, blocks: Iterable[_Block]) -> None:
        """Free those of some blocks that are unused."""
        for block in blocks:
            shelf = self._shelves[block.size]
            try:
                shelf.blocks.remove(block)
            except ValueError:
                continue
            self.unused -= block.size
            shelf.fewest = min(shelf.fewest, len(shelf.blocks))

    def shrink(self, limit: int) -> None:
        """Free blocks down to `limit` unused bytes, the least recently lent size first."""
        while self.unused > limit:
            shelves = [shelf for shelf in list(self._shelves.values()) if shelf.blocks]
            if not shelves:
                # Another thread has taken a block but not yet updated the count.
                return
            self._drop(min(shelves, key=lambda shelf: shelf.used), 1)

    def _tidy(self) -> None:
        """Free the blocks that were not needed since the last check."""
        self._tidy_at = self.lent + _PATIENCE
        for shelf in list(self._shelves.values()):
            self._drop(shelf, shelf.fewest)
            shelf.fewest = len(shelf.blocks)

    def _drop(self, shelf: _Shelf, count: int) -> None:
        """Free the oldest blocks of a size."""
        for _ in range(count):
            try:
                block = shelf.blocks.pop(0)
            except IndexError:
                break
            self.unused -= block.size
        shelf.fewest = min(shelf.fewest, len(shelf.blocks))


POOL = Pool()


def is_pinned(array: Array) -> bool:
    """Whether a host array is in pinned memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, Lease) and array.pool.pinned


def _keeps(function: np.ufunc, *chars: str) -> bool:
    """Whether operands of one of these dtypes give results of the same dtype."""
    types = function.types
    return any(f"{char * function.nin}->{char}" in types for char in chars)


class _PooledUfunc:
    """Wraps an elementwise function to put large results into the pool's memory."""

    __slots__ = ("_function",)

    def __init__(self, function: np.ufunc) -> None:
        self._function = function

    def __call__(self, *operands: Array, **options: Value) -> Any:
        function = self._function
        if options or len(operands) != function.nin:
            return function(*operands, **options)
        shape: tuple[int, ...] | None = None
        dtype = None
        # A number may give integers another dtype. An array with gaps gives the result its layout.
        plain = False
        for operand in operands:
            if isinstance(operand, np.ndarray):
                if dtype is not None and operand.dtype != dtype:
                    return function(*operands)
                dtype = operand.dtype
                plain = plain or not operand.flags.c_contiguous
                if operand.shape != shape:
                    shape = (
                        operand.shape
                        if shape is None
                        else np.broadcast_shapes(shape, operand.shape)
                    )
            else:
                plain = True
        if shape is None or dtype is None:
            return function(*operands)
        if dtype.kind != "f" and (plain or not _keeps(function, dtype.char)):
            return function(*operands)
        if prod(shape) * dtype.itemsize < Pool.large:
            return function(*operands)
        return function(*operands, out=POOL.take(shape, dtype))

    def __getattr__(self, name: str) -> Any:
        """Other attributes, such as `reduce` and `at`, are the function's own."""
        return getattr(self._function, name)


def dot(x: Array, y: Array) -> Any:
    """The product of two matrices, in the pool's memory if it is large."""
    if x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.dtype.kind == "f":
        shape = (x.shape[0], y.shape[1])
        if prod(shape) * x.dtype.itemsize >= Pool.large:
            # `dot` zeroes its output first and holds the GIL meanwhile: 0.1 ms for each megabyte,
            # ten times that if it is new. `matmul` does not, but is slow for operands with gaps.
            out = POOL.take(shape, x.dtype)
            if x.flags.forc and y.flags.forc:
                pieces.product(np.matmul, x, y, out)
                return out
            return np.dot(x, y, out)
    return np.dot(x, y)


def _empty(shape: tuple[int, ...], dtype: DType = float) -> Any:
    dtype = np.dtype(dtype)
    if prod(shape) * dtype.itemsize >= Pool.large:
        return POOL.take(shape, dtype)
    return np.empty(shape, dtype)


def _zeros(shape: Value, dtype: DType = float) -> Any:
    dtype = np.dtype(dtype)
    if shape.__class__ is not tuple:
        shape = tuple(shape) if np.iterable(shape) else (shape,)
    if prod(shape) * dtype.itemsize < Pool.large:
        return np.zeros(shape, dtype)
    out = POOL.take(shape, dtype)
    out.fill(0)
    return out


def _empty_like(like: Value, dtype: DType = None, order: Value = "K") -> Any:
    dtype = like.dtype if dtype is None else np.dtype(dtype)
    in_rows = order == "C" or (order == "K" and like.flags.c_contiguous)
    if in_rows and like.size * dtype.itemsize >= Pool.large:
        return POOL.take(like.shape, dtype)
    return np.empty_like(like, dtype=dtype, order=order)


def _concatenate(arrays: Sequence[Array], axis: int = 0) -> Any:
    """Arrays joined along an axis, in the pool's memory if they are large and lie in rows."""
    shape, dtype = arrays[0].shape, arrays[0].dtype
    alike = dtype.kind == "f" and all(x.dtype == dtype and x.flags.c_contiguous for x in arrays)
    if not shape or not alike or sum([x.nbytes for x in arrays]) < Pool.large:
        return np.concatenate(arrays, axis=axis)
    axis %= len(shape)
    length = sum([x.shape[axis] for x in arrays])
    out = POOL.take((*shape[:axis], length, *shape[axis + 1 :]), dtype)
    return np.concatenate(arrays, axis=axis, out=out)


def _stack(arrays: Sequence[Array], axis: int = 0) -> Any:
    """Arrays of one shape joined along a new axis."""
    axis %= arrays[0].ndim + 1
    return _concatenate([x[(slice(None),) * axis + (None,)] for x in arrays], axis)


def pooled_numpy() -> Any:
    """NumPy, with large results of elementwise functions in the pool's memory.

    `unpooled` is NumPy without that.
    """
    pooled: dict[str, Any] = {
        "concatenate": _concatenate, "dot": dot, "empty": _empty, "empty_like": _empty_like,
        "stack": _stack, "zeros": _zeros, "unpooled": plain_numpy(),
    }  # fmt: skip
    for name, function in vars(np).items():
        elementwise = isinstance(function, np.ufunc) and function.signature is None
        if elementwise and _keeps(function, "f", "l"):
            pooled[name] = _PooledUfunc(function)
    return plain_numpy(**pooled)
