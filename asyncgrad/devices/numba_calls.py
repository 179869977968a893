"""Calls of kernels that Numba has compiled: what they support, and how their work is cut."""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncgrad.devices.pieces import in_pieces
from asyncgrad.devices.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncgrad.aliases import Array, Value
    from asyncgrad.devices.cuda_lines import Lines
    from asyncgrad.devices.pointwise import Elementwise

#: Elements of a piece that idle threads take, and how many make three pieces: fewer are not cut.
_PIECE = 1 << 18
_FEW = 3 * _PIECE
#: Lines whose elements lie apart are computed if so many of them lie side by side.
_BESIDE = 8
_ARRAY = np.ndarray


class Unfit(Exception):
    """A kernel does not support its arguments."""


def supported(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns NotImplemented where the chain has to be used."""

    def run(*arguments: Value) -> Any:
        try:
            return function(*arguments)
        except Unfit:
            return NotImplemented

    return run


def ranges(count: int, size: int) -> list[tuple[int, int]]:
    """How `count` lines, which have so many elements in all, are cut into pieces."""
    if size < _FEW:
        return [(0, count)]
    step = max(1, _PIECE * count // size)
    return [(low, min(low + step, count)) for low in range(0, count, step)]


def share(call: Callable[[int, int], object], count: int, size: int) -> None:
    """Call a function for ranges of `count` lines, which have so many elements in all."""
    if size < _FEW:
        call(0, count)
    else:
        in_pieces(lambda piece: call(*piece), ranges(count, size))


def empty(shape: tuple[int, ...], dtype: Any, size: int) -> Any:
    """An array of so many elements, in the pool's memory if it is large."""
    if size * dtype.itemsize < POOL.large:
        return np.empty(shape, dtype)
    return POOL.take(shape, dtype)


def flat(value: Array, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of that shape and dtype as one line; it must be contiguous."""
    fits = value.__class__ is _ARRAY and value.dtype is dtype and value.shape == shape
    if not fits or not value.flags.c_contiguous:
        raise Unfit
    return value.ravel()


def number(value: Value, shape: tuple[int, ...], dtype: Any) -> Any:
    """A number, which may be an array without axes."""
    if value.__class__ is float or value.__class__ is int:
        return value
    if getattr(value, "dtype", None) is not dtype or value.size != 1:
        raise Unfit
    return value.item()


def names_of(parameters: str) -> list[str]:
    """The names of an elementwise kernel's parameters."""
    return [part.split()[-1] for part in parameters.split(",")]


class ElementwiseKernel:
    """One kernel for all its dtypes: with outputs as last arguments, it writes to them."""

    def __init__(self, declared: Elementwise, kernels: dict[Any, Any], single: set[str]) -> None:
        """Remember what it is given: some inputs are numbers."""
        inputs, self._outputs = names_of(declared.inputs), len(names_of(declared.outputs))
        self._inputs = len(inputs)
        self._kinds = (
            *(number if n in single else None for n in inputs), *(_out,) * self._outputs
        )  # fmt: skip
        self.kernels = kernels

    def __call__(self, *arguments: Value) -> Any:
        """Compute what the arguments give, or what is written to the last ones."""
        first: Array = arguments[0]
        shape, dtype, size = first.shape, first.dtype, first.size
        kernel = self.kernels.get(dtype)
        if kernel is None or not size:
            raise Unfit
        given: list[Any] = []
        for value, kind in zip(arguments, self._kinds, strict=False):
            if kind is not None:
                given.append(kind(value, shape, dtype))
            elif (
                value.__class__ is _ARRAY
                and value.dtype is dtype
                and value.shape == shape
                and value.flags.c_contiguous
            ):
                given.append(value.ravel())
            else:
                raise Unfit
        made = []
        if len(arguments) == self._inputs:
            for _ in range(self._outputs):
                out = empty(shape, dtype, size)
                made.append(out)
                given.append(out.ravel())
        if size < _FEW:
            kernel(0, size, *given)
        else:
            share(partial(_between, kernel, given), size, size)
        return made[0] if len(made) == 1 else made

    def run(self, *arguments: Value) -> Any:
        """The same; NotImplemented if the chain has to be used."""
        try:
            return self(*arguments)
        except Unfit:
            return NotImplemented


def total(
    kernels: dict[Any, Any], x: Array, y: Array, parameter: float | None, scale: float
) -> Any:
    """The sum of a loss over pairs of elements, with a factor."""
    shape, dtype, size = x.shape, x.dtype, x.size
    kernel = kernels.get(dtype)
    if kernel is None or not size:
        raise Unfit
    given = [flat(x, shape, dtype), flat(y, shape, dtype)]
    if parameter is not None:
        given.append(number(parameter, shape, dtype))
    parts = ranges(size, size)
    sums = [0.0] * len(parts)

    def compute(piece: int) -> None:
        sums[piece] = kernel(*parts[piece], *given)

    in_pieces(compute, range(len(parts)))
    return dtype.type(sum(sums) * scale)


def _out(value: Array, shape: tuple[int, ...], dtype: Any) -> Any:
    if not value.flags.writeable:
        raise Unfit
    return flat(value, shape, dtype)


def _between(kernel: Any, given: list[Any], low: int, high: int) -> None:
    kernel(low, high, *given)


class LinesKernel:
    """One kernel for all its dtypes, see `cuda_lines.LinesKernel`."""

    def __init__(self, declared: Lines, kernels: dict[Any, Any]) -> None:
        """Remember what the declaration says of arguments."""
        self._over_batch, self._kernels = declared.over_batch, kernels
        self._numbers = len(declared.numbers.split())
        self._arrays = len(declared.arrays.split())
        self._lines = self._arrays + len(declared.lines.split())
        self._defaults = [float(part.split("=")[1]) for part in declared.places.split()]
        self._elements = range(len(declared.elements))
        self._results = range(len(declared.results.split()))

    def __call__(self, axis: int, *arguments: Value) -> Any:
        """Compute what arrays and numbers give along an axis."""
        first: Array = arguments[0]
        shape, dtype, size = first.shape, first.dtype, first.size
        kernel = self._kernels.get(dtype)
        if kernel is None or not size:
            raise Unfit
        beside = prod(shape[axis + 1 :])
        if self._over_batch:
            runs, count, of_lines = prod(shape[:axis]), shape[axis], (shape[axis],)
            if beside < _BESIDE:
                raise Unfit
        elif beside != 1:
            raise Unfit
        else:
            runs, beside, of_lines = 1, shape[axis], (*shape[:axis], 1, *shape[axis + 1 :])
            count = size // beside
        inputs = [flat(value, shape, dtype) for value in arguments[: self._arrays]]
        inputs += [flat(v, of_lines, dtype) for v in arguments[self._arrays : self._lines]]
        for default, value in zip(self._defaults, arguments[self._lines :], strict=False):
            inputs.append(
                _filled(shape[axis], dtype, default)
                if value is None
                else flat(value, (shape[axis],), dtype)
            )
        numbers = [number(v, shape, dtype) for v in arguments[len(inputs) :]]
        outs = [empty(shape, dtype, size) for _ in self._elements]
        outs += [np.empty(of_lines, dtype) for _ in self._results]
        given = [runs, beside, count, *inputs, *[array.ravel() for array in outs], *numbers]
        if size < _FEW:
            kernel(0, count, *given)
        else:
            share(lambda low, high: kernel(low, high, *given), count, size)
        return outs if len(outs) > 1 else outs[0]


@lru_cache(64)
def _filled(length: int, dtype: Any, value: float) -> Any:
    return np.full(length, value, dtype)
