"""Small parameters whose states lie side by side, so that one kernel call updates all of them.

A call of an array function costs as much as some thousand elements. An update calls about ten.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import is_
from sys import getrefcount
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncgrad.types import Array

#: The update of one parameter: the number of the step, the state, and values, gradient and entries.
Part: TypeAlias = "tuple[int, dict[str, Any], list[Array]]"
#: Parameters of more elements are updated alone: copying theirs costs more than the calls.
_MOST = 1 << 14


_held = [object()]
#: The reference count of an array to which only its tensor and a list refer.
_ALONE = getrefcount(_held[0]) + 1


def is_small(arrays: Sequence[Array]) -> bool:
    """Whether the arrays of an update are small, and of the kind that can lie side by side."""
    values, gradient = arrays[0], arrays[1]
    return (
        values.__class__ is np.ndarray
        and values.size <= _MOST
        and values.dtype.kind == "f"
        and gradient.__class__ is np.ndarray
        and gradient.dtype == values.dtype
        and values.flags.c_contiguous
    )


class Together:
    """The memory of the states of some parameters, and room for their values and gradients."""

    def __init__(self, parts: Sequence[Part], names: Sequence[str]) -> None:
        """Move the states into common memory.

        Args:
            parts: the updates of the parameters.
            names: the names of the entries, in the order of the arrays.
        """
        shapes = [arrays[0].shape for _, _, arrays in parts]
        self._arrays = [_side_by_side(parts, number, None) for number in range(2 + len(names))]
        self._values, *views = (
            _pieces(whole, shapes) for whole in (self._arrays[0], *self._arrays[2:])
        )
        for number, (name, pieces) in enumerate(zip(names, views, strict=True)):
            for (_, state, arrays), piece in zip(parts, pieces, strict=True):
                state[name]._array = arrays[2 + number] = piece
        self._entries = [list(pieces) for pieces in zip(*views, strict=True)]

    def holds(self, parts: Sequence[Part]) -> bool:
        """Whether these are the parameters, with their states still here."""
        return len(parts) == len(self._entries) and all(
            all(map(is_, arrays[2:], entries))
            for (_, _, arrays), entries in zip(parts, self._entries, strict=True)
        )

    def update(self, parts: Sequence[Part], run: Callable[[list[Array]], None]) -> None:
        """Run an update on all of the parameters at once."""
        for number in range(2):
            _side_by_side(parts, number, self._arrays[number])
        run(self._arrays)
        for (_, _, arrays), new in zip(parts, self._values, strict=True):
            np.copyto(arrays[0], new)


def joined(
    known: dict[int, Together], number: int, parts: Sequence[Part], names: Sequence[str]
) -> Together | None:
    """Where the states of some parameters lie, which may be moved there; None if they stay alone.

    Args:
        known: what there is, by the number of a group.
        number: the number of the group.
        parts: the updates of the parameters.
        names: the names of the entries, in the order of the arrays.
    """
    if len(parts) < 2 or not names or any(step != parts[0][0] for step, _, _ in parts):
        return None
    together = known.get(number)
    if together is None or not together.holds(parts):
        if not all(_is_alone(arrays) for _, _, arrays in parts):
            return None
        dtype = parts[0][2][0].dtype
        if any(array.dtype != dtype for _, _, arrays in parts for array in arrays):
            return None
        together = known[number] = Together(parts, names)
    return together


def _is_alone(arrays: list[Array]) -> bool:
    """Whether nothing but its tensor refers to the memory of an entry."""
    return all(
        getrefcount(arrays[number]) == _ALONE
        and arrays[number].base is None
        and arrays[number].flags.c_contiguous
        for number in range(2, len(arrays))
    )


def _side_by_side(parts: Sequence[Part], number: int, out: Array | None) -> Any:
    return np.concatenate([arrays[number].reshape(-1) for _, _, arrays in parts], out=out)


def _pieces(whole: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Views of consecutive parts of a flat array."""
    ends = [*accumulate(map(prod, shapes), initial=0)]
    return [
        whole[start:end].reshape(shape)
        for start, end, shape in zip(ends, ends[1:], shapes, strict=False)
    ]
