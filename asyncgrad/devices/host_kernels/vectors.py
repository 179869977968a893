"""Sums of products of numbers with vectors, in LLVM's language, for functions compiled by Numba.

Numba has no vectors of its own, and what its compiler makes of loops is half as fast. Arrays are
given by their addresses. Numba keeps a compiled function until the file of that function changes:
so touch the files whose kernels call these after a change here.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: The bytes of a vector, of registers as the processor has them; and how many vectors of channels
#: are computed at a time.
BYTES, PAIR = (64, 2) if binding.get_host_cpu_features().get("avx512f") else (32, 1)
#: How many sums of vectors are computed at a time.
PLACES = 8
_TERMS = ("contract",)

_intrinsic: Any = intrinsic
_local: Any = cgutils.alloca_once


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _turned(builder: Any, rows: list[Any], width: int) -> list[Any]:
    """The numbers of vectors in the order of a transposed matrix."""
    index = ir.IntType(32)
    # Each step puts the two halves of all numbers beside one another, number by number.
    halves = [
        ir.Constant(
            ir.VectorType(index, width), [start + at // 2 + at % 2 * width for at in range(width)]
        )
        for start in (0, width // 2)
    ]
    for _ in range(PLACES.bit_length() - 1):
        pairs = zip(rows[: PLACES // 2], rows[PLACES // 2 :], strict=True)
        rows = [builder.shuffle_vector(a, b, half) for a, b in pairs for half in halves]
    return rows


def _turned_back(builder: Any, rows: list[Any], width: int) -> list[Any]:
    """The reverse of `_turned`."""
    index = ir.IntType(32)
    halves = [
        ir.Constant(ir.VectorType(index, width), [2 * at + first for at in range(width)])
        for first in (0, 1)
    ]
    for _ in range(PLACES.bit_length() - 1):
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        rows = [builder.shuffle_vector(a, b, half) for half in halves for a, b in pairs]
    return rows


def _sums(vectors: int, turned: bool) -> Any:
    """A function that computes `PLACES` sums of some vectors each, as `tiles` says.

    It writes the numbers of one channel beside one another if they are `turned`; otherwise those of
    one place, and adds to what is there.
    """

    @_intrinsic
    def compute(
        context: Any, like: Any, source: Any, offsets: Any, steps: Any, count: Any, weights: Any,
        apart: Any, target: Any, distance: Any,
    ) -> Any:  # fmt: skip
        """Compute sums over `j` of `x[a[i] + b[j]] * w[j]`, for `PLACES` numbers `i`.

        Arrays are given by addresses: `x` by `source`, `a` by `offsets`, `b` by `steps` and `w`,
        whose vectors of channels lie `apart` elements from one another, by `weights`. Two channels
        of the result, or two of its vectors of channels, are a distance apart.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number, whole = context.get_value_type(like.dtype), ir.IntType(64)
            size = like.dtype.bitwidth // 8
            width = BYTES // size
            vector, index = ir.VectorType(number, width), ir.IntType(32)
            _, source, offsets, steps, count, weights, apart, target, distance = arguments
            offsets, steps = (_pointer(builder, table, whole) for table in (offsets, steps))
            source, weights, target = (
                _pointer(builder, address, number) for address in (source, weights, target)
            )

            def at(start: Any, offset: Any) -> Any:
                return builder.gep(start, [offset])

            def as_vectors(start: Any, kind: Any = vector) -> Any:
                return builder.bitcast(start, kind.as_pointer())

            def constant(value: int) -> Any:
                return ir.Constant(whole, value)

            starts = [
                at(source, builder.load(at(offsets, constant(place)))) for place in range(PLACES)
            ]
            lines = [at(weights, builder.mul(apart, constant(line))) for line in range(vectors)]
            places = [
                [
                    at(
                        target,
                        builder.add(builder.mul(distance, constant(line)), constant(place * width)),
                    )
                    for line in range(vectors)
                ]
                for place in range(PLACES)
            ]
            sums = [[_local(builder, vector) for _ in lines] for _ in starts]
            for place in range(PLACES):
                for line in range(vectors):
                    first = (
                        ir.Constant(vector, None)
                        if turned
                        else builder.load(as_vectors(places[place][line]), align=size)
                    )
                    builder.store(first, sums[place][line])
            with cgutils.for_range(builder, count) as loop:
                # LLVM unrolls no loop with a line of assembler: twice the body has more values
                # than there are registers.
                builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)
                step = builder.load(at(steps, loop.index))
                row = builder.mul(loop.index, constant(width))
                factors = [builder.load(as_vectors(at(w, row)), align=size) for w in lines]
                for start, own in zip(starts, sums, strict=True):
                    value = builder.load(at(start, step))
                    value = builder.insert_element(
                        ir.Constant(vector, ir.Undefined), value, ir.Constant(index, 0)
                    )
                    value = builder.shuffle_vector(
                        value, value, ir.Constant(ir.VectorType(index, width), [0] * width)
                    )
                    for total, factor in zip(own, factors, strict=True):
                        part = builder.fmul(value, factor, flags=_TERMS)
                        part = builder.fadd(builder.load(total), part, flags=_TERMS)
                        builder.store(part, total)
            if not turned:
                for own, at_place in zip(sums, places, strict=True):
                    for total, place in zip(own, at_place, strict=True):
                        builder.store(builder.load(total), as_vectors(place), align=size)
                return context.get_dummy_value()
            piece = min(width, PLACES)
            for line in range(vectors):
                rows = _turned(builder, [builder.load(own[line]) for own in sums], width)
                for flat in range(0, PLACES * width, piece):
                    channel, place = divmod(flat, PLACES)
                    row = rows[flat // width]
                    chosen = [flat % width + k for k in range(piece)]
                    part = builder.shuffle_vector(
                        row, row, ir.Constant(ir.VectorType(index, piece), chosen)
                    )
                    offset = builder.mul(distance, constant(line * width + channel))
                    offset = builder.add(offset, constant(place))
                    builder.store(part, as_vectors(at(target, offset), part.type), align=size)
            return context.get_dummy_value()

        given = (source, offsets, steps, count, weights, apart, target, distance)
        return types.void(like, *given), generate

    return compute


sums_of_pair, sums_of_one = _sums(PAIR, True), _sums(1, True)
added_to_pair, added_to_one = _sums(PAIR, False), _sums(1, False)


@_intrinsic
def gather(context: Any, like: Any, source: Any, distance: Any, target: Any) -> Any:
    """Write a vector of channels, which are a distance apart, for each of `PLACES` places."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, whole = context.get_value_type(like.dtype), ir.IntType(64)
        size = like.dtype.bitwidth // 8
        width = BYTES // size
        index, piece = ir.IntType(32), min(width, PLACES)
        vector, part = ir.VectorType(number, width), ir.VectorType(number, piece)
        _, source, distance, target = arguments
        source, target = (_pointer(builder, address, number) for address in (source, target))
        parts = []
        for flat in range(0, PLACES * width, piece):
            channel, place = divmod(flat, PLACES)
            offset = builder.mul(distance, ir.Constant(whole, channel))
            offset = builder.add(offset, ir.Constant(whole, place))
            start = builder.bitcast(builder.gep(source, [offset]), part.as_pointer())
            parts.append(builder.load(start, align=size))
        joined = ir.Constant(ir.VectorType(index, 2 * piece), list(range(2 * piece)))
        if piece < width:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [builder.shuffle_vector(a, b, joined) for a, b in pairs]
        for place, row in enumerate(_turned_back(builder, parts, width)):
            start = builder.gep(target, [ir.Constant(whole, place * width)])
            builder.store(row, builder.bitcast(start, vector.as_pointer()), align=size)
        return context.get_dummy_value()

    return types.void(like, source, distance, target), generate


@_intrinsic
def copy(context: Any, like: Any, source: Any, target: Any, count: Any) -> Any:
    """Copy a few numbers, in half the time of a loop, whose vectors check for overlaps."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, whole = context.get_value_type(like.dtype), ir.IntType(64)
        size = like.dtype.bitwidth // 8
        _, source, target, count = arguments
        done = ir.Constant(whole, 0)
        for width in (BYTES // size, 32 // size, 1):
            kind = number if width == 1 else ir.VectorType(number, width)
            end = builder.sub(count, builder.urem(count, ir.Constant(whole, width)))
            step = ir.Constant(whole, width)
            with cgutils.for_range_slice(builder, done, end, step, whole) as (at, _):
                builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)
                start, there = (
                    builder.bitcast(
                        builder.gep(_pointer(builder, place, number), [at]), kind.as_pointer()
                    )
                    for place in (source, target)
                )
                builder.store(builder.load(start, align=size), there, align=size)
            done = end
        return context.get_dummy_value()

    return types.void(like, source, target, count), generate


@_intrinsic
def address(context: Any, array: Any, index: Any) -> Any:
    """The address of an element of a one-dimensional array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(array)(context, builder, arguments[0])
        return builder.ptrtoint(builder.gep(held.data, [arguments[1]]), ir.IntType(64))

    return types.int64(array, index), generate
