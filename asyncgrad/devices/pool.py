"""Memory that is used again.

A large array's memory comes from the system page by page, and goes back when the array dies: for
large passes the faults cost more than the arithmetic, and giving back holds the interpreter. The
pool lends blocks instead.

An array in a block has a *lease* as its base, which gives the block back when it dies. A lease is
no array, so every chain of bases ends there: views, buffers and capsules hold the array or the
lease, and nothing leads to the memory past it. They are no leases, and give nothing back.

What has not been needed for long goes to the system: from a full pool what is of the size that was
lent least lately, and now and then what nobody has needed since the last time.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices.plain_numpy import plain_numpy

if TYPE_CHECKING:
    from collections.abc import Callable

#: Unused bytes that are kept at most, unless the user says otherwise.
LIMIT = 256 * 1024 * 1024
#: The bytes lent between one look for what nobody needs and the next: so many that it costs little
#: to get back from the system what was needed after all.
_PATIENCE = 8 * 1024**3
_ALIGNMENT = 64
#: Bytes that make a NaN of every floating dtype.
_POISON = 0xFF


class _Block:
    """Memory of a pool."""

    __slots__ = ("address", "lease", "memory", "size")

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        """Hold an array of bytes."""
        self.memory = memory
        self.size = memory.nbytes
        self.address: int = memory.__array_interface__["data"][0]
        #: The class of its leases.
        self.lease: Any = _lease_of(self.size)


class _Shelf:
    """The unused blocks of one size."""

    __slots__ = ("blocks", "fewest", "used")

    def __init__(self) -> None:
        """Start empty."""
        #: The last that came is the next to go: some of it may still be in a cache.
        self.blocks: list[_Block] = []
        #: The fewest there have been since the last look: so many has nobody needed.
        self.fewest = 0
        #: The pool's clock when a block was lent last.
        self.used = 0


class Lease:
    """What stands for a block while there is an array in it."""

    #: None while it is being made, and when it is over.
    block: _Block | None = None
    pool: Pool

    def __del__(self) -> None:
        """No array looks at the block any more."""
        block, self.block = self.block, None
        if block is not None:
            self.pool.give_back(block)


@cache
def _lease_of(size: int) -> Any:
    """The class of leases of so many bytes."""
    facts = {"_type_": ctypes.c_ubyte, "_length_": size}
    return type("Lease", (Lease, ctypes.Array), facts)


def _aligned(shape: tuple[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Bytes that begin where vector units like them to."""
    memory = np.empty(shape[0] + _ALIGNMENT, dtype)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return memory[start : start + shape[0]]


@lru_cache(1024)
def _rounded(size: int) -> int:
    """The size of the block for so many bytes: four sizes for each power of two."""
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


class Pool:
    """Blocks by size, at most `limit` bytes of them unused.

    Threads lend and give back side by side, without a lock: arrays die anywhere, in the middle of a
    method, too. What they take from each other is a block of a list, which is one step. The counts
    are not exact meanwhile.

    Args:
        allocate: makes memory of a shape and dtype.
        rounded: the size of the block for so many bytes.
        limit: so many unused bytes are kept at most.
        pinned: the memory is pinned.
    """

    #: Bytes from which arrays are large; smaller ones are left to the allocator.
    large = 256 * 1024
    #: Blocks that are new or come back are filled with NaN; see `testing.poisoned_memory`.
    poison = False

    def __init__(
        self,
        allocate: Callable[[tuple[int], Any], Any] = _aligned,
        rounded: Callable[[int], int] = _rounded,
        limit: int = LIMIT,
        pinned: bool = False,
    ) -> None:
        """Start empty."""
        self._allocate = allocate
        self._rounded = rounded
        self.limit = limit
        self.pinned = pinned
        #: Bytes of unused blocks.
        self.unused = 0
        #: The bytes lent so far, which is the clock, and when it will be tidied.
        self.lent = 0
        self._tidy_at = _PATIENCE
        self._shelves: dict[int, _Shelf] = {}

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array whose elements are not set."""
        size = self._rounded(prod(shape) * dtype.itemsize)
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
                block.memory.fill(_POISON)
        shelf.used = now
        if shelf.fewest > len(shelf.blocks):
            shelf.fewest = len(shelf.blocks)
        lease = block.lease.from_address(block.address)
        lease.pool = self
        lease.block = block
        return np.ndarray(shape, dtype, lease)

    def give_back(self, block: _Block) -> None:
        """Keep a block for later; others make room for it."""
        if self.poison:
            block.memory.fill(_POISON)
        self._shelves[block.size].blocks.append(block)
        self.unused += block.size
        if self.unused > self.limit:
            self.shrink(self.limit)

    def shrink(self, limit: int) -> None:
        """Give blocks to the system until so many bytes are left, first of the size unused longest.

        Args:
            limit: the bytes.
        """
        while self.unused > limit:
            shelves = [shelf for shelf in list(self._shelves.values()) if shelf.blocks]
            if not shelves:
                # Another thread is about to count what it has taken.
                return
            self._drop(min(shelves, key=lambda shelf: shelf.used), 1)

    def _tidy(self) -> None:
        """Give what nobody has needed since the last time to the system."""
        self._tidy_at = self.lent + _PATIENCE
        for shelf in list(self._shelves.values()):
            self._drop(shelf, shelf.fewest)
            shelf.fewest = len(shelf.blocks)

    def _drop(self, shelf: _Shelf, count: int) -> None:
        """Give the oldest blocks of a size to the system."""
        for _ in range(count):
            try:
                block = shelf.blocks.pop(0)
            except IndexError:
                break
            self.unused -= block.size
        shelf.fewest = min(shelf.fewest, len(shelf.blocks))


POOL = Pool()


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
        if prod(shape) * dtype.itemsize < Pool.large:
            return function(*operands)
        return function(*operands, out=POOL.take(shape, dtype))

    def __getattr__(self, name: str) -> Any:
        """`reduce`, `at` and the rest are the function's own."""
        return getattr(self._function, name)


def _dot(x: Any, y: Any) -> Any:
    """The product of two matrices."""
    if x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.dtype.kind == "f":
        shape = (x.shape[0], y.shape[1])
        if prod(shape) * x.dtype.itemsize >= Pool.large:
            # `dot` first sets what it will write to zero, and holds the interpreter meanwhile: for
            # a tenth of a millisecond a megabyte, or ten where memory is new. `matmul` does not,
            # but has no fast way for operands with gaps.
            product = np.matmul if x.flags.forc and y.flags.forc else np.dot
            return product(x, y, POOL.take(shape, x.dtype))
    return np.dot(x, y)


def _empty(shape: tuple[int, ...], dtype: Any = float) -> Any:
    """An array whose elements are not set."""
    dtype = np.dtype(dtype)
    if prod(shape) * dtype.itemsize >= Pool.large:
        return POOL.take(shape, dtype)
    return np.empty(shape, dtype)


def _zeros(shape: Any, dtype: Any = float) -> Any:
    """An array of zeros."""
    dtype = np.dtype(dtype)
    shape = tuple(shape) if np.iterable(shape) else (shape,)
    if prod(shape) * dtype.itemsize < Pool.large:
        return np.zeros(shape, dtype)
    out = POOL.take(shape, dtype)
    out.fill(0)
    return out


def _empty_like(like: Any, dtype: Any = None, order: Any = "K") -> Any:
    """An array of the shape of another, whose elements are not set."""
    dtype = like.dtype if dtype is None else np.dtype(dtype)
    in_rows = order == "C" or (order == "K" and like.flags.c_contiguous)
    if in_rows and like.size * dtype.itemsize >= Pool.large:
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
