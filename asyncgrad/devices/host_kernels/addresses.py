"""Addresses of arrays, for compiled functions that get many of them."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from asyncgrad.devices.host_kernels.compiling import array, compiled

_carray: Any = numba.carray  # type: ignore[attr-defined]
_intrinsic: Any = intrinsic


def _finder(dtype: Any, count: int) -> Any:
    """A function that writes the addresses of so many arrays into an array."""

    @compiled([(types.UniTuple(array(dtype, True), count), array(types.int64))])
    def find(arrays: Any, found: Any) -> None:
        for place in range(count):
            found[place] = arrays[place].ctypes.data

    return find


#: How many arrays functions find addresses of.
COUNT = 48
#: By dtype: what finds the addresses of so many arrays, and arrays in the places of those that
#: there are not.
FINDERS = {
    np.dtype(char): (_finder(dtype, COUNT), (np.empty(0, char),) * COUNT)
    for char, dtype in (("f", types.float32), ("d", types.float64))
}


@_intrinsic
def _pointer(context: Any, kind: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[1], context.get_value_type(signature.return_type))

    return types.CPointer(kind.dtype)(kind, types.int64), generate


@compiled()
def row(kind: Any, address: Any, size: Any) -> Any:
    """The memory at an address as an array of numbers of a kind, such as `np.float32`."""
    return _carray(_pointer(kind, address), size)
