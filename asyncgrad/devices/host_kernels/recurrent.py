"""Steps of recurrent layers and their products, which NumPy's BLAS computes, in one compiled call.

A table has three numbers for each array: its address, and how many bytes two steps and two rows of
a batch are apart. After the arrays of a step are those of its product. Then there are, for each
block of the weight, the distances of the weight's and the output's blocks from the first ones; and
what is copied before the product: the array, its copy, and the numbers in a row. In the first step
some arrays are others than later, such as the first state: that step has a table of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from asyncgrad.aliases import Value
from asyncgrad.devices.host_kernels.calls import Unfit
from asyncgrad.devices.host_kernels.compiling import compiled
from asyncgrad.devices.host_kernels.vectors import copy

_intrinsic: Any = intrinsic
#: The names of a product in C in the builds of BLAS that NumPy is linked with. All take integers of
#: 64 bits: where they read 32, the calling conventions put these where the lower half is.
_NAMES = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_", "cblas_{}gemm")
#: BLAS' words for rows that lie one after another, and for matrices that are not transposed.
_ROWS, _AS_IT_IS = 101, 111


def _address(kind: str) -> int:
    """The address of the product in the library that NumPy multiplies with; 0 if it has none."""
    # The system looks for a name in all libraries that this one is linked with.
    library = ctypes.CDLL(import_module("numpy.linalg._umath_linalg").__file__)
    for name in _NAMES:
        if (found := getattr(library, name.format(kind), None)) is not None:
            return ctypes.cast(found, ctypes.c_void_p).value or 0
    return 0


#: For each dtype the address of BLAS' product.
PRODUCTS = {np.dtype("f"): _address("s"), np.dtype("d"): _address("d")}


@_intrinsic
def _multiply(
    context: Any, like: Any, function: Any, rows: Any, columns: Any, inner: Any, x: Any,
    x_row: Any, y: Any, y_row: Any, out: Any, out_row: Any,
) -> Any:  # fmt: skip
    """Compute a product of matrices by a function of BLAS.

    Matrices are given by their addresses, and by how many bytes two rows are apart.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, whole, word = context.get_value_type(like.dtype), ir.IntType(64), ir.IntType(32)
        _, function, *sizes, x, x_row, y, y_row, out, out_row = arguments
        x, y, out = (builder.inttoptr(address, number.as_pointer()) for address in (x, y, out))
        each = ir.Constant(whole, like.dtype.bitwidth // 8)
        x_row, y_row, out_row = (builder.sdiv(row, each) for row in (x_row, y_row, out_row))
        orders = [ir.Constant(word, value) for value in (_ROWS, _AS_IT_IS, _AS_IT_IS)]
        one, zero = (ir.Constant(number, value) for value in (1.0, 0.0))
        given = [*orders, *sizes, one, x, x_row, y, y_row, zero, out, out_row]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
        builder.call(builder.inttoptr(function, kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 10), generate


@compiled()
def place(table: Any, array: int, t: int, line: int) -> Any:
    """The address of a row of an array in a step."""
    first = 3 * array if t == 0 else 3 * array + len(table) // 2
    return table[first] + t * table[first + 1] + line * table[first + 2]


@compiled()
def prepare(
    like: Any, array: int, t: int, low: int, high: int, multiply: int, inner: int,
    columns: int, blocks: int, table: Any,
) -> None:  # fmt: skip
    """Copy what has to be copied in a step, and multiply; the product's arrays begin at `array`."""
    end = array + 3 + blocks
    for source in range(end, len(table) // 6, 3):
        for line in range(low, high):
            there = place(table, source + 1, t, line)
            copy(like, place(table, source, t, line), there, table[3 * source + 6])
    x, y, out = place(table, array, t, low), table[3 * array + 3], place(table, array + 2, t, low)
    x_row = place(table, array, t, low + 1) - x
    y_row, out_row = table[3 * array + 5], table[3 * array + 8]
    for block in range(3 * array + 9, 3 * end, 3):
        _multiply(
            like, multiply, high - low, columns, inner, x, x_row, y + table[block], y_row,
            out + table[block + 1], out_row,
        )  # fmt: skip


def steps_text(name: str, names: Sequence[str], loop: Sequence[str]) -> str:
    """A kernel over steps, of which one goes through rows of arrays of these names by a loop.

    Steps multiply first; those of gradients do so last, from the last step to the first one.
    """
    is_gradient = name.endswith("_gradient")
    given = "low, high, multiply, inner, columns, blocks, table"
    multiply = f"        prepare(T, {len(names)}, t, {given})"
    return "\n".join([
        f"@kernel({'integer, ' * 9}places)",
        f"def {name}s(start, stop, size, {given}):",
        f"    for t in range(start, stop, {-1 if is_gradient else 1}):",
        *([] if is_gradient else [multiply]),
        "        for line in range(low, high):",
        *(
            f"            {n}_part = row(T, place(table, {number}, t, line), size)"
            for number, n in enumerate(names)
        ),
        *(f"            {line}" for line in loop),
        *([multiply] if is_gradient else []),
        "",
    ])  # fmt: skip


class StepsKernel:
    """The steps of one kind of layer, for all dtypes."""

    def __init__(self, kernels: dict[Any, Any]) -> None:
        self._kernels = kernels

    def __call__(
        self, product: tuple[Value, ...], copied: Sequence[tuple[Value, Value]], *arrays: Value
    ) -> Callable[[slice, range], None]:
        """A function that computes some rows in some steps.

        Arrays have an axis of steps, of the batch and of the numbers in a row; those without the
        first axis are the same in all steps. A pair of them is one for the first step, and one
        with those for the steps after it.

        Args:
            product: what is multiplied, the weight, and the output. The weight may be a stack of
                matrices: then the output is one of matrices, too.
            copied: arrays that are copied before the product, each with its copy.
        """
        left, weight, out = product
        dtype, stack, blocks = weight.dtype, weight.ndim - 2, [(0, 0, 0)]
        for axis in range(stack):
            by_weight, by_out = weight.strides[axis], out.strides[axis - stack - 2]
            blocks = [
                (x + k * by_weight, y + k * by_out, 0)
                for x, y, _ in blocks
                for k in range(weight.shape[axis])
            ]
        out = out[(..., *(0,) * stack, slice(None), slice(None))]
        weight = weight[(0,) * stack]
        held: list[Any] = []
        tables: list[Any] = []

        def enter(array: Value, is_matrix: bool = False) -> None:
            """Add an array to both tables."""
            pair = array if array.__class__ is tuple else (array,)
            places = []
            for one in pair:
                held.append(own := _readable(one, dtype, is_matrix))
                row = own.strides[-2]
                if is_matrix:
                    # Where there is one row, NumPy may have any distance.
                    row = max(row, own.shape[-1] * own.itemsize)
                places.append(
                    (own.__array_interface__["data"][0], own.strides[0] if own.ndim > 2 else 0, row)
                )
            address, step, row = places[-1]
            later = address - step * (len(pair) - 1)
            tables.append((places[0], (later, step, row)))

        for array in arrays:
            enter(array)
        for matrix in (left, weight, out):
            enter(matrix, True)
        tables += zip(blocks, blocks, strict=True)
        for source, target in copied:
            enter(source)
            enter(target)
            tables.append(((target.shape[-1], 0, 0),) * 2)
        sizes = arrays[-1].shape[-1], *weight.shape
        if not (multiply := PRODUCTS.get(dtype)) or not min(*sizes, len(blocks)):
            raise Unfit
        size, inner, columns = sizes
        table = np.array(tables, np.int64).swapaxes(0, 1).reshape(-1)
        return partial(
            _run, self._kernels[dtype], held, size, (multiply, inner, columns, len(blocks), table)
        )


def _run(
    kernel: Callable[..., object], held: Value, size: int, given: tuple[Value, ...], rows: slice,
    steps: range,
) -> None:  # fmt: skip
    """Compute some rows in some steps; `held` are the arrays whose addresses are given."""
    kernel(steps.start, steps.stop, size, rows.start, rows.stop, *given)


def _readable(array: Any, dtype: Any, is_matrix: bool) -> Any:
    """An array, or a copy of one that kernels can't read, whose rows are contiguous."""
    if array.dtype is not dtype or not array.flags.aligned:
        raise Unfit
    width, (*_, row, each) = array.shape[-1], array.strides
    apart = width > 1 and each != array.itemsize
    overlap = is_matrix and array.shape[-2] > 1 and row < width * array.itemsize
    return np.ascontiguousarray(array) if apart or overlap else array
