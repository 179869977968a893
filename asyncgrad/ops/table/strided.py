"""Views of a tensor's memory with arbitrary strides, and their adjoints."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np

from asyncgrad.ops import batch_rules
from asyncgrad.ops.dtype import is_half
from asyncgrad.ops.op import linear, operation
from asyncgrad.records import NamedTuple
from asyncgrad.types import Array, Library, Namespace, Shape, Value

#: The dtypes of which all versions of CuPy change elements at places, without uint64.
CHANGED_AT = "fdiI"
#: So many places are changed in about a tenth of a millisecond.
_AT_ONCE = 1 << 14


class Strides(NamedTuple):
    """Where elements are in memory, in units of elements."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    start: int = 0

    @property
    def reach(self) -> tuple[int, int]:
        """The lowest place, and the one after the highest; the shape must not be empty."""
        pairs = zip(self.shape, self.steps, strict=True)
        ends = [(n - 1) * step for n, step in pairs]
        low = self.start + sum([end for end in ends if end < 0])
        return low, self.start + sum([end for end in ends if end > 0]) + 1

    def places(self) -> Any:
        """The place of each element, as an array."""
        axes = np.ix_(*[np.arange(n) * s for n, s in zip(self.shape, self.steps, strict=True)])
        return sum(axes, np.full((1,) * len(self.shape), self.start))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, in elements."""
    steps = accumulate([max(size, 1) for size in reversed(shape)], mul, initial=1)
    return tuple(steps)[-2::-1]


def strides_of(array: Array) -> tuple[int, ...]:
    """An array's strides in elements."""
    if not array.size and not any(array.strides):
        # NumPy gives a new array without elements no strides.
        return row_major(array.shape)
    return tuple([step // array.dtype.itemsize for step in array.strides])


def _wanted(
    size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None, origin: int
) -> Strides:
    """The requested layout, relative to the tensor's first element, which is at `origin`."""
    return Strides(size, stride, 0 if storage_offset is None else storage_offset - origin)


def _as_strided(
    xp: Library, x: Array, size: tuple[int, ...], stride: tuple[int, ...],
    storage_offset: int | None, layout: tuple[tuple[int, ...], int],
) -> Any:  # fmt: skip
    steps, origin = layout
    wanted = _wanted(size, stride, storage_offset, origin)
    out = in_memory(x, wanted, steps)
    if out is not None:
        return out
    # The array has another layout, or is on a device: copy as if it had the expected layout.
    held = Strides(x.shape, steps)
    return _restride(xp, x, held, wanted, held)


def in_memory(x: Array, wanted: Strides, steps: tuple[int, ...]) -> Any:
    """A view of a host array's memory; None if the array is not laid out as `steps` says."""
    if x.__class__ is not np.ndarray:
        return None
    axes = zip(x.shape, strides_of(x), steps, strict=True)
    if any(n > 1 and own != step for n, own, step in axes):
        return None
    owner = x.base if isinstance(x.base, np.ndarray) else x
    memory = owner.transpose(np.argsort([-abs(step) for step in owner.strides], kind="stable"))
    if not memory.flags.c_contiguous:
        return None
    itemsize = x.dtype.itemsize
    ahead = x.ctypes.data - owner.ctypes.data
    if prod(wanted.shape):
        low, high = (ahead + place * itemsize for place in wanted.reach)
        if low < 0 or high > owner.nbytes:
            return None
    strides = tuple([step * itemsize for step in wanted.steps])
    start = ahead + wanted.start * itemsize if prod(wanted.shape) else 0
    out = np.ndarray(wanted.shape, x.dtype, memory.reshape(-1), start, strides)
    out.flags.writeable = x.flags.writeable
    return out


def _span(*parts: Strides) -> tuple[int, int]:
    reaches = [part.reach for part in parts]
    return min(low for low, _ in reaches), max(high for _, high in reaches)


def change_at(function: Any, out: Array, index: Any, values: Array) -> None:
    """`function.at`; on the host a vector of places is taken part by part.

    NumPy keeps the GIL until the call ends, and an event loop in another thread waits for it.
    """
    places: Any = index[0] if index.__class__ is tuple and len(index) == 1 else index
    if (
        out.__class__ is np.ndarray
        and places.__class__ is np.ndarray
        and places.ndim == 1
        and len(places) > _AT_ONCE
        and places.dtype.kind in "iu"
    ):
        values = np.broadcast_to(values, (*places.shape, *out.shape[1:]))
        for start in range(0, len(places), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            function.at(out, places[some], values[some])
    else:
        function.at(out, index, values)


def add_at(xp: Library, out: Array, index: Any, g: Array) -> None:
    """`xp.add.at`, also for dtypes that CuPy's does not take."""
    dtype = out.dtype
    if dtype.char in CHANGED_AT or out.__class__ is np.ndarray:
        change_at(xp.add, out, index, g)
    elif dtype.kind == "c":
        xp.add.at(out.real, index, g.real)
        xp.add.at(out.imag, index, g.imag)
    elif dtype.itemsize == 8:
        # The sums have the same bits.
        xp.add.at(out.view("u8"), index, g.view("u8"))
    else:
        wider = np.float32 if is_half(dtype) else np.int32
        wide = out.astype(wider)
        xp.add.at(wide, index, g.astype(wider))
        out[...] = wide.astype(dtype)


def _restride(xp: Library, x: Array, source: Strides, target: Strides, shared: Strides) -> Any:
    """Add up elements at the places of `source`, and take those at the places of `target`.

    Elements of `shared` at the same place share its value equally.
    """
    if not (prod(source.shape) and prod(target.shape)):
        return xp.zeros(target.shape, dtype=x.dtype)
    low, high = _span(source, target)
    memory = xp.zeros(high - low, dtype=x.dtype)
    add_at(xp, memory, xp.asarray(source.places() - low), x)
    places = shared.places() - low
    counts = np.bincount(places.reshape(-1), minlength=high - low)
    if counts.max() > 1:
        memory = (memory / xp.asarray(np.maximum(counts, 1))).astype(x.dtype)
    return memory[xp.asarray(target.places() - low)]


def _as_strided_adjoint(
    F: Namespace, g: Value, x_shape: Shape, size: Shape, stride: Shape, storage_offset: int | None,
    layout: Any,
) -> Any:  # fmt: skip
    steps, origin = layout
    held = Strides(x_shape, steps)
    return F.restride(g, _wanted(size, stride, storage_offset, origin), held, held)


def _as_strided_scatter(xp: Library, x: Array, y: Array, held: Strides, wanted: Strides) -> Any:
    """A copy with other elements at the places that are `wanted`."""
    if not (x.size and y.size):
        return x.copy()
    low, high = _span(held, wanted)
    memory = xp.zeros(high - low, dtype=x.dtype)
    memory[xp.asarray(held.places() - low)] = x
    memory[xp.asarray(wanted.places() - low)] = y
    return memory[xp.asarray(held.places() - low)]


def _cleared(F: Namespace, g: Value, held: Strides, wanted: Strides) -> Any:
    zeros = F.zero(F.restride(g, held, wanted, held))
    return F.as_strided_scatter(g, zeros, held, wanted)


OPS = (
    linear(
        "as_strided",
        _as_strided,
        _as_strided_adjoint,
        view=True,
        cost=31,
        batch=batch_rules.as_strided,
    ),
    linear(
        "restride",
        _restride,
        lambda F, g, source, target, shared: F.restride(g, target, source, shared),
    ),
    operation(
        "as_strided_scatter",
        _as_strided_scatter,
        "x y",
        pulls={"x": _cleared, "y": lambda F, g, held, wanted: F.restride(g, held, wanted, held)},
        pushes={
            "x": _cleared,
            "y": lambda F, t, out, held, wanted: F.as_strided_scatter(F.zero(out), t, held, wanted),
        },
    ),
)
