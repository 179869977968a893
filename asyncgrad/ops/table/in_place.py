"""The ops that compute the gradients of changes in place, of tensors and of views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.variable import Variable
from asyncgrad.ops import batch_rules
from asyncgrad.ops.memory import unlocked
from asyncgrad.ops.op import linear, operation
from asyncgrad.ops.table.shape import inverse
from asyncgrad.ops.table.strided import Strides, in_memory, strides_of
from asyncgrad.types import Array, Library

if TYPE_CHECKING:
    import numpy as np


def steps_of(path: tuple[Any, ...] | None) -> list[tuple[str, tuple[Any, ...]]]:
    """The functions of a view's path, (path, function, attributes), with their attributes."""
    steps = []
    while path is not None:
        path, name, attributes = path
        steps.append((name, attributes))
    return steps[::-1]


class Route:
    """The way from a base to one of its views, for arrays laid out like the base's."""

    __slots__ = ("_dtype", "_kernels", "_order", "_steps", "_strides")

    def __init__(self, path: tuple[Any, ...] | None, base: Variable) -> None:
        """Read the steps of a view's path, of which the last one comes first."""
        self._steps = steps_of(path)
        metadata, array = base._metadata, base._array
        self._kernels = metadata.kernels
        self._dtype = metadata.dtype
        #: The axes by descending stride: in another layout a step might have to copy.
        self._order: tuple[int, ...] | None = None
        if not array.flags.c_contiguous:
            strides = array.strides
            self._order = tuple(sorted(range(array.ndim), key=lambda axis: -abs(strides[axis])))
        #: Only with `as_strided`, which depends on memory gaps: the base's layout, starting at 0.
        self._strides: Strides | None = None
        if any(name == "as_strided" for name, _ in self._steps):
            lies = Strides(array.shape, strides_of(array))
            self._strides = lies._replace(start=-lies.reach[0])

    def of(self, array: Array) -> Any:
        """Take the view of another array."""
        for name, attributes in self._steps:
            array = self._kernels[name](array, *attributes)
        return array

    def zeros(
        self, xp: Library, shape: tuple[int, ...], dtype: np.dtype[Any], make: str = "zeros"
    ) -> Any:
        """Make zeros with the base's layout; with `make="empty"` only its gaps are zeros."""
        if self._dtype.kind == "c" and dtype.kind != "c":
            dtype = self._dtype
        if self._strides is not None:
            memory = xp.zeros(self._strides.reach[1], dtype=dtype)
            return in_memory(memory, self._strides, (1,))
        order = self._order
        if order is None:
            return getattr(xp, make)(shape, dtype=dtype)
        made = getattr(xp, make)([shape[axis] for axis in order], dtype=dtype)
        return made.transpose(inverse(order))


def _put_view(xp: Library, x: Array, shape: tuple[int, ...], route: Route) -> Any:
    """Zeros, but `x` in the place of the view."""
    out = route.zeros(xp, shape, x.dtype)
    unlocked(route.of(out))[...] = x
    return out


def _zero_view(xp: Library, x: Array, route: Route) -> Any:
    """A copy with zeros in the place of the view."""
    out = route.zeros(xp, x.shape, x.dtype, "empty")
    out[...] = x
    unlocked(route.of(out))[...] = 0
    return out


OPS = (
    linear(
        "take_view",
        lambda xp, x, route: route.of(x),
        lambda F, g, x_shape, route: F.put_view(g, x_shape, route),
        fresh=False,
    ),
    linear(
        "put_view",
        _put_view,
        lambda F, g, route: F.take_view(g, route),
        fresh=False,
    ),
    linear("zero_view", _zero_view, lambda F, g, route: F.zero_view(g, route)),
    # The base after a change of a view, computed from the old base and the view's new values.
    operation(
        "copy_slices",
        lambda xp, x, y, route: _zero_view(xp, x, route) + _put_view(xp, y, x.shape, route),
        "x y",
        pulls={
            "x": lambda F, g, route: F.zero_view(g, route),
            # A copy, so that all gradients are new.
            "y": lambda F, g, route: F.clone(F.take_view(g, route)),
        },
        pushes={
            "x": lambda F, t, route: F.zero_view(t, route),
            "y": lambda F, t, x_shape, route: F.put_view(t, x_shape, route),
        },
        node="CopySlices",
        frees=("route",),
    ),
    # A tensor after all of it was overwritten.
    operation(
        "overwrite",
        lambda xp, x, y: y,
        "x y",
        pulls={"x": lambda F, g: F.zero(g), "y": lambda F, g: g},
        linear=True,
        fresh=False,
        node="CopyBackwards",
        batch=batch_rules.alike,
    ),
)  # fmt: skip
