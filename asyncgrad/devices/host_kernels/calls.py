"""Calls of kernels that Numba has compiled: what they support, and how their work is cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from asyncgrad.aliases import Array, Value
from asyncgrad.devices.kernels import Lines
from asyncgrad.devices.pieces import in_pieces
from asyncgrad.devices.pointwise import NUMBERS, Elementwise
from asyncgrad.devices.pool import POOL

#: Elements of a piece that idle threads take.
PIECE = 1 << 18
#: Fewer elements, those of three pieces, are not cut.
FEW = 3 * PIECE
#: How many lines that lie side by side are computed at a time, and the fewest for which that
#: pays; channels, too, need as many elements side by side.
LINES_BESIDE, _FEWEST = 256, 8
_ARRAY = np.ndarray
#: What kernels are compiled for: not numbers of another order of bytes.
DTYPES = frozenset({np.dtype("f"), np.dtype("d")})


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
    if size < FEW:
        return [(0, count)]
    step = max(1, PIECE * count // size)
    return [(low, min(low + step, count)) for low in range(0, count, step)]


def share(call: Callable[..., object], count: int, size: int, *given: Value) -> None:
    """Call a function for ranges of `count` lines, which have `size` elements in all.

    It gets where a range begins and ends, and `given`.
    """
    if size < FEW:
        call(0, count, *given)
    else:
        in_pieces(lambda piece: call(*piece, *given), ranges(count, size))


def empty(shape: tuple[int, ...], dtype: Any, size: int) -> Any:
    """An array of so many elements, in the pool's memory if it is large."""
    if size * dtype.itemsize < POOL.large:
        return np.empty(shape, dtype)
    return POOL.take(shape, dtype)


def flat(value: Array, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of that shape and dtype as one line; it must be contiguous and aligned."""
    fits = value.__class__ is _ARRAY and value.dtype is dtype and value.shape == shape
    if not fits or not (flags := value.flags).c_contiguous or not flags.aligned:
        raise Unfit
    return value.ravel()


def number(value: Value, dtype: Any) -> Any:
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
    """One kernel for all its dtypes."""

    def __init__(self, declared: Elementwise, kernels: dict[Any, Any]) -> None:
        self._numbers = [name in NUMBERS for name in names_of(declared.inputs)]
        self._outputs = len(names_of(declared.outputs))
        self._kernels = kernels

    def __call__(self, *arguments: Value) -> Any:
        """Compute the results of arrays of one shape and dtype, and of numbers."""
        first: Array = arguments[0]
        shape, dtype, size = first.shape, first.dtype, first.size
        kernel = self._kernels.get(dtype)
        if kernel is None or not size:
            raise Unfit
        given: list[Any] = []
        for value, is_number in zip(arguments, self._numbers, strict=True):
            if is_number:
                given.append(number(value, dtype))
            # What `flat` does, without a call.
            elif (
                value.__class__ is _ARRAY
                and value.dtype is dtype
                and value.shape == shape
                and (flags := value.flags).c_contiguous
                and flags.aligned
            ):
                given.append(value.ravel())
            else:
                raise Unfit
        made = [empty(shape, dtype, size) for _ in range(self._outputs)]
        given += [out.ravel() for out in made]
        if size < FEW:
            kernel(0, size, *given)
        else:
            share(kernel, size, size, *given)
        return made[0] if len(made) == 1 else made


class LinesKernel:
    """A declared kernel for all its dtypes; `modules` has what was compiled for each."""

    def __init__(self, name: str, declared: Lines, modules: dict[Any, Any]) -> None:
        self._name, self._declared, self._modules = name, declared, modules
        self._over_batch, self._columns = declared.over_batch, len(declared.names("column"))
        self._arrays, self._lines = len(declared.arrays.split()), len(declared.lines.split())
        #: By number, the arguments that may be None, and what they are then.
        places = map(float, declared.defaults().values())
        self._places = dict(enumerate(places, self._arrays + self._lines))
        #: What follows from an axis, a shape and a dtype.
        self._plan = lru_cache(512)(self._planned)

    def _planned(self, axis: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """The kernel, its lines, the sizes that it gets, and the shapes of inputs and results."""
        before, length, beside = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        name, lines, cut = self._name, before, [length]
        of_lines: tuple[int, ...] = (*shape[:axis], 1, *shape[axis + 1 :])
        if self._over_batch:
            lines, cut, of_lines = length, [before, length, beside], (length,)
        elif beside > 1:
            name, lines, cut = (
                f"{name}_beside",
                before * -(-beside // LINES_BESIDE),
                [length, beside],
            )
        module = self._modules.get(dtype)
        if module is None or not prod(shape) or (len(cut) > 1 and beside < _FEWEST):
            return None
        inputs = [shape] * self._arrays + [of_lines] * self._lines + [(length,)] * len(self._places)
        made = [shape for _ in self._declared.names("out")]
        made += [of_lines for _ in self._declared.results.split()]
        return getattr(module, name), lines, cut, inputs, [(one, prod(one)) for one in made]

    def __call__(self, axis: int, *arguments: Value, sums: list[Any] | None = None) -> Any:
        """Compute the results, as `LinesKernel` of `cuda_lines` does.

        The declared sums for each place are appended to `sums`.
        """
        first: Array = arguments[0]
        shape, dtype, size = first.shape, first.dtype, first.size
        if (plan := self._plan(axis, shape, dtype)) is None:
            raise Unfit
        kernel, lines, cut, inputs, made = plan
        given: list[Any] = [*cut]
        for place, expected in enumerate(inputs):
            value: Any = arguments[place]
            if value is None:
                given.append(_level(self._places[place], shape[axis], dtype))
                continue
            if self._over_batch:
                value = np.ascontiguousarray(value)
            given.append(flat(value, expected, dtype))
        given += arguments[len(inputs) :]
        outs = []
        for expected, count in made:
            out = empty(expected, dtype, count)
            outs.append(out)
            given.append(out.ravel())
        if not self._columns:
            share(kernel, lines, size, *given)
        else:
            parts = ranges(lines, size)
            totals = np.zeros((len(parts), self._columns, 0 if sums is None else shape[axis]))

            def compute(piece: int) -> None:
                kernel(*parts[piece], *given, totals[piece])

            in_pieces(compute, range(len(parts)))
            if sums is not None:
                total = totals.sum(axis=0) if parts[1:] else totals[0]
                sums.append(tuple(total.astype(dtype)))
        return outs if len(outs) > 1 else outs[0]


@lru_cache(64)
def _level(number: float, length: int, dtype: Any) -> Any:
    return np.full(length, number, dtype)


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
        given.append(number(parameter, dtype))
    parts = ranges(size, size)
    sums = [0.0] * len(parts)

    def compute(piece: int) -> None:
        sums[piece] = kernel(*parts[piece], *given)

    in_pieces(compute, range(len(parts)))
    return dtype.type(sum(sums) * scale)
