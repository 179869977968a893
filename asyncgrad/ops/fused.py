"""Raw kernels that do the work of several functions in one pass over memory.

NumPy goes through memory once for every function. A kernel that runs block by block goes through it
once for all of them, because intermediate results stay in the cache. A kernel's second parameter is
the array to write to, None if NumPy is to make one. NumPy's warnings are off while kernels run.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from math import gcd, prod
from typing import Any

import numpy as np

from asyncgrad.devices.cores import divided
from asyncgrad.devices.fp_errors import (
    BUFFER,
    fp_errors_ignored,
    restore_fp_errors,
    without_fp_errors,
)
from asyncgrad.devices.pieces import in_pieces

#: Elements of a block: a few float32 arrays of this length fit into a core's caches. With half as
#: many, kernels take 10 to 20 % longer, because they call NumPy more often.
_BLOCK = 1 << 17
#: With fewer blocks, elementwise or of lines, idle threads take none: they would begin too late.
_MANY, _MANY_OF_LINES = 4, 2
#: Elements that are copied or added at a time.
PART = 1 << 18
#: The tile of a transposed matrix that is copied at a time, as it lies in memory, and the unused
#: elements between the rows of its copy.
_ROWS, _COLUMNS, _GAP = 128, 2048, 16
#: Arrays with fewer elements take as long as the call itself: the plainest call is the fastest.
FEW = 1024
#: From so many elements on it pays to repeat the operand of short rows.
_REPEATED = 1 << 15
#: Zeros and ones of floating dtypes, to be found sooner than by `number`.
ZEROS, ONES = (
    {np.dtype(f"f{size}"): np.full((), n, f"f{size}") for size in (2, 4, 8)} for n in (0, 1)
)
#: For each floating dtype the integer dtype of its size, and its zero.
_BITS = {dtype: (np.dtype(f"i{dtype.itemsize}"), zero) for dtype, zero in ZEROS.items()}


def _constant(shape: Any, value: float, dtype: Any) -> Any:
    array = np.full(shape, value, dtype)
    array.flags.writeable = False
    return array


_number = functools.lru_cache(256)(functools.partial(_constant, ()))
#: A block of one number.
_level = functools.lru_cache(8)(functools.partial(_constant, _BLOCK))


def number(xp: Any, value: Any, dtype: Any) -> Any:
    """A number as an operand: NumPy converts one anew in each call. Arrays stay as they are."""
    known = xp.ndarray is np.ndarray and value.__class__ in {float, int}
    return _number(value, dtype) if known else value


class Once(list[Any]):
    """A list of intermediate values that the first rule that reads it may overwrite."""


def elementwise(arrays: int = 1, name: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Run an elementwise kernel `kernel(xp, out, arrays..., attributes...)` block by block.

    So many `arrays` have one shape and dtype. The attribute `over` does the same, and may write the
    result into the first array. A compiled kernel may have another name than the function.
    """

    def decorate(kernel: Callable[..., Any]) -> Any:
        def blocks(xp: Any, *arguments: Any, over: bool = False) -> Any:
            parts = arguments[:arrays]
            first = parts[0]
            shape = first.shape
            if xp.ndarray is not np.ndarray or any(part.shape != shape for part in parts):
                return kernel(xp, None, *arguments)
            result = first if over and first.flags.writeable else xp.empty_like(first)
            (out, *sources), cut = _cut((result, *parts))
            attributes = arguments[arrays:]

            def compute(block: slice) -> None:
                read = [source[block] for source in sources]
                if result is first:
                    # The kernel may write before it has read all.
                    out[block] = kernel(xp, None, *read, *attributes)
                else:
                    kernel(xp, out[block], *read, *attributes)

            share(xp, compute, cut)
            return result

        run: Any = _runner(kernel, blocks, arrays, name)
        run.over = _runner(kernel, functools.partial(blocks, over=True), arrays, name)
        return run

    return decorate


def _cut(parts: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[slice]]:
    """Arrays of one shape, flat if they are contiguous, and the blocks of their first axis."""
    step = max(1, _BLOCK * len(parts[0]) // parts[0].size)
    if all(part.flags.c_contiguous for part in parts):
        parts, step = tuple([part.reshape(-1) for part in parts]), _BLOCK
    return parts, [slice(i, i + step) for i in range(0, len(parts[0]), step)]


def along(
    arrays: int = 1, *, reduces: bool = False, in_order: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a kernel `kernel(xp, out, arrays..., dim, attributes...)` on blocks of lines along `dim`.

    Lines are independent. Arrays that are not contiguous are not cut: strides cost more than the
    cache saves.

    Args:
        arrays: how many arguments are arrays of one dtype; only their lengths along `dim` may
            differ.
        reduces: the result has one element for each line, and `out` is None.
        in_order: the kernel's last argument is a list that it appends to, or None. Each block
            appends to one of its own; they are joined in the order of the blocks.
    """

    def decorate(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def blocks(xp: Any, *arguments: Any) -> Any:
            parts = arguments[:arrays]
            dim = arguments[arrays]
            first = parts[0]
            shape = first.shape
            contiguous = all(part.flags.c_contiguous for part in parts)
            if xp.ndarray is not np.ndarray or not contiguous:
                return kernel(xp, None, *arguments)
            inner = prod(shape[dim + 1 :])
            length = shape[dim]
            if reduces:
                result = np.empty((*shape[:dim], 1, *shape[dim + 1 :]), first.dtype)
            else:
                result = xp.empty_like(first)
            out, *sources = [
                part.reshape((-1, part.shape[dim], inner)[: 2 + (inner > 1)])
                for part in (result, *parts)
            ]
            step = max(1, _BLOCK // (length * inner))
            cut = [slice(i, i + step) for i in range(0, len(out), step)]
            attributes = arguments[arrays + 1 :]
            joined = attributes[-1] if in_order else None
            own: list[list[Any]] = [[] for _ in cut]

            def compute(place: int) -> None:
                block = cut[place]
                lines = [source[block] for source in sources]
                given = attributes if joined is None else (*attributes[:-1], own[place])
                if reduces:
                    out[block] = kernel(xp, None, *lines, 1, *given)
                else:
                    kernel(xp, out[block], *lines, 1, *given)

            share(xp, compute, range(len(cut)), _MANY_OF_LINES)
            if joined is not None:
                joined.extend(itertools.chain.from_iterable(own))
            return result

        return _runner(kernel, blocks, arrays)

    return decorate


def joined(xp: Any, found: list[tuple[Any, ...]]) -> Any:
    """What the blocks of a kernel with `in_order` have appended, each part as one array."""
    if len(found) == 1:
        return found[0]
    return tuple([xp.concatenate(part) for part in zip(*found, strict=True)])


def summed(arrays: int, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a kernel `kernel(xp, arrays..., attributes...)` that returns a sum like `elementwise`."""

    def decorate(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def blocks(xp: Any, *arguments: Any) -> Any:
            parts = arguments[:arrays]
            first = parts[0]
            if xp.ndarray is not np.ndarray or any(part.shape != first.shape for part in parts):
                return kernel(xp, *arguments)
            parts, cut = _cut(parts)
            attributes = arguments[arrays:]
            total = 0.0
            for block in cut:
                total += float(kernel(xp, *[part[block] for part in parts], *attributes))
            return first.dtype.type(total)

        return _runner(lambda xp, out, *arguments: kernel(xp, *arguments), blocks, arrays, name)

    return decorate


def share(
    xp: Any, compute: Callable[[Any], object], blocks: Sequence[Any], many: int = _MANY
) -> None:
    """Call a function for each block; idle threads of the engine take some if there are `many`.

    It writes what belongs to a block, and nothing else. Blocks are cut by shape alone. A device's
    library is called in this thread alone.
    """
    if len(blocks) >= many and xp.ndarray is np.ndarray:
        in_pieces(compute, blocks)
    else:
        for block in blocks:
            compute(block)


def silent(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Run a raw function without NumPy's warnings; its parameters stay readable for `inspect`."""
    return functools.wraps(kernel)(without_fp_errors(kernel))


def compiled(xp: Any, name: str, *arguments: Any) -> Any:
    """What a compiled kernel of that name gives; NotImplemented where there is none."""
    kernel = xp.compiled.get(name)
    return NotImplemented if kernel is None else kernel(*arguments)


def compiled_first(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Have a compiled kernel of that name compute, if it supports the arguments."""
    name = kernel.__name__.lstrip("_")

    @functools.wraps(kernel)
    def run(xp: Any, *arguments: Any) -> Any:
        made = compiled(xp, name, *arguments)
        return kernel(xp, *arguments) if made is NotImplemented else made

    return run


def assign(target: Any, values: Any) -> None:
    """Copy an array into another of its shape.

    A large transposed matrix is copied by tiles. Each tile's own copy has gaps between its rows,
    because rows whose distance is a power of two share lines of the cache.
    """
    if values.size <= _BLOCK or values.__class__ is not np.ndarray:
        target[...] = values
        return
    steps = values.strides
    if len(steps) == 2 and 0 < steps[0] < steps[1] and target.flags.c_contiguous:
        height, width = min(_ROWS, values.shape[1]), min(_COLUMNS, values.shape[0])
        tile = np.empty((height, width + _GAP), values.dtype)[:, :width]
        for row in range(0, values.shape[1], height):
            for column in range(0, values.shape[0], width):
                at = slice(column, column + width), slice(row, row + height)
                turned = tile.T[: values.shape[0] - column, : values.shape[1] - row]
                turned[...] = values[at]
                target[at] = turned
    else:
        for part in parts_of(target):
            target[part] = values[part]


def masked(xp: Any, x: Any, keep: Any) -> Any:
    """Select the elements where `keep` is true, or a number that is not 0; 0 elsewhere.

    A product with the mask would turn infinities and NaN into NaN, so the bits are multiplied. For
    random masks this takes a fraction of the time of `where`.
    """
    known = _BITS.get(x.dtype)
    if known is None or xp.ndarray is not np.ndarray:
        made = compiled(xp, "masked", x, keep)
        return xp.where(keep, x, 0.0) if made is NotImplemented else made
    bits, zero = known
    if keep.size < FEW:
        return xp.where(keep, x, zero)
    made = compiled(xp, "masked", x, keep) if keep.dtype == x.dtype else NotImplemented
    if made is not NotImplemented:
        return made
    large = x.size > _BLOCK and x.shape == keep.shape
    if keep.dtype.kind != "b" and not large:
        keep = keep != zero
    if x.shape != keep.shape:
        return xp.multiply(x.view(bits), keep).view(x.dtype)
    out = xp.empty_like(x)
    given, made = x.view(bits), out.view(bits)
    if not large:
        xp.multiply(given, keep, made)
        return out

    def compute(block: slice) -> None:
        part = keep[block] if keep.dtype.kind == "b" else keep[block] != zero
        # With many elements, casting them by themselves is faster.
        xp.multiply(given[block], part.astype(bits), made[block])

    share(xp, compute, blocks_of(x))
    return out


def bounded(bound: Any, x: Any, limit: Any, out: Any) -> Any:
    """Call `minimum` or `maximum` with a number.

    NumPy compares two arrays several elements at a time, but an array and a number one by one.
    """
    if x.__class__ is np.ndarray and FEW < x.size <= _BLOCK and x.flags.c_contiguous:
        limit = _level(limit, x.dtype)[: x.size].reshape(x.shape)
    return bound(x, limit, out=out)


def in_lines(x: Any, *rows: Any) -> tuple[Any, ...]:
    """A matrix as one of fewer and longer rows, and operands for its rows as operands for those.

    NumPy copies an operand into its buffer again and again where rows are shorter than that, which
    takes half the time of the sum or product itself.
    """
    count, length = x.shape
    if x.__class__ is not np.ndarray or x.size < _REPEATED or length >= BUFFER:
        return x, *rows
    some = gcd(count, 1 << ((BUFFER - 1) // length).bit_length())
    if some == 1 or not x.flags.c_contiguous:
        return x, *rows
    lines = [np.empty((some, length), row.dtype) for row in rows]
    for line, row in zip(lines, rows, strict=True):
        line[...] = row
    return x.reshape(count // some, -1), *[line.reshape(-1) for line in lines]


def inverted(xp: Any, x: Any) -> Any:
    """Replace elements by their reciprocals: NumPy divides in half the time of its `reciprocal`."""
    one = ONES.get(x.dtype) if x.__class__ is np.ndarray else None
    if one is not None:
        return xp.divide(one, x, x)
    return xp.reciprocal(x, x) if x.shape else xp.reciprocal(x)


def blocks_of(array: Any) -> list[slice]:
    """Slices along the first axis that cut a host array into blocks."""
    if array.size <= _BLOCK or not isinstance(array, np.ndarray):
        return [slice(None)]
    step = max(1, _BLOCK * len(array) // array.size)
    return [slice(start, start + step) for start in range(0, len(array), step)]


def parts_of(array: Any, start: int = 0) -> Iterator[slice]:
    """Slices along the first axis that cut a large array into parts of about `PART` elements."""
    return divided(len(array), max(1, PART * len(array) // array.size), start)


def _runner(
    kernel: Callable[..., Any], blocks: Callable[..., Any], arrays: int, name: str = ""
) -> Callable[..., Any]:
    """Run a kernel whole on small arrays, in blocks on large ones, in float32 on half precision.

    A kernel that is compiled under that name is used instead.
    """
    name = name or kernel.__name__.lstrip("_")

    @functools.wraps(kernel)
    def run(xp: Any, *arguments: Any) -> Any:
        first = arguments[0]
        for token in fp_errors_ignored:
            try:
                if xp.compiled and (own := xp.compiled.get(name)) is not None:
                    result = own(*arguments)
                    if result is not NotImplemented:
                        return result
                if (
                    first.__class__ is np.ndarray
                    and first.shape
                    and first.size <= _BLOCK
                    and first.dtype.itemsize != 2
                ):
                    return kernel(xp, None, *arguments)
                if first.dtype.itemsize == 2:
                    wide = [part.astype(np.float32) for part in arguments[:arrays]]
                    return run(xp, *wide, *arguments[arrays:]).astype(first.dtype)
                if first.size > _BLOCK:
                    return blocks(xp, *arguments)
                if first.shape:
                    return kernel(xp, None, *arguments)
                # NumPy would return scalars for 0-d arrays, which can't be written to.
                parts = [part.reshape(1) for part in arguments[:arrays]]
                out = kernel(xp, None, *parts, *arguments[arrays:]).reshape(())
            finally:
                restore_fp_errors(token)
            break
        return out

    return run
