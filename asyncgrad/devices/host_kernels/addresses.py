"""Addresses of arrays, for compiled functions that get many of them."""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from asyncgrad.devices.host_kernels.compiling import array, compiled

_carray: Any = numba.carray  # type: ignore[attr-defined]


def _finder(dtype: Any, count: int, readonly: bool) -> Any:
    """A function that writes the addresses of so many arrays into an array."""

    @compiled([(types.UniTuple(array(dtype, readonly), count), array(types.int64))])
    def find(arrays: Any, found: Any) -> None:
        for place in range(count):
            found[place] = arrays[place].ctypes.data

    return find


#: How many arrays that can be written to, and that need not be, functions find addresses of.
WRITTEN, READ = 32, 16
written_f, written_d = (_finder(dtype, WRITTEN, False) for dtype in (types.float32, types.float64))
read_f, read_d = (_finder(dtype, READ, True) for dtype in (types.float32, types.float64))


def _pointer(dtype: Any) -> Any:
    """A function that makes a pointer of an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    @intrinsic
    def pointer(context: Any, address: Any) -> Any:
        return types.CPointer(dtype)(types.int64), generate

    return pointer


_pointer_f, _pointer_d = map(_pointer, (types.float32, types.float64))


@compiled()
def row_f(address: Any, size: Any) -> Any:
    """The memory at an address as an array."""
    return _carray(_pointer_f(address), size)


@compiled()
def row_d(address: Any, size: Any) -> Any:
    """The memory at an address as an array."""
    return _carray(_pointer_d(address), size)
