"""Parts of an array that a call changes in place: a replay puts them into a copy.

The plan of a program's memory lets that copy be the array itself where nothing else reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncgrad.aliases import Array


class Region:
    """Where the elements of a view lie in the contiguous array that owns its memory."""

    __slots__ = ("_dtype", "_offset", "_shape", "_strides")

    def __init__(self, owner: Array, view: Array) -> None:
        start, own = (x.__array_interface__["data"][0] for x in (owner, view))
        self._offset = own - start
        self._shape, self._strides, self._dtype = view.shape, view.strides, view.dtype

    def of(self, owner: Array) -> Any:
        """The view of another array of the owner's layout."""
        return np.ndarray(self._shape, self._dtype, owner, self._offset, self._strides)


class Put:
    """Puts values into a region: `put(owner, values, out)`, where `out` may be the owner."""

    __slots__ = ("region",)

    def __init__(self, region: Region) -> None:
        self.region = region

    def __call__(self, owner: Array, values: Array, out: Array | None = None) -> Any:
        """Return the owner with other values there: in new memory, or in `out`."""
        made = np.empty_like(owner) if out is None else out
        if made is not owner:
            made[...] = owner
        self.region.of(made)[...] = values
        return made
