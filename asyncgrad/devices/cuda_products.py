"""Matrix products that cuBLAS computes without CuPy.

CuPy refuses products while a stream captures. Before it multiplies batches it copies transposed
matrices, and converts half precision to single. cuBLAS needs none of this. So its own functions are
called there, with CuPy's handle. Products that CuPy computes otherwise are called in the same
layout when they are captured: the values are the same, bit for bit.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from asyncgrad.aliases import Array

#: For each dtype cuBLAS's number of it, and of the precision in which its products are summed.
_DTYPES = {
    "e": (2, 68), "E": (14, 68), "f": (0, 68), "d": (1, 70), "F": (4, 68), "D": (5, 70),
}  # fmt: skip
#: float16, and bfloat16, of which CuPy multiplies no batches.
_HALF, _BFLOAT16 = "eE", "E"
#: cuBLAS's choice of the algorithm: CuPy leaves it to cuBLAS, with two numbers for the same.
_ANY_OF_MATRICES, _ANY_OF_BATCHES = 99, -1
#: The number of axes of a matrix.
_MATRIX = 2
_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_MATRICES = (
    _POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER, _POINTER, _INT, _INT, _POINTER, _INT, _INT,
    _POINTER, _POINTER, _INT, _INT, _INT, _INT,
)  # fmt: skip
_BATCHES = (
    _POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER, _POINTER, _INT, _INT, _LONG, _POINTER, _INT,
    _INT, _LONG, _POINTER, _POINTER, _INT, _INT, _LONG, _INT, _INT, _INT,
)  # fmt: skip


class Products:
    """The products of one process, in cuBLAS as CuPy has loaded it."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        #: cuBLAS, None before its first use, or the error if there is none.
        self._library: Any = None

    def capturable(self, name: str, product: Callable[..., Any]) -> Callable[..., Any]:
        """CuPy's `matmul` or `dot`, as a function that streams can capture."""

        def multiply(x: Array, y: Array, out: Array | None = None) -> Any:
            made = None
            # `dot` multiplies each matrix of a batch by each one of the other.
            batches = name == "matmul" and max(x.ndim, y.ndim) > _MATRIX
            if batches and x.dtype.char == _BFLOAT16 and min(x.ndim, y.ndim) >= _MATRIX:
                x, y = self._of_one_batch(x, y)
            batches = batches and x.ndim == y.ndim
            if batches and (x.dtype.char in _HALF or _is_transposed(x) or _is_transposed(y)):
                # CuPy would copy these, or convert them.
                with suppress(NotImplementedError):
                    made = self._put(x, y)
            if made is None:
                try:
                    return product(x, y, out=out)
                except NotImplementedError:
                    if batches or max(x.ndim, y.ndim) <= _MATRIX:
                        made = self._put(x, y)
                    if made is None:
                        raise
            if out is None:
                return made
            out[...] = made
            return out

        return multiply

    def _of_one_batch(self, x: Array, y: Array) -> tuple[Any, Any]:
        """Repeat matrices so that both arrays have one for each product."""
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        return tuple([self._cupy.broadcast_to(z, (*batch, *z.shape[-2:])) for z in (x, y)])

    def _put(self, x: Array, y: Array) -> Any:
        """Put a product into the current stream; None if cuBLAS would not do as CuPy does."""
        known = _DTYPES.get(x.dtype.char)
        if known is None or y.dtype != x.dtype or os.environ.get("CUPY_TF32", "0") != "0":
            return None
        if max(x.ndim, y.ndim) <= _MATRIX:
            rows = x if x.ndim == _MATRIX else x[None]
            columns = y if y.ndim == _MATRIX else y[:, None]
            made = self._of_matrices(rows, columns, *known)
            return made.reshape(x.shape[:-1] + y.shape[1:])
        if x.shape[:-2] == y.shape[:-2] and x.shape[-1] == y.shape[-2]:
            return self._of_batches(x, y, *known)
        return None

    def _of_matrices(self, x: Array, y: Array, dtype: int, precision: int) -> Any:
        """The product of two matrices.

        cuBLAS's matrices are stored by columns, so it computes the transposed product of the
        transposed matrices.
        """
        if not (x.flags.c_contiguous or x.flags.f_contiguous):
            x = self._cupy.ascontiguousarray(x.T).T
        if not (y.flags.c_contiguous or y.flags.f_contiguous):
            y = self._cupy.ascontiguousarray(y)
        (rows, length), columns = x.shape, y.shape[1]
        out = self._cupy.empty((rows, columns), x.dtype)
        by_rows, by_columns = x.flags.c_contiguous, y.flags.f_contiguous
        one, zero = _factors(x.dtype)
        self._call(
            "cublasGemmEx", _MATRICES,
            int(by_columns), int(not by_rows), columns, rows, length, one.ctypes.data,
            y.data.ptr, dtype, max(length, 1) if by_columns else max(columns, 1),
            x.data.ptr, dtype, max(length, 1) if by_rows else max(rows, 1), zero.ctypes.data,
            out.data.ptr, dtype, max(columns, 1), precision, _ANY_OF_MATRICES,
        )  # fmt: skip
        return out

    def _of_batches(self, x: Array, y: Array, dtype: int, precision: int) -> Any:
        """The products of two batches of matrices, each of which may be stored by columns."""
        (*batch, rows, length), columns = x.shape, y.shape[-1]
        out = self._cupy.empty((*batch, rows, columns), x.dtype)
        if not out.size or not length:
            out[...] = 0
            return out
        by_columns = _is_transposed(x), _is_transposed(y)
        x, y = (
            z if turned else self._cupy.ascontiguousarray(z)
            for z, turned in zip((x, y), by_columns, strict=True)
        )
        one, zero = _factors(x.dtype)
        self._call(
            "cublasGemmStridedBatchedEx", _BATCHES,
            int(by_columns[1]), int(by_columns[0]), columns, rows, length, one.ctypes.data,
            y.data.ptr, dtype, length if by_columns[1] else columns, length * columns,
            x.data.ptr, dtype, rows if by_columns[0] else length, rows * length, zero.ctypes.data,
            out.data.ptr, dtype, columns, rows * columns, prod(batch), precision, _ANY_OF_BATCHES,
        )  # fmt: skip
        return out

    def _call(self, name: str, types: tuple[Any, ...], *arguments: int) -> None:
        """Call cuBLAS in the current stream.

        Raises:
            NotImplementedError: if cuBLAS isn't found, or refuses.
        """
        cuda = self._cupy.cuda
        # With the handle CuPy loads the library, which may lie where nobody else finds it.
        handle = cuda.device.get_cublas_handle()
        if self._library is None:
            try:
                self._library = load(_name(cuda.runtime.runtimeGetVersion() // 1000))
            except NotImplementedError as error:
                self._library = error
        if isinstance(self._library, NotImplementedError):
            raise self._library
        self._ask("cublasSetStream_v2", (_POINTER, _POINTER), handle, cuda.get_current_stream().ptr)
        self._ask(name, types, handle, *arguments)

    def _ask(self, name: str, types: tuple[Any, ...], *arguments: int) -> None:
        function = getattr(self._library, name)
        function.argtypes = types
        status = function(*arguments)
        if status:
            raise NotImplementedError(f"{name} refuses with status {status}")


def _is_transposed(x: Array) -> bool:
    """Whether the matrices of a batch are stored by columns, one after the other."""
    return not x.flags.c_contiguous and x.swapaxes(-1, -2).flags.c_contiguous


def load(name: str) -> Any:
    """A shared library that the process has loaded.

    Raises:
        NotImplementedError: if there is none of this name.
    """
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise NotImplementedError(f"a product can't be captured without cuBLAS: {error}") from error


def _name(version: int) -> str:
    return f"cublas64_{version}.dll" if sys.platform == "win32" else f"libcublas.so.{version}"


def _factors(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """One and zero in the dtype of the sums: of the product, and of what `out` held before."""
    kind = np.dtype("f4") if dtype.char in _HALF else dtype
    return np.ones((), kind), np.zeros((), kind)
